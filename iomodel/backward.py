"""The backward pass of a graph, as lines of the same kind: what autograd launches op by op.

A rule turns the gradient of an op's output into gradients of its inputs by naming ops. What a
backward op reads of the forward pass is thereby kept until then: activation memory is counted, not
declared. Names to `recompute` are made again from what is kept instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from iomodel.errors import InputError, unknown
from iomodel.node import Node
from iomodel.opgraph import Graph, Line, build
from iomodel.tensor import itemsize
from iomodel.view import FLOATS, View, new

#: A rule adds lines and says which gradient belongs to which input.
Rule = Callable[["Tape", Line, Sequence[str]], Mapping[str, str]]


@dataclass
class Tape:
    """Lines of the backward pass being written. `views` are those of the forward pass."""

    views: Mapping[str, View]
    makers: Mapping[str, Line]
    recompute: Sequence[str]
    wanted: set[str]
    lines: list[Line] = field(default_factory=list)
    grads: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def emit(self, line: Line, op: str, taken: Sequence[str | float], *outs: str, **attributes: object) -> str:
        """One op of the backward pass; reads of the forward pass go through what is kept."""
        inputs = tuple(self.kept(value) if isinstance(value, str) else value for value in taken)
        self.lines.append(Line(op, inputs, outs, attributes, line.where))
        return outs[0]

    def kept(self, name: str) -> str:
        """A forward tensor as the backward pass reads it: kept, or made again."""
        if name not in self.recompute:
            return name
        again = f"{name}.again"
        if all(again not in line.outs for line in self.lines):
            maker = self.makers[name]
            taken = tuple(self.kept(value) if isinstance(value, str) else value for value in maker.inputs)
            outs = tuple(f"{out}.again" for out in maker.outs)
            self.lines.append(replace(maker, inputs=taken, outs=outs))
        return again

    def fresh(self, name: str) -> str:
        """A name for another gradient of a tensor, to be added to those before."""
        taken = {out for line in self.lines for out in line.outs}
        first = f"d_{name}"
        if first not in taken:
            return first
        return next(f"{first}.{i}" for i in range(2, len(taken) + 3) if f"{first}.{i}" not in taken)

    def shape(self, name: str) -> list[int]:
        """The shape of a forward tensor."""
        return list(self.views[name].shape)

    def summed(self, line: Line, grad: str, name: str) -> str:
        """The gradient of a broadcast input: summed over the axes that were repeated."""
        have, want = self.shape(line.outs[0]), self.shape(name)
        if have == want:
            return grad
        missing = len(have) - len(want)
        axes = [a for a, n in enumerate(have) if a < missing or (want[a - missing] == 1 and n != 1)]
        total = self.emit(line, "sum", [grad], self.fresh(f"{name}.sum"), dim=axes)
        return self.emit(line, "reshape", [total], self.fresh(name), shape=want)


def with_backward(graph: Graph, recompute: Sequence[str] = (), wrt: Sequence[str] = ()) -> Graph:
    """The graph and its backward pass: gradients of the outputs with respect to `wrt` (all floating
    point inputs if empty). Gradients of outputs with axes are inputs, `d_<output>`."""
    lines = [_keeping(line) for line in graph.lines]
    forward = build(graph.name, graph.inputs, lines, graph.outputs)
    for name in (*recompute, *wrt):
        if name not in forward.views:
            raise unknown("tensor", name, forward.views, "backward")
    for name in recompute:
        if name in graph.inputs:
            raise InputError(f"backward: {name} is an input: it is there, not computed again")
    sources = list(wrt) or [n for n, view in graph.inputs.items() if view.dtype in FLOATS]
    wanted = set(sources)
    for line in lines:
        if any(value in wanted for value in line.inputs):
            wanted |= {out for out in line.outs if forward.views[out].dtype in FLOATS}
    makers = {out: line for line in lines for out in line.outs}
    again = tuple(dict.fromkeys(out for name in recompute for out in makers[name].outs))
    tape = Tape(forward.views, makers, again, wanted)
    given: dict[str, View] = {}
    for name in graph.outputs:
        view = forward.views[name]
        if name in wanted:
            tape.grads[name] = f"d_{name}"
            given[f"d_{name}"] = new(f"d_{name}", view.shape, view.dtype)
    for line in reversed(lines):
        if not any(out in tape.grads for out in line.outs) or not wanted & set(line.inputs):
            continue
        if line.op not in RULES:
            raise unknown("op with a backward rule", line.op, RULES, line.where)
        grad = next(tape.grads[out] for out in line.outs if out in tape.grads)
        for name, found in RULES[line.op](tape, line, [grad]).items():
            _accumulate(tape, line, name, found)
    outputs = [*graph.outputs, *dict.fromkeys(tape.grads[n] for n in sources if n in tape.grads)]
    whole = build(graph.name, {**graph.inputs, **given}, [*lines, *tape.lines], outputs)
    return replace(whole, forward=len(lines))


def _accumulate(tape: Tape, line: Line, name: str, grad: str) -> None:
    if name not in tape.wanted:
        return
    before = tape.grads.get(name)
    if before is None:
        tape.grads[name] = grad
    else:
        tape.grads[name] = tape.emit(line, "add", [before, grad], tape.fresh(f"{name}.total"))


#: Outputs that a forward op has to keep for its backward op: op -> their endings.
KEEPS: Mapping[str, tuple[str, ...]] = {
    "dropout": ("mask",),
    "layer_norm": ("mean", "rstd"),
    "rms_norm": ("rstd",),
    "cross_entropy": ("log_probs",),
    "scaled_dot_product_attention": ("lse",),
}


def _keeping(line: Line) -> Line:
    """The forward op with what its backward op needs among its outputs."""
    endings = KEEPS.get(line.op, ())
    if not endings or len(line.outs) > 1 or (line.op == "dropout" and not line.attributes.get("p", 0.5)):
        return line
    return replace(line, outs=(*line.outs, *(f"{line.outs[0]}.{ending}" for ending in endings)))


# --- what is kept -------------------------------------------------------------------------------


def saved(graph: Graph, parameters: Sequence[str] = ()) -> dict[str, float]:
    """Bytes of each tensor that the backward pass reads of the forward pass: activations, and inputs
    that are not `parameters`. Statistics (mean, rstd, log-sum-exp: a value a row) are among them."""
    made: dict[str, View] = {}
    kept: dict[str, View] = {}
    known = {graph.views[name].root for name in parameters}
    before = {view.root for name, view in graph.inputs.items() if not name.startswith("d_")}
    for node in graph.nodes:
        if _is_forward(graph, node):
            made |= {view.root: view for view in node.writes}
            continue
        for view in node.reads:
            if view.root in made or (view.root in before and view.root not in known):
                kept.setdefault(view.root, made.get(view.root, view))
    return {root: view.whole * itemsize(view.dtype) for root, view in kept.items()}


def _is_forward(graph: Graph, node: Node) -> bool:
    return node.library.call < graph.forward


# --- rules --------------------------------------------------------------------------------------


def _names(line: Line) -> list[str]:
    return [value for value in line.inputs if isinstance(value, str)]


def _passed(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    found = {}
    for index, name in enumerate(_names(line)):
        grad = grads[0]
        if line.op == "sub" and index == 1:
            grad = tape.emit(line, "neg", [grad], tape.fresh(f"{name}.negated"))
        found[name] = tape.summed(line, grad, name)
    return found


def _mul(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    names = _names(line)
    if len(names) == 1:
        number = next((v for v in line.inputs if not isinstance(v, str)), line.attributes.get("other", 1))
        return {names[0]: tape.emit(line, line.op, [grads[0], float(str(number))], tape.fresh(names[0]))}
    a, b = names
    found = {}
    for name, other in ((a, b), (b, a)):
        if name in tape.wanted:
            full = tape.emit(line, "mul", [grads[0], other], tape.fresh(f"{name}.full"))
            found[name] = tape.summed(line, full, name)
    return found


def _div(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    names = _names(line)
    if len(names) == 1:
        return _mul(tape, line, grads)
    a, b = names
    da = tape.emit(line, "div", [grads[0], b], tape.fresh(f"{a}.full"))
    found = {a: tape.summed(line, da, a)}
    if b in tape.wanted:
        db = tape.emit(line, "mul", [da, line.outs[0]], tape.fresh(f"{b}.full"))
        db = tape.emit(line, "neg", [db], tape.fresh(f"{b}.negated"))
        found[b] = tape.summed(line, db, b)
    return found


def _pow(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    slope = tape.emit(line, "mul", [x, 2.0], tape.fresh(f"{x}.slope"))
    return {x: tape.emit(line, "mul", [grads[0], slope], tape.fresh(x))}


def _by(op: str, of_output: bool, *attributes: str) -> Rule:
    """The gradient is `op` of (grad, the input or the output)."""

    def rule(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
        x = _names(line)[0]
        kept = line.outs[0] if of_output else x
        given = {name: line.attributes[name] for name in attributes if name in line.attributes}
        return {x: tape.emit(line, op, [grads[0], kept], tape.fresh(x), **given)}

    return rule


def _neg(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    return {x: tape.emit(line, "neg", [grads[0]], tape.fresh(x))}


def _rsqrt(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    cube = tape.emit(line, "pow", [line.outs[0]], tape.fresh(f"{x}.cube"), exponent=3)
    return {x: tape.emit(line, "mul", [grads[0], cube], tape.fresh(x))}


def _cast(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    return {x: tape.emit(line, "to", [grads[0]], tape.fresh(x), dtype=tape.views[x].dtype)}


def _dropout(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    if len(line.outs) == 1:
        return {x: grads[0]}
    return {x: tape.emit(line, "dropout_backward", [grads[0], line.outs[1]], tape.fresh(x))}


def _softmax(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    """PyTorch multiplies grad and output in a kernel of its own before softmax's backward."""
    (x,) = _names(line)
    y, dim = line.outs[0], line.attributes.get("dim", -1)
    if line.op == "log_softmax":
        return {x: tape.emit(line, "log_softmax_backward", [grads[0], y], tape.fresh(x), dim=dim)}
    product = tape.emit(line, "mul", [grads[0], y], tape.fresh(f"{x}.product"))
    return {x: tape.emit(line, "softmax_backward", [product, y, grads[0]], tape.fresh(x), dim=dim)}


def _norm(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    x, *affine = _names(line)
    outs = [tape.fresh(name) for name in (x, *affine)]
    taken = [grads[0], x, *line.outs[1:], *affine[:1]]
    tape.emit(line, f"{line.op}_backward", taken, *outs)
    return dict(zip((x, *affine), outs, strict=True))


def _linear(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    x, weight, *bias = _names(line)
    out, width = tape.shape(line.outs[0]), tape.shape(x)[-1]
    found = {}
    if x in tape.wanted:
        found[x] = tape.emit(line, "matmul", [grads[0], weight], tape.fresh(x))
    flat = tape.emit(line, "reshape", [grads[0]], tape.fresh(f"{line.outs[0]}.flat"), shape=[-1, out[-1]])
    if weight in tape.wanted:
        rows = tape.emit(line, "reshape", [x], tape.fresh(f"{x}.flat"), shape=[-1, width])
        turned = tape.emit(line, "t", [flat], tape.fresh(f"{line.outs[0]}.t"))
        found[weight] = tape.emit(line, "matmul", [turned, rows], tape.fresh(weight))
    for name in bias:
        found[name] = tape.emit(line, "sum", [flat], tape.fresh(name), dim=0)
    return found


def _matmul(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    a, b = _names(line)
    found = {}
    if a in tape.wanted:
        turned = tape.emit(line, "transpose", [b], tape.fresh(f"{b}.t"))
        found[a] = _summed_product(tape, line, [grads[0], turned], a)
    if b in tape.wanted:
        turned = tape.emit(line, "transpose", [a], tape.fresh(f"{a}.t"))
        found[b] = _summed_product(tape, line, [turned, grads[0]], b)
    return found


def _summed_product(tape: Tape, line: Line, taken: Sequence[str], name: str) -> str:
    want, outer = tape.shape(name), tape.shape(line.outs[0])[:-2]
    if want[:-2] == outer or not outer:
        return tape.emit(line, "matmul", taken, tape.fresh(name))
    full = tape.emit(line, "matmul", taken, tape.fresh(f"{name}.full"))
    missing = len(outer) - len(want[:-2])
    axes = [a for a, n in enumerate(outer) if a < missing or (want[a - missing] == 1 and n != 1)]
    total = tape.emit(line, "sum", [full], tape.fresh(f"{name}.sum"), dim=axes)
    return tape.emit(line, "reshape", [total], tape.fresh(name), shape=want)


def _transpose(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    return {x: tape.emit(line, line.op, [grads[0]], tape.fresh(x), **line.attributes)}


def _permute(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    dims = [int(d) % len(tape.shape(x)) for d in line.attributes["dims"]]
    back = sorted(range(len(dims)), key=lambda i: dims[i])
    return {x: tape.emit(line, "permute", [grads[0]], tape.fresh(x), dims=back)}


def _reshape(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    return {x: tape.emit(line, "reshape", [grads[0]], tape.fresh(x), shape=tape.shape(x))}


def _contiguous(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    del tape
    return {_names(line)[0]: grads[0]}


def _reduction(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    (x,) = _names(line)
    shape = tape.shape(x)
    dims = line.attributes.get("dim", list(range(len(shape))))
    axes = {int(d) % len(shape) for d in (dims if isinstance(dims, list) else [dims])}
    kept = [1 if a in axes else n for a, n in enumerate(shape)]
    grad = tape.emit(line, "reshape", [grads[0]], tape.fresh(f"{x}.kept"), shape=kept)
    if line.op == "mean":
        grad = tape.emit(line, "div", [grad, float(tape.views[x].elements)], tape.fresh(f"{x}.share"))
    return {x: tape.emit(line, "expand", [grad], tape.fresh(x), shape=shape)}


def _cross_entropy(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    del grads
    x, target = _names(line)
    return {x: tape.emit(line, "cross_entropy_backward", [line.outs[1], target], tape.fresh(x))}


def _attention(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    q, k, v, *mask = _names(line)
    given = {n: line.attributes[n] for n in ("is_causal", "dropout_p", "kernel", "scale") if n in line.attributes}
    outs = [tape.fresh(name) for name in (q, k, v)]
    tape.emit(
        line,
        "scaled_dot_product_attention_backward",
        [grads[0], q, k, v, line.outs[0], line.outs[1], *mask],
        *outs,
        **given,
    )
    return dict(zip((q, k, v), outs, strict=True))


def _embedding(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    first, second = _names(line)
    table, ids = (first, second) if tape.views[first].dtype in FLOATS else (second, first)
    return {table: tape.emit(line, "embedding_backward", [grads[0], ids, table], tape.fresh(table))}


def _rope(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    """A rotation back costs what the rotation costs; the tables are constants."""
    x, cos, sin = _names(line)
    return {x: tape.emit(line, "rope", [grads[0], cos, sin], tape.fresh(x))}


def _masked_fill(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    x, mask = _names(line)
    return {x: tape.emit(line, "masked_fill", [grads[0], mask], tape.fresh(x), value=0)}


def _parts(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    """split and chunk: the gradients of the parts side by side."""
    del grads
    (x,) = _names(line)
    missing = [out for out in line.outs if out not in tape.grads]
    for out in missing:
        zeros = tape.emit(line, "full", [], tape.fresh(out), shape=tape.shape(out), dtype=tape.views[out].dtype)
        tape.grads[out] = zeros
    dim = line.attributes.get("dim", 0 if line.op == "split" else -1)
    return {x: tape.emit(line, "cat", [tape.grads[out] for out in line.outs], tape.fresh(x), dim=dim)}


def _cat(tape: Tape, line: Line, grads: Sequence[str]) -> dict[str, str]:
    names = _names(line)
    dim = int(line.attributes.get("dim", 0))
    sizes = [tape.shape(name)[dim] for name in names]
    found = {}
    for index, name in enumerate(names):
        start = sum(sizes[:index])
        found[name] = tape.emit(
            line, "slice", [grads[0]], tape.fresh(name), dim=dim, start=start, end=start + sizes[index]
        )
    return found


RULES: Mapping[str, Rule] = {
    "add": _passed,
    "sub": _passed,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "neg": _neg,
    "exp": _by("mul", True),
    "log": _by("div", False),
    "sqrt": _by("div", True),
    "rsqrt": _rsqrt,
    "tanh": _by("tanh_backward", True),
    "sigmoid": _by("sigmoid_backward", True),
    "relu": _by("threshold_backward", True),
    "gelu": _by("gelu_backward", False, "approximate"),
    "silu": _by("silu_backward", False),
    **dict.fromkeys(("cast", "to", "float", "half", "bfloat16"), _cast),
    "dropout": _dropout,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "layer_norm": _norm,
    "rms_norm": _norm,
    "linear": _linear,
    **dict.fromkeys(("matmul", "mm", "bmm"), _matmul),
    "transpose": _transpose,
    "t": _transpose,
    "permute": _permute,
    **dict.fromkeys(("reshape", "view", "flatten", "unsqueeze", "squeeze"), _reshape),
    "contiguous": _contiguous,
    "sum": _reduction,
    "mean": _reduction,
    "cross_entropy": _cross_entropy,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
    "rope": _rope,
    "masked_fill": _masked_fill,
    "split": _parts,
    "chunk": _parts,
    "cat": _cat,
}
