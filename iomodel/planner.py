"""From a graph to kernels: which ops share a launch, and for every pair that does not, why.

Modes: `none` launches a kernel an op and reads every tensor once; `library` launches what an eager
framework's own kernels are; `compiler` fuses whatever may be, as a compiler does by default (matrix
products stay library calls); `auto` fuses epilogues and operand conversions into products too, and
takes back what `estimate` says loses time. Explicit groups name ops by their outputs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise

from iomodel import fusion
from iomodel.errors import InputError, unknown
from iomodel.flash import backward_groups, forward_groups, recognise
from iomodel.fusion import MOST_OPS, Edge, Limits, Piece, access
from iomodel.kernel import Boundary, Group, Plan
from iomodel.kernels import Bundle, alone, cut_names, generated, inputs_of, named, title
from iomodel.kernels import library as library_bundles
from iomodel.node import Library, Node
from iomodel.opgraph import Graph
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.roofline import estimate
from iomodel.tensor import Tensor
from iomodel.tiling import ROW_ON_CHIP, matmul_tiling
from iomodel.units import show
from iomodel.view import View

MODES = ("none", "library", "compiler", "auto")

#: Instructions an element up to which an op is run again rather than its result stored.
CHEAP_ISSUE = 4.0
#: Ops after which a second reader of a product no longer counts as its neighbour.
SOON = 6
#: Other readers of a tensor that a node may join side by side.
NEAR = 3

LOSES = "fused they would take {fused} instead of {apart}, bound by {bound}: {why}"
WHY_LOSES = {
    "issue": "the instructions add up in one kernel, and memory was not what the separate ones waited for",
    "dram": "rows that do not stay on chip are read again",
}


def plan(
    graph: Graph, mode: str, gpu: Profile, launch: str = "eager", groups: Sequence[Sequence[str]] = ()
) -> Plan:
    """The kernels of a graph in one mode (or the given groups), with a reason for every boundary.

    The first boundary is the one whose removal would save most time.
    """
    if mode not in MODES:
        raise unknown("fuse mode", mode, MODES)
    if groups:
        return _explicit(graph, gpu, groups)
    if mode == "none":
        return assemble(mode, named([(node.op.name, [alone(node, gpu)]) for node in graph.nodes]), graph.kept)
    if mode == "library":
        return assemble(mode, named(library_bundles(graph.nodes, gpu)), cut_names(graph.nodes, graph.kept))
    return _Fuser(_live(graph), mode, gpu, launch).plan()


def _live(graph: Graph) -> Graph:
    """The graph without ops that nothing kept depends on: a compiler does not run them."""
    wanted = set(graph.kept)
    held = {view.root for view in graph.inputs.values()}
    found: list[Node] = []
    for node in reversed(graph.nodes):
        made = {view.root for view in node.writes}
        if made & wanted or held & set(node.in_place) or node.op.saved:
            found.append(node)
            wanted |= {view.root for view in node.reads}
    return replace(graph, nodes=tuple(reversed(found)))


# --- fusing -------------------------------------------------------------------------------------


@dataclass
class _Fuser:
    """Greedy fusion: every node joins the piece with which it shares most bytes, if it may."""

    graph: Graph
    mode: str
    gpu: Profile
    launch: str
    pieces: dict[int, Piece] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)  # node -> piece
    before: dict[int, int] = field(default_factory=dict)  # piece -> bit set of pieces that it needs
    libraries: dict[int, Library] = field(default_factory=dict)
    undone: dict[tuple[int, int], str] = field(default_factory=dict)
    misses: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gpu = self.gpu
        self.nodes = self.graph.nodes
        self.kept = set(self.graph.kept)
        self.limits = Limits(
            self.mode,
            int(gpu["sm.count"]) if "sm.count" in gpu else 1,
            float(gpu["sm.shared_memory"]) if "sm.shared_memory" in gpu else ROW_ON_CHIP,
            float(gpu["sustained.matmul.tile_n"]),
        )
        self.needs, self.edges, self.readers = _dependencies(self.nodes)
        self.chosen: dict[int, list[Bundle]] = {}
        self.again: set[str] = set()  # roots that every user computes for itself
        self.overwritten = {root for node in self.nodes for root in node.in_place}
        self.makers = {view.root: i for i, node in enumerate(self.nodes) for view in node.writes}

    def plan(self) -> Plan:
        self._seed()
        for key in sorted(self.pieces, key=lambda key: self.pieces[key].nodes[-1]):
            self._place(key)
        order = self._order()
        if self.mode == "auto":
            for key in order:
                self._check_time(key)
        self._recompute()
        return self.finish([key for key in order if key in self.pieces])

    def finish(self, order: Sequence[int]) -> Plan:
        """The plan of the pieces as they are."""
        bundles: list[Bundle] = []
        names: dict[int, tuple[int, int]] = {}
        for key in order:
            own = self.chosen.get(key) or [self._bundle(self.pieces[key])]
            names[key] = (sum(len(g) for _, g in bundles), sum(len(g) for _, g in own))
            bundles += own
        groups = named(bundles)
        bare = assemble(self.mode, groups, self.graph.kept)
        spans = {key: [group.name for group in groups[at : at + count]] for key, (at, count) in names.items()}
        return replace(bare, boundaries=self._boundaries(order, spans))

    # pieces

    def _seed(self) -> None:
        """One piece a node, attention recognised."""
        chains, self.misses = recognise(self.nodes, tuple(self.kept))
        taken: dict[int, tuple[tuple[int, ...], Library]] = {}
        for indices, library in chains:
            for i in indices:
                taken[i] = (indices, library)
        index = 0
        while index < len(self.nodes):
            node = self.nodes[index]
            if node.library.kernel in ("attention", "attention-backward"):
                end = index
                while end < len(self.nodes) and self.nodes[end].library == node.library:
                    end += 1
                taken |= dict.fromkeys(range(index, end), (tuple(range(index, end)), node.library))
                index = end
            else:
                index += 1
        for index, node in enumerate(self.nodes):
            if index in taken:
                indices, library = taken[index]
                if index != indices[0]:
                    continue
                self.libraries[index] = library
                whole = Piece(indices, 0, own=library.kernel)
                self._add(index, whole)
            else:
                self._add(index, fusion.piece(index, node))

    def _add(self, key: int, own: Piece) -> None:
        self.pieces[key] = own
        for i in own.nodes:
            self.owner[i] = key

    def _enter(self, key: int) -> None:
        """Note what a piece needs, directly and through others; those have entered before."""
        bits = 0
        for i in self.pieces[key].nodes:
            for need in self.needs[i]:
                other = self.owner[need]
                if other != key:
                    bits |= (1 << other) | self.before[other]
        self.before[key] = bits

    def _place(self, index: int) -> None:
        """Join the piece that starts at a node with those that it shares most bytes with, best first."""
        self._enter(index)
        if self.mode == "compiler" and self._with_its_product(index):
            return
        while True:
            key = self.owner[index]
            if self.pieces[key].own or self.pieces[key].alone:
                return
            for other in self._partners(key, index):
                a, b = self._in_order(other, key)
                joined = self._try(a, b)
                if not isinstance(joined, str):
                    self._join(min(a, b), max(a, b), joined)
                    break
            else:
                return

    def _with_its_product(self, index: int) -> bool:
        """A library adds the bias in its matrix product, and a compiler calls that."""
        node, before = self.nodes[index], self.nodes[index - 1]
        same = index > 0 and before.library.call == node.library.call and node.library.kernel == "together"
        if not same or before.op.kind != "matmul":
            return False
        ours, self.limits = self.limits, replace(self.limits, mode="auto")
        joined = self._try(self.owner[index - 1], index)
        self.limits = ours
        if isinstance(joined, Piece):
            self._join(self.owner[index - 1], index, joined)
        return isinstance(joined, Piece)

    def _in_order(self, a: int, b: int) -> tuple[int, int]:
        """The two as (earlier, later): who needs whom, else by place in the file."""
        if self.before[a] >> b & 1:
            return b, a
        return (a, b) if self.before[b] >> a & 1 or a < b else (b, a)

    def _partners(self, key: int, index: int) -> list[int]:
        """Pieces by bytes shared with this one: what it reads that they made, and whole tensors that
        its newest node reads too (the last few readers of each: enough to find an open kernel)."""
        own = self.pieces[key]
        shared: dict[int, float] = {}
        for i in own.nodes:
            for source, view in self.edges[i]:
                other = self.owner[source]
                if other != key:
                    shared[other] = shared.get(other, 0.0) + 2.0 * _size(view)
        for view in self.nodes[index].reads:
            if view.elements != own.elements:
                continue
            readers = self.readers[view.root]
            near: set[int] = set()
            for reader in reversed(readers[max(0, (at := bisect_left(readers, index)) - MOST_OPS) : at]):
                other = self.owner[reader]
                if other != key and other in self.before:
                    near.add(other)
                if len(near) >= NEAR:
                    break
            for other in near:
                shared[other] = shared.get(other, 0.0) + _size(view)
        return sorted(shared, key=lambda k: (-shared[k], -k))

    def _edges_between(self, a: int, b: int) -> list[Edge]:
        return [
            Edge(self.nodes[source], self.nodes[i], view)
            for i in self.pieces[b].nodes
            for source, view in self.edges[i]
            if self.owner[source] == a
        ]

    def _try(self, a: int, b: int) -> Piece | str:
        """The piece of a and b, or why not; a came first."""
        if self._is_backward(a) != self._is_backward(b):
            return fusion.BACKWARD
        between = self._between(a, b)
        edges = self._edges_between(a, b)
        joined = fusion.merge(self.pieces[a], self.pieces[b], edges, self.nodes, self.limits)
        if isinstance(joined, str):
            return joined
        size = self.pieces[a].elements
        plain = joined.rows is None and joined.product < 0 and size == self.pieces[b].elements
        if plain and all(edge.view.elements < size for edge in edges) and not self._worth(a, b):
            return fusion.LITTLE_SHARED if edges else fusion.NOTHING_SHARED
        if self.pieces[a].product >= 0:
            others = self._other_readers(a, b)
            if others:
                return fusion.SHARED_PRODUCT.format(others=", ".join(others))
        if between >= 0:
            return fusion.CYCLE.format(between=self.nodes[self.pieces[between].nodes[0]].op.name)
        if not edges and not self._worth(a, b):
            return fusion.NOTHING_SHARED
        return joined

    def _is_backward(self, key: int) -> bool:
        return 0 < self.graph.forward <= self.nodes[self.pieces[key].nodes[-1]].library.call

    def _other_readers(self, a: int, b: int) -> list[str]:
        """Pointwise ops soon after b that read the product of a too, and would share a kernel with b."""
        last = self.pieces[b].nodes[-1]
        inside = {*self.pieces[a].nodes, *self.pieces[b].nodes}
        roots = {edge.view.root for edge in self._edges_between(a, b)}
        found = {
            self.nodes[reader].op.name: None
            for root in sorted(roots)
            for reader in self.readers[root]
            if reader not in inside and reader <= last + SOON and self.nodes[reader].op.kind == "pointwise"
        }
        return list(found)

    def _between(self, a: int, b: int) -> int:
        """A piece that needs a and that b needs directly; -1: none."""
        for i in self.pieces[b].nodes:
            for need in self.needs[i]:
                other = self.owner[need]
                if other not in (a, b) and self.before[other] >> a & 1:
                    return other
        return -1

    def _worth(self, a: int, b: int) -> bool:
        """Side by side, only for a whole tensor that both read."""
        one, two = self.pieces[a], self.pieces[b]
        mine = {v.root for i in one.nodes for v in self.nodes[i].reads if v.elements == one.elements}
        return any(v.root in mine for i in two.nodes for v in self.nodes[i].reads if v.elements == two.elements)

    def _join(self, a: int, b: int, joined: Piece) -> None:
        self.pieces[a] = joined
        del self.pieces[b]
        for i in joined.nodes:
            self.owner[i] = a
        gained = (self.before[a] | self.before.pop(b)) & ~(1 << a) & ~(1 << b)
        self.before[a] = gained
        bit_a, bit_b = 1 << a, 1 << b
        for key in self.before:
            held = self.before[key]
            if key != a and held & (bit_a | bit_b):
                self.before[key] = (held & ~bit_b) | bit_a | gained

    def _order(self) -> list[int]:
        """Pieces so that each comes after what it needs; ties by the place in the file."""
        waiting = {
            key: {self.owner[n] for i in own.nodes for n in self.needs[i]} - {key}
            for key, own in self.pieces.items()
        }
        users: dict[int, list[int]] = {}
        for key, needed in waiting.items():
            for other in needed:
                users.setdefault(other, []).append(key)
        left = {key: len(needed) for key, needed in waiting.items()}
        ready = [key for key, count in left.items() if not count]
        ready.sort()
        order = []
        while ready:
            key = heappop(ready)
            order.append(key)
            for user in users.get(key, ()):
                left[user] -= 1
                if not left[user]:
                    heappush(ready, user)
        assert len(order) == len(self.pieces), "pieces in a cycle"
        return order

    # kernels

    def _bundle(self, own: Piece) -> Bundle:
        key = own.nodes[0]
        if own.own == "attention":
            return "attention", forward_groups(self.libraries[key], self.gpu)
        if own.own:
            return "attention_backward", backward_groups(self.libraries[key], self.gpu)
        chosen = [self.nodes[i] for i in own.nodes]
        name = title(chosen)
        return name, [generated(name, own, self.nodes, self.gpu, self._wanted(own.nodes))]

    def _wanted(self, indices: Sequence[int]) -> set[str]:
        """Roots made by these nodes that others or the caller need."""
        inside = set(indices)
        found = set()
        for i in indices:
            for view in self.nodes[i].writes:
                outside = any(reader not in inside for reader in self.readers.get(view.root, ()))
                if view.root in self.again:
                    continue
                if outside or view.root in self.kept or view.root in self.nodes[i].op.saved:
                    found.add(view.root)
        return found

    def _seconds(self, groups: Sequence[Group], indices: Sequence[int]) -> tuple[float, str]:
        """Expected time of groups alone, and what binds them."""
        one = estimate(assemble("", groups, sorted(self._wanted(indices))), self.gpu, self.launch)
        bound = fusion_bound(one.seconds.expected_by_resource)
        return float(one.seconds.expected), bound

    def _check_time(self, key: int) -> None:
        """Take a fusion back where its kernel is slower than the ops apart: as a whole or at one cut."""
        own = self.pieces[key]
        if len(own.nodes) < 2:
            return
        together, bound = self._seconds(self._bundle(own)[1], own.nodes)
        library = library_bundles([self.nodes[i] for i in own.nodes], self.gpu)
        apart, _ = self._seconds([g for _, groups in library for g in groups], own.nodes)
        if together <= apart:
            return
        best, chosen = apart, library
        if not own.own:
            for at in range(1, len(own.nodes)):
                halves = self._halves(own.nodes[:at], own.nodes[at:])
                if halves is None:
                    continue
                seconds, _ = self._seconds([g for _, groups in halves for g in groups], own.nodes)
                if seconds < best:
                    best, chosen = seconds, halves
        self.chosen[key] = chosen
        self.undone[(key, key)] = LOSES.format(
            fused=show(together, "s"),
            apart=show(best, "s"),
            bound=bound,
            why=WHY_LOSES.get(bound, "the separate kernels are better made"),
        )

    def _halves(self, first: Sequence[int], second: Sequence[int]) -> list[Bundle] | None:
        """Two kernels of a piece cut in two, each refused or allowed as any other."""
        found = []
        for half in (first, second):
            own = self._again(half)
            if own is None:
                return None
            found.append(self._bundle(own))
        return found

    def _again(self, indices: Sequence[int]) -> Piece | None:
        """The piece of these nodes alone, joined in order."""
        own = fusion.piece(indices[0], self.nodes[indices[0]])
        for i in indices[1:]:
            other = fusion.piece(i, self.nodes[i])
            inside = set(own.nodes)
            edges = [Edge(self.nodes[s], self.nodes[i], v) for s, v in self.edges[i] if s in inside]
            joined = fusion.merge(own, other, edges, self.nodes, self.limits)
            if isinstance(joined, str):
                return None
            own = joined
        return own

    def _recompute(self) -> None:
        """Cheap producers run again in each kernel that reads their result, where that moves fewer bytes
        than storing it: reads of their inputs instead of a write and reads of the result."""
        for index, node in enumerate(self.nodes):
            root = node.op.writes[0].name
            users = list(dict.fromkeys(self.owner[r] for r in self.readers.get(root, ())))
            home = self.owner[index]
            outside = [key for key in users if key != home]
            if not outside or not self._is_cheap(index, outside):
                continue
            stored = _size(node.writes[0]) * (1.0 + len(outside))
            again = 0.0
            for key in outside:
                own = self.pieces[key]
                near = {v.root for i in own.nodes for v in (*self.nodes[i].reads, *self.nodes[i].writes)}
                again += sum(_size(view) for view in node.reads if view.root not in near)
            if again >= stored:
                continue
            for key in outside:
                own = self.pieces[key]
                self.pieces[key] = replace(own, nodes=tuple(sorted((*own.nodes, index))))
            self.again.add(root)
            if self.pieces[home].nodes == (index,):
                del self.pieces[home]

    def _is_cheap(self, index: int, users: Sequence[int]) -> bool:
        """Whether a node is a few instructions an element of inputs that are there anyway, and every
        user walks its result element for element."""
        node = self.nodes[index]
        root = node.op.writes[0].name
        few = node.op.work.get("issue", 0.0) <= CHEAP_ISSUE * node.elements
        plain = node.op.kind == "pointwise" and not (node.random or node.placed or node.alone or node.in_place)
        if not (few and plain) or len(node.writes) > 1 or root in self.kept or self.owner[index] in self.chosen:
            return False
        for view in node.reads:
            source = self.makers.get(view.root)
            stored = source is None or view.root in self._wanted(self.pieces[self.owner[source]].nodes)
            if not stored or view.root in self.overwritten or view.root in self.again:
                return False
        for key in users:
            own = self.pieces[key]
            if own.own or own.product >= 0 or key in self.chosen or len(own.nodes) >= MOST_OPS:
                return False
            for i in own.nodes:
                for view in self.nodes[i].reads:
                    if view.root == root and (
                        access(view, self.nodes[i])[0] != "same" or own.elements != node.elements
                    ):
                        return False
        return True

    # boundaries

    def _boundaries(self, order: Sequence[int], spans: Mapping[int, list[str]]) -> tuple[Boundary, ...]:
        """A boundary for each pair of pieces of which one reads what the other made (and for products
        side by side), by the time that removing it would save."""
        found: dict[tuple[int, int], tuple[float, str]] = {}
        rate = self.gpu.rate("dram") * self.gpu["sustained.dram"]
        for key in order:
            through: dict[int, dict[str, View]] = {}
            for i in self.pieces[key].nodes:
                for source, view in self.edges[i]:
                    other = self.owner[source]
                    if other != key and other in self.pieces and view.root not in self.again:
                        through.setdefault(other, {}).setdefault(view.root, view)
            for other, views in through.items():
                reason = self._reason(other, key)
                size = 0.0
                for root, view in views.items():
                    users = {self.owner[r] for r in self.readers.get(root, ())}
                    alone = users <= {key, other} and root not in self.kept
                    size += _size(view) * (2.0 if alone else 1.0)
                size += self._read_twice(other, key, set(views))
                found[(other, key)] = (size / rate + self.gpu["sustained.floor"], reason)
        for pair, (seconds, reason) in self._side_by_side(order).items():
            found.setdefault(pair, (seconds, reason))
        for (key, _), reason in self.undone.items():
            names = spans[key]
            if len(names) > 1:
                found[(key, key)] = (0.0, reason)
        ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
        return tuple(
            Boundary(
                spans[a][0] if a == b else spans[a][-1], spans[b][-1] if a == b else spans[b][0], _worth(s, why)
            )
            for (a, b), (s, why) in ranked
        )

    def _read_twice(self, a: int, b: int, counted: set[str]) -> float:
        """Bytes that both pieces read from outside."""
        first, second = (inputs_of([self.nodes[i] for i in self.pieces[k].nodes]) for k in (a, b))
        return sum(
            min(sum(map(_size, views)), sum(map(_size, second[root])))
            for root, views in first.items()
            if root in second and root not in counted
        )

    def _reason(self, a: int, b: int) -> str:
        missed = {self.misses.get(i) for i in self.pieces[a].nodes} & {
            self.misses.get(i) for i in self.pieces[b].nodes
        }
        for text in missed - {None}:
            return str(text)
        joined = self._try(a, b)
        if isinstance(joined, str):
            return joined
        return "each is better in a kernel with other neighbours"

    def _side_by_side(self, order: Sequence[int]) -> dict[tuple[int, int], tuple[float, str]]:
        """Products of one input with different weights: proposed as one, and what that would save."""
        by_input: dict[str, list[int]] = {}
        for key in order:
            own = self.pieces[key]
            if own.product >= 0:
                root = self.nodes[own.product].reads[0].root
                by_input.setdefault(root, []).append(key)
        found: dict[tuple[int, int], tuple[float, str]] = {}
        for keys in by_input.values():
            apart = [k for k in keys if not any(self.before[k] >> other & 1 for other in keys if other != k)]
            if len(apart) < 2:
                continue
            seconds = self._one_product([self.pieces[k].product for k in apart])
            if seconds is None:
                continue
            names = ", ".join(self.nodes[self.pieces[k].product].out for k in apart)
            reason = fusion.SEPARATE_WEIGHTS.format(names=names)
            for a, b in pairwise(apart):
                found[(a, b)] = (seconds / (len(apart) - 1), reason)
        return found

    def _one_product(self, indices: Sequence[int]) -> float | None:
        """Seconds saved by one product of concatenated weights; None where shapes do not allow it."""
        ops = [self.nodes[i].op for i in indices]
        first = ops[0]
        k = first.reads[0].elements / (first.writes[0].elements / first.writes[0].shape[-1])
        if any(
            op.reads[0] != first.reads[0] or op.writes[0].shape[:-1] != first.writes[0].shape[:-1] for op in ops
        ):
            return None
        if any(len(op.reads) != 2 for op in ops):
            return None
        n = sum(op.writes[0].shape[-1] for op in ops)
        resource, _ = next(iter(first.work.items()))
        batch = first.reads[1].shape[0] if len(first.reads[1].shape) == 3 else 1.0
        joined = replace(
            first,
            reads=(first.reads[0], Tensor("weights", (batch, k, n), first.reads[1].dtype)),
            writes=(Tensor("products", (*first.writes[0].shape[:-1], n), first.writes[0].dtype),),
            work={resource: sum(op.work[resource] for op in ops)},
        )
        apart = [Group(op.writes[0].name, (op,), matmul_tiling(op, self.gpu)) for op in ops]
        together = [Group("products", (joined,), matmul_tiling(joined, self.gpu))]
        seconds = [
            float(
                estimate(
                    assemble("", g, [o.writes[0].name for x in g for o in x.ops]), self.gpu, self.launch
                ).seconds.expected
            )
            for g in (apart, together)
        ]
        return seconds[0] - seconds[1]


def _worth(seconds: float, reason: str) -> str:
    if seconds > 0:
        return f"{reason} [removing it would save up to {show(seconds, 's')}]"
    if seconds < 0:
        return f"{reason} [it would cost {show(-seconds, 's')} more]"
    return reason


def _size(view: View) -> float:
    return float(view.tensor().bytes)


def fusion_bound(times: Mapping[str, float]) -> str:
    """The resource with the longest time."""
    return max(times, key=lambda name: times[name])


# --- dependencies, explicit groups ----------------------------------------------------------------


def _dependencies(
    nodes: Sequence[Node],
) -> tuple[list[list[int]], list[list[tuple[int, View]]], dict[str, list[int]]]:
    """(nodes that each needs, its reads of what others made, readers of each root).

    A node that overwrites a tensor needs those that read it before.
    """
    writer: dict[str, int] = {}
    seen: dict[str, list[int]] = {}
    needs: list[list[int]] = []
    edges: list[list[tuple[int, View]]] = []
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        own: dict[int, None] = {}
        made: list[tuple[int, View]] = []
        for view in node.reads:
            if view.root in writer:
                own[writer[view.root]] = None
                made.append((writer[view.root], view))
            seen.setdefault(view.root, []).append(index)
            readers.setdefault(view.root, [])
            if not readers[view.root] or readers[view.root][-1] != index:
                readers[view.root].append(index)
        for view in node.writes:
            if view.root in node.in_place:
                own |= dict.fromkeys(i for i in seen.get(view.root, []) if i != index)
                if view.root in writer:
                    own[writer[view.root]] = None
                seen[view.root] = [index]
            writer[view.root] = index
        needs.append(list(own))
        edges.append(made)
    return needs, edges, readers


def _explicit(graph: Graph, gpu: Profile, groups: Sequence[Sequence[str]]) -> Plan:
    """Groups as the caller names them, by output; ops that no group names stay alone. A group that
    cannot be one kernel is an error with the reason."""
    fuser = _Fuser(graph, "auto", gpu, "eager")
    fuser.libraries.clear()
    for index, node in enumerate(graph.nodes):
        fuser._add(index, fusion.piece(index, node))
        fuser._enter(index)
    place = {view.root: i for i, node in enumerate(graph.nodes) for view in node.writes}
    for group in groups:
        indices = []
        for name in group:
            if name not in graph.views or graph.views[name].root not in place:
                raise unknown("op output", name, [n for n, v in graph.views.items() if v.root in place], "groups")
            call = graph.nodes[place[graph.views[name].root]].library.call
            indices += [i for i, node in enumerate(graph.nodes) if node.library.call == call]
        first, *rest = sorted(set(indices))
        for other in rest:
            joined = fuser._try(fuser.owner[first], other)
            if isinstance(joined, str):
                raise InputError(f"group {', '.join(group)}: cannot be one kernel: {joined}")
            fuser._join(fuser.owner[first], other, joined)
    return fuser.finish(fuser._order())
