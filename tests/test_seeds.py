"""Both seed documents' own numbers, through the Python API and once each through the command line.

The figures are counted here by hand from shapes and element sizes, or copied from the programs' printed
output in the seeds (Sonawane, "Fusion and IO-aware kernels"; "Operator Fusion").
"""

from __future__ import annotations

import json

import pytest

import iomodel
from iomodel import attention, chain, gemm

#: H100 SXM's HBM3, as the first seed's program has it.
HBM = 3.35e12
#: One tensor of the first seed: 4096 x 8192 bf16 elements = 33,554,432 x 2 B.
T = 67_108_864
#: Q, K, V or O of one attention at 16384 tokens: 32 heads x 16384 x 128 elements x 2 B.
Q = 134_217_728


def compulsory(analysis, variant):
    return analysis[variant].estimate.bytes.compulsory


# --- 1: chains -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "unfused_mb", "unfused_us"),
    [
        (3, 402.65, 120.2),  # 3 x (read T + write T) = 6 x 67.108864 MB = 402.653184 MB; / 3.35 TB/s = 120.195 us
        (5, 671.09, 200.3),  # 10 x 67.108864 MB = 671.08864 MB; 200.325 us
    ],
)
def test_chain(ops, unfused_mb, unfused_us):
    c = chain(ops, shape="4096x8192", dtype="bf16", gpu="h100-sxm")
    assert compulsory(c, "unfused") == 2 * ops * T
    assert compulsory(c, "unfused") / 1e6 == pytest.approx(unfused_mb, abs=0.005)  # as the issue prints it
    assert compulsory(c, "fused") == 2 * T == 134_217_728
    assert c["unfused"].estimate.seconds.roofline * 1e6 == pytest.approx(unfused_us, abs=0.05)
    assert c["fused"].estimate.seconds.roofline * 1e6 == pytest.approx(40.06, abs=0.005)
    # The program prints 3.0x and 5.0x: traffic of k round trips over one.
    assert compulsory(c, "unfused") / compulsory(c, "fused") == ops
    assert (c["unfused"].estimate.launches, c["fused"].estimate.launches) == (ops, 1)


def test_named_chain_of_the_seed_moves_a_bias_row_on_top():
    """bias + GELU + dropout: the three-op chain, and the bias row of 8192 x 2 B that the seed leaves out."""
    c = chain("bias gelu dropout", shape="4096x8192")
    assert compulsory(c, "unfused") == 6 * T + 16_384
    assert compulsory(c, "fused") == 2 * T + 16_384


# --- 2: attention ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq", "standard_gb", "bound_gb", "ratio"),
    # seq^2 x 32 x 2 B is one pass over S: 67.1 MB, 1.0737 GB, 17.18 GB; standard is 4 of them and Q, K, V, O
    # once, each seq x 128 x 32 x 2 B; ratio = 1 + 4 seq^2 / (4 seq d) = 1 + seq / 128.
    [(1024, 0.3020, 0.03355, 9), (4096, 4.4292, 0.13422, 33), (16384, 69.2563, 0.53687, 129)],
)
def test_attention(seq, standard_gb, bound_gb, ratio):
    a = attention(seq=seq, heads=32, head_dim=128, dtype="bf16", gpu="h100-sxm")
    assert compulsory(a, "standard") / 1e9 == pytest.approx(standard_gb, abs=0.00005)
    assert compulsory(a, "io-lower-bound") / 1e9 == pytest.approx(bound_gb, abs=0.000005)
    assert compulsory(a, "standard") / compulsory(a, "io-lower-bound") == ratio
    # The program's own integers.
    assert compulsory(a, "io-lower-bound") == 4 * seq * 128 * 2 * 32
    assert compulsory(a, "standard") == 4 * seq * 128 * 2 * 32 + 4 * seq * seq * 2 * 32


def test_attention_flops_are_the_same_in_every_variant_and_nothing_is_hidden():
    """Two products of 2 N^2 d FLOPs a head: 16384^2 x 128 x 4 x 32 = 4.398e12, fused or not."""
    a = attention(seq=16384, heads=32, head_dim=128)
    assert {r.variant for r in a.results} == {"standard", "fa1", "fa2", "fa3", "io-lower-bound"}
    for result in a.results:
        assert result.estimate.flops == 4_398_046_511_104
        assert sum(k.flops for k in result.estimate.kernels) == 4_398_046_511_104


# --- 3: the K/V re-read (Try it 1) -------------------------------------------------------------------


def test_fa2_asks_for_k_and_v_once_per_query_block():
    """128 blocks of 128 rows each stream K and V (2 x 134.2 MB) and Q and O pass once:
    128 x 2 Q + 2 Q = 258 x 134,217,728 = 34,628,173,824 B, half of standard's 516 x 134,217,728."""
    a = attention(seq=16384, heads=32, head_dim=128, block_q=128)
    for variant in ("fa2", "fa3"):
        assert a[variant].estimate.bytes.l2 == 258 * Q == 34_628_173_824
    assert compulsory(a, "standard") / a["fa2"].estimate.bytes.l2 == 2.0
    # 256 rows: 64 blocks, (64 x 2 + 2) Q = 17.448 GB, 516 / 130 = 3.969
    b = attention(seq=16384, heads=32, head_dim=128, block_q=256, block_kv=64)
    assert b["fa2"].estimate.bytes.l2 == 130 * Q
    assert compulsory(b, "standard") / b["fa2"].estimate.bytes.l2 == pytest.approx(3.97, abs=0.005)


def test_fa1_order_streams_q_o_and_statistics_once_per_key_block():
    """Algorithm 1 with 128 key blocks: each of 32 x 128 x 16384 visits of a query row reads Q and O, writes O
    (3 x 256 B), and reads and writes l and m (2 x 8 B); K and V pass once:
    67,108,864 x 784 B + 2 x 134,217,728 B = 52,881,784,832 B."""
    a = attention(seq=16384, heads=32, head_dim=128, block_kv=128, block_q=64)
    assert a["fa1"].estimate.bytes.l2 == 52_881_784_832
    assert a["fa1"].estimate.bytes.l2 / 1e9 == pytest.approx(52.88, abs=0.005)


@pytest.mark.parametrize("variant", ["fa2", "fa3"])
def test_the_reread_is_served_by_l2(variant):
    """Measured: 34.6 GB asked of L2; DRAM reads measured 0.41-0.49 GB on an H200 against 0.4027 compulsory.
    The issue allows 20 % on DRAM reads of non-causal attention; the bar here is the measured range itself,
    with 1 % for the counter."""
    moved = attention(seq=16384, heads=32, head_dim=128, gpu="h200")[variant].estimate.bytes
    assert moved.compulsory_read == 3 * Q
    assert 0.41e9 * 0.98 <= moved.dram_read <= 0.49e9 * 1.01
    assert moved.l2 > 70 * moved.dram_read


def test_the_reread_spills_when_one_heads_k_and_v_outgrow_l2():
    """Measured: N = 65536 read 4.38-4.46 GB (FlashAttention-2) against 1.61 compulsory. Tolerance: the
    20 % that the issue allows on such rows."""
    moved = attention(seq=65536, heads=32, head_dim=128, gpu="h200")["fa2"].estimate.bytes
    assert moved.compulsory_read == 12 * Q
    assert moved.dram_read == pytest.approx(4.42e9, rel=0.20)


# --- 4: epilogues and launches (Try it 2 and 3) ------------------------------------------------------


def test_gelu_as_an_epilogue_saves_a_round_trip_and_a_launch():
    """The separate GELU reads and writes C, 4096 x 8192 x 2 B each: 134.2 MB, 40.06 us at 3.35 TB/s."""
    g = gemm(m=4096, n=8192, k=4096, epilogue="gelu", gpu="h100-sxm")
    unfused, fused = g["unfused"].estimate, g["fused"].estimate
    assert unfused.bytes.compulsory - fused.bytes.compulsory == 134_217_728
    assert (unfused.seconds.roofline - fused.seconds.roofline) * 1e6 == pytest.approx(40.06, abs=0.005)
    assert unfused.launches - fused.launches == 1
    # What is left is the product itself: A 33.6 MB, B 67.1 MB, C 67.1 MB.
    assert fused.bytes.compulsory == 4096 * 4096 * 2 + 4096 * 8192 * 2 + T


def test_320_launches_of_4_us_cost_the_host_1_28_ms():
    """32 layers x 10 kernels x 4 us = 1280 us."""
    profile = iomodel.load_profile("h100-sxm").override("launch.eager", 4e-6)
    one = chain(320, shape="1x4096", gpu=profile)["unfused"].estimate
    assert one.launches == 320
    assert one.seconds.host == pytest.approx(1.28e-3, rel=1e-12)
    # Each kernel works for less than the host needs to launch it, so the host's time is the elapsed time
    # but for a latency at the end.
    assert 1.28e-3 <= one.seconds.expected <= 1.28e-3 + 10e-6


# --- 5: residual + LayerNorm + dropout (second seed) --------------------------------------------------

#: 2048 x 4096 fp16.
R = 16_777_216


def test_residual_layer_norm_dropout():
    """The add reads x and the attention output, LayerNorm and dropout one tensor each: 4 reads, 3 writes.
    The document's 96 MB is 6 tensors (of 16 MiB): it forgets that an add reads two."""
    words = "residual layer-norm dropout"
    c = chain(words, shape="2048x4096", dtype="fp16")
    assert compulsory(c, "unfused") == 7 * R == 117_440_512
    assert c["unfused"].estimate.bytes.compulsory_read == 4 * R
    assert c["unfused"].estimate.bytes.compulsory_write == 3 * R
    assert compulsory(c, "fused") == 3 * R == 50_331_648
    kept = chain(words, shape="2048x4096", dtype="fp16", keep="residual")
    assert compulsory(kept, "fused") == 4 * R == 67_108_864
    assert compulsory(kept, "unfused") == 7 * R  # it was written anyway


def test_training_saves_the_mask_and_the_row_statistics():
    """One byte an element for dropout's mask (8,388,608 B), mean and rstd in fp32 a row (2 x 2048 x 4 B)."""
    words, saved = "residual layer-norm dropout", 8_388_608 + 16_384
    c = chain(words, shape="2048x4096", dtype="fp16", train=True)
    assert compulsory(c, "unfused") == 7 * R + saved
    assert compulsory(c, "fused") == 3 * R + saved
    assert c["fused"].estimate.bytes.compulsory_read == 2 * R  # saving adds no reads


# --- the same through the command line ----------------------------------------------------------------


def answer(iomodel_run, *arguments):
    ran = iomodel_run(*arguments, "--format", "json")
    assert ran.code == 0, ran.err
    return {result["variant"]: result for result in json.loads(ran.out)["results"]}


def test_cli_chain(iomodel_run):
    three = answer(iomodel_run, "chain", "--ops", 3)
    assert three["unfused"]["bytes"]["compulsory"] == 402_653_184
    assert three["fused"]["bytes"]["compulsory"] == 134_217_728
    assert three["unfused"]["seconds"]["roofline"] * 1e6 == pytest.approx(120.2, abs=0.05)
    assert three["fused"]["seconds"]["roofline"] * 1e6 == pytest.approx(40.06, abs=0.005)
    five = answer(iomodel_run, "chain", "--ops", 5, "--shape", "4096x8192", "--dtype", "bf16", "--gpu", "h100-sxm")
    assert five["unfused"]["bytes"]["compulsory"] == 671_088_640
    assert five["unfused"]["seconds"]["roofline"] * 1e6 == pytest.approx(200.3, abs=0.05)


def test_cli_attention(iomodel_run):
    a = answer(iomodel_run, "attention", "--seq", "16k", "--block-q", 128)
    assert a["standard"]["bytes"]["compulsory"] == 516 * Q == 69_256_347_648
    assert a["io-lower-bound"]["bytes"]["compulsory"] == 536_870_912
    assert a["fa2"]["bytes"]["l2"] == 34_628_173_824
    assert a["fa2"]["flops"] == 4_398_046_511_104


def test_cli_gemm_and_launches(iomodel_run):
    g = answer(iomodel_run, "gemm", "--m", 4096, "--n", 8192, "--k", 4096, "--epilogue", "gelu")
    assert g["unfused"]["bytes"]["compulsory"] - g["fused"]["bytes"]["compulsory"] == 134_217_728
    assert g["unfused"]["launches"] - g["fused"]["launches"] == 1
    many = answer(iomodel_run, "chain", "--ops", 320, "--shape", "1x4096", "--set", "launch.eager=4us")
    assert many["unfused"]["seconds"]["host"] == pytest.approx(1.28e-3, rel=1e-12)


def test_cli_residual(iomodel_run):
    words = ("chain", "residual", "layer-norm", "dropout", "--shape", "2048x4096", "--dtype", "fp16")
    assert answer(iomodel_run, *words)["unfused"]["bytes"]["compulsory"] == 117_440_512
    assert answer(iomodel_run, *words)["fused"]["bytes"]["compulsory"] == 50_331_648
    assert answer(iomodel_run, *words, "--keep", "residual")["fused"]["bytes"]["compulsory"] == 67_108_864
    trained = answer(iomodel_run, *words, "--train")["fused"]
    (kernel,) = trained["kernels"]
    assert sorted(kernel["writes"].values()) == [8192, 8192, 8_388_608, R]  # mean, rstd, mask, y
