"""Published figures against what iomodel derives: papers' tables and figures, vendors' guides, public issues.

`data/literature.yaml` holds the figures with their sources. For each there is a way here to ask the model;
`tolerance` is how exactly the publication lets one know it. A bracket says that the measured time lies between the
model's bound and so many times it: a bound above a published time would be refuted.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from iomodel import attention, chain, decode, gemm, load_profile
from iomodel.ops.attention import Attention, theory
from iomodel.ops.blocks import visible_pairs

ENTRIES = yaml.safe_load((Path(__file__).parent / "data" / "literature.yaml").read_text("utf-8"))
GPU = {
    "A100-40GB": "a100-sxm-40gb",
    "A100-80GB": "a100-sxm-80gb",
    "H100-SXM": "h100-sxm",
    "TPU-v5e": "tpu-v5e",
    "A6000": "rtx-a6000",
}
BY_ID = {entry["id"]: entry for entry in ENTRIES}


def shaped(entry, **more):
    """The attention of an entry's workload."""
    w = entry["workload"]
    sizes = {"seq": w["N"], "batch": w["B"], "heads": w["H"], "head_dim": w["d"], "causal": w.get("causal", False)}
    gpu = GPU[entry["device"]]
    return attention(**sizes, dtype=entry["dtype"].partition(",")[0], gpu=gpu, **more)


def published_seconds(entry):
    """Seconds of an entry that gives a time, or TFLOP/s (causal runs are credited half of 4 N^2 d)."""
    w = entry["workload"]
    if entry["unit"] == "ms":
        return entry["value"] * 1e-3
    flops = 4 * w["B"] * w["N"] ** 2 * w["H"] * w["d"] * (0.5 if w["causal"] else 1.0)
    return flops / (entry["value"] * 1e12)


def ids(*prefixes):
    found = [entry["id"] for entry in ENTRIES if entry["id"].startswith(prefixes)]
    assert found, prefixes
    return found


# --- times between the bound and a few times the bound --------------------------------------------


def attention_bound(entry, variant, backward):
    """Seconds of the roofline of a variant, forward and backward or forward alone."""
    return shaped(entry, backward=backward)[variant].estimate.seconds.roofline


@pytest.mark.parametrize("name", ids("fa1.table20", "fa2.fig.pytorch", "fa3.fig.standard"))
def test_standard_attention_runs_slower_than_its_traffic(name):
    """Forward (and backward) passes over N^2, 4 (and 7 more), at the datasheet's bandwidth."""
    entry = BY_ID[name]
    _, low, high = entry["tolerance"]
    bound = attention_bound(entry, "standard", backward=entry["id"].startswith(("fa1", "fa2")))
    assert low <= published_seconds(entry) / bound <= high


@pytest.mark.parametrize("name", ids("fa2.fig.fa2", "fa3.fig.fa3"))
def test_flash_attention_runs_slower_than_its_flops(name):
    """3.5 x 4 N^2 d FLOPs forward and backward (5 products recomputed against 2), or 4 N^2 d forward, at the dense
    peak. The fa3 entries give TFLOP/s, whose bracket is the share of that peak."""
    entry = BY_ID[name]
    _, low, high = entry["tolerance"]
    variant = entry["id"].split(".")[2]
    ratio = attention_bound(entry, variant, backward=variant == "fa2") / published_seconds(entry)
    if variant == "fa2":
        assert low <= 1 / ratio <= high
    else:
        assert low <= ratio <= high


@pytest.mark.parametrize("name", ids("fa3.fig.fa3"))
def test_expected_time_of_flash_attention_3(name):
    """What the model expects of fa3 on an H100, fitted on other kernels' tables, against the paper's own chart.
    30 %: the chart is one of many kernel versions; at d = 256 causal the paper's kernel is young."""
    entry = BY_ID[name]
    expected = shaped(entry)["fa3"].estimate.seconds
    assert expected.expected - expected.launch == pytest.approx(published_seconds(entry), rel=0.30)


@pytest.mark.parametrize("name", ids("flashdecoding"))
def test_decode_runs_slower_than_its_cache(name):
    entry = BY_ID[name]
    w = entry["workload"]
    d = decode(w["S"], w["B"], w["hq"], w["hkv"], w["d"], dtype=entry["dtype"], gpu=GPU[entry["device"]])
    _, low, high = entry["tolerance"]
    assert low <= entry["value"] * 1e-6 / d["no-split"].estimate.seconds.roofline <= high


@pytest.mark.parametrize("name", ids("liger"))
def test_norm_kernels_run_slower_than_their_tensors(name):
    """LayerNorm reads and writes a tensor; add + RMSNorm reads two and writes two (the residual goes on)."""
    entry = BY_ID[name]
    w = entry["workload"]
    ops, keep = ("layer-norm", "") if "layernorm" in name else ("residual rms-norm", "residual")
    shape = (w["M"], w.get("N") or w["H"])
    c = chain(ops, shape, keep=keep, dtype=entry["dtype"], gpu=GPU[entry["device"]])
    _, low, high = entry["tolerance"]
    assert low <= entry["value"] * 1e-6 / c["fused"].estimate.seconds.roofline <= high


def test_softmax_kernel_reaches_a_share_of_the_bandwidth():
    """Triton tutorial: fused softmax counts 2 M N x 4 B; 1472 GB/s of 2039 measured."""
    entry = BY_ID["triton.softmax.measured_gbps"]
    m, n = entry["workload"]["M"], entry["workload"]["N"]
    one = chain("softmax", (m, n), dtype="fp32", gpu=GPU[entry["device"]])["fused"].estimate
    assert one.bytes.compulsory == 2 * m * n * 4
    _, low, high = entry["tolerance"]
    assert low <= one.seconds.roofline / (one.bytes.compulsory / (entry["value"] * 1e9)) <= high


# --- traffic --------------------------------------------------------------------------------------


def test_figure_2_of_flash_attention():
    """FlashAttention (2022), figure 2: GPT-2's attention, batch 64, 16 heads, N 1024, d 64, masked and dropped
    out, forward and backward: 40.3 GB of HBM reads and writes. By hand, in passes of 64 x 16 x 1024^2 x 2 B =
    2.1475 GB: S w, mask r w, softmax r w, dropout r w and its byte (1/2), P V r = 8.5; dV r, dP w, undo dropout
    r w and byte, softmax' r r w, dQ r, dK r = 9.5; and tensors like Q, 0.134 GB each: 38.655 + 1.61 = 40.27."""
    shape = {"batch": 64, "heads": 16, "head_dim": 64, "mask": True, "dropout": 0.1, "backward": True}
    a = attention(seq=1024, **shape, dtype="fp16", gpu="a100-sxm-40gb")
    # 0.05: the figure is printed with one decimal
    assert a["standard"].estimate.bytes.compulsory / 1e9 == pytest.approx(40.3, abs=0.05)


@pytest.mark.parametrize("name", ids("fa1.tables9_18"))
def test_what_mask_and_dropout_cost(name):
    """PyTorch's forward pass with a mask, dropout or both over the one without: extra passes over N^2."""
    entry = BY_ID[name]
    plain = shaped(entry)["standard"].estimate.bytes.compulsory
    more = shaped(
        entry, mask="mask" in name.split(".")[2].removeprefix("fwd_ratio_"), dropout=0.1 * ("dropout" in name)
    )
    assert more["standard"].estimate.bytes.compulsory / plain == pytest.approx(
        entry["value"], rel=entry["tolerance"][1]
    )


@pytest.mark.parametrize("name", ids("fa1.table21.flash_mem"))
def test_peak_memory_of_flash_attention(name):
    """Table 21 grows by 13 tensors like Q (11 up to one K/V block): Q, K, V, O, their gradients, and fp32 buffers.
    The model does not hold that kernel's fp32 copy of O: never above the table, at most two tensors below."""
    entry = BY_ID[name]
    w = entry["workload"]
    tensor = w["B"] * w["H"] * w["N"] * w["d"] * 2 / 2**20
    peak = shaped(entry, backward=True)["fa2"].memory_peak / 2**20
    rounding = entry["tolerance"][1]
    assert entry["value"] - 2 * tensor - rounding <= peak <= entry["value"] + rounding


@pytest.mark.parametrize("name", ids("fa3.reread_bound"))
def test_rereads_charged_to_hbm_are_refuted(name):
    """The published kernel is faster than its K/V re-reads could cross HBM, slower than what the model lets cross.
    Causal, N 16384, blocks of 128 queries; published / bound as in the source: 1.44 and 1.50."""
    entry = BY_ID[name]
    d = int(name.rsplit("d", 1)[1])
    tflops = BY_ID[f"fa3.fig.fa3.c.d{d}.16384"]["value"]
    a = attention(seq=16384, heads=2048 // d, head_dim=d, causal=True, dtype="fp16", block_q=128)
    one = a["fa3"].estimate
    took = 4 * 16384**2 * 2048 / 2 / (tflops * 1e12)
    charged = one.bytes.l2 / 3.35e12
    # Whole blocks of a causal triangle are 1 + 1/128 of it, and Q and O pass once: within 3 %.
    assert charged / took == pytest.approx(entry["value"], rel=0.03)
    assert one.bytes.dram / 3.35e12 < took < charged


def test_loop_order_constant_of_fa2():
    """Br = M / 4d rows make fa2 move 8.2 times N^2 d^2 / M elements (FlashAttention's own constant is 12)."""
    entry = BY_ID["bound.fa2.constant"]
    n, d, m = (entry["workload"][key] for key in ("N", "d", "M"))
    a = attention(seq=n, heads=1, head_dim=d, block_q=m // (4 * d), block_kv=64)
    elements = a["fa2"].estimate.bytes.l2 / 2
    assert elements / (n**2 * d**2 / m) == pytest.approx(entry["value"], rel=entry["tolerance"][1])


@pytest.mark.parametrize("name", ids("bound.attn.continuity"))
def test_lower_bound_is_continuous(name):
    """Saha and Ye: N^2 d^2 / M for M >= d^2, N^2 d / sqrt(M) below; both are N^2 elements at M = d^2."""
    w = BY_ID[name]["workload"]
    n, d, m = float(w["N"]), float(w["d"]), w["M"]
    assert m == d * d
    a = Attention(n, n, 1.0, 1.0, 1.0, d, "bf16", "bf16")
    at, below, far, little = (theory(a, 2 * x)[1] / 2 for x in (m, m * (1 - 1e-12), 4 * m, m / 4))
    assert at == n * n
    assert below == pytest.approx(n * n, rel=1e-11)
    assert far == n * n / 4  # M x 4: a quarter
    assert little == 2 * n * n  # M / 4 below d^2: only twice


def test_upper_bound_of_algorithm_1_is_what_its_loops_move():
    """K/V blocks of M / 4d rows: at N 4096, d 64, M 65536 elements they hold 256 rows, so Q and O pass 16 times:
    (2 + 3 x 16) N d elements. The leading term is 12 N^2 d^2 / M = 48 N d."""
    a = Attention(4096.0, 4096.0, 1.0, 1.0, 1.0, 64.0, "fp16", "fp16")
    assert theory(a, 2 * 65536)[0] == 50 * 4096 * 64 * 2


# --- FLOPs, intensities, ridge points -------------------------------------------------------------


@pytest.mark.parametrize("name", ids("fa3.table2"))
def test_flops_give_the_published_rate(name):
    entry = BY_ID[name]
    flops = shaped(entry)["fa3"].estimate.flops
    rate = flops / (entry["workload"]["ms"] * 1e-3) / 1e12
    assert rate == pytest.approx(entry["value"], abs=entry["tolerance"][1])


def test_layer_norm_flops():
    entry = BY_ID["ivanov.layernorm.flop"]
    w = entry["workload"]
    one = chain("layer-norm", (w["B"] * w["L"], w["d_model"]), dtype="fp16")["fused"].estimate
    assert one.flops == pytest.approx(entry["value"], rel=entry["tolerance"][1])
    words = one.bytes.compulsory / 2
    per_word = BY_ID["ivanov.layernorm.flop_per_word"]
    assert one.flops / words == pytest.approx(per_word["value"], abs=per_word["tolerance"][1])


@pytest.mark.parametrize("name", ids("nv.ai.linear", "nv.ai.gemm"))
def test_intensity_of_products(name):
    """NVIDIA's guide: a linear layer is [batch, in] x [in, out]."""
    entry = BY_ID[name]
    w = entry["workload"]
    m, n, k = (w["batch"], w["out"], w["inp"]) if "out" in w else (w["m"], w["n"], w["k"])
    one = gemm(m, n, k, dtype=entry["dtype"])["fused"].estimate
    assert one.flops / one.bytes.compulsory == pytest.approx(entry["value"], abs=entry["tolerance"][1])


def test_intensity_of_relu():
    one = chain("relu", dtype="fp16")["fused"].estimate
    assert one.flops / one.bytes.compulsory == BY_ID["nv.ai.relu"]["value"] == 0.25


def test_flops_of_a_large_fp32_product():
    entry = BY_ID["siboehm.flops"]
    n = entry["workload"]["n"]
    one = gemm(n, n, n, dtype="fp32", gpu=GPU[entry["device"]])["fused"].estimate
    assert one.flops / 1e9 == pytest.approx(entry["value"], abs=entry["tolerance"][1])


@pytest.mark.parametrize("name", ids("ridge", "scalingbook.ridge"))
def test_ridge_points(name):
    entry = BY_ID[name]
    kind, amount = entry["tolerance"]
    assert load_profile(GPU[entry["device"]]).ridge_point(entry["dtype"]) == pytest.approx(
        entry["value"], **{kind: amount}
    )


def test_ops_before_a_chain_is_bound_by_compute():
    """He, Making Deep Learning Go Brrrr: an A100 has about 100 fp32 operations for each element read and written.
    In the model: the roofline of a fused chain of k ops turns from dram to vector there."""
    entry = BY_ID["horace.ops_per_unary"]

    def longest(ops):
        by = chain(ops, dtype="fp32", gpu="a100-sxm-40gb")["fused"].estimate.seconds.by_resource
        return max(by, key=by.get)

    turns = next(k for k in range(50, 200) if longest(k) != "dram")
    assert longest(turns) == "vector:fp32"
    assert turns == pytest.approx(entry["value"], rel=entry["tolerance"][1])


@pytest.mark.parametrize(("name", "launch"), [("cudajl.rk4.eager", "stream"), ("cudajl.rk4.graph", "graph")])
def test_cost_of_small_kernels(name, launch):
    """CUDA.jl: 80 small kernels take 3.25 us each when launched bare, 0.875 us in a graph."""
    entry = BY_ID[name]
    one = chain(80, shape="1x1024", dtype="fp32", launch=launch)["unfused"].estimate
    _, low, high = entry["tolerance"]
    assert low <= one.seconds.host / 80 * 1e6 <= high
    assert one.seconds.host / 80 * 1e6 == pytest.approx(entry["value"], rel=0.05)  # its own two digits


# --- shape arithmetic from public issues ----------------------------------------------------------


def case(name):
    return BY_ID[f"case.{name}"]["value"]


def test_a03_layer_norm_with_statistics():
    """8 x 1024 x 768 fp32: 2 tensors of 25.17 MB are the quoted 50,331,648; with mean and rstd, 8192 x 2 x 4 B on
    top, and gamma and beta (2 x 768 x 4 B), which are rows that the chain leaves out: the exact figure."""
    value = case("A03")
    one = chain("layer-norm", (8 * 1024, 768), dtype="fp32")["fused"].estimate
    assert one.bytes.compulsory == value["bytes_counted"]
    assert one.seconds.roofline * 1e6 == pytest.approx(value["floor_us_h100"], abs=0.005)
    trained = chain("layer-norm", (8 * 1024, 768), dtype="fp32", train=True)["fused"].estimate
    assert trained.bytes.compulsory + 2 * 768 * 4 == value["bytes_exact"]


def test_a05_fusing_a_cast_makes_the_output_smaller():
    value = case("A05")
    shape = (4 * 2048, 4096)
    alone = chain("layer-norm", shape, dtype="fp16")["fused"].estimate.bytes.compulsory
    cast = chain(["layer-norm", "scale", "cast:fp8"], shape, dtype="fp16")["fused"].estimate.bytes.compulsory
    assert (alone, cast) == (value["ln_only_bytes"], value["ln_fp8_bytes"])
    assert cast / alone == value["ratio"]


def test_a07_gelu_gate():
    value = case("A07")
    c = chain("gelu mul", (8192, 3072))
    assert c["unfused"].estimate.bytes.compulsory == value["unfused_bytes"]
    assert c["fused"].estimate.bytes.compulsory == value["fused_bytes"]
    assert (c["unfused"].estimate.launches, c["fused"].estimate.launches) == (2, 1)


def test_a11_prefill_on_a_slow_chip():
    """H20: 148 TFLOP/s, so 4 TB/s of bandwidth is not what binds."""
    value = case("A11")
    a = attention(seq=2048, batch=2, heads=32, head_dim=64, gpu="h20")
    one = a["io-lower-bound"].estimate
    assert one.flops == value["flops"]
    assert one.bytes.compulsory == value["hbm_bytes_min"]
    assert one.flops / one.bytes.compulsory == value["ai"]
    assert one.seconds.roofline * 1e3 == pytest.approx(value["floor_ms"], rel=0.003)  # 148 TFLOP/s is rounded
    half = attention(seq=2048, batch=2, heads=32, head_dim=64, causal=True, gpu="h20")["fa2"].estimate.flops
    assert half / value["flops_causal"] == pytest.approx(2049 / 2048)  # the diagonal counts: S (S + 1) / 2 pairs


def test_a13_flops_and_bytes_of_the_papers_own_table():
    value = case("A13")
    shape = {"seq": 1024, "batch": 64, "heads": 16, "head_dim": 64, "dtype": "fp16"}
    forward, both = attention(**shape), attention(**shape, backward=True)
    assert forward["standard"].estimate.flops == value["flops_fwd"]
    assert both["standard"].estimate.flops == value["flops_fwd_bwd_standard"]
    for flash in ("fa1", "fa2", "io-lower-bound"):
        assert both[flash].estimate.flops == value["flops_fwd_bwd_flash"]
    assert forward["standard"].estimate.bytes.compulsory == value["std_fwd_hbm_bytes"]
    assert forward["fa2"].estimate.bytes.compulsory == value["flash_fwd_hbm_bytes_min"]


def test_a15_causal_halves_flops_not_bytes():
    """2048 x 2049 / 2 pairs; Q, K, V, O as without the mask; and 512 queries on 4096 keys, aligned at the end:
    512 x 4096 - 512 x 511 / 2."""
    assert visible_pairs(2048.0, 2048.0, True, None) == 2_098_176
    assert visible_pairs(512.0, 4096.0, True, None) == 512 * 4096 - 512 * 511 // 2
    full, causal = attention(seq=2048), attention(seq=2048, causal=True)
    assert causal["fa2"].estimate.bytes.compulsory == full["fa2"].estimate.bytes.compulsory
    assert causal["fa2"].estimate.flops == 4 * 128 * 32 * 2_098_176


def test_a17_odd_tiny_shape():
    assert attention(seq=9, batch=2, heads=5, head_dim=4)["fa2"].estimate.flops == case("A17")["flops"]


def test_a19_scores_in_memory():
    """40320^2 fp32 scores of 8 heads: 52.0 GB (the issue's 48 are GiB). Standard holds S and P."""
    value = case("A19")
    a = attention(seq=40320, heads=8, dtype="fp32", gpu="h100-sxm")
    (scores,) = [t.bytes for t in a["standard"].estimate.kernels[0].kernel.writes]
    assert scores == value["heads8_bytes"]
    assert a["standard"].memory_peak > 2 * value["heads8_bytes"] > 80e9 > a["fa2"].memory_peak


def test_a25_grouped_query_decode_reads_the_cache_once():
    """4 new tokens x 16 heads on one K/V head of 16384 tokens: as 64 query heads on it, which read it once."""
    value = case("A25")
    one = decode(16384, batch=4, heads=64, kv_heads=1, head_dim=128, dtype="fp16", gpu="h100-pcie")[
        "no-split"
    ].estimate
    kv = [t.bytes for t in one.kernels[0].kernel.reads if t.name in ("k", "v")]
    assert sum(kv) == value["kv_bytes"]
    assert one.flops == value["flops"]


def test_a49_skinny_product():
    value = case("A49")
    one = gemm(16, 1792, 5120, dtype="fp16", gpu="rtx-3090")["fused"].estimate
    assert one.bytes.compulsory == value["bytes"]
    assert one.seconds.roofline * 1e6 == pytest.approx(value["floor_us"], abs=0.005)
    assert one.flops / one.bytes.compulsory == pytest.approx(value["ai"], abs=0.005)


def test_a57_rms_norm():
    value = case("A57")
    b200 = load_profile("b200").override("memory.hbm", 8e12)  # as the pull request counts; the datasheet has 7.7
    small, large = (chain("rms-norm", s, dtype="fp16", gpu=b200)["fused"] for s in ((16384, 1024), (65536, 4096)))
    assert small.estimate.bytes.compulsory == value["bytes_16384x1024"]
    assert large.estimate.bytes.compulsory == value["bytes_65536x4096"]
    assert small.estimate.seconds.roofline * 1e6 == pytest.approx(value["floor_us"], rel=0.001)
    assert large.estimate.seconds.roofline * 1e6 == pytest.approx(value["floor_us_big"], rel=0.001)


def test_every_entry_is_used():
    source = Path(__file__).read_text("utf-8")
    for entry in ENTRIES:
        head = entry["id"].removeprefix("case.") if entry["id"].startswith("case.") else entry["id"]
        parts = head.split(".")
        assert any(f'"{".".join(parts[:i])}' in source for i in range(1, len(parts) + 1)), entry["id"]
