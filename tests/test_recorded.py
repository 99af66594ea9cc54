"""The model against recorded measurements: what streams is exact, and each family's error against its bar.

The rows are those of `configs/measurements/` (see docs/validation.md): DRAM counters and times of one H200, and
kernel times of four GPUs from NVIDIA's aiconfigurator tables. The bars are the project's own, set before the model
was fitted; a bar that is not reached is marked, with the figure that was found.
"""

from __future__ import annotations

import csv
import json
from functools import cache

import numpy as np
import pytest

from iomodel import attention, chain, decode, gemm, load_profile
from iomodel.catalogue import configs_folder
from iomodel.recorded import prediction, shipped
from iomodel.validate import compare_all

H200 = "h200"
#: The driver of the measured GPU reports 60 MB of L2; 25 to 30 MB of written lines were seen to stay there.
L2 = 60e6


STREAMS = (
    "chain",
    "bias_gelu_dropout",
    "bias_silu",
    "resid_ln_dropout",
    "relu_add",
    "softmax",
    "layernorm",
    "swiglu",
    "geglu",
)


@cache
def workloads():
    """Rows of the first H200 campaign, straight from the file."""
    path = configs_folder("measurements") / "h200_workloads.csv"
    with open(path, encoding="utf-8", newline="") as file:
        return [row | {"params": json.loads(row["params"])} for row in csv.DictReader(file)]


# --- what streams: compulsory reads are the counter's ---------------------------------------------


def streamed(row):
    """What the model says that a streaming row must read, or None for a row that does not stream."""
    p, family, variant = row["params"], row["family"], row["variant"]
    if family == "chain" and variant == "compile":
        return chain(p["ops"], [p["n"]], dtype=p["dtype"], gpu=H200)["fused"]
    if family == "bias_gelu_dropout" and variant == "compile":
        return chain("bias gelu dropout", [p["rows"], p["cols"]], dtype=p["dtype"], gpu=H200)["fused"]
    if family == "swiglu":
        fused = "fused" if variant == "compile" else "unfused"
        return chain("silu mul", [p["rows"], p["cols"]], dtype=p["dtype"], gpu=H200)[fused]
    if family == "rmsnorm" and variant == "compile":
        return chain("rms-norm", [p["rows"], p["cols"]], dtype=p["dtype"], gpu=H200)["fused"]
    if (
        family == "softmax" and p["cols"] * 2 <= 24 * 1024
    ):  # a row of bf16 that a library kernel keeps in registers
        return chain("softmax", [p["rows"], p["cols"]], dtype=p["dtype"], gpu=H200)["unfused"]
    if family == "gemm" and p["m"] <= 128:
        return gemm(p["m"], p["n"], p["k"], dtype=p["dtype"], gpu=H200)["unfused"]
    if family == "decode" and variant != "naive":
        shape = {"batch": p["batch"], "heads": p["heads"], "kv_heads": p["kv_heads"], "head_dim": p["d"]}
        # The partial results of split-K are read back by the kernel that combines them, from L2: not counted here.
        return decode(p["seq"], **shape, dtype=p["dtype"], gpu=H200)["no-split"]
    return None


#: Below a megabyte what a kernel reads of its own code and parameters, about 7 kB, shows by more than 0.5 %.
STREAMING = [
    row["id"] for row in workloads() if streamed(row) and streamed(row).estimate.bytes.compulsory_read > 2e6
]


def test_streaming_rows_are_what_the_issue_names():
    kinds = {(row["family"], row["variant"]) for row in workloads() if row["id"] in STREAMING}
    wanted = {("chain", "compile"), ("swiglu", "compile"), ("rmsnorm", "compile"), ("gemm", "eager")}
    assert wanted | {("decode", "flash"), ("decode", "cudnn")} <= kinds
    assert len(STREAMING) >= 25


@pytest.mark.parametrize("name", STREAMING)
def test_compulsory_reads_are_measured_reads(name):
    """0.5 %: the bar of the issue. Measured over compulsory is 1.000 to 1.003 on such rows."""
    row = next(row for row in workloads() if row["id"] == name)
    assert streamed(row).estimate.bytes.compulsory_read == pytest.approx(float(row["dram_read"]), rel=0.005)


# --- the bars -------------------------------------------------------------------------------------


@cache
def compared():
    return compare_all(shipped())


def chosen(rows, figure, families, variant=None, gpu=None):
    """Comparisons of one figure: of rows `held out` of every fit, or of `all`."""
    found = [
        one
        for one in compared()[0]
        if one.figure == figure
        and (families is None or one.row.family in families)
        and (variant is None or one.row.variant == variant)
        and (gpu is None or one.row.gpu == gpu)
        and (rows == "all" or one.row.held_out)
    ]
    assert found
    return found


def errors(found):
    return np.array([abs(one.predicted / one.measured - 1) for one in found])


def within(found, median, p90, most=np.inf):
    off = errors(found)
    found_at = f"median {np.median(off):.1%}, 90th percentile {np.quantile(off, 0.9):.1%}, largest {off.max():.1%}"
    assert np.median(off) <= median, found_at
    assert np.quantile(off, 0.9) <= p90, found_at
    assert off.max() <= most, found_at


def marked(values, *reasons):
    """Parameters of which some do not reach their bar: `reasons` are (parameters, why)."""
    missed = dict(reasons)
    mark = {value: [pytest.mark.xfail(strict=True, reason=why)] for value, why in missed.items()}
    return [pytest.param(*value, marks=mark.get(value, [])) for value in values]


@pytest.mark.parametrize("rows", ["held out", "all"])
def test_dram_reads(rows):
    """Bar 1: DRAM reads on the H200, median 2 %, 90th percentile 15 %, no row off by more than 40 %."""
    within(chosen(rows, "DRAM read", None, gpu=H200), 0.02, 0.15, 0.40)


def test_held_out_rows_are_about_half_and_every_family_has_some():
    everything = compared()[0]
    held = [one for one in everything if one.row.held_out]
    assert 0.4 < len(held) / len(everything) < 0.6  # one bit of a hash: 50 % give or take
    for family in ("chain", "gemm", "attention", "decode", "table gemm bf16", "table prefill", "table decode"):
        assert any(one.row.family == family for one in held)


def writes():
    """(id, measured writes, the model's result) of rows that write more than the counter's own noise."""
    for row in shipped():
        result = prediction(row, load_profile(H200)) if row.dram_write is not None else None
        if result is not None and result.estimate.bytes.compulsory_write > 16e6:
            yield row, result


def test_predicted_writes_lie_between_compulsory_less_l2_and_compulsory():
    """Bar 1: writes between compulsory minus what L2 can hold and compulsory plus 5 %. Each kernel may leave an
    L2 of lines that the next overwrites or that are dead by then."""
    for row, result in writes():
        moved, kernels = result.estimate.bytes, result.estimate.launches
        assert moved.compulsory_write - kernels * L2 <= moved.dram_write <= 1.05 * moved.compulsory_write, row.name
        assert moved.dram_write + moved.retained == pytest.approx(moved.compulsory_write, rel=1e-9) or any(
            k.kernel.reread(t).again for k in result.estimate.kernels for t in k.kernel.writes
        )


#: Kernels that were measured to write more than their outputs.
WRITES_MORE = {
    ("attention", "flash"): "this FlashAttention-2 kernel writes up to 38 % more than O from 16k tokens on",
    ("attention_fwd_bwd", "flash"): "its backward pass adds to dQ in memory: 26 % more than its tensors",
    ("resid_ln_dropout", "compile"): "the compiler stores the normalised row and loads it again: 3 x",
}


@pytest.mark.parametrize(
    ("family", "variant"),
    marked(
        sorted({(row.family, row.variant) for row, _ in writes()}),
        *WRITES_MORE.items(),
    ),
)
def test_measured_writes_lie_where_the_model_says(family, variant):
    """The same bar from the other side: the counter shows the model's writes, give or take 5 % of the tensors and
    the 30 MB that L2 was seen to keep."""
    for row, result in writes():
        if (row.family, row.variant) == (family, variant):
            slack = 0.05 * result.estimate.bytes.compulsory_write + 30e6
            assert abs(row.dram_write - result.estimate.bytes.dram_write) <= slack, row.name
            assert row.dram_write <= 1.05 * result.estimate.bytes.compulsory_write, row.name


def chains_with_writes():
    rows = [row for row in shipped() if row.dram_write is not None and row.family in STREAMS]
    assert len(rows) > 80
    return [row for row in rows if (row.family, row.variant) not in WRITES_MORE]


def test_writes_of_chains_are_measured_writes():
    """What L2 still holds at the end, and what died in it: from nothing written at 1 MiB to all but 26 MB of 3 GB.
    10 MB: single kernels over 134 MB were seen to leave between 18 and 27 MB unwritten; 1 %: 8 kernels of them."""
    for row in chains_with_writes():
        predicted = prediction(row, load_profile(H200)).estimate.bytes.dram_write
        assert abs(predicted - row.dram_write) <= 10e6 + 0.01 * row.dram_write, row.name


def test_products_that_mostly_write_leave_28_mb_behind():
    """Where C is several times A and B, L2 fills with its lines up to its limit of unwritten ones: 27 to 30 MB of
    C were not on DRAM when counting stopped, whatever the size. 3 MB: between kernels of the same shape."""
    names = ("x_bmm_32x4096x128x4096", "x_bmm_64x1024x64x1024", "l_gemm_4096x512x32768", "x_gemm_32768x512x2048")
    for row in (row for row in shipped() if row.name in names):
        moved = prediction(row, load_profile(H200)).estimate.bytes
        assert 27e6 < moved.compulsory_write - row.dram_write < 30e6
        assert moved.dram_write == pytest.approx(row.dram_write, abs=3e6), row.name


def test_a_running_output_is_written_back_as_often_as_it_passes():
    """fa1's O, l and m: at 64k tokens of 32 heads nothing survives in L2 between two key blocks, so the 512 visits
    of every row write 264 B each (O 256, l and m 8) of the 784 B that a visit asks for, but for what L2 keeps."""
    moved = attention(seq=65536, heads=32, head_dim=128, block_kv=128, block_q=64, gpu=H200)["fa1"].estimate.bytes
    visits = 32 * 512 * 65536
    assert moved.dram_write == pytest.approx(visits * 264, rel=0.01)
    assert moved.dram_read == pytest.approx(visits * (256 + 264), rel=0.01)


TABLES = ("table gemm bf16", "table prefill", "table decode")
FOUR = ("a100-sxm-80gb", "h100-sxm", "h200", "l40s")


@pytest.mark.parametrize("rows", ["held out", "all"])
@pytest.mark.parametrize("family", TABLES)
def test_kernel_times(family, rows):
    """Bar 2: bf16 GEMM, prefill and decode on A100, H100, H200, L40S: median 7 %, 90th percentile 20 %."""
    within(chosen(rows, "table", [family]), 0.07, 0.20)


@pytest.mark.parametrize(
    ("family", "gpu"),
    marked(
        [(family, gpu) for family in TABLES for gpu in FOUR],
        (("table gemm bf16", "l40s"), "found 6.2 % / 21.2 %: tall GEMMs of a few rows on the L40S"),
    ),
)
def test_kernel_times_on_each_gpu(family, gpu):
    within(chosen("held out", "table", [family], gpu=gpu), 0.07, 0.20)


@pytest.mark.parametrize(
    "gpu",
    [
        pytest.param("h100-sxm", marks=pytest.mark.xfail(strict=True, reason="found 18.3 % / 33.8 %")),
        "h200",
        "l40s",
        None,
    ],
)
def test_fp8_gemm_times(gpu):
    """Bar 2: fp8 GEMM (with the engine's quantising in it): median 15 %, 90th percentile 40 %."""
    within(chosen("held out", "table", ["table gemm fp8"], gpu=gpu), 0.15, 0.40)


#: Contradict themselves: a cold kernel cannot read less than its input, so part of it was in L2 before.
NOT_COLD = {"x_layernorm_4096x4096_eager"}


def test_no_measurement_beats_a_bound():
    """Bar 3: roofline never above a cold time, compulsory reads never above the reads of a kernel alone."""
    assert {text.split(":")[0] for text in compared()[1]} <= NOT_COLD
    for row in shipped():
        result = prediction(row, load_profile(row.gpu)) if "cold" in row.seconds or row.dram_read else None
        if result is not None:
            one = result.estimate
            assert one.seconds.roofline <= row.seconds.get("cold", np.inf), row.name
            assert one.seconds.roofline <= row.seconds.get("counters", np.inf), row.name
            if one.launches == 1 and row.dram_read and row.name not in NOT_COLD:
                assert one.bytes.compulsory_read <= 1.005 * row.dram_read, row.name  # 0.5 %: the counter


@pytest.mark.parametrize(
    ("rows", "variant", "figure"),
    marked(
        [
            (rows, variant, figure)
            for rows in ("held out", "all")
            for variant in ("eager", "compile")
            for figure in ("graph", "counters")
        ],
        (("all", "compile", "counters"), "found 11.4 % over all rows (7.7 % over those held out)"),
    ),
)
def test_times_of_chains(rows, variant, figure):
    """Bar 4: elementwise and norm chains on the H200, small ones from L2 included: median 10 %."""
    within(chosen(rows, figure, STREAMS, variant, H200), 0.10, np.inf)


def soft_edge():
    for one in compared()[0]:
        p, name = one.row.params, one.row.name
        if one.figure != "DRAM read":
            continue
        three = one.row.family == "chain" and one.row.variant == "eager" and p["ops"] == 3
        if (three and 2**20 <= 2 * p["n"] <= 96 * 2**20) or (
            one.row.family == "attention" and not p["causal"] and 16384 <= p["seq"] <= 131072
        ):
            yield pytest.param(one, 0.20, id=name)
        elif one.row.family == "gemm" and min(p["m"], p["n"], p["k"]) >= 1024:
            yield pytest.param(one, 0.25, id=name)


SOFT_EDGE = list(soft_edge())


def test_soft_edge_rows_are_there():
    names = " ".join(str(one.id) for one in SOFT_EDGE)
    assert all(
        kind in names for kind in ("l_chain3_1MiB", "l_chain3_96MiB", "_flash", "_cudnn", "16384x16384x16384")
    )


@pytest.mark.parametrize(("one", "bar"), SOFT_EDGE)
def test_soft_edge_of_l2(one, bar):
    """Bar 5: three-op chains from 1 to 96 MiB and non-causal attention from 16k to 128k tokens, each kernel as its
    own variant: DRAM reads within 20 % at every point; GEMMs from 1024^3 to 16384^3 within 25 %."""
    assert one.predicted == pytest.approx(one.measured, rel=bar)


def test_batches_of_grouped_heads_read_their_cache_again():
    """FlashAttention-2 launches batches inside heads, so the next query head of a group comes a batch later: 8
    sequences of 4096 tokens read 1.41 x compulsory, short ones 1.03 x. 15 %: the bar of nine rows in ten."""
    found = [
        one
        for one in chosen("all", "DRAM read", ["attention"], "flash", H200)
        if one.row.params["batch"] > 1 and one.row.params["heads"] > one.row.params["kv_heads"]
    ]
    assert len(found) >= 5
    for one in found:
        assert one.predicted == pytest.approx(one.measured, rel=0.15), one.row.name


def test_measured_traffic_of_naive_attention():
    """Forward and backward, batch 64, 16 heads, N 1024, d 64: 40.5 GB counted for 12 kernels, which scale
    the scores apart (4 more passes over N^2 than the model's 11, each 2.1475 GB) and read operands again."""
    row = next(r for r in workloads() if r["id"] == "attnfb_b64h16s1024d64_naive")
    a = attention(seq=1024, batch=64, heads=16, head_dim=64, backward=True, gpu=H200)
    counted = float(row["dram_read"]) + float(row["dram_write"])
    assert counted == pytest.approx(40.5e9, rel=0.01)
    assert a["standard"].estimate.bytes.compulsory + 4 * 2.1475e9 < counted
    assert a["standard"].estimate.bytes.compulsory > 0.6 * counted
