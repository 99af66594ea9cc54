"""What holds whatever the numbers: fusing adds nothing, bounds bound, sweeps equal loops, layers stay layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import iomodel
from iomodel import attention, chain, decode, gemm
from iomodel.table import RECORD, flatten

PACKAGE = Path(iomodel.__file__).parent

# --- strategies ----------------------------------------------------------------------------------------

GPUS = st.sampled_from(
    ["h100-sxm", "h200", "a100-sxm-80gb", "b200", "l40s", "rtx-4090", "mi300x", "v100-sxm2-32gb"]
)
UNARY = ["op", "scale", "relu", "gelu", "gelu-tanh", "silu", "tanh", "sigmoid", "exp", "dropout", "cast:fp32"]
OTHER = ["add", "residual", "mul", "bias", "swiglu", "cast:bf16", "cast:fp8", "layer-norm", "rms-norm", "softmax"]
OPS = st.lists(st.sampled_from([*UNARY, *OTHER]), min_size=1, max_size=7)
EPILOGUE = st.lists(st.sampled_from(["bias", "relu", "gelu", "silu", "residual", "mul", "dropout"]), max_size=4)
COMMON = {
    "launch": st.sampled_from(["eager", "stream", "graph"]),
    "gpu": GPUS,
    "dtype": st.just("fp16"),  # the one that every GPU here has a matrix rate for
}


def log_sizes(low, high):
    """Whole sizes spread over decades, powers of two and their neighbours among them."""
    powers = [2**i for i in range(60) if low <= 2**i <= high]
    near = sorted({n for p in powers for n in (p - 1, p, p + 1) if low <= n <= high} | {low, high})
    return st.one_of(st.sampled_from(near), st.integers(low, high))


CHAINS = {"ops": OPS, "shape": st.tuples(log_sizes(1, 100_000), log_sizes(1, 100_000)), "train": st.booleans()}
GEMMS = {
    "m": log_sizes(1, 30_000),
    "n": log_sizes(1, 30_000),
    "k": log_sizes(1, 30_000),
    "batch": log_sizes(1, 64),
    "epilogue": EPILOGUE.map(",".join),
}
DECODES = {
    "kv_len": log_sizes(1, 200_000),
    "batch": log_sizes(1, 256),
    "kv_heads": st.sampled_from([1, 2, 8]),
    "heads": st.sampled_from([8, 32, 64, 128]),
    "head_dim": st.sampled_from([64, 80, 128, 256]),
    "splits": st.one_of(st.none(), st.integers(1, 200)),
    "kv_dtype": st.sampled_from([None, "fp8"]),
}
ATTENTIONS = {
    "seq": log_sizes(1, 150_000),
    "kv_seq": st.one_of(st.none(), log_sizes(1, 150_000)),
    "batch": log_sizes(1, 64),
    "kv_heads": st.sampled_from([1, 2, 8]),
    "heads": st.sampled_from([8, 32, 64]),
    "head_dim": st.sampled_from([64, 80, 128, 256]),
    "causal": st.booleans(),
    "window": st.one_of(st.none(), log_sizes(1, 20_000)),
    "mask": st.booleans(),
    "dropout": st.sampled_from([0.0, 0.1]),
    "backward": st.booleans(),
}


def drawn(analyse, sizes):
    return st.fixed_dictionaries({**sizes, **COMMON}).map(lambda case: analyse(**case))


ANALYSES = st.one_of(
    drawn(chain, CHAINS), drawn(gemm, GEMMS), drawn(decode, DECODES), drawn(attention, ATTENTIONS)
)

# --- bytes ---------------------------------------------------------------------------------------------


@given(drawn(chain, CHAINS))
def test_fusing_a_chain_adds_no_compulsory_bytes(c):
    assert c["fused"].estimate.bytes.compulsory <= c["unfused"].estimate.bytes.compulsory


def test_what_training_saves_stays_alive():
    """dropout, gelu, dropout on one row of 1000 bf16: at the last kernel x (2000 B), both masks (1000 B each), and
    its input and output (2000 B each) are alive: 8000 B; the middle gelu has x, t1, t2 and the first mask."""
    c = chain("dropout gelu dropout", shape=(1, 1000), train=True)
    assert c["unfused"].memory_peak == 8000


@given(drawn(chain, {**CHAINS, "train": st.just(False)}))
def test_fusing_a_chain_raises_no_peak(c):
    """A fused kernel holds the inputs and the last output, which are in the unfused plan too."""
    assert c["fused"].memory_peak <= c["unfused"].memory_peak


def test_peak_of_an_unfused_chain_by_hand():
    """Three ops on T: x stays (the caller's), and an intermediate dies after its reader: x, t1, t2 = 3 T.
    With a residual: x, the residual r, t1, then x, r, t1, t2: inputs stay throughout: 4 T."""
    t = 4096 * 8192 * 2
    assert chain(3)["unfused"].memory_peak == 3 * t
    assert chain(3)["fused"].memory_peak == 2 * t
    assert chain("residual gelu")["unfused"].memory_peak == 4 * t
    assert chain("residual gelu")["fused"].memory_peak == 3 * t
    # Standard attention, 4096 tokens, 32 heads: Q, K, V (33.6 MB each), S and P (1.07 GB each); O after S died.
    q, s = 4096 * 128 * 32 * 2, 4096 * 4096 * 32 * 2
    a = attention(seq=4096)
    assert a["standard"].memory_peak == 3 * q + 2 * s
    assert a["fa2"].memory_peak == 4 * q


@given(drawn(gemm, GEMMS))
def test_an_epilogue_adds_no_compulsory_bytes(g):
    assert g["fused"].estimate.bytes.compulsory <= g["unfused"].estimate.bytes.compulsory


@given(st.fixed_dictionaries({**ATTENTIONS, **COMMON, "backward": st.just(False)}))
def test_fused_attention_adds_no_compulsory_bytes(case):
    """fa1 writes l and m too, 8 B a row, where standard writes and reads P, at least 4 B a row and key."""
    a = attention(**case)
    standard = a["standard"].estimate.bytes.compulsory
    for result in a.results:
        stats = 8 * case["batch"] * case["heads"] * case["seq"] if result.variant == "fa1" else 0
        assert result.estimate.bytes.compulsory - stats <= standard
        assert a["io-lower-bound"].estimate.bytes.compulsory <= result.estimate.bytes.compulsory


def assert_levels(analysis):
    """Compulsory <= asked of L2 for every kernel, nothing negative, and a plan is the sum of its kernels."""
    names = ("compulsory_read", "compulsory_write", "l2", "dram_read", "dram_write", "retained")
    for result in analysis.results:
        for one in result.estimate.kernels:
            moved = one.bytes
            assert min(getattr(moved, name) for name in names) >= 0
            assert moved.compulsory <= moved.l2
            assert moved.dram_read > 0  # at least the kernel's own code
        for name in names:
            parts = sum(getattr(k.bytes, name) for k in result.estimate.kernels)
            # 1e-12: float addition in another order
            assert getattr(result.estimate.bytes, name) == pytest.approx(parts, rel=1e-12)


@given(ANALYSES)
def test_levels_are_in_order(analysis):
    assert_levels(analysis)


def test_levels_are_in_order_where_a_mask_is_read_in_part():
    assert_levels(attention(seq=2047, heads=8, kv_heads=1, head_dim=64, window=1, mask=True))


@pytest.mark.parametrize("backward", [False, True])
def test_levels_are_in_order_where_queries_see_no_key(backward):
    shape = {"batch": 64, "heads": 64, "kv_heads": 8, "head_dim": 64}
    assert_levels(attention(seq=2655, kv_seq=255, causal=True, backward=backward, **shape))


# --- times ---------------------------------------------------------------------------------------------


@given(ANALYSES)
def test_no_cold_kernel_beats_its_roofline(analysis):
    for result in analysis.results:
        one = result.estimate
        assert one.seconds.roofline <= one.seconds.expected - one.seconds.launch + 1e-18
        for k in one.kernels:
            assert max(k.seconds.by_resource.values()) == k.seconds.roofline
            assert k.seconds.roofline <= k.seconds.expected
        assert 0 < one.seconds.launch <= one.seconds.host + 1e-4
        assert one.seconds.expected >= one.seconds.host  # the host launches every kernel


@given(ANALYSES)
def test_recommended_is_the_fastest_that_can_run(analysis):
    chosen = [r for r in analysis.results if r.recommended]
    assert len(chosen) == 1
    for result in analysis.results:
        assert result.speedup == analysis.results[0].estimate.seconds.expected / result.estimate.seconds.expected
        if result.variant not in ("fa1", "io-lower-bound"):  # a bound, and a kernel that newer ones replace
            assert chosen[0].estimate.seconds.expected <= result.estimate.seconds.expected


# --- a sweep is the loop -----------------------------------------------------------------------------------


def everything(analysis):
    """Every figure of an analysis, flat, with names."""
    found = {}
    for i, (flat, result) in enumerate(zip(flatten(analysis), analysis.results, strict=True)):
        place = f"{i} {result.variant}"
        found |= {f"{place} {key}": flat[key] for key in RECORD}
        found[f"{place} memory_peak"] = result.memory_peak
        for j, one in enumerate((result.estimate, *result.estimate.kernels)):
            for name in ("compulsory_read", "compulsory_write", "l2", "dram_read", "dram_write", "retained"):
                found[f"{place} {j} {name}"] = getattr(one.bytes, name)
            for name in ("roofline", "expected", "launch", "host"):
                found[f"{place} {j} {name}"] = getattr(one.seconds, name)
            for resource, amount in one.work.items():
                found[f"{place} {j} work {resource}"] = amount
            for resource, amount in one.seconds.expected_by_resource.items():
                found[f"{place} {j} expected {resource}"] = amount
            for resource, amount in one.seconds.by_resource.items():
                found[f"{place} {j} roofline {resource}"] = amount
            found[f"{place} {j} bound"] = one.bound
    return found


def assert_sweep_is_loop(analyse, columns, fixed):
    """One call with arrays against a call a row: the same bits in every figure."""
    length = len(next(iter(columns.values())))
    arrays = {name: np.array(values, dtype=float) for name, values in columns.items()}
    swept = everything(analyse(**arrays, **fixed))
    for i in range(length):
        alone = everything(analyse(**{name: values[i] for name, values in columns.items()}, **fixed))
        assert alone.keys() == swept.keys()
        for key, value in alone.items():
            there = np.broadcast_to(swept[key], (length,))[i]
            assert there == value, (key, there, value, {n: v[i] for n, v in columns.items()})


def columns(**sizes):
    """Columns of 2 to 5 rows, a strategy each."""
    rows = st.lists(st.tuples(*sizes.values()), min_size=2, max_size=5)
    return rows.map(lambda rows: dict(zip(sizes, map(list, zip(*rows, strict=True)), strict=True)))


FIXED = {**COMMON, "l2": st.sampled_from(["cold", "warm"])}


@given(
    columns(rows=log_sizes(1, 10**6), columns=log_sizes(1, 10**6)),
    st.fixed_dictionaries({**FIXED, "ops": OPS, "train": st.booleans()}),
)
def test_sweep_of_chains(cases, fixed):
    def call(rows, columns, **rest):
        return chain(shape=(rows, columns), **rest)

    assert_sweep_is_loop(call, cases, fixed)


@given(
    columns(**{name: GEMMS[name] for name in ("m", "n", "k", "batch")}),
    st.fixed_dictionaries({**FIXED, "epilogue": GEMMS["epilogue"], "dtype": st.sampled_from(["fp16", "int8"])}),
)
def test_sweep_of_gemms(cases, fixed):
    if fixed["dtype"] == "int8":
        fixed["gpu"] = "h200"
    assert_sweep_is_loop(gemm, cases, fixed)


KV_HEADS = st.sampled_from([(1, 8), (2, 8), (8, 32), (4, 4), (1, 128)])


@given(
    columns(
        kv_len=DECODES["kv_len"],
        batch=DECODES["batch"],
        heads=KV_HEADS,
    ),
    st.lists(st.integers(1, 300), min_size=5, max_size=5),
    st.fixed_dictionaries({**FIXED, "head_dim": DECODES["head_dim"], "kv_dtype": DECODES["kv_dtype"]}),
    st.booleans(),
)
def test_sweep_of_decodes(cases, splits, fixed, chosen):
    cases["kv_heads"], cases["heads"] = (list(column) for column in zip(*cases["heads"], strict=True))
    if chosen:
        cases["splits"] = splits[: len(cases["heads"])]
    assert_sweep_is_loop(decode, cases, fixed)


#: What steers branches by name, and sizes that shape the kernel: numbers in a sweep.
ATTENTION_FIXED = {
    **FIXED,
    "head_dim": ATTENTIONS["head_dim"],
    "causal": st.booleans(),
    "mask": st.booleans(),
    "dropout": ATTENTIONS["dropout"],
    "backward": st.booleans(),
}


def attention_columns(shortest):
    return columns(
        seq=log_sizes(shortest, 150_000),
        kv_seq=log_sizes(1, 150_000),
        batch=ATTENTIONS["batch"],
        heads=KV_HEADS,
        window=log_sizes(1, 20_000),
    )


def sweep_attention(cases, fixed, windowed):
    cases["kv_heads"], cases["heads"] = (list(column) for column in zip(*cases["heads"], strict=True))
    if not windowed:
        del cases["window"]
    assert_sweep_is_loop(attention, cases, fixed)


@given(attention_columns(128), st.fixed_dictionaries(ATTENTION_FIXED), st.booleans())
def test_sweep_of_attentions(cases, fixed, windowed):
    sweep_attention(cases, fixed, windowed)


@given(attention_columns(1), st.fixed_dictionaries(ATTENTION_FIXED), st.booleans())
def test_sweep_of_attentions_shorter_than_a_tile(cases, fixed, windowed):
    sweep_attention(cases, fixed, windowed)


def test_sweep_arguments_broadcast():
    """A column of lengths against a row of batches: the grid of all of them."""
    grid = attention(seq=np.array([[256.0], [4096.0]]), batch=np.array([1.0, 2.0, 8.0]))
    bytes_ = grid["io-lower-bound"].estimate.bytes.compulsory
    # Q, K, V, O: 4 x seq x 32 heads x 128 x 2 B = 32768 B a token and sequence.
    assert bytes_.tolist() == [[32768.0 * s * b for b in (1, 2, 8)] for s in (256, 4096)]


# --- monotone -------------------------------------------------------------------------------------------

MONOTONE = ("bytes.compulsory", "bytes.l2", "flops", "seconds.roofline")


def figure(result, path):
    if path == "memory_peak":
        return result.memory_peak
    value = result.estimate
    for name in path.split("."):
        value = getattr(value, name)
    return value


def assert_grows(analyse, small, name, more, paths=(*MONOTONE, "memory_peak")):
    """No figure falls when one size grows."""
    before, after = analyse(**small), analyse(**{**small, name: small[name] + more})
    for low, high in zip(before.results, after.results, strict=True):
        for path in paths:
            # 1e-12: the figures are sums of floats in an order that the size does not change
            assert figure(low, path) <= figure(high, path) * (1 + 1e-12), (low.variant, path, small, name, more)


growth = log_sizes(1, 5000)


@given(st.fixed_dictionaries({**CHAINS, **COMMON}), st.booleans(), growth)
def test_chains_grow(case, which, more):
    shape = list(case.pop("shape"))

    def call(size, **rest):
        return chain(shape=(size, shape[1]) if which else (shape[0], size), **rest)

    assert_grows(call, {**case, "size": shape[0] if which else shape[1]}, "size", more)


@given(st.fixed_dictionaries({**GEMMS, **COMMON}), st.sampled_from(["m", "n", "k", "batch"]), growth)
def test_gemms_grow(case, name, more):
    assert_grows(gemm, case, name, more)


@given(st.fixed_dictionaries({**DECODES, **COMMON}), st.sampled_from(["kv_len", "batch", "heads"]), growth)
def test_decodes_grow(case, name, more):
    more = more * case["kv_heads"] if name == "heads" else more
    paths = (*MONOTONE, "memory_peak")
    if case["splits"] is None and name != "kv_len":
        # With more heads or sequences fewer splits fill the SMs, so the partial results may shrink.
        paths = ("flops",)
    assert_grows(decode, case, name, more, paths)


@given(
    st.fixed_dictionaries({**ATTENTIONS, **COMMON, "kv_seq": st.none()}),
    st.sampled_from(["seq", "batch", "heads", "window"]),
    growth,
)
def test_attention_grows(case, name, more):
    if name == "window" and case["window"] is None:
        case["window"] = 7
    more = more * case["kv_heads"] if name == "heads" else more
    assert_grows(attention, case, name, more)


@given(
    st.fixed_dictionaries({**ATTENTIONS, **COMMON, "kv_seq": log_sizes(1, 100_000), "window": st.none()}), growth
)
def test_attention_grows_with_its_keys(case, more):
    """With as many queries, more keys are more of everything (a window's blocks may fall on fewer edges)."""
    assert_grows(attention, case, "kv_seq", more)


@given(
    st.fixed_dictionaries({**CHAINS, **COMMON, "launch": st.just("stream")}),
    log_sizes(1, 20_000),
)
def test_expected_time_of_a_fused_chain_grows_with_its_rows(case, more):
    rows, columns = case.pop("shape")
    few, many = (chain(shape=(r, columns), **case)["fused"].estimate for r in (rows, rows + more))
    assert few.seconds.expected <= many.seconds.expected * (1 + 1e-12)
    assert few.bytes.dram_read <= many.bytes.dram_read * (1 + 1e-12)


@given(st.fixed_dictionaries({**DECODES, **COMMON, "splits": st.just(8)}), growth)
def test_expected_time_of_decode_grows_with_the_cache(case, more):
    short, long = (decode(**{**case, "kv_len": n}) for n in (case["kv_len"], case["kv_len"] + more))
    for low, high in zip(short.results, long.results, strict=True):
        assert low.estimate.seconds.expected <= high.estimate.seconds.expected * (1 + 1e-12)
        assert low.estimate.bytes.dram_read <= high.estimate.bytes.dram_read * (1 + 1e-12)


# --- layers ------------------------------------------------------------------------------------------------

#: Bottom up, after the design's picture: its nouns and what computes with them. A module may import what is
#: in its own row or below, never in a circle. One that is not named here stands as low as its imports let it.
LAYERS = [
    {"errors", "arrays"},
    {"tensor", "units", "op", "residency", "kernel"},
    {"ops", "tiling"},
    {"profile", "plan", "traffic", "duration", "roofline", "results", "table", "expression", "parameters"},
    {"study", "yamlfile", "catalogue"},
    {"analysis", "lint", "recorded", "validate"},
    {"importers", "render"},
    {"cli"},
]
PLACES = {name: i for i, layer in enumerate(LAYERS) for name in layer}
#: The row of `study`: from here up files, clocks and terminals are allowed.
STUDY = PLACES["study"]


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


SOURCES = {module_of(path): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
LAYERED = sorted(set(SOURCES) - {"__init__", "__main__"})


def imported(tree):
    """Names of the modules that a file imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def own_imports(module):
    """Modules of the package that a module imports."""
    names = {name.removeprefix("iomodel.") for name in imported(SOURCES[module]) if name.startswith("iomodel.")}
    return frozenset(name for name in names if name in SOURCES) - {module, "__init__"}


@cache
def place(module):
    """The row of a module: its own or its folder's in LAYERS, else the highest that it imports."""
    named = PLACES.get(module.split(".")[0])
    return named if named is not None else max((place(other) for other in own_imports(module)), default=0)


def circle(start):
    """A way from a module over its imports back to it, if there is one."""
    todo, seen = [(start, (start,))], set()
    while todo:
        module, path = todo.pop()
        for other in own_imports(module):
            if other == start:
                return (*path, start)
            if other not in seen:
                seen.add(other)
                todo.append((other, (*path, other)))
    return ()


def test_no_import_circles():
    circles = [circle(module) for module in LAYERED]
    assert not any(circles), " -> ".join(next(c for c in circles if c))


def test_imports_point_down():
    up = {
        f"{module} (row {place(module)}) imports {other} (row {place(other)})"
        for module in LAYERED
        for other in own_imports(module)
        if place(other) > place(module)
    }
    assert not up
    assert {"ops.attention", "traffic", "study", "cli.app"} <= set(LAYERED)  # the rows hold what they should
    assert own_imports("traffic")
    assert own_imports("cli.app")


def test_below_study_there_is_numpy_and_the_standard_library_only():
    """No YAML, Typer, Rich, no print, open, logging or clock: arithmetic. Nor in what such modules import."""
    todo, pure = [m for m in LAYERED if PLACES.get(m.split(".")[0], STUDY) < STUDY], set()
    while todo:
        module = todo.pop()
        if module not in pure:
            pure.add(module)
            todo += own_imports(module)
    assert {"traffic", "roofline", "ops.attention", "profile", "table"} <= pure
    found = {}
    for module in sorted(pure):
        roots = {name.split(".")[0] for name in imported(SOURCES[module])} - {"iomodel", "numpy"}
        calls = [n.func for n in ast.walk(SOURCES[module]) if isinstance(n, ast.Call)]
        called = {f.id for f in calls if isinstance(f, ast.Name)}
        found[module] = (
            (roots - sys.stdlib_module_names)
            | (roots & {"logging", "time", "datetime", "os", "io", "sys", "pathlib", "subprocess", "random"})
            | (called & {"print", "open", "input", "eval", "exec"})
        )
    assert not {module: names for module, names in found.items() if names}


def loaded_after(code):
    """Modules in memory after a fresh Python ran this code."""
    code += "\nimport sys; print('\\n'.join(['MODULES', *sys.modules]), file=sys.stderr)"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stderr.split("MODULES\n")[1].split())


HEAVY = {"torch", "onnx", "matplotlib", "scipy", "pandas", "pyarrow"}


def test_importing_iomodel_imports_next_to_nothing():
    loaded = loaded_after("import iomodel")
    assert "iomodel" in loaded
    assert not loaded & (HEAVY | {"numpy", "yaml", "typer", "rich"})


@pytest.mark.parametrize("shape", ["table", "json", "csv"])
def test_the_attention_command_needs_no_numpy(shape):
    arguments = ["attention", "--seq", "16384", "--format", shape]
    loaded = loaded_after(f"from iomodel.cli.app import run\nassert run({arguments!r}) == 0")
    assert "iomodel.ops.attention" in loaded
    assert not loaded & (HEAVY | {"numpy"})


def test_chain_gemm_and_decode_need_no_numpy_either():
    code = "import iomodel\niomodel.chain(3); iomodel.gemm(8, 8, 8); iomodel.decode(1024)"
    assert not loaded_after(code) & (HEAVY | {"numpy", "typer", "rich"})
