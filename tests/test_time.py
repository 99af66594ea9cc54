"""Expected times by hand: a GPU of round numbers, on which every term can be worked out on paper."""

from __future__ import annotations

import pytest

from iomodel import chain, gemm, load_profile

ROUND = {
    "memory.hbm": 1e12,
    "memory.l2": 1.0,  # next to none: every byte crosses DRAM
    "sm.count": 100.0,
    "sm.clock": 1e9,
    "sm.vector_clock": 1e9,
    "sm.lanes": 128.0,
    "sm.issue": 128.0,
    "compute.vector:fp32": 1e14,
    "launch.eager": 5e-6,
    "launch.graph": 1e-6,
    "launch.latency": 3e-6,
    "sustained.dram": 0.8,
    "sustained.dram_write": 0.5,
    "sustained.issue": 0.5,
    "sustained.l2_per_clock": 10.0,
    "sustained.floor": 2e-6,
    "sustained.graph_overlap": 0.5e-6,
    "sustained.code_read": 0.0,
}


def gpu(**more):
    profile = load_profile("h200")
    for key, amount in {**ROUND, **more}.items():
        profile = profile.override(key, amount)
    return profile


N = 10**8  # elements of bf16: 200 MB to read, 200 MB to write


def one(ops, launch="eager", profile=None, variant="unfused"):
    return chain(ops, (N,), gpu=profile or gpu(), launch=launch)[variant].estimate


def test_a_streaming_kernel():
    """400 MB at 0.8 TB/s is 500 us, the 200 MB written at 0.5 TB/s 400 us: 500. A library's generic op issues 5.4
    instructions an element: 5.4e8 / (100 x 128 x 1e9 x 0.5) = 84.375 us. Together (500^4 + 84.375^4)^(1/4) =
    500 x (1 + 0.16875^4)^(1/4) = 500 x 1.00020267 us, and the floor of 2 us."""
    k = one(1).kernels[0]
    assert k.seconds.expected_by_resource["dram"] == pytest.approx(500e-6, rel=1e-6)
    assert k.seconds.expected_by_resource["issue"] == pytest.approx(84.375e-6, rel=1e-9)
    assert k.seconds.expected - k.seconds.launch == pytest.approx(502.1013e-6, rel=1e-6)
    # The bound: 400 MB at 1 TB/s, however many instructions.
    assert k.seconds.roofline == pytest.approx(400e-6, rel=1e-9)


def test_writes_have_a_rate_of_their_own():
    """At 0.25 TB/s the 200 MB take 800 us, longer than all 400 MB at 0.8."""
    k = one(1, profile=gpu(**{"sustained.dram_write": 0.25})).kernels[0]
    assert k.seconds.expected_by_resource["dram"] == pytest.approx(800e-6, rel=1e-6)


def test_what_l2_serves_takes_l2s_time():
    """An L2 of 1 TB holds it all: the second of two ops reads nothing from DRAM and nothing is written there; its
    400 MB come from L2 at 100 x 10 x 1e9 B/s = 1 TB/s: 400 us."""
    k = one(2, profile=gpu(**{"memory.l2": 1e12})).kernels[1]
    assert k.bytes.dram_read == 0
    assert k.seconds.expected_by_resource["l2"] == pytest.approx(400e-6, rel=1e-2)
    assert k.seconds.roofline == pytest.approx(200e-6, rel=1e-9)  # a bound may charge the write alone


def test_a_fused_chain_is_bound_by_instructions():
    """exp, erf-GELU and tanh generated into one kernel: 11.3 + 34.4 + 16 an element, and 0.9 for its load and its
    store each: 63.5 x 1e8 / 6.4e12 = 992.19 us against 500 us of traffic; the bound says so."""
    f = one("exp gelu tanh", variant="fused")
    assert f.seconds.expected_by_resource["issue"] == pytest.approx(992.1875e-6, rel=1e-9)
    assert f.bound == "issue"


def test_wide_elements_cost_a_generated_kernel_more():
    """exp on fp32: 11.3 and 1.25 for each of a load and a store: 13.8 x 1e8 / 6.4e12 = 215.625 us."""
    f = chain("exp", (N,), dtype="fp32", gpu=gpu())["fused"].estimate
    assert f.seconds.expected_by_resource["issue"] == pytest.approx(215.625e-6, rel=1e-9)


def test_the_host_runs_ahead():
    """Three kernels of 502.1 us: the host's 3 x 5 us hide behind them, and one latency of 3 us is left. In a
    graph each node adds its 1 us, but the floor of 2 us has that and 0.5 us of overlap in it: 0.5 us remain."""
    eager, graph = one(3), one(3, "graph")
    assert eager.seconds.launch == pytest.approx(3e-6, rel=1e-9)
    assert eager.seconds.host == pytest.approx(15e-6, rel=1e-9)
    assert eager.seconds.expected == pytest.approx(3 * 502.1013e-6 + 3e-6, rel=1e-6)
    assert graph.seconds.expected == pytest.approx(3 * (500.1013e-6 + 0.5e-6) + 3e-6, rel=1e-6)
    assert eager.seconds.roofline == pytest.approx(3 * 400e-6, rel=1e-9)


def test_the_host_is_late():
    """Three kernels on 4 elements take their floors, 6 us; launching takes 15: 9 us of waiting and the latency."""
    tiny = chain(3, (4,), gpu=gpu())["unfused"].estimate
    assert tiny.seconds.launch == pytest.approx(12e-6, rel=1e-3)
    assert tiny.seconds.expected == pytest.approx(18e-6, rel=1e-3)
    assert tiny.bound == "launch"


def test_floors_belong_to_the_launch_bound():
    """One op on 1e6 elements: 4 MB take 5 us at 0.8 TB/s; the latency's 3 and the floor's 2.5 us are more."""
    small = chain(1, (10**6,), gpu=gpu(**{"sustained.floor": 2.5e-6}))["unfused"].estimate
    assert small.seconds.expected_by_resource["dram"] == pytest.approx(5e-6, rel=1e-3)
    assert small.bound == "launch"


def test_a_product_in_tiles():
    """25600 x 25600 x 8192 in tiles of 256 x 128 is 100 x 200 = 20000 tiles on 100 SMs, 200 whole waves; at
    1 PFLOP/s, all of it sustained, 2 m n k / 1e15 s = 10.737 ms, and C's 1.31 GB leave at 1 TB/s."""
    tuned = {
        "compute.matmul:bf16": 1e15,
        "sustained.matmul.matmul": 1.0,
        "sustained.matmul.power": 0.0,
        "sustained.matmul.l2_per_flop": 1.0,  # L2 keeps up with every tile
        "sustained.matmul.floor": 0.0,
    }
    g = gemm(25600, 25600, 8192, gpu=gpu(**tuned))["fused"].estimate
    flops = 2 * 25600 * 25600 * 8192
    assert g.seconds.expected_by_resource["matmul:bf16"] == pytest.approx(
        flops / 1e15 + 25600 * 25600 * 2e-12, rel=1e-9
    )
    # One row of tiles more (25601 rows) is 200 tiles more: 2 waves more of 202.
    h = gemm(25601, 25600, 8192, gpu=gpu(**tuned))["fused"].estimate
    grown = (h.seconds.expected_by_resource["matmul:bf16"] - 25601 * 25600 * 2e-12) / (flops / 1e15)
    assert 1.0 < grown <= 1.01


def test_a_share_above_one_does_not_beat_the_bound():
    """A profile may say that copies reach twice the datasheet: the expected time of a cold kernel is the bound."""
    k = one(
        1, profile=gpu(**{"sustained.dram": 2.0, "sustained.dram_write": 2.0, "sustained.issue": 9.0})
    ).kernels[0]
    assert k.seconds.expected_by_resource["dram"] == pytest.approx(200e-6, rel=1e-6)
    assert k.seconds.expected - k.seconds.launch == k.seconds.roofline == pytest.approx(400e-6, rel=1e-9)


def test_few_rows_fill_few_issue_slots():
    """A library LayerNorm of 100 rows x 4096 runs 4 warps a row: 400 of the 100 x 48 that fill the issue slots, a
    twelfth. 30.6 instructions an element and 24,000 a row are 14,933,760; x 12 / 6.4e12 = 28.0008 us."""
    norm = chain("layer-norm", (100, 4096), gpu=gpu())["unfused"].estimate
    assert norm.seconds.expected_by_resource["issue"] == pytest.approx(28.0008e-6, rel=1e-6)
