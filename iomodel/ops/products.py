"""Rules of matrix products and attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from iomodel.node import Library, Node
from iomodel.op import Op
from iomodel.ops.attention import Attention
from iomodel.ops.call import Call, Rule, shown
from iomodel.ops.matmul import matmul
from iomodel.tensor import MATMUL_AS, Tensor, itemsize
from iomodel.view import View, broadcast, new, permuted, reshaped


def product(call: Call, a: View, b: View, out: str, to: str = "", name: str = "", kernel: str = "") -> View:
    """Add a node for a @ b with batch axes broadcast; a second operand without batch takes all rows at once."""
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise call.fail(f"{shown(a)} @ {shown(b)}: both need at least two axes")
    (m, k), (inner, n) = a.shape[-2:], b.shape[-2:]
    if k != inner:
        raise call.fail(f"{shown(a)} @ {shown(b)}: inner sizes {k} and {inner} differ")
    if a.dtype != b.dtype:
        raise call.fail(f"{shown(a)} is {a.dtype} and {shown(b)} is {b.dtype}; cast one")
    outer = broadcast([a.shape[:-2], b.shape[:-2]])
    if outer is None:
        raise call.fail(f"{shown(a)} @ {shown(b)}: batch axes do not broadcast")
    element = a.dtype
    result = new(out, (*outer, m, n), to or (element if itemsize(element) >= 2 else "bf16"))
    left, right = a.over((*outer, m, k)), b.over((*outer, k, n))
    batch = prod(outer)
    if right.touched == k * n:  # one matrix for every batch: rows of all of them in one product
        m, batch = m * batch, 1
    swap = left.touched < left.elements and batch > 1  # the repeated operand second: out^T = b^T a^T
    first = Tensor(a.root, _canonical(left.touched, batch, m, k), element)
    second = Tensor(b.root, _canonical(right.touched, batch, k, n), element)
    sizes = (float(batch), float(m), float(n))
    if swap:
        first, second, sizes = second, first, (float(batch), float(n), float(m))
    if first.name == second.name:  # one tensor is both operands (or holds both): each part counts once
        rest = 0.0 if a.part == b.part else second.elements
        second = Tensor(f"{second.name}[{b.offset}:]", (rest,), element)
    op = matmul(first, second, Tensor(out, sizes, result.dtype), MATMUL_AS.get(element, element), float(k))
    call.add(Node(replace(op, name=name or call.op), (a, b), (result,), result.shape), kernel)
    return result


def _canonical(touched: int, batch: int, rows: int, columns: int) -> tuple[float, ...]:
    if touched == batch * rows * columns:
        return (float(batch), float(rows), float(columns))
    return (float(touched),)


def _transposed(x: View) -> View:
    return replace(
        x, shape=(*x.shape[:-2], x.shape[-1], x.shape[-2]), strides=(*x.strides[:-2], x.strides[-1], x.strides[-2])
    )


def plain(call: Call) -> Sequence[View]:
    """matmul, mm, bmm: a @ b."""
    a, b = call.tensors(2)
    if call.op == "mm" and (len(a.shape), len(b.shape)) != (2, 2):
        raise call.fail(f"{shown(a)} @ {shown(b)}: takes matrices; use matmul")
    if call.op == "bmm" and (len(a.shape), len(b.shape)) != (3, 3):
        raise call.fail(f"{shown(a)} @ {shown(b)}: takes [batch, rows, columns]; use matmul")
    return [product(call, a, b, call.outs[0], _out_dtype(call))]


def _out_dtype(call: Call) -> str:
    if "out_dtype" in call.attributes:
        return call.dtype("out_dtype")
    call.attribute("out_dtype", None)
    return ""


def linear(call: Call) -> Sequence[View]:
    """x @ weight^T [+ bias], weight [out, in] as PyTorch keeps it; a library adds the bias in the product."""
    x, weight, *bias = call.tensors(2, 3)
    if len(weight.shape) != 2:
        raise call.fail(f"weight {shown(weight)} is not [out, in]")
    out = call.fresh("product") if bias else call.outs[0]
    y = product(call, x, _transposed(weight), out, _out_dtype(call), kernel="together")
    return [_biased(call, y, bias[0])] if bias else [y]


def _biased(call: Call, y: View, bias: View) -> View:
    if broadcast([y.shape, bias.shape]) != y.shape:
        raise call.fail(f"bias {shown(bias)} does not fit {list(y.shape)}")
    return call.pointwise("bias", [y, bias], call.outs[0], y.dtype, name="bias", kernel="together")


def addmm(call: Call) -> Sequence[View]:
    """bias + a @ b (`baddbmm` with a batch); a library adds the bias in the product."""
    bias, a, b = call.tensors(3)
    y = product(call, a, b, call.fresh("product"), _out_dtype(call), kernel="together")
    return [_biased(call, y, bias)]


def grouped(call: Call) -> Sequence[View]:
    """Rows of x [tokens, in], sorted by expert, each times its expert's weight [experts, in, out].

    Reads every expert's weight once; how many rows each gets is only known at run time.
    """
    x, weight, *offsets = call.tensors(2, 3)
    if len(x.shape) != 2 or len(weight.shape) != 3 or weight.shape[1] != x.shape[1]:
        raise call.fail(f"{shown(x)} by {shown(weight)}: takes [tokens, in] and [experts, in, out]")
    if x.dtype != weight.dtype:
        raise call.fail(f"{shown(x)} is {x.dtype} and {shown(weight)} is {weight.dtype}; cast one")
    (m, k), n = x.shape, weight.shape[2]
    result = new(call.outs[0], (m, n), x.dtype)
    compute = MATMUL_AS.get(x.dtype, x.dtype)
    experts = float(weight.shape[0])
    each = m / experts  # rows an expert, were they spread evenly
    op = Op(
        name=call.op,
        reads=(Tensor(x.root, (experts, each, float(k)), x.dtype), weight.tensor()),
        writes=(Tensor(result.root, (experts, each, float(n)), result.dtype),),
        work={f"matmul:{compute}": 2.0 * m * n * k},
        kind="matmul",
    )
    call.add(Node(op, (x, weight, *offsets), (result,), result.shape))
    return [result]


# --- attention --------------------------------------------------------------------------------


def attention(call: Call) -> Sequence[View]:
    """softmax(q k^T / sqrt(d) [+ mask]) v; q [..., heads, queries, d], k and v [..., kv heads, keys, d].

    As kernels one by one: scores, [mask], softmax, [dropout], values. A library has one kernel for it.
    `train: true` (or a second output) keeps log-sum-exp a row for the backward pass.
    """
    q, k, v, *masks = call.tensors(3, 4)
    problem, groups = _problem(call, q, k, v)
    out, d = call.outs[0], q.shape[-1]
    train = call.flag("train", False) or len(call.outs) == 2
    causal, p = call.flag("is_causal", False), call.number("dropout_p", 0.0)
    call.number("scale", 1.0)
    style = call.choice("kernel", ("", "fa2", "fa3"), "")
    problem = replace(problem, causal=causal, dropout=p > 0, mask=bool(masks), backward=train)
    first = len(call.nodes)
    rows = (*q.shape[:-1],)
    q4, k4, v4 = (_grouped(call, x, groups, repeat) for x, repeat in ((q, False), (k, True), (v, True)))
    scores = product(call, q4, _transposed(k4), call.fresh("scores"), name="scores")
    if masks or causal:
        mask = [_fit(call, masks[0], scores)] if masks else []
        if masks:
            problem = replace(problem, mask=True)
        scores = call.pointwise(
            "where" if causal else "add", [scores, *mask], call.fresh("masked"), scores.dtype, name="mask"
        )
    probs = call.row("softmax", [scores], call.fresh("probs"), (len(scores.shape) - 1,), name="softmax")
    if p > 0:
        probs = call.pointwise("dropout", [probs], call.fresh("dropped"), name="dropout", random=True)
    o4 = product(call, probs, v4, out, name="values")
    o = _like(q, new(out, (*q.shape[:-1], d), o4.dtype))
    lse = new(call.outs[1] if len(call.outs) == 2 else call.fresh("lse"), rows, "fp32")
    if train:  # kept by the kernel that ends the chain; without a flash kernel it stands for max and sum
        last = call.nodes[-1]
        op = replace(last.op, writes=(*last.op.writes, lse.tensor()), saved=(*last.op.saved, lse.root))
        call.nodes[-1] = replace(last, op=op, writes=(*last.writes, lse))
    names = [("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), *(("mask", m) for m in masks)]
    _as_library(call, first, Library(call.index, "attention", problem, style, tuple(names)))
    return [o, lse][: len(call.outs)]


def _problem(call: Call, q: View, k: View, v: View) -> tuple[Attention, int]:
    if len(q.shape) < 3 or len(k.shape) != len(q.shape) or k.shape != v.shape:
        raise call.fail(
            f"{shown(q)}, {shown(k)}, {shown(v)}: take q [..., heads, queries, d] and k, v [..., heads, keys, d]"
        )
    *outer, heads, queries, d = q.shape
    *outer_k, kv_heads, keys, d_k = k.shape
    if outer != outer_k or d != d_k or heads % kv_heads:
        raise call.fail(f"{shown(q)} and {shown(k)}: batch and d must agree, and kv heads divide heads")
    if q.dtype != k.dtype or k.dtype != v.dtype:
        raise call.fail(f"dtypes {q.dtype}, {k.dtype}, {v.dtype} differ")
    call.flag("enable_gqa", False)
    window = call.attribute("window", None)
    problem = Attention(
        q_len=float(queries),
        kv_len=float(keys),
        batch=float(prod(outer)),
        heads=float(heads),
        kv_heads=float(kv_heads),
        head_dim=float(d),
        dtype=q.dtype,
        compute=MATMUL_AS.get(q.dtype, q.dtype),
        window=None if window is None else float(call.whole("window")),
        append=False,
    )
    return problem, heads // kv_heads


def _like(q: View, o: View) -> View:
    """The output in the memory order of q, as library kernels allocate it."""
    order = sorted(range(len(q.shape)), key=lambda a: -q.strides[a])
    if any(s == 0 for s in q.strides) or order[-1] != len(q.shape) - 1:
        return o
    back = sorted(range(len(order)), key=order.__getitem__)
    return permuted(new(o.root, [o.shape[a] for a in order], o.dtype), back)


def _grouped(call: Call, x: View, groups: int, repeat: bool) -> View:
    """[..., heads, s, d] as [..., kv heads, group, s, d]; K and V repeat over the group by stride 0."""
    if groups == 1:
        return x
    *outer, heads, s, d = x.shape
    if repeat:
        one = reshaped(x, (*outer, heads, 1, s, d))
        return one.over((*outer, heads, groups, s, d)) if one is not None else x
    cut = reshaped(x, (*outer, heads // groups, groups, s, d))
    return cut if cut is not None else x


def _fit(call: Call, mask: View, scores: View) -> View:
    if broadcast([mask.shape, scores.shape]) == scores.shape:
        return mask
    if len(scores.shape) == 5 and len(mask.shape) == 4:  # grouped heads: [b, 1, q, k] gets one more axis
        return replace(
            mask, shape=(*mask.shape[:2], 1, *mask.shape[2:]), strides=(*mask.strides[:2], 1, *mask.strides[2:])
        )
    raise call.fail(f"mask {shown(mask)} does not broadcast to scores {list(scores.shape)}")


def _as_library(call: Call, first: int, library: Library) -> None:
    call.nodes[first:] = [replace(node, library=library) for node in call.nodes[first:]]


def attention_backward(call: Call) -> Sequence[View]:
    """Gradients of q, k, v from (d_out, q, k, v, out, log-sum-exp): scores are computed again.

    As kernels one by one: scores, probabilities, dv, dp, row sums of d_out x out, ds, dq, dk. A library
    has three: row sums, the main kernel (dq summed in fp32 memory), and dq to the dtype.
    Source: Dao, FlashAttention-2 (2024), algorithm 2.
    """
    do, q, k, v, o, lse, *masks = call.tensors(6, 7)
    problem, groups = _problem(call, q, k, v)
    problem = replace(
        problem,
        causal=call.flag("is_causal", False),
        dropout=call.number("dropout_p", 0.0) > 0,
        mask=bool(masks),
        backward=True,
    )
    call.number("scale", 1.0)
    style = call.choice("kernel", ("", "fa2", "fa3"), "")
    if len(call.outs) != 3:
        raise call.fail("has three outputs: the gradients of q, k and v")
    if groups > 1:
        q, k, v, do, o = (_grouped(call, x, groups, i in (1, 2)) for i, x in enumerate((q, k, v, do, o)))
    first = len(call.nodes)
    scores = product(call, q, _transposed(k), call.fresh("scores"), name="scores")
    extra = [_fit(call, m, scores) for m in masks]
    rows = new(lse.root, (*scores.shape[:-1], 1), "fp32")
    probs = call.pointwise("exp", [scores, rows, *extra], call.fresh("probs"), scores.dtype, name="probabilities")
    dv = product(call, _transposed(probs), do, call.outs[2], name="dv")
    dp = product(call, do, _transposed(v), call.fresh("dp"), name="dp")
    delta = call.reduce(
        2, [do, o], call.fresh("delta"), (len(do.shape) - 1,), "fp32", keepdim=True, name="row_sums"
    )
    ds = call.pointwise("mul", [dp, probs, delta], call.fresh("ds"), scores.dtype, name="softmax_backward")
    dq = product(call, ds, k, call.outs[0], name="dq")
    dk = product(call, _transposed(ds), q, call.outs[1], name="dk")
    q0, k0 = call.inputs[1], call.inputs[2]
    assert isinstance(q0, View)
    assert isinstance(k0, View)
    found = [new(dq.root, q0.shape, q0.dtype), new(dk.root, k0.shape, k0.dtype), new(dv.root, k0.shape, k0.dtype)]
    named = dict(zip(("do", "q", "k", "v", "o", "lse"), call.tensors(6, 7), strict=False))
    named |= {"dq": found[0], "dk": found[1], "dv": found[2], **({"mask": masks[0]} if masks else {})}
    _as_library(call, first, Library(call.index, "attention-backward", problem, style, tuple(named.items())))
    return found


RULES: dict[str, Rule] = {
    "matmul": plain,
    "mm": plain,
    "bmm": plain,
    "linear": linear,
    "addmm": addmm,
    "baddbmm": addmm,
    "grouped_mm": grouped,
    "scaled_dot_product_attention": attention,
    "scaled_dot_product_attention_backward": attention_backward,
}
