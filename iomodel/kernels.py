"""Kernels from nodes: a framework's own, one an op, and what a compiler generates for a piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from iomodel.flash import backward_groups, forward_groups
from iomodel.fusion import Piece
from iomodel.kernel import STREAM, Group, Reread
from iomodel.node import Node
from iomodel.op import Op
from iomodel.ops.reductions import ONLINE_ISSUE
from iomodel.profile import Profile
from iomodel.tensor import Tensor
from iomodel.tiling import library_group, matmul_tiling, row_group
from iomodel.view import View

#: An elementwise kernel of a framework indexes with 32 bits: operands above this are cut in halves.
#: Source: PyTorch's TensorIterator (`can_use_32bit_indexing`); 8 kernels for a 17 GB tensor on an H200.
INDEXED_BYTES = 2.0**31
#: Elements that one multi-tensor launch covers: 320 thread blocks of 65536 elements.
MULTI_TENSOR = 320.0 * 65536.0


# --- one kernel an op, and a framework's kernels ------------------------------------------------


def alone(node: Node, gpu: Profile) -> Group:
    if node.op.kind == "matmul":
        return Group(node.op.name, (node.op,), matmul_tiling(node.op, gpu))
    return Group(node.op.name, (node.op,), STREAM)


Bundle = tuple[str, list[Group]]


def named(bundles: Iterable[Bundle]) -> list[Group]:
    """The groups of bundles in order; names that would stand twice get the name of what they make."""
    found = [(name if len(groups) == 1 else group.name, group) for name, groups in bundles for group in groups]
    count: dict[str, int] = {}
    for name, _ in found:
        count[name] = count.get(name, 0) + 1
    return [
        replace(group, name=name if count[name] == 1 else f"{name} {group.ops[-1].writes[0].name}")
        for name, group in found
    ]


def library(nodes: Sequence[Node], gpu: Profile) -> list[Bundle]:
    """A framework's own kernels, in the order in which it launches them."""
    found: list[Bundle] = []
    index = 0
    while index < len(nodes):
        node = nodes[index]
        kernel, call = node.library.kernel, node.library.call
        end = index + 1
        if kernel in ("together", "attention", "attention-backward", "step"):
            while end < len(nodes) and (nodes[end].library.call, nodes[end].library.kernel) == (call, kernel):
                end += 1
        found += _library_kernel(nodes[index:end], gpu)
        index = end
    return found


def _library_kernel(nodes: Sequence[Node], gpu: Profile) -> list[Bundle]:
    first = nodes[0]
    kernel = first.library.kernel
    if kernel == "attention":
        return [("attention", forward_groups(first.library, gpu))]
    if kernel == "attention-backward":
        return [("attention_backward", backward_groups(first.library, gpu))]
    name = "+".join(node.op.name for node in nodes)
    if kernel in ("step", "multi-tensor"):
        group = Group(name, _merged(nodes), STREAM, generated=len(nodes) > 1)
        return [(name, _chunks(group, first))]
    if len(nodes) > 1:
        product = next((node for node in nodes if node.op.kind == "matmul"), None)
        if product is None:
            return [(name, [Group(name, _merged(nodes), STREAM)])]
        # An epilogue works on what registers hold: a few instructions, not a kernel's.
        return [(name, [Group(name, _merged(nodes), matmul_tiling(product.op, gpu), generated=True)])]
    group = library_group(first.op, gpu)
    return [(name, _chunks(group, first) if first.op.kind == "pointwise" else [group])]


def _parts(node: Node) -> int:
    """Launches that a framework cuts an elementwise kernel into."""
    op = node.op
    elements = max(tensor.elements for tensor in (*op.reads, *op.writes))
    if node.library.kernel in ("step", "multi-tensor"):
        return int(-(-elements // MULTI_TENSOR))
    if op.kind != "pointwise":
        return 1
    parts = 1
    while max(tensor.bytes for tensor in (*op.reads, *op.writes)) / parts > INDEXED_BYTES:
        parts *= 2
    return parts


def _cut_roots(nodes: Sequence[Node]) -> dict[str, int]:
    """Tensors that only multi-tensor kernels touch, in as many parts as those have launches."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.library.kernel in ("step", "multi-tensor") and _parts(node) > 1:
            for tensor in (*node.op.reads, *node.op.writes):
                found[tensor.name] = _parts(node)
    for node in nodes:
        if node.library.kernel not in ("step", "multi-tensor"):
            for tensor in (*node.op.reads, *node.op.writes):
                found.pop(tensor.name, None)
    return found


def cut_names(nodes: Sequence[Node], kept: Sequence[str]) -> list[str]:
    cut = _cut_roots(nodes)
    return [name for root in kept for name in _part_names(root, cut.get(root, 1))]


def _part_names(root: str, parts: int) -> list[str]:
    return [root] if parts == 1 else [f"{root}[{i}]" for i in range(parts)]


def _chunks(group: Group, node: Node) -> list[Group]:
    """The group in as many launches as a framework needs, each on its share of the elements. Parts of
    a multi-tensor step are tensors of their own, since each is touched again by the step's next op."""
    parts = _parts(node)
    if parts == 1:
        return [group]
    own = node.library.kernel in ("step", "multi-tensor")

    def share(tensor: Tensor, index: int) -> Tensor:
        name = f"{tensor.name}[{index}]" if own else tensor.name
        return Tensor(name, (tensor.elements / parts,), tensor.dtype)

    found = []
    for index in range(parts):
        ops = tuple(
            replace(
                op,
                reads=tuple(share(t, index) for t in op.reads),
                writes=tuple(share(t, index) for t in op.writes),
                work={key: amount / parts for key, amount in op.work.items()},
                library={key: amount / parts for key, amount in op.library.items()},
            )
            for op in group.ops
        )
        found.append(replace(group, ops=ops))
    return found


# --- ops of one kernel --------------------------------------------------------------------------


def _merged(nodes: Sequence[Node], repeated: Mapping[int, int] | None = None) -> tuple[Op, ...]:
    """The ops of one kernel: each root from outside is one tensor, all parts of it that they read."""
    made = {view.root for node in nodes for view in node.writes}
    outside = inputs_of(nodes)
    whole: dict[str, Tensor] = {}
    for root, views in outside.items():
        touched = sum(view.touched for view in views)
        read = [t for node in nodes for t in node.op.reads if t.name == root]
        largest = max(read, key=lambda t: float(t.elements))
        if len(views) > 1 and touched > largest.elements:
            largest = Tensor(root, (float(min(touched, views[0].whole)),), largest.dtype)
        whole[root] = largest
    found = []
    for index, node in enumerate(nodes):
        times = (repeated or {}).get(index, 1)
        op = node.op
        reads = tuple(whole.get(t.name, t) if t.name not in made else t for t in op.reads)
        work = {key: amount * times for key, amount in op.work.items()} if times > 1 else op.work
        found.append(replace(op, reads=reads, work=work))
    return tuple(found)


def inputs_of(nodes: Sequence[Node]) -> dict[str, list[View]]:
    """What a kernel of these nodes reads from outside: the distinct parts of each root. A root that the
    kernel overwrites in place is read too where it is read before."""
    made: set[str] = set()
    found: dict[str, dict[tuple[object, ...], View]] = {}
    for node in nodes:
        for view in node.reads:
            if view.root not in made:
                found.setdefault(view.root, {}).setdefault(view.part, view)
        made |= {view.root for view in node.writes}
    return {root: list(parts.values()) for root, parts in found.items()}


# --- what a compiler makes ----------------------------------------------------------------------


def title(nodes: Sequence[Node]) -> str:
    names = [node.op.name for node in nodes]
    if len(names) <= 6:
        return "+".join(names)
    return "+".join([*names[:3], f"{len(names) - 4} more", names[-1]])


def generated(name: str, own: Piece, nodes: Sequence[Node], gpu: Profile, wanted: set[str]) -> Group:
    """The kernel that a compiler makes of a piece."""
    chosen = [nodes[i] for i in own.nodes]
    times = dict(own.repeated)
    repeated = {place: times[i] for place, i in enumerate(own.nodes) if i in times}
    ops = _merged(chosen, repeated)
    if own.product >= 0:
        product = nodes[own.product].op
        tiling = matmul_tiling(product, gpu)
        if own.prologue:
            tiling = replace(tiling, rereads=_prologue_rereads(tiling.rereads, product, ops, own, nodes))
        return Group(name, ops, tiling, generated=len(ops) > 1)
    if own.rows is None:
        return Group(name, ops, STREAM, generated=True)
    rows = max(own.kept, 1)
    again = _reads_again(chosen, wanted)
    if not again:
        ops = tuple(_online(op) for op in ops)
    return row_group(name, ops, gpu, float(rows), float(own.elements / rows), again)


def _online(op: Op) -> Op:
    """A softmax of which only the row's maximum and sum are needed."""
    if op.kind != "row" or not op.name.endswith("softmax"):
        return op
    return replace(op, work={**op.work, "issue": ONLINE_ISSUE * op.writes[0].elements})


def _reads_again(nodes: Sequence[Node], wanted: set[str]) -> bool:
    """Whether rows are walked a second time: something as long as a row depends on what was reduced
    and is written, or reduced again. A row's running statistics need one pass only."""
    reduced: set[str] = set()  # made from a reduction's result
    for node in nodes:
        depends = any(view.root in reduced for view in node.reads)
        long = [view.root for view in node.writes if view.elements == node.elements]
        if node.op.kind == "row":
            if any(root in wanted for root in long):
                return True
            if any(v.root in long and not other.reduced for other in nodes for v in other.reads):
                return True
            depends = True
        elif node.reduced:
            if (
                depends
                and any(v.root in reduced and v.elements == node.elements for v in node.reads)
                and (node.op.name not in ("nll",))
            ):
                return True
            depends = True
        elif depends and node.elements > 1 and any(root in wanted for root in long) and _is_long(node, nodes):
            return True
        if depends:
            reduced |= {view.root for view in node.writes}
    return False


def _is_long(node: Node, nodes: Sequence[Node]) -> bool:
    return node.elements == max(other.elements for other in nodes)


def _prologue_rereads(
    rereads: Mapping[str, Reread], product: Op, ops: Sequence[Op], own: Piece, nodes: Sequence[Node]
) -> dict[str, Reread]:
    """What feeds an operand is asked for as often as the operand would be, in its own bytes."""
    found = dict(rereads)
    made = {view.root for i in own.nodes if i != own.product for view in nodes[i].writes}
    for root in made & set(found):
        operand = next(t for t in product.reads if t.name == root)
        before = found.pop(root)
        for op in ops:
            for tensor in op.reads:
                if op.kind != "matmul" and tensor.name not in made:
                    share = tensor.bytes / operand.bytes
                    found[tensor.name] = Reread(before.asked * share, before.again * share)
    return found
