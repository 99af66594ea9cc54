"""Attention: the same three ops (scores, softmax, weighted values) in every variant.

`standard` launches a kernel an op, so scores and probabilities cross memory. The FlashAttention
variants put all three in one kernel with a tiling: only the order of loops, and with it what is
asked for again, tells them apart. To add a variant, write a function and enter it in `VARIANTS`.

Sources: Dao et al., FlashAttention, NeurIPS 2022 (algorithm 1: fa1); Dao, FlashAttention-2, ICLR
2024 (outer loop over queries: fa2); Shah et al., FlashAttention-3, NeurIPS 2024 (fa3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from iomodel.arrays import Number, ceil_div, clip, maximum, minimum, sqrt
from iomodel.errors import InputError
from iomodel.kernel import Group, Reread, Tiling
from iomodel.op import Op
from iomodel.ops.blocks import Visits, visible_pairs, visits
from iomodel.ops.matmul import matmul
from iomodel.ops.normalise import row_op
from iomodel.ops.pointwise import pointwise
from iomodel.residency import Facts, miss, ramp
from iomodel.tensor import Tensor, itemsize
from iomodel.tiling import library_tiling
from iomodel.units import show

#: Vector FLOPs and special-function calls that softmax costs for one score inside a fused kernel:
#: scale, running max, subtract, exp, running sum.
SOFTMAX_FLOPS, SOFTMAX_EXP = 4.0, 1.0


@dataclass(frozen=True, slots=True)
class Attention:
    """The problem: softmax(Q K^T / sqrt(d) [+ mask]) V for `batch` x `heads` heads.

    K and V have `kv_heads` heads (grouped-query attention when fewer). Lengths, batch and heads may
    be arrays; `head_dim` is a number. `window` W lets a query see the W nearest keys only.
    """

    q_len: Number
    kv_len: Number
    batch: Number
    heads: Number
    kv_heads: Number
    head_dim: float
    dtype: str
    compute: str
    causal: bool = False
    window: Number | None = None
    mask: bool = False
    dropout: bool = False
    backward: bool = False
    append: bool = True  # serving: new K and V are copied to a cache, and timed with the kernel
    touched_kv: Number = field(init=False)

    def __post_init__(self) -> None:
        touched = visits(self.q_len, self.kv_len, 1.0, 1.0, self.causal, self.window).touched
        object.__setattr__(self, "touched_kv", touched)

    def queries(self, name: str) -> Tensor:
        """A tensor shaped like Q: [batch, heads, q_len, d]."""
        return Tensor(name, (self.batch, self.heads, self.q_len, self.head_dim), self.dtype)

    def keys(self, name: str) -> Tensor:
        """A tensor shaped like the part of K that some query sees: [batch, kv_heads, kv_len, d]."""
        return Tensor(name, (self.batch, self.kv_heads, self.touched_kv, self.head_dim), self.dtype)

    def scores(self, name: str, dtype: str = "") -> Tensor:
        """A tensor of one value per query and key: [batch, heads, q_len, kv_len]."""
        return Tensor(name, (self.batch, self.heads, self.q_len, self.touched_kv), dtype or self.dtype)

    def rows(self, name: str) -> Tensor:
        """An fp32 statistic of each query row: [batch, heads, q_len]."""
        return Tensor(name, (self.batch, self.heads, self.q_len), "fp32")


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of Q and of K, V that one thread block holds on chip."""

    q: float
    kv: float


def forward_ops(a: Attention) -> list[Op]:
    """The ops of the forward pass in order: scores, [mask], softmax, [dropout], weighted values."""
    s, p, o = a.scores("s"), a.scores("p"), a.queries("o")
    ops = [matmul(a.queries("q"), a.keys("k"), s, a.compute, a.head_dim)]
    if a.mask:
        masked = a.scores("s_masked")
        ops.append(pointwise("add", (s, Tensor("mask", (a.q_len, a.touched_kv), a.dtype)), masked))
        s = masked
    ops.append(row_op("softmax", (s,), p))
    if a.dropout:
        dropped = a.scores("p_dropped")
        saved = (a.scores("dropout_mask", "bool"),) if a.backward else ()
        ops.append(pointwise("dropout", (p,), dropped, saved))
        p = dropped
    ops.append(matmul(p, a.keys("v"), o, a.compute, a.touched_kv))
    return ops


def backward_ops(a: Attention) -> list[Op]:
    """The ops of the backward pass: dV, dP, [dropout], softmax', dQ, dK.

    Source: FlashAttention (2022), appendix B.2 (standard backward pass).
    """
    p = a.scores("p_dropped" if a.dropout else "p")
    do, dp, ds = a.queries("do"), a.scores("dp"), a.scores("ds")
    ops = [
        _contract("dv", (p, do), a.keys("dv"), a),
        _contract("dp", (do, a.keys("v")), dp, a),
    ]
    if a.dropout:
        undropped = a.scores("dp_undropped")
        ops.append(pointwise("mul", (dp, a.scores("dropout_mask", "bool")), undropped))
        dp = undropped
    ops.append(pointwise("mul", (a.scores("p"), dp), ds))
    ops.append(_contract("dq", (ds, a.keys("k")), a.queries("dq"), a))
    ops.append(_contract("dk", (ds, a.queries("q")), a.keys("dk"), a))
    return ops


def _contract(name: str, reads: tuple[Tensor, ...], out: Tensor, a: Attention) -> Op:
    """One of the matrix products of attention: 2 x q_len x kv_len x d FLOPs a head."""
    flops = 2 * a.scores("s").elements * a.head_dim
    return Op(name, reads, (out,), {f"matmul:{a.compute}": flops}, "matmul")


def outputs(a: Attention) -> tuple[str, ...]:
    """Tensors that the caller keeps."""
    return ("o", "dq", "dk", "dv") if a.backward else ("o",)


# --- the variants -----------------------------------------------------------------------------


def standard(a: Attention, blocks: Blocks, gpu: Facts) -> list[Group]:
    """A kernel an op: S and P are written and read, 4 N^2 passes forward and 7 more backward.

    Nothing is skipped under a causal mask: library matmuls and softmax work on the full square.
    """
    ops = forward_ops(a) + (backward_ops(a) if a.backward else [])
    names = {"s": "scores", "s_masked": "mask", "p": "softmax", "p_dropped": "dropout", "o": "values"}
    groups = []
    for op in ops:
        tiling = library_tiling(op, gpu)
        if op.reads[-1].name == "mask":  # every head asks for it
            tiling = replace(tiling, rereads={"mask": Reread(a.batch * a.heads * op.reads[-1].bytes)})
        groups.append(Group(names.get(op.writes[0].name, op.writes[0].name), (op,), tiling))
    return groups


def io_lower_bound(a: Attention, blocks: Blocks, gpu: Facts) -> list[Group]:
    """Q, K and V read once and O written once: what any exact kernel must move through DRAM
    as long as Q, K, V and O start and end there (and each fits once through the chip)."""
    del blocks, gpu
    groups = [Group("attention", (_needed(a, _flash_ops(a)),), Tiling(style="bound"))]
    if a.backward:
        groups.append(Group("backward", (_needed(a, _flash_backward_op(a), 2.5),), Tiling(style="bound")))
    return groups


def fa1(a: Attention, blocks: Blocks, gpu: Facts) -> list[Group]:
    """Outer loop over K/V blocks: Q, O and the row statistics stream through once per K/V block.

    Asked of L2 a head: K, V once; for each visited (K/V block, Q rows): Q read, O, l, m read and
    written; rows that see no key come and go once. One thread block a head.
    """
    seen = _visits(a, blocks)
    heads = a.batch * a.heads
    row = a.head_dim * itemsize(a.dtype)
    q_rows, unseen = heads * seen.q_rows, heads * seen.unseen
    q, o = a.queries("q"), a.queries("o")
    stats = Tensor("l_m", (*a.rows("l").shape, 2.0), "fp32")
    # Between two visits a head's whole Q, O and statistics pass, for all heads in flight at once.
    in_flight = minimum(heads, gpu["sm.count"]) if "sm.count" in gpu else heads
    lost = miss(in_flight * a.q_len * (2 * row + 8), gpu)
    rereads = {
        "q": Reread((q_rows + unseen) * row, lost * ((q_rows + unseen) * row - q.bytes)),
        "o": Reread((2 * q_rows + unseen) * row, lost * ((q_rows + unseen) * row - o.bytes)),
        "l_m": Reread((2 * q_rows + unseen) * 8, lost * ((q_rows + unseen) * 8 - stats.bytes)),
        "k": Reread(heads * seen.loaded * row),
        "v": Reread(heads * seen.loaded * row),
    }
    if a.mask:
        rereads["mask"] = Reread(heads * seen.area * itemsize(a.dtype))
    op = _needed(a, _flash_ops(a, seen, (stats,)))
    # One thread block a head: with fewer heads than SMs the rest stand idle.
    executed = _executed(a, blocks, seen)
    if "sm.count" in gpu:
        sms = gpu["sm.count"]
        executed = {name: amount * (ceil_div(heads, sms) * sms / heads) for name, amount in executed.items()}
    tiling = Tiling(rereads, executed, "fa2", {"fa2.floor": 1.0}, head_dim_speed(a.head_dim, "fa2", gpu), heads)
    return [Group("fa1", (op,), tiling), *_flash_backward(a, blocks, "fa2", gpu)]


def fa2(a: Attention, blocks: Blocks, gpu: Facts) -> list[Group]:
    """Outer loop over Q blocks: each block of queries streams the keys and values that it sees.

    Asked of L2 a head: Q and O once, K and V once per query block (kv rows visited).
    """
    return [_flash_forward(a, blocks, "fa2", gpu), *_flash_backward(a, blocks, "fa2", gpu)]


def fa3(a: Attention, blocks: Blocks, gpu: Facts) -> list[Group]:
    """fa2's loops on Hopper: asynchronous copies and matrix products, softmax overlapped."""
    return [_flash_forward(a, blocks, "fa3", gpu), *_flash_backward(a, blocks, "fa3", gpu)]


#: Variant -> its kernels. The first is the one that speedups are counted against.
VARIANTS: Mapping[str, Callable[[Attention, Blocks, Facts], list[Group]]] = {
    "standard": standard,
    "fa1": fa1,
    "fa2": fa2,
    "fa3": fa3,
    "io-lower-bound": io_lower_bound,
}


# --- tilings ----------------------------------------------------------------------------------

#: Query x key rows of the published kernels by head dim: FlashAttention 1 and 2 on sm_80, 3 on sm_90.
KERNEL_BLOCKS: Mapping[str, tuple[tuple[float, Blocks], ...]] = {
    "fa1": ((64, Blocks(128, 256)), (128, Blocks(128, 128)), (256, Blocks(64, 64))),
    "fa2": ((64, Blocks(128, 128)), (128, Blocks(128, 64)), (256, Blocks(64, 64))),
    "fa3": ((64, Blocks(128, 128)), (128, Blocks(128, 128)), (256, Blocks(128, 80))),
}


def choose_blocks(
    a: Attention,
    variant: str,
    shared_memory: float,
    block_q: float | None = None,
    block_kv: float | None = None,
) -> Blocks:
    """The tiling of a variant: the real kernel's for this head dim, or what the caller asks for.

    A default that does not fit the shared memory is halved, K/V rows first, until it does; a
    caller's block that does not fit is an error that says what would.
    """
    if variant not in KERNEL_BLOCKS:
        return Blocks(128, 128)
    table = KERNEL_BLOCKS[variant]
    chosen = next((blocks for limit, blocks in table if a.head_dim <= limit), Blocks(64, 64))
    q, kv = block_q or chosen.q, block_kv or chosen.kv
    while shared_memory_need(a, variant, Blocks(q, kv)) > shared_memory:
        if block_kv is None and kv > 16:
            kv = max(16.0, kv // 2)
        elif block_q is None and q > 16:
            q = max(16.0, q // 2)
        else:
            need = shared_memory_need(a, variant, Blocks(q, kv))
            raise InputError(
                f"{variant}: blocks of {q:.0f} x {kv:.0f} rows at head-dim {a.head_dim:.0f} {a.dtype} need "
                f"{show(need, 'binary')} of shared memory, this GPU has {show(shared_memory, 'binary')} a block; "
                f"use smaller --block-q and --block-kv or a smaller head-dim"
            )
    return Blocks(float(q), float(kv))


def shared_memory_need(a: Attention, variant: str, blocks: Blocks) -> float:
    """Bytes of shared memory for one block's tiles: Q (and O in fa1) and one K and one V tile."""
    q_tiles = 2 if variant == "fa1" else 1
    return (q_tiles * blocks.q + 2 * blocks.kv) * a.head_dim * itemsize(a.dtype)


def _visits(a: Attention, blocks: Blocks) -> Visits:
    return visits(a.q_len, a.kv_len, blocks.q, blocks.kv, a.causal, a.window)


def _needed(a: Attention, op: Op, times: float = 1.0) -> Op:
    """The op with the work that the mask leaves: 4 d FLOPs and one softmax term a visible pair."""
    pairs = a.batch * a.heads * visible_pairs(a.q_len, a.kv_len, a.causal, a.window)
    work = {
        f"matmul:{a.compute}": times * 4 * a.head_dim * pairs,
        "vector:fp32": SOFTMAX_FLOPS * pairs,
        "exp": SOFTMAX_EXP * pairs,
    }
    return Op(op.name, op.reads, op.writes, work, op.kind, op.saved)


def _executed(a: Attention, blocks: Blocks, seen: Visits, times: float = 1.0) -> dict[str, Number]:
    """Work with whole blocks: masked corners and rows past the end are computed too."""
    pairs = a.batch * a.heads * seen.pairs * (blocks.q * blocks.kv)
    return {
        f"matmul:{a.compute}": times * 4 * a.head_dim * pairs,
        "vector:fp32": SOFTMAX_FLOPS * pairs,
        "exp": SOFTMAX_EXP * pairs,
    }


def _flash_ops(a: Attention, seen: Visits | None = None, extra: tuple[Tensor, ...] = ()) -> Op:
    """The forward ops as the one op that a fused kernel is: S and P are never tensors of their own."""
    reads = [a.queries("q"), a.keys("k"), a.keys("v")]
    if a.mask:  # the part whose blocks a tiling visits; at the least, the pairs that the mask leaves
        needed = visible_pairs(a.q_len, a.kv_len, a.causal, a.window)
        part = needed if seen is None else minimum(seen.area, a.q_len * a.touched_kv)
        reads.append(Tensor("mask", (part,), a.dtype))
    saved = (a.rows("lse"),) if a.backward else ()
    names = tuple(t.name for t in (*extra, *saved))
    return Op("attention", tuple(reads), (a.queries("o"), *extra, *saved), {}, "matmul", names)


def _flash_backward_op(a: Attention) -> Op:
    reads = (a.queries("q"), a.keys("k"), a.keys("v"), a.queries("o"), a.queries("do"), a.rows("lse"))
    writes = (a.queries("dq"), a.keys("dk"), a.keys("dv"))
    return Op("attention_backward", reads, writes, {}, "matmul")


def _flash_forward(a: Attention, blocks: Blocks, style: str, gpu: Facts) -> Group:
    seen = _visits(a, blocks)
    heads = a.batch * a.heads
    asked = heads * seen.kv_rows * (a.head_dim * itemsize(a.dtype))
    kv = a.keys("k").bytes
    again = kv * (kv_passes(a, blocks, style, gpu) - 1.0)
    rereads = {name: Reread(asked, again) for name in ("k", "v")}
    if a.mask:
        rereads["mask"] = Reread(heads * seen.area * itemsize(a.dtype))
    fixed = {f"{style}.floor": 1.0}
    if a.append:
        fixed[f"{style}.append"] = 4 * kv  # K and V, read and written
    executed = _in_waves(a, blocks, seen, style, gpu)
    tiling = Tiling(
        rereads,
        executed,
        style,
        fixed,
        head_dim_speed(a.head_dim, style, gpu),
        heads * ceil_div(a.q_len, blocks.q),
    )
    return Group(style, (_needed(a, _flash_ops(a, seen)),), tiling)


def kv_passes(a: Attention, blocks: Blocks, style: str, gpu: Facts) -> Number:
    """How often K and V are read from DRAM: once, and again at wave edges that L2 does not bridge.

    Blocks run head after head, P = SMs x `ctas` at a time; N blocks share one K/V head; the grid is
    W waves. Each of the W - 1 edges between waves cuts a K/V head, which is touched again:

        N = ceil(S_q / Br) heads / kv_heads    n = batch kv_heads    W = ceil(n N / P)    t = (W - 1) / n
        f1 = 2 S_k d bytes / L2                f = f1 (1 + (n - 1) / max(n N / P, 1))
        passes = 1 + t ramp(f, low, high)

    f is what the heads of one wave hold, as a share of L2. Under a causal mask the blocks of a wave
    differ in length: fa2 starts each at its own diagonal, so a wave spreads over all of K and V
    (passes = 1 + t drift f^3); fa3 takes the longest first, all from key 0 (1 + t drift max(f1 heads in
    flight - drift_low, 0)). Never more than each block reading its own: (N - 1) / 2 more. fa2
    launches batches inside heads, so the next query head of a group comes a whole batch later.

    Range: d 64 to 256, 512 to 131072 tokens, 1 to 64 heads; causal fa2 beyond one third of L2 a
    head varies by 30 % from run to run. Source: 163 runs on an H200, DRAM counters, 2026; the limit
    1 + t agrees with an LRU simulator of tiles (4 MiB L2, 16 SMs).
    """
    if "memory.l2" not in gpu or "sm.count" not in gpu:
        return 1.0
    c = {name: gpu[f"sustained.{style}.{name}"] for name in ("ctas", "l2_low", "l2_high", "drift")}
    slots = gpu["sm.count"] * c["ctas"]
    kv_heads = a.batch * a.kv_heads
    group = a.heads / a.kv_heads
    sharing = ceil_div(a.q_len, blocks.q) * group
    waves = ceil_div(kv_heads * sharing, slots)
    times = (waves - 1.0) / kv_heads
    per_wave = a.q_len / blocks.q * group / slots
    one = 2.0 * a.keys("k").bytes / kv_heads / gpu["memory.l2"]
    fill = one * (1.0 + (kv_heads - 1.0) / maximum(kv_heads * per_wave, 1.0))
    if a.causal and style == "fa3":
        ahead = one * maximum(1.0, minimum(1.0 / per_wave, kv_heads)) - gpu["sustained.fa3.drift_low"]
        extra = minimum(times * c["drift"] * maximum(ahead, 0.0), 0.5 * (sharing - 1.0))
    elif a.causal:
        extra = minimum(times * c["drift"] * fill * fill * fill, 0.5 * (sharing - 1.0))
    else:
        extra = times * ramp(fill, c["l2_low"], c["l2_high"])
    if style == "fa2":
        later = minimum(1.0, a.batch - 1.0) * (group - 1.0)
        extra = extra + later * ramp(a.batch * one, c["l2_low"], c["l2_high"])
    return 1.0 + extra


def head_dim_speed(head_dim: float, style: str, gpu: Facts) -> Number:
    """Matrix rate at a head dim relative to d = 128: concave through the rates at 64, 128 and 256."""
    at_64, at_256 = gpu[f"sustained.{style}.d64"], gpu[f"sustained.{style}.d256"]
    x = head_dim / 128.0
    speed = minimum(1.0 - (1.0 - at_64) * 2.0 * (1.0 - x), 1.0 + (at_256 - 1.0) * (x - 1.0))
    return maximum(speed, 0.1)


def _in_waves(
    a: Attention, blocks: Blocks, seen: Visits, style: str, gpu: Facts, times: float = 1.0
) -> dict[str, Number]:
    """Work that the SMs are held for: whole blocks, `start` more keys-tiles to begin and end each,
    and under a causal mask the longest block, of which a share `tail` nothing overlaps. A grid
    smaller than the SMs takes its longest block's time."""
    executed = _executed(a, blocks, seen, times)
    if "sm.count" not in gpu:
        return executed
    sms = gpu["sm.count"]
    tile = times * 4 * a.head_dim * blocks.q
    start = gpu[f"sustained.{style}.start"] * 128.0
    heads = a.batch * a.heads
    all_blocks = heads * (seen.pairs * blocks.kv + start * ceil_div(a.q_len, blocks.q)) * tile
    longest = (seen.longest * blocks.kv + start) * tile * sms
    tail = gpu[f"sustained.{style}.tail"] if a.causal else 0.0
    executed[f"matmul:{a.compute}"] = maximum(all_blocks + tail * longest, longest)
    return executed


def _flash_backward(a: Attention, blocks: Blocks, style: str, gpu: Facts) -> list[Group]:
    """Backward in four kernels: zeroed fp32 sums for dQ, row sums of dO x O, the main kernel (one
    block of K/V a thread block, five products a visited pair with S recomputed), and dQ from its
    fp32 sums to the dtype.

    Source: FlashAttention-2 (2024), algorithm 2.
    """
    if not a.backward:
        return []
    o, do, delta = a.queries("o"), a.queries("do"), a.rows("delta")
    zeros = Tensor("dq_zeros", a.queries("dq").shape, "fp32")
    dq_sum = Tensor("dq_sum", zeros.shape, "fp32")
    vector = {"vector:fp32": 2 * o.elements}
    row_sums = Op("rowsum", (o, do), (delta,), vector, "reduce")
    seen = _visits(a, blocks)
    heads = a.batch * a.heads
    row = a.head_dim * itemsize(a.dtype)
    q_rows = heads * (seen.q_rows + seen.unseen)
    reads = (a.queries("q"), a.keys("k"), a.keys("v"), do, a.rows("lse"), delta, zeros)
    main = Op("attention_backward", reads, (dq_sum, a.keys("dk"), a.keys("dv")), {}, "matmul")
    rereads = {name: Reread(q_rows * row) for name in ("q", "do")}
    rereads |= {name: Reread(q_rows * 4) for name in ("lse", "delta")}
    rereads |= {name: Reread(q_rows * a.head_dim * 4) for name in ("dq_zeros", "dq_sum")}
    rereads |= {name: Reread(heads * seen.loaded * row) for name in ("k", "v")}
    speed = head_dim_speed(a.head_dim, style, gpu) * gpu[f"sustained.{style}.backward"]
    executed = _in_waves(a, blocks, seen, style, gpu, 2.5)
    tiling = Tiling(
        rereads, executed, style, {f"{style}.floor": 1.0}, speed, heads * ceil_div(a.kv_len, blocks.kv)
    )
    convert = Op("cast", (dq_sum,), (a.queries("dq"),), {"vector:fp32": o.elements}, "pointwise")
    return [
        Group("dq-zeros", (Op("zeros", (), (zeros,), {}),)),
        Group("rowsum", (row_sums,)),
        Group("backward", (_needed(a, main, 2.5),), tiling),
        Group("dq-cast", (convert,)),
    ]


def theory(a: Attention, fast_bytes: float) -> tuple[Number, Number]:
    """Theta(N^2 d^2 / M): bytes that algorithm 1 moves, and the lower bound on any exact kernel's.

    With M = fast memory in elements, algorithm 1 holds K/V blocks of M/(4d) rows, so Q and O pass
    over memory ceil(4 d N_k / M) times: (2 N_k + 3 N_q x passes) d elements a head (O is read and
    written), whose leading term is 12 N^2 d^2 / M. Range: d <= M <= N d; from M = 4 N d up one
    pass suffices. The lower bound is of order N^2 d^2 / M elements for M >= d^2 and N^2 d / sqrt(M)
    for M < d^2 (constant 1 is used: the papers state the order).

    Source: Dao et al. 2022, theorem 2 and proposition 3; Saha and Ye, The I/O Complexity of
    Attention, ICML 2024 (both regimes).
    """
    size = itemsize(a.dtype)
    m = fast_bytes / size
    heads = a.batch * a.heads
    rows = clip(m / (4 * a.head_dim), 1.0, a.kv_len)
    passes = ceil_div(a.kv_len, rows)
    upper = heads * (2 * a.kv_len + 3 * a.q_len * passes) * a.head_dim * size
    per_pair = a.head_dim * a.head_dim / m if m >= a.head_dim * a.head_dim else a.head_dim / sqrt(m)
    return upper, heads * a.q_len * a.kv_len * size * per_pair
