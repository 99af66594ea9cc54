"""How a kernel cuts its work on a given GPU: row passes, tiles, what library kernels do."""

from __future__ import annotations

from iomodel.arrays import Number, ceil, ceil_div, maximum, minimum, sqrt, where
from iomodel.kernel import STREAM, Group, Reread, Tiling
from iomodel.op import Op
from iomodel.ops.normalise import SOFTMAX_REGISTER_ROW
from iomodel.residency import Facts, miss
from iomodel.tensor import Tensor, itemsize

#: A row up to this many bytes stays in registers or shared memory of one thread block.
ROW_ON_CHIP = 48 * 1024.0

#: Library norm kernels: blocks of 4 warps, 16 blocks an SM, two passes over the row, and a fixed
#: number of instructions a row for the block's reduction. Softmax: a row up to 24 KiB stays in
#: registers, three passes over longer ones.
#: Source: kernels of PyTorch 2.11 on an H200, instruction and DRAM counters, 2026.
NORM_WARPS, NORM_BLOCKS, NORM_ROW_ISSUE = 4.0, 16.0, 24000.0
SOFTMAX_BLOCKS = 2.0
GENERATED_BLOCKS = 2.0


def library_group(op: Op, gpu: Facts) -> Group:
    """The kernel that a framework launches for one op."""
    return Group(op.name, (op,), library_tiling(op, gpu))


def library_tiling(op: Op, gpu: Facts) -> Tiling:
    """How a framework's own kernel for an op works through it."""
    if op.kind == "matmul":
        return matmul_tiling(op, gpu)
    return _library_row(op, gpu) if op.kind == "row" else STREAM


def generated_group(name: str, ops: tuple[Op, ...], gpu: Facts) -> Group:
    """The kernel that a fusing compiler generates for ops over the same rows."""
    rows = [op for op in ops if op.kind == "row"]
    if not rows:
        return Group(name, ops, STREAM, generated=True)
    swept = [t for t in _outside(ops).values() if len(t.shape) > 1]
    return _sweeping(name, ops, swept, _rows(rows[0]), rows[0].writes[0].bytes, gpu)


def row_group(name: str, ops: tuple[Op, ...], gpu: Facts, rows: Number, columns: Number, again: bool) -> Group:
    """The kernel that a fusing compiler generates for ops over `rows` rows of `columns` elements each;
    `again`: something as long as a row depends on what was reduced, so a row that does not stay on
    chip is read twice."""
    swept = [t for t in _outside(ops).values() if again and t.elements >= rows * columns]
    return _sweeping(name, ops, swept, rows, ops[-1].writes[0].bytes, gpu)


def _outside(ops: tuple[Op, ...]) -> dict[str, Tensor]:
    """The tensors that ops read and did not make, by name."""
    made = {tensor.name for op in ops for tensor in op.writes}
    return {t.name: t for op in ops for t in op.reads if t.name not in made}


def _sweeping(
    name: str, ops: tuple[Op, ...], swept: list[Tensor], rows: Number, written: Number, gpu: Facts
) -> Group:
    """A generated kernel that reads the rows of `swept` twice where they do not stay on chip."""
    rereads = {}
    for tensor in swept:
        passes = minimum(ceil_div(tensor.bytes / rows, ROW_ON_CHIP), 2.0)
        rereads[tensor.name] = _reread(tensor.bytes, passes, GENERATED_BLOCKS, rows, written, gpu)
    return Group(name, ops, Tiling(rereads), generated=True)


def _library_row(op: Op, gpu: Facts) -> Tiling:
    source = op.reads[0]
    if op.name.endswith("norm"):
        issue = op.library["issue"] + NORM_ROW_ISSUE * _rows(op)
        executed = {"issue": issue / _occupancy(_rows(op) * NORM_WARPS, gpu)}
        return Tiling({source.name: _row_reread(source.bytes, 2.0, NORM_BLOCKS, op, gpu)}, executed)
    passes = where(_row_bytes(source.bytes, op) <= SOFTMAX_REGISTER_ROW, 1.0, 3.0)
    return Tiling({source.name: _row_reread(source.bytes, passes, SOFTMAX_BLOCKS, op, gpu)})


def _rows(op: Op) -> Number:
    output = op.writes[0]
    return output.elements / output.shape[-1]


def _row_bytes(size: Number, op: Op) -> Number:
    return size / _rows(op)


def _row_reread(size: Number, passes: Number, blocks_per_sm: float, op: Op, gpu: Facts) -> Reread:
    return _reread(size, passes, blocks_per_sm, _rows(op), op.writes[0].bytes, gpu)


def _reread(
    size: Number, passes: Number, blocks_per_sm: float, rows: Number, written: Number, gpu: Facts
) -> Reread:
    """A tensor whose rows are read `passes` times: what lies between two passes over a row is the
    rows in flight on all SMs, read and written."""
    if "sm.count" not in gpu:
        return Reread(size * passes)
    in_flight = minimum(rows, gpu["sm.count"] * blocks_per_sm)
    row = (size + written / passes) / rows
    lost = miss(gpu["sustained.row_slip"] * in_flight * row, gpu)
    return Reread(size * passes, size * (passes - 1.0) * lost)


def _occupancy(warps: Number, gpu: Facts) -> Number:
    """Share of the issue rate that so many warps can fill: 48 resident warps an SM saturate it."""
    if "sm.count" not in gpu:
        return 1.0
    return minimum(1.0, maximum(warps, 1.0) / (gpu["sm.count"] * 48.0))


#: Rows and columns of C that a thread block computes; the fastest for a shape is taken.
TILES = ((256.0, 128.0), (128.0, 256.0), (128.0, 128.0), (128.0, 64.0), (64.0, 128.0), (64.0, 64.0))


def matmul_tiling(op: Op, gpu: Facts, quantize: bool = True) -> Tiling:
    """Tiles of a matrix product [batch, m, k] @ [batch, k, n]: what is read again, and how long the SMs are held.

    Asked of L2: A once per tile column, B once per tile row, of tiles `tile_m` x `tile_n` (of the
    blocks that share panels, where a GPU multicasts them). `quantize`: engines call an 8-bit product
    with 16-bit activations, and the kernel that quantises A is timed with it.
    """
    a, b = op.reads
    out = op.writes[0]
    m, n, k = out.shape[-2], out.shape[-1], a.elements / (out.elements / out.shape[-1])
    batch = out.elements / (m * n)
    # Each product of the batch asks for operands of its own, also where several share one (K and V
    # of grouped heads).
    a_once = maximum(a.bytes, batch * m * k * itemsize(a.dtype))
    b_once = maximum(b.bytes, batch * k * n * itemsize(b.dtype))
    again_a, again_b = _panels_again(m, n, k, a_once / batch, b_once / batch, gpu)
    rereads = {
        a.name: Reread(a_once * ceil_div(n, gpu["sustained.matmul.tile_n"]), batch * again_a),
        b.name: Reread(b_once * ceil_div(m, gpu["sustained.matmul.tile_m"]), batch * again_b),
    }
    fixed: dict[str, Number] = {"matmul.floor": 1.0}
    executed: dict[str, Number] = {}
    if "sm.count" in gpu:
        resource = next(iter(op.work))
        executed = {resource: _tile_flops(m, n, k, batch, itemsize(a.dtype), out.bytes, resource, gpu)}
        if quantize and a.dtype in ("fp8", "int8", "mxfp8"):
            rounds = ceil_div(m * batch, 2.0 * gpu["sm.count"])
            fixed |= {"matmul.quantize": 1.0, "matmul.quantize_row": rounds, "matmul.quantize_element": rounds * k}
    return Tiling(rereads, executed, "matmul", fixed)


def _panels_again(m: Number, n: Number, k: Number, a: Number, b: Number, gpu: Facts) -> tuple[Number, Number]:
    """Bytes of A and of B that one product reads from DRAM again.

    All SMs together hold a super-tile of SMs x 128 x 256 outputs, `rows` = short_side x the side of
    the square of that area (clipped to the matrix), swept along n. Each next wave of a sweep asks
    for A's rows again, each next sweep for all of B:

        A (n/cols - 1) lost(panels x wave) + B (m/rows - 1) lost(B + panels x wave)
        wave = bytes of A's rows and B's columns of one super-tile
        lost(f) = u^2 / sqrt(1 + u^4), u = f / (l2_reach x L2)

    times 1 + d^4 / (1 + d^4), d = wave x sqrt(waves) / (l2_drift x L2): SMs drift apart along a long K.
    Never below compulsory. Range: 512^3 to 16384^3; at 16384^3 the hardware itself varies from 12.7
    to 16.8 GB between runs. Source: 90 GEMMs on an H200, DRAM counters, 2026 (median error 2 %).
    """
    if "sm.count" not in gpu or "memory.l2" not in gpu:
        return 0.0, 0.0
    l2 = gpu["memory.l2"]
    area = gpu["sm.count"] * (128.0 * 256.0)
    rows = minimum(m, gpu["sustained.matmul.short_side"] * sqrt(area))
    columns = minimum(n, area / rows)
    rows = minimum(m, area / columns)
    wave = rows * (a / m) + columns * (b / n)
    near = gpu["sustained.matmul.panels"] * wave
    reach = gpu["sustained.matmul.l2_reach"] * l2
    drift = wave * sqrt(m * n / (rows * columns)) / (gpu["sustained.matmul.l2_drift"] * l2)
    squared = drift * drift
    fourth = squared * squared
    drifted = 1.0 + fourth / (1.0 + fourth)
    again_a = a * (n / columns - 1.0) * _lost(near / reach) * drifted
    again_b = b * (m / rows - 1.0) * _lost((b + near) / reach) * drifted
    return again_a, again_b


def _lost(filled: Number) -> Number:
    squared = filled * filled
    return squared / sqrt(1.0 + squared * squared)


def _tile_flops(
    m: Number, n: Number, k: Number, batch: Number, size: float, out_bytes: Number, resource: str, gpu: Facts
) -> Number:
    """FLOPs' worth of time that the SMs are held, at the sustained matrix rate.

    For each tile shape bm x bn, the faster of whole waves and of splitting K:

        per_k = max(2 bm bn / rate, (bm + bn) x size / l2_rate)        seconds a unit of K, per SM
        fill  = batch ceil(m/bm) ceil(n/bn) / SMs
        waves = ceil(fill) k per_k
        split = max(k fill, min(k, split_k)) per_k + split + 8 m n batch max(2, min(1/fill, k/split_k)) / hbm

    (partial sums are fp32, written and read). The fastest, t, slows by power x t / (t + power_time) as
    long matrix work meets the power limit, and ends with C's last tiles being written.

    Source: half of the rows of aiconfigurator's GEMM tables for A100, H100, H200, L40S, by hash of
    the shape; median error on the other half 5 %.
    """
    share = gpu[matmul_share("matmul", resource, gpu)]
    rate = gpu.rate(resource) * share / gpu["sm.count"]
    bf16 = gpu.rate("matmul:bf16") if "compute.matmul:bf16" in gpu else gpu.rate(resource)
    l2_rate = gpu["sustained.matmul.l2_per_flop"] * bf16 / gpu["sm.count"]
    hbm = gpu.rate("dram")
    least_k = gpu["sustained.matmul.split_k"]
    shortest = minimum(k, least_k)
    partial = 8.0 * m * n * batch / hbm
    best: Number = None
    for tile_m, tile_n in TILES:
        per_k = maximum(2.0 * tile_m * tile_n / rate, (tile_m + tile_n) * size / l2_rate)
        fill = ceil_div(m, tile_m) * ceil_div(n, tile_n) * batch / gpu["sm.count"]
        waves = ceil(fill) * k * per_k
        ways = maximum(2.0, minimum(1.0 / fill, k / least_k))
        split = maximum(k * fill, shortest) * per_k + gpu["sustained.matmul.split"] + partial * ways
        fastest = minimum(waves, split)
        best = fastest if best is None else minimum(best, fastest)
    slowed = best * (1.0 + gpu["sustained.matmul.power"] * best / (best + gpu["sustained.matmul.power_time"]))
    return (slowed + out_bytes / hbm) * (rate * gpu["sm.count"])


def matmul_share(style: str, resource: str, gpu: Facts) -> str:
    """Key of the sustained share of a matrix rate: the dtype's own where it was measured."""
    own = f"sustained.{style}.{resource.replace(':', '_')}"
    return own if own in gpu else f"sustained.{style}.matmul"
