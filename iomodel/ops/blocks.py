"""Which blocks of keys each block of queries visits, counted exactly without walking them."""

from __future__ import annotations

from dataclasses import dataclass

from iomodel.arrays import Number, ceil_div, clip, floor, floor_sum, maximum, minimum


@dataclass(frozen=True, slots=True)
class Visits:
    """Block pairs of one head's attention under a tiling of `block_q` x `block_kv`.

    `pairs`: (query block, key block) pairs visited. `kv_rows`: keys loaded, summed over query
    blocks. `q_rows`: queries loaded, summed over key blocks. `area`: queries x keys of the visited
    pairs. `longest`: at most so many key blocks are visited by one query block. `touched`: keys that
    any query needs; `loaded`: those and the others of their blocks. `unseen`: queries in blocks that
    see no key.
    """

    pairs: Number
    kv_rows: Number
    q_rows: Number
    longest: Number
    touched: Number
    area: Number
    loaded: Number
    unseen: Number


def visits(
    q_len: Number,
    kv_len: Number,
    block_q: float,
    block_kv: float,
    causal: bool = False,
    window: Number | None = None,
) -> Visits:
    """Count the blocks of a (masked) attention; the last query is aligned with the last key.

    Query q sees keys up to q + kv_len - q_len if `causal`, and with a `window` W only keys less
    than W away from that diagonal (before it, and after it when not causal). A query block spans
    rows [i Br, min((i+1) Br, Sq)); it visits whole key blocks from the first to the last key that
    any of its rows sees.

    Sums over i of ceil((Br i + c) / Bc) come from `floor_sum`, so the cost does not grow with the
    lengths. Block sizes are numbers; lengths and window may be arrays.

    Source: mask alignment and block ranges as in FlashAttention 2.1 (bottom-right aligned).

    >>> visits(4.0, 4.0, 1.0, 1.0, causal=True).pairs  # 1 + 2 + 3 + 4
    10.0
    """
    q_blocks, kv_blocks = ceil_div(q_len, block_q), ceil_div(kv_len, block_kv)
    if not causal and window is None:
        pairs = q_blocks * kv_blocks
        area = q_len * kv_len
        return Visits(pairs, q_blocks * kv_len, kv_blocks * q_len, kv_blocks, kv_len, area, kv_len, 0.0)
    diagonal = kv_len - q_len
    reach = diagonal if causal else diagonal + window - 1  # last key of row r is r + reach
    # Query blocks before `first` see no key at all; from `full` on they see the last key.
    first = clip(floor(-reach / block_q), 0.0, q_blocks)
    full = clip(ceil_div(kv_len - reach, block_q) - 1, first, q_blocks)
    pairs = floor_sum(full - first, block_kv, block_q, (first + 1) * block_q + reach + block_kv - 1)
    pairs = pairs + (q_blocks - full) * kv_blocks
    reaching_last = q_blocks - clip(floor(((kv_blocks - 1) * block_kv - reach) / block_q), 0.0, full)
    last_q_visits, touched, loaded, longest = kv_blocks, kv_len, kv_len, kv_blocks
    if window is not None:
        start = diagonal - window + 1  # first key of row r is r + start
        begins = clip(ceil_div(-start, block_q), 0.0, q_blocks)
        pairs = pairs - floor_sum(q_blocks - begins, block_kv, block_q, maximum(begins * block_q + start, 0.0))
        last_q_visits = kv_blocks - floor(maximum((q_blocks - 1) * block_q + start, 0.0) / block_kv)
        touched = kv_len - maximum(start, 0.0)
        loaded = kv_len - floor(maximum(start, 0.0) / block_kv) * block_kv
        span = minimum(block_q, q_len) + (window - 1 if causal else 2 * window - 2)
        longest = clip(ceil_div(span, block_kv) + 1, 1.0, kv_blocks)
    short_kv, short_q = kv_blocks * block_kv - kv_len, q_blocks * block_q - q_len
    kv_rows = pairs * block_kv - reaching_last * short_kv
    q_rows = pairs * block_q - last_q_visits * short_q
    area = kv_rows * block_q - (last_q_visits * block_kv - short_kv) * short_q
    unseen = minimum(first * block_q, q_len)
    return Visits(pairs, kv_rows, q_rows, longest, touched, area, loaded, unseen)


def visible_pairs(q_len: Number, kv_len: Number, causal: bool, window: Number | None) -> Number:
    """(query, key) pairs that the mask lets through: what the algorithm needs, not what tiles do.

    >>> visible_pairs(2048.0, 2048.0, True, None)  # S (S + 1) / 2
    2098176.0
    """
    return visits(q_len, kv_len, 1.0, 1.0, causal, window).pairs
