"""Attention in one kernel: recognised among separate ops, and put in place of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iomodel.arrays import minimum
from iomodel.kernel import Group, Reread
from iomodel.node import Library, Node
from iomodel.op import Op
from iomodel.ops.attention import VARIANTS, Attention, Blocks, choose_blocks
from iomodel.ops.decode import Decode, no_split, split_k, splits, units
from iomodel.profile import Profile
from iomodel.tensor import MATMUL_AS, Tensor
from iomodel.view import View

#: Work units below this share of the thread blocks in flight are split along the keys.
#: Source: `num_splits_heuristic` of FlashAttention 2.5 (0.8 x 2 x SMs).
SPLIT_BELOW = 1.6


def style_of(library: Library, gpu: Profile) -> str:
    """The flash kernel for a GPU, unless the call names one."""
    return library.style or ("fa3" if gpu.runs("fa3") else "fa2")


def forward_groups(library: Library, gpu: Profile) -> list[Group]:
    """The kernels of a forward pass: one, or two where few queries make the keys be split."""
    a = library.problem
    assert a is not None
    views = dict(library.names)
    if a.q_len == 1 and not a.backward and "sm.count" in gpu:
        d = Decode(a.touched_kv, a.batch, a.heads, a.kv_heads, a.head_dim, a.dtype, a.dtype, a.compute)
        few = units(d, gpu) < SPLIT_BELOW * gpu["sm.count"]
        groups = split_k(d, gpu, max(2.0, splits(d, gpu))) if few else no_split(d, gpu)
    else:
        groups = VARIANTS[style_of(library, gpu)](a, _blocks(a, style_of(library, gpu), gpu), gpu)[:1]
    return [_renamed(group, views, views["o"].root) for group in groups]


def backward_groups(library: Library, gpu: Profile) -> list[Group]:
    """The kernels of a backward pass. FlashAttention-2 as PyTorch calls it first copies dO and O where
    they do not lie with tokens before heads."""
    a = library.problem
    assert a is not None
    views = dict(library.names)
    style = style_of(library, gpu)
    groups = VARIANTS[style](a, _blocks(a, style, gpu), gpu)[1:]
    found: list[Group] = []
    if style == "fa2":
        strided = [name for name in ("do", "o") if views[name].contiguous]
        for name in strided:
            work = {"issue": 54.0 * a.queries(name).elements}
            copy = Op("copy", (a.queries(name),), (a.queries(f"{name}_copy"),), work)
            found.append(Group("copy", (copy,)))
        groups = [_reading(group, {name: f"{name}_copy" for name in strided}) for group in groups]
    found += groups
    return [_renamed(group, views, views["dq"].root) for group in found]


def _blocks(a: Attention, style: str, gpu: Profile) -> Blocks:
    if "sm.shared_memory" not in gpu:
        return Blocks(128, 128)
    blocks = choose_blocks(a, style, gpu["sm.shared_memory"])
    return Blocks(minimum(blocks.q, a.q_len), blocks.kv)


def _reading(group: Group, other: Mapping[str, str]) -> Group:
    ops = tuple(
        replace(op, reads=tuple(replace(t, name=other.get(t.name, t.name)) for t in op.reads)) for op in group.ops
    )
    rereads = {other.get(name, name): reread for name, reread in group.tiling.rereads.items()}
    return replace(group, ops=ops, tiling=replace(group.tiling, rereads=rereads))


def _renamed(group: Group, views: Mapping[str, View], prefix: str) -> Group:
    """The group with the graph's tensors in place of q, k, v...; parts of one tensor count together."""
    names = {name: view.root for name, view in views.items()}

    def named(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        sizes: dict[str, Tensor] = {}
        for tensor in tensors:
            view = views.get(tensor.name)
            name = names.get(tensor.name, f"{prefix}.{tensor.name}")
            shape, element = tensor.shape, tensor.dtype
            if tensor.name == "mask" and view is not None:
                shape, element = (float(view.touched),), view.dtype
            if name in sizes:
                shape = (sizes[name].elements + Tensor(name, shape, element).elements,)
            sizes[name] = Tensor(name, shape, element)
        return tuple(sizes.values())

    ops = tuple(
        replace(
            op,
            reads=named(op.reads),
            writes=named(op.writes),
            saved=tuple(names.get(s, f"{prefix}.{s}") for s in op.saved),
        )
        for op in group.ops
    )
    rereads: dict[str, Reread] = {}
    for name, reread in group.tiling.rereads.items():
        key = names.get(name, f"{prefix}.{name}")
        before = rereads.get(key, Reread(0.0))
        rereads[key] = Reread(before.asked + reread.asked, before.again + reread.again)
    return replace(group, ops=ops, tiling=replace(group.tiling, rereads=rereads))


def recognise(
    nodes: Sequence[Node], kept: Sequence[str]
) -> tuple[list[tuple[tuple[int, ...], Library]], dict[int, str]]:
    """Chains matmul - [scale] - [mask] - softmax - [dropout] - matmul whose middle nobody else needs,
    each as (indices, what the flash kernel computes); and for near misses, by node, what kept them apart."""
    readers: dict[str, list[int]] = {}
    maker: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for root in {view.root for view in node.reads}:
            readers.setdefault(root, []).append(index)
        for view in node.writes:
            maker.setdefault(view.root, index)
    found: list[tuple[tuple[int, ...], Library]] = []
    misses: dict[int, str] = {}
    for index, node in enumerate(nodes):
        if node.op.name != "softmax" or not node.reduced or node.library.kernel:
            continue
        chain = _chain(index, nodes, readers, maker)
        if chain is None:
            continue
        middle = [view.root for i in chain[:-1] for view in nodes[i].writes]
        shared = [root for root in middle if root in kept or len(readers.get(root, [])) > 1]
        if shared:
            others = [nodes[i].op.name for root in shared for i in readers.get(root, []) if i not in chain]
            who = f"{', '.join(dict.fromkeys(others))} needs" if others else "the caller keeps"
            why = f"attention, and yet not one kernel: {who} {', '.join(shared)}, so scores are written anyway"
            misses |= dict.fromkeys(chain, why)
            continue
        library = _problem(chain, nodes)
        if library is not None:
            found.append((chain, library))
    return found, misses


def _chain(
    softmax: int, nodes: Sequence[Node], readers: Mapping[str, list[int]], maker: Mapping[str, int]
) -> tuple[int, ...] | None:
    before: list[int] = []
    view = nodes[softmax].reads[0]
    while True:
        index = maker.get(view.root)
        if index is None:
            return None
        before.insert(0, index)
        node = nodes[index]
        if node.op.kind == "matmul":
            break
        if node.op.kind != "pointwise" or len(before) > 4:
            return None
        same = [v for v in node.reads if v.elements == node.elements and v.root in maker]
        if not same:
            return None
        view = same[0]
    after: list[int] = []
    view = nodes[softmax].writes[0]
    for _ in range(3):
        users = readers.get(view.root, [])
        if not users:
            return None
        user = users[0]
        after.append(user)
        if nodes[user].op.kind == "matmul":
            return (*before, softmax, *after) if nodes[user].reads[0].root == view.root else None
        if nodes[user].op.name not in ("dropout", "cast"):
            return None
        view = nodes[user].writes[0]
    return None


def _problem(chain: Sequence[int], nodes: Sequence[Node]) -> Library | None:
    first, last = nodes[chain[0]], nodes[chain[-1]]
    q, k = first.reads[:2]
    v = last.reads[1]
    made = {view.root for i in chain for view in nodes[i].writes}
    extra = [x for i in chain[1:-1] for x in nodes[i].reads if x.root not in made and x.elements > 1]
    if len(extra) > 1 or len(q.shape) < 3:
        return None
    *outer, heads, queries, d = q.shape if len(q.shape) > 3 else (1, *q.shape)
    keys = k.shape[-1]
    batch = 1
    for n in outer:
        batch *= n
    kv_heads = k.touched // (keys * d * batch) if k.touched % (keys * d * batch) == 0 else 0
    if not kv_heads or heads % kv_heads or v.shape[-1] != d:
        return None
    problem = Attention(
        q_len=float(queries),
        kv_len=float(keys),
        batch=float(batch),
        heads=float(heads),
        kv_heads=float(kv_heads),
        head_dim=float(d),
        dtype=q.dtype,
        compute=MATMUL_AS.get(q.dtype, q.dtype),
        mask=bool(extra),
        dropout=any(nodes[i].op.name == "dropout" for i in chain),
        append=False,
    )
    o = last.writes[0]
    names = (("q", q), ("k", k), ("v", v), ("o", o), *(("mask", x) for x in extra))
    return Library(first.library.call, "attention", problem, "", tuple(names))
