"""Recorded formulas give the bits of NumPy and of Python's floats, whatever was left out or reordered."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import iomodel
from iomodel import exact
from iomodel.arrays import ceil_div, choose, maximum, minimum, where
from iomodel.tape import BLOCK, Program, Range, Traced, UntraceableError, evaluate, leaf

CONSTANTS = [0.0, 1.0, 2.0, 0.5, 3.0, 0.1, 128.0, 1e6, -1.0, 7000.0, 2.0**-7]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
UNARY = ["ceil", "floor", "negative"]


def trees(leaves):
    """Random formulas over some leaves, as nested tuples."""
    ends = st.sampled_from(leaves) | st.sampled_from(CONSTANTS)
    return st.recursive(
        ends,
        lambda inner: (
            st.tuples(st.sampled_from(BINARY), inner, inner)
            | st.tuples(st.sampled_from(UNARY), inner)
            | st.tuples(st.just("where"), inner, inner, inner)
        ),
        max_leaves=24,
    )


def compute(tree, values):
    """A formula on arrays or on traced ones."""
    if isinstance(tree, float):
        return tree
    if isinstance(tree, str):
        return values[tree]
    op, *parts = tree
    args = [compute(part, values) for part in parts]
    if op == "where":
        return np.where(np.greater(args[0], args[1]), args[1], args[2])
    return getattr(np, op)(*args)


@settings(max_examples=400)
@given(trees(["x", "y", "z"]), st.integers(0, 2**32 - 1))
def test_any_formula_has_the_bits_of_numpy(tree, seed):
    generator = np.random.default_rng(seed)
    given_values = {
        "x": np.floor(generator.uniform(1, 2.0 ** generator.integers(1, 40), 50)),
        "y": np.floor(generator.uniform(0, 64, 50)),
        "z": generator.uniform(1e-9, 1e3, 50),
    }
    with np.errstate(all="ignore"):
        direct = np.broadcast_to(compute(tree, given_values), 50)
        traced = compute(tree, {name: leaf(name) for name in given_values})
    ranges = {n: Range(float(a.min()), float(a.max()), n != "z") for n, a in given_values.items()}
    for known in (ranges, {}):
        (found,) = Program([traced], known).run(given_values, 50)
        found = np.broadcast_to(found, 50)
        same = (found == direct) & (np.signbit(found) == np.signbit(direct)) | np.isnan(found) & np.isnan(direct)
        assert same.all(), (tree, direct[~same][0], found[~same][0])


def test_a_polynomial_is_one_step_however_it_is_written():
    n = leaf("n")
    first = (32.0 * n * n * 2.0 + n * 256.0) / n
    second = 64.0 * n + 256.0
    program = Program([first, second], {"n": Range(1.0, 2.0**20, whole=True)})
    assert program.wanted[0] == program.wanted[1]


def test_an_inexact_quotient_is_not_taken_for_a_polynomial():
    # 0.1 n / 0.3 is not n / 3 in floating point, and 2^60 n does not fit 53 bits
    highs = {0: 2.0**20}
    variable = exact.variable(0)
    assert exact.constant(0.1, highs) is not None
    assert exact.combined("multiply", exact.constant(0.1, highs), variable, highs) is None
    assert exact.combined("divide", variable, exact.constant(3.0, highs), highs) is None
    large = exact.combined("multiply", exact.constant(2.0**30 + 1, highs), variable, highs)
    assert large is not None
    assert exact.combined("multiply", large, variable, highs) is None


def test_an_input_of_one_value_is_computed_once():
    a, b = leaf("a"), leaf("b")
    program = Program([a * 3.0 + 1.0, a * b])
    alone, both = program.run({"a": np.array([2.0]), "b": np.arange(5.0)}, 5)
    assert alone.shape == (1,)
    assert both.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_names_are_picked_by_place_and_compared_with_words():
    x = leaf("x")
    chosen = choose(["dram", "matmul", "launch"], where(x > 2, 1.0, 0.0))
    names, yes, no = Program([chosen, chosen == "matmul", chosen == "gone"]).run(
        {"x": np.array([1.0, 2.0, 3.0])}, 3
    )
    assert names.tolist() == ["dram", "dram", "matmul"]
    assert yes.tolist() == [False, False, True]
    assert np.broadcast_to(no, 3).tolist() == [False, False, False]


def test_an_array_that_exists_serves_wherever_an_array_does():
    data = np.arange(1.0, 6.0)
    x = leaf("x", data) * 2.0
    assert isinstance(x, Traced)
    assert x.shape == (5,)
    assert len(x) == 5
    assert x.size == 5
    assert x.ndim == 1
    assert x[1] == 4.0
    assert x.max() == 10.0
    assert x.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert np.asarray(x).sum() == np.sum(x) == 30.0
    assert np.add.reduce(x) == 30.0
    assert (x + np.ones(5)).tolist() == [3.0, 5.0, 7.0, 9.0, 11.0]
    assert np.stack([x, x]).shape == (2, 5)
    assert not (x > 100).any()


def test_what_has_no_values_yet_says_so():
    with pytest.raises(UntraceableError, match="seq has no values"):
        bool(leaf("seq") > 3)
    with pytest.raises(UntraceableError, match="seq has no values"):
        (leaf("seq") % 3).any()


def test_arrays_of_several_axes_keep_their_shapes():
    rows, columns = leaf("r", np.arange(1.0, 4.0)[:, None]), leaf("c", np.arange(1.0, 6.0)[None, :])
    wide, tall, constant = evaluate([ceil_div(rows * columns, 2.0), maximum(rows, 2.0), 7.0])
    assert wide.tolist() == [[math.ceil(r * c / 2) for c in range(1, 6)] for r in range(1, 4)]
    assert tall.tolist() == [[2.0], [2.0], [3.0]]
    assert constant == 7.0


def test_blocks_meet_without_a_seam():
    data = np.arange(1.0, 3 * BLOCK + 7.0)
    assert (evaluate([minimum(leaf("x", data) / 3.0, 1e4)])[0] == np.minimum(data / 3.0, 1e4)).all()


FIGURES = [
    "launches",
    "flops",
    "bytes.compulsory",
    "bytes.l2",
    "bytes.dram_read",
    "bytes.dram_write",
    "bytes.retained",
]
FIGURES += ["intensity", "bound", "seconds.roofline", "seconds.expected", "seconds.launch", "seconds.host"]


def figures(result):
    """Every total of a result."""
    found = {"speedup": result.speedup, "recommended": result.recommended, "memory_peak": result.memory_peak}
    for name in FIGURES:
        value = result.estimate
        for part in name.split("."):
            value = getattr(value, part)
        found[name] = value
    return found


CALLS = [
    (iomodel.attention, {"gpu": "h100-sxm"}, {"seq": (1, 131072)}),
    (
        iomodel.attention,
        {"gpu": "a100-sxm-80gb", "causal": True, "kv_heads": 8},
        {"seq": (1, 65536), "batch": (1, 64)},
    ),
    (iomodel.attention, {"gpu": "h200", "backward": True, "dropout": 0.1, "mask": True}, {"seq": (1, 16384)}),
    (iomodel.attention, {"gpu": "mi300x", "window": 1024, "causal": True, "l2": "warm"}, {"seq": (1, 65536)}),
    (
        iomodel.attention,
        {"gpu": "l40s", "launch": "graph"},
        {"seq": (1, 4096), "kv_seq": (1, 65536), "heads": (1, 64)},
    ),
    (iomodel.decode, {"gpu": "h200", "heads": 32, "kv_heads": 8}, {"kv_len": (1, 10**6), "batch": (1, 512)}),
    (
        iomodel.gemm,
        {"gpu": "h100-sxm", "epilogue": "bias,gelu"},
        {"m": (1, 20000), "n": (1, 20000), "k": (1, 20000)},
    ),
    (iomodel.gemm, {"gpu": "mi300x", "dtype": "fp8"}, {"m": (1, 20000), "n": (1, 20000), "k": (1, 20000)}),
]


@pytest.mark.parametrize(
    ("call", "fixed", "ranges"), CALLS, ids=[f"{c[0].__name__}-{i}" for i, c in enumerate(CALLS)]
)
def test_a_long_sweep_is_the_loop_bit_for_bit(call, fixed, ranges):
    count = 2 * BLOCK + 100
    generator = np.random.default_rng(7)
    sizes = {
        name: np.floor(np.exp(generator.uniform(np.log(low), np.log(high + 1), count)))
        for name, (low, high) in ranges.items()
    }
    swept = call(**fixed, **sizes)
    for i in [*range(5), BLOCK - 1, BLOCK, 2 * BLOCK, count - 1, *generator.integers(0, count, 30)]:
        one = call(**fixed, **{name: array[i] for name, array in sizes.items()})
        for mine, alone in zip(swept.results, one.results, strict=True):
            for name, value in figures(alone).items():
                of_sweep = np.broadcast_to(figures_of(mine, swept)[name], count)[i]
                assert of_sweep == value, (name, mine.variant, {n: a[i] for n, a in sizes.items()})


def figures_of(result, analysis, known={}):  # noqa: B006 - kept between calls on purpose
    if known.get("of") is not analysis:
        known.clear()
        known["of"] = analysis
    return known.setdefault(id(result), figures(result))


def test_a_long_sweep_echoes_what_it_was_given():
    seq = np.arange(1.0, 2 * BLOCK)
    analysis = iomodel.attention(seq=seq)
    assert (analysis.inputs["seq"] == seq).all()
    assert f"{seq.size} values of tokens" in analysis.title
    kernel = analysis["standard"].estimate.kernels[0]
    assert np.asarray(kernel.seconds.expected).shape == seq.shape
    assert (
        kernel.seconds.by_resource["dram"][10]
        == iomodel.attention(seq=11)["standard"].estimate.kernels[0].seconds.by_resource["dram"]
    )


def test_a_sweep_is_faster_than_engines_that_loop():
    """Attention problems a second on one core, all variants of each, against 364,000 of public engines."""
    import time

    seq = np.floor(np.random.default_rng(1).uniform(128, 131072, 200_000))
    fastest = 0.0
    for _ in range(4):
        start = time.process_time()
        iomodel.attention(seq=seq)
        fastest = max(fastest, seq.size / (time.process_time() - start))
    assert fastest > 364_000
