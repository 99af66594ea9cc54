"""The closed-form block counts against loops that walk every query, key and block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iomodel.arrays import ceil_div, floor_sum
from iomodel.ops.blocks import visible_pairs, visits

lengths = st.integers(1, 40)
blocks = st.integers(1, 12)
windows = st.one_of(st.none(), st.integers(1, 45))


def sees(q, k, q_len, kv_len, causal, window):
    """Whether query q may see key k. The last query stands at the last key; a causal query sees nothing
    behind its own place; a window W leaves the keys less than W away from that place."""
    place = q + kv_len - q_len
    if causal and k > place:
        return False
    return window is None or abs(place - k) < window


def walked(q_len, kv_len, block_q, block_kv, causal, window):
    """What a kernel that walks its blocks touches: each block of queries goes from the first to the last key
    that any of its rows sees, by whole key blocks."""
    pairs, loads_k, loads_q, busiest, touched = set(), 0, 0, 0, set()
    for i in range(0, q_len, block_q):
        rows = range(i, min(i + block_q, q_len))
        seen = [k for k in range(kv_len) if any(sees(q, k, q_len, kv_len, causal, window) for q in rows)]
        touched |= set(seen)
        mine = range(seen[0] // block_kv, seen[-1] // block_kv + 1) if seen else ()
        for j in mine:
            pairs.add((i // block_q, j))
            loads_k += len(range(j * block_kv, min((j + 1) * block_kv, kv_len)))
            loads_q += len(rows)
        busiest = max(busiest, len(mine))
    return {
        "pairs": len(pairs),
        "kv_rows": loads_k,
        "q_rows": loads_q,
        "longest": busiest,
        "touched": len(touched),
    }


FIGURES = ("pairs", "kv_rows", "q_rows", "touched")


@given(lengths, lengths, blocks, blocks, st.booleans(), windows)
@example(4, 4, 1, 1, True, None)  # 1 + 2 + 3 + 4 pairs
@example(7, 3, 2, 2, True, None)  # more queries than keys: the first four see nothing
@example(5, 23, 4, 3, True, 1)  # each query sees its own key alone
@example(5, 23, 4, 3, False, 2)
@example(40, 1, 12, 1, True, 45)
def test_visits_against_walking(q_len, kv_len, block_q, block_kv, causal, window):
    found = visits(float(q_len), float(kv_len), float(block_q), float(block_kv), causal, window and float(window))
    expected = walked(q_len, kv_len, block_q, block_kv, causal, window)
    assert {name: getattr(found, name) for name in FIGURES} == {name: expected[name] for name in FIGURES}


@given(lengths, lengths, blocks, blocks, st.booleans())
def test_longest_block_without_a_window(q_len, kv_len, block_q, block_kv, causal):
    found = visits(float(q_len), float(kv_len), float(block_q), float(block_kv), causal)
    assert found.longest == walked(q_len, kv_len, block_q, block_kv, causal, None)["longest"]


@given(lengths, lengths, blocks, blocks, st.booleans(), st.integers(1, 45))
def test_longest_block_with_a_window_is_not_understated(q_len, kv_len, block_q, block_kv, causal, window):
    found = visits(float(q_len), float(kv_len), float(block_q), float(block_kv), causal, float(window))
    assert found.longest >= walked(q_len, kv_len, block_q, block_kv, causal, window)["longest"]


@given(lengths, lengths, st.booleans(), windows)
def test_visible_pairs_against_walking(q_len, kv_len, causal, window):
    every = [(q, k) for q in range(q_len) for k in range(kv_len) if sees(q, k, q_len, kv_len, causal, window)]
    assert visible_pairs(float(q_len), float(kv_len), causal, window and float(window)) == len(every)


def test_visits_of_arrays_are_the_visits_of_their_elements():
    """Lengths and windows as arrays of one broadcast shape: every cell is the walked count."""
    q_len = np.array([[1.0], [6.0], [17.0]])
    kv_len = np.array([2.0, 17.0, 30.0])
    window = np.array([3.0, 1.0, 9.0])
    for causal in (False, True):
        for w in (None, window):
            found = visits(q_len, kv_len, 4.0, 3.0, causal, w)
            for a, q in enumerate(q_len[:, 0]):
                for b, kv in enumerate(kv_len):
                    expected = walked(int(q), int(kv), 4, 3, causal, None if w is None else int(w[b]))
                    got = {n: np.broadcast_to(getattr(found, n), (3, 3))[a, b] for n in FIGURES}
                    assert got == {n: expected[n] for n in FIGURES}, (q, kv, causal, w)


def test_block_of_more_rows_than_there_are():
    """One tile of 512 x 512 over 128 queries on 200 keys: one visit that loads what there is."""
    found = visits(128.0, 200.0, 512.0, 512.0)
    assert (found.pairs, found.kv_rows, found.q_rows) == (1, 200, 128)


@given(st.integers(0, 60), st.integers(1, 30), st.integers(0, 60), st.integers(0, 90))
@example(4, 3, 5, 1)  # 0 + 2 + 3 + 5
@example(0, 7, 3, 5)  # an empty sum
@example(60, 1, 60, 90)
def test_floor_sum_against_adding_up(n, m, a, b):
    assert floor_sum(float(n), float(m), float(a), float(b)) == sum((a * i + b) // m for i in range(n))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 90)), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(0, 60),
)
def test_floor_sum_of_arrays(cases, m, a):
    n, b = (np.array(column, dtype=float) for column in zip(*cases, strict=True))
    expected = [sum((a * i + bb) // m for i in range(nn)) for nn, bb in cases]
    assert floor_sum(n, float(m), float(a), b).tolist() == expected


def test_floor_sum_takes_no_longer_for_long_sums():
    """Sum of floor(i / 2) for i < 2^20 is k (k - 1) for k = 2^19 pairs of equal terms: exact, without a walk."""
    assert floor_sum(2.0**20, 2.0, 1.0, 0.0) == (2**19) * (2**19 - 1)


@pytest.mark.parametrize("b", [1, 2, 3, 7, 49, 128, 1000])
def test_ceil_div_is_exact_next_to_whole_quotients(b):
    """Rounding of the quotient never crosses a whole number, up to 2^52."""
    for k in (1, 3, 1000, 2**40 // b, 2**51 // b):
        for a in (k * b - 1, k * b, k * b + 1):
            assert ceil_div(float(a), float(b)) == -(-a // b)
            assert ceil_div(np.array([float(a)]), float(b))[0] == -(-a // b)
