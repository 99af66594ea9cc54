"""Decode attention: one query token a sequence against its KV cache.

Source: Dao, Haziza, Massa, Sizov, Flash-Decoding for long-context inference, 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iomodel.arrays import Number, ceil_div, clip, floor, minimum
from iomodel.kernel import Group, Reread, Tiling
from iomodel.op import Op
from iomodel.ops.attention import SOFTMAX_EXP, SOFTMAX_FLOPS
from iomodel.residency import Facts
from iomodel.tensor import Tensor

#: Cached tokens that one step of a thread block works on.
STEP = 64.0


@dataclass(frozen=True, slots=True)
class Decode:
    """The problem: q [batch, heads, 1, d] against K, V [batch, kv_heads, kv_len, d]."""

    kv_len: Number
    batch: Number
    heads: Number
    kv_heads: Number
    head_dim: float
    dtype: str
    kv_dtype: str
    compute: str


def query_rows(gpu: Facts) -> Number:
    """Rows of the tile that the query heads of one K/V head are padded to."""
    return gpu["sustained.decode.rows"]


def units(d: Decode, gpu: Facts) -> Number:
    """Independent (sequence, K/V head, tile of query heads) pieces before any split."""
    return d.batch * d.kv_heads * ceil_div(d.heads / d.kv_heads, query_rows(gpu))


def splits(d: Decode, gpu: Facts) -> Number:
    """Parts that each head's cache is cut into so that all SMs have work.

    floor(SMs / units), at least 1, at most one a step; none for caches of 4 steps or fewer.
    """
    steps = ceil_div(d.kv_len, STEP)
    sms = gpu["sm.count"] if "sm.count" in gpu else 1.0
    wanted = clip(floor(sms / units(d, gpu)), 1.0, steps)
    return 1.0 + _is_long(steps) * (wanted - 1.0)


def _is_long(steps: Number) -> Number:
    """1 for caches of more than 4 steps, else 0."""
    return clip(steps - 4.0, 0.0, 1.0)


def _inputs(d: Decode) -> tuple[Tensor, Tensor, Tensor]:
    one = (d.batch, d.heads, 1.0, d.head_dim)
    cache = (d.batch, d.kv_heads, d.kv_len, d.head_dim)
    return Tensor("q", one, d.dtype), Tensor("k", cache, d.kv_dtype), Tensor("v", cache, d.kv_dtype)


def _attend(d: Decode, writes: tuple[Tensor, ...]) -> Op:
    reads = _inputs(d)
    pairs = d.batch * d.heads * d.kv_len
    work = {
        f"matmul:{d.compute}": 4 * d.head_dim * pairs,
        "vector:fp32": SOFTMAX_FLOPS * pairs,
        "exp": SOFTMAX_EXP * pairs,
    }
    return Op("attention", reads, writes, work, "matmul")


def _tiling(d: Decode, parts: Number, gpu: Facts, fixed: dict[str, Number]) -> Tiling:
    """Matrix work that the SMs are held for: waves of blocks, each walking its part of the cache in
    steps (and `start` more to begin and end), query heads padded to whole tiles. Every part asks
    for the query, every tile of query heads for the cache."""
    rows = query_rows(gpu)
    steps = ceil_div(d.kv_len, STEP)
    blocks = units(d, gpu) * parts
    work = 4 * rows * STEP * d.head_dim
    if "sm.count" in gpu:
        sms = gpu["sm.count"]
        chain = ceil_div(steps, parts) + gpu["sustained.decode.start"]
        held = ceil_div(blocks, sms) * sms * chain * work
    else:
        held = blocks * ceil_div(steps, parts) * work
    q, k, v = _inputs(d)
    tiles = ceil_div(d.heads / d.kv_heads, rows)
    rereads = {"q": Reread(q.bytes * parts), "k": Reread(k.bytes * tiles), "v": Reread(v.bytes * tiles)}
    return Tiling(rereads, {f"matmul:{d.compute}": held}, "decode", fixed, 1.0, blocks)


def _combining(d: Decode, gpu: Facts) -> dict[str, Number]:
    """Fixed costs of splitting: measured engines pay them whether or not a cache is cut."""
    steps = ceil_div(d.kv_len, STEP)
    sms = gpu["sm.count"] if "sm.count" in gpu else 1.0
    return {"decode.split": _is_long(steps), "decode.per_split": minimum(steps, sms)}


def no_split(d: Decode, gpu: Facts, chosen: Number | None = None) -> list[Group]:
    """One thread block a sequence and K/V head walks the whole cache."""
    del chosen
    out = Tensor("o", (d.batch, d.heads, 1.0, d.head_dim), d.dtype)
    tiling = _tiling(d, 1.0, gpu, {"decode.floor": 1.0, **_combining(d, gpu)})
    return [Group("attention", (_attend(d, (out,)),), tiling)]


def split_k(d: Decode, gpu: Facts, chosen: Number | None = None) -> list[Group]:
    """Each cache is cut into parts worked on at once; a second kernel combines fp32 partial outputs
    [splits, batch, heads, d] by their log-sum-exp [splits, batch, heads]."""
    parts = splits(d, gpu) if chosen is None else minimum(chosen, d.kv_len)
    partial = Tensor("partial", (parts, d.batch, d.heads, d.head_dim), "fp32")
    lse = Tensor("lse", (parts, d.batch, d.heads), "fp32")
    out = Tensor("o", (d.batch, d.heads, 1.0, d.head_dim), d.dtype)
    combine = Op("combine", (partial, lse), (out,), {"vector:fp32": 3 * partial.elements}, "reduce")
    tiling = _tiling(d, parts, gpu, {"decode.floor": 1.0})
    return [
        Group("attention", (_attend(d, (partial, lse)),), tiling),
        Group("combine", (combine,), Tiling(style="decode", fixed=_combining(d, gpu))),
    ]


#: Variant -> its kernels.
VARIANTS: Mapping[str, Callable[[Decode, Facts, Number | None], list[Group]]] = {
    "no-split": no_split,
    "split-k": split_k,
}
