"""The backward pass of a graph: what is launched, what is kept for it, what is computed again."""

from __future__ import annotations

import measured_workloads
import pytest

import iomodel
from iomodel.backward import RULES, saved, with_backward
from iomodel.errors import InputError
from iomodel.opgraph import read_graph
from iomodel.planner import plan
from iomodel.roofline import estimate
from iomodel.traffic import memory_peak
from iomodel.workloads import find_graph
from iomodel.yamlfile import parse_yaml

H200 = iomodel.load_profile("h200")

#: Korthikanti et al. 2022, section 5: heads, sequence, hidden size of GPT-3 and MT-NLG.
MODELS = {"gpt3": (96, 2048, 12288), "mt-nlg": (128, 2048, 20480)}
DIFFERENTIABLE = """bias-gelu-dropout residual-layernorm-dropout rms-norm-op-by-op linear-bias-relu qkv rope
attention-op-by-op attention-block swiglu-mlp linear-cross-entropy feed-forward"""
SELECTIVE = ("scores", "scaled", "probs", "dropped")


def graph(text):
    return read_graph(parse_yaml(text, "w.yaml"))


def activations(a, s, h, recompute=()):
    layer = find_graph("transformer-layer-training", {"a": a, "s": s, "d": h // a})
    trained = with_backward(layer, recompute)
    kept = saved(trained, [name for name in layer.inputs if name != "x"])
    statistics = {name for name in kept if name.endswith(("mean", "rstd"))}
    return {name: size for name, size in kept.items() if name not in statistics}, sum(kept[n] for n in statistics)


@pytest.mark.parametrize("model", MODELS)
def test_activation_memory_of_a_layer_is_sbh_34_plus_5as_over_h(model):
    # Korthikanti et al., equation 1: s b h (34 + 5 a s / h) bytes; 5 a s / h is 80 for GPT-3, 64 for MT-NLG
    a, s, h = MODELS[model]
    kept, statistics = activations(a, s, h)
    assert sum(kept.values()) == s * h * 34 + 5 * a * s * s == s * h * (34 + {"gpt3": 80, "mt-nlg": 64}[model])
    # by hand, in sbh: attention 2 (in) + 4 (q, k) + 2 (v) + 2 (projection in) + 1 (mask) = 11,
    # MLP 2 + 8 + 8 + 1 = 19, norms 2 + 2 = 4; the paper leaves out mean and rstd: 2 norms x 2 x 4 bytes a token
    assert statistics == 16 * s


@pytest.mark.parametrize(("model", "saving"), [("gpt3", 0.70), ("mt-nlg", 0.65)])
def test_selective_recomputation_leaves_34_sbh(model, saving):
    a, s, h = MODELS[model]
    kept, _ = activations(a, s, h, SELECTIVE)
    whole, _ = activations(a, s, h)
    assert sum(kept.values()) == 34 * s * h
    # the paper: 70 % and 65 % of the activation memory
    assert 1 - sum(kept.values()) / sum(whole.values()) == pytest.approx(saving, abs=0.005)


def test_recomputation_launches_the_attention_core_again():
    layer = find_graph("transformer-layer-training", {"a": 16, "d": 64, "s": 1024})
    plain = plan(with_backward(layer), "library", H200)
    again = plan(with_backward(layer, SELECTIVE), "library", H200)
    # scores, scale, softmax, dropout
    assert len(again.kernels) - len(plain.kernels) == 4


def test_gradients_have_the_shapes_of_what_they_are_gradients_of():
    for name in DIFFERENTIABLE.split():
        own = find_graph(name)
        trained = with_backward(own)
        for tensor, view in own.inputs.items():
            grad = trained.views.get(f"d_{tensor}")
            if grad is not None:
                assert grad.shape == view.shape, (name, tensor)
        made = [out for out in trained.outputs if out.startswith("d_")]
        assert made, name


def test_attention_backward_is_what_was_recorded():
    # 11 kernels: matmul, scale, softmax, matmul; dv, dp, p dp, softmax', scale, dq, dk
    row = next(r for r in measured_workloads.recorded("h200_more.csv") if r.id == "x_attnfb_b8h16s1024d64_naive")
    own = find_graph("attention-op-by-op", {"batch": 8, "heads": 16, "seq": 1024, "d": 64})
    found = plan(with_backward(own), "library", H200)
    assert len(found.kernels) == row.kernels == 11
    assert estimate(found, H200).bytes.dram_read == pytest.approx(row.dram_read, rel=0.05)


def test_attention_in_one_kernel_recomputes_its_scores():
    text = """
inputs: {q: [8, 16, 1024, 64], k: [8, 16, 1024, 64], v: [8, 16, 1024, 64]}
ops: [{op: scaled_dot_product_attention, in: [q, k, v], out: o, kernel: fa2}]
"""
    trained = with_backward(graph(text))
    kept = saved(trained)
    # q, k, v, o and a log-sum-exp a row: nothing of N x N
    t = 8 * 16 * 1024 * 64 * 2
    assert sum(kept.values()) == 4 * t + 8 * 16 * 1024 * 4
    row = next(r for r in measured_workloads.recorded("h200_more.csv") if r.id == "x_attnfb_b8h16s1024d64_flash")
    found = plan(trained, "library", H200)
    assert len([k for k in found.kernels if "zeros" not in k.name]) == row.kernels
    assert estimate(found, H200).bytes.dram_read == pytest.approx(row.dram_read, rel=0.10)


@pytest.mark.parametrize(
    ("op", "kept"),
    [
        # (what the op's backward pass reads of the forward pass, beside the gradient), x and y 4x8 bf16 = 64 bytes
        ("op: relu, in: x", {"y": 64}),
        ("op: gelu, in: x", {"x": 64}),
        ("op: silu, in: x", {"x": 64}),
        ("op: tanh, in: x", {"y": 64}),
        ("op: sigmoid, in: x", {"y": 64}),
        ("op: exp, in: x", {"y": 64}),
        ("op: dropout, in: x, p: 0.1", {"y.mask": 32}),
        ("op: softmax, in: x", {"y": 64}),
        ("op: add, in: [x, x]", {}),
        ("op: mul, in: [x, 2.0]", {}),
        ("op: layer_norm, in: x", {"x": 64, "y.mean": 16, "y.rstd": 16}),
        ("op: rms_norm, in: x", {"x": 64, "y.rstd": 16}),
        ("op: sum, in: x, dim: -1", {}),
        ("op: t, in: x", {}),
    ],
)
def test_what_an_op_keeps_for_its_backward_pass(op, kept):
    trained = with_backward(graph(f"inputs: {{x: [4, 8]}}\nops: [{{{op}, out: y}}]"))
    assert saved(trained) == kept


def test_gradients_that_meet_are_added():
    # x is used twice: two gradients and their sum; a broadcast bias' gradient is summed over rows
    trained = with_backward(
        graph("inputs: {x: [4, 8], b: [8]}\nops: [{op: add, in: [x, b], out: h}, {op: mul, in: [h, x], out: y}]")
    )
    ops = sorted(node.op.name for node in trained.nodes)
    assert ops == ["add", "add", "mul", "mul", "mul", "sum"]
    assert trained.views["d_b"].shape == (8,)


def test_forward_and_backward_never_share_a_kernel():
    found = plan(with_backward(find_graph("bias-gelu-dropout")), "auto", H200)
    assert [op.name for op in found.kernels[0].ops] == ["add", "gelu", "dropout"]
    assert any("the backward pass starts when the loss is known" in b.reason for b in found.boundaries)


def test_an_op_without_a_rule_and_wrong_names_are_refused():
    with pytest.raises(InputError, match=r"w\.yaml:2: unknown op with a backward rule 'topk'"):
        with_backward(graph("inputs: {x: [4, 8]}\nops: [{op: topk, in: x, out: y, k: 2}]"))
    own = graph("inputs: {x: [4, 8]}\nops: [{op: relu, in: x, out: y}]")
    with pytest.raises(InputError, match="unknown tensor 'z'"):
        with_backward(own, ["z"])
    with pytest.raises(InputError, match="x is an input"):
        with_backward(own, ["x"])


def test_every_required_family_has_a_rule():
    assert {"add", "mul", "gelu", "layer_norm", "rms_norm", "softmax", "matmul", "linear", "cross_entropy"} <= set(
        RULES
    )
    assert "scaled_dot_product_attention" in RULES


def test_the_command_tells_what_is_kept():
    found = iomodel.graph("transformer-layer-training", sizes={"a": 16, "d": 64}, backward=True, gpu="h200")
    assert any("kept for the backward pass" in note for note in found.notes)
    assert found["fused"].estimate.launches < found["unfused"].estimate.launches
    assert memory_peak(found["fused"].plan) <= memory_peak(found["unfused"].plan)


TABLE_21 = {128: 36, 256: 104, 512: 336, 1024: 1184, 2048: 4416, 4096: 17024}  # MiB, PyTorch attention


def peak(n):
    """Peak memory in MiB of standard attention of 16 x 8 heads, d 64, forward and backward."""
    own = graph(f"""
dtype: fp16
inputs: {{q: [128, {n}, 64], k: [128, {n}, 64], v: [128, {n}, 64]}}
ops:
  - {{op: transpose, in: k, out: kt}}
  - {{op: bmm, in: [q, kt], out: s}}
  - {{op: softmax, in: s, out: p}}
  - {{op: bmm, in: [p, v], out: o}}
""")
    return memory_peak(plan(with_backward(own), "library", H200)) / 2**20


def test_flashattention_table_21_memory_of_standard_attention():
    # Dao et al. 2022, table 21 (16 x 8 heads, d 64, fp16): 4 N^2 + 10 N d elements a head at each
    # length. The four N^2 are the probabilities, their gradient, the product of both, and the scores' gradient.
    for n, measured in TABLE_21.items():
        assert measured == 128 * (4 * n * n + 10 * n * 64) * 2 / 2**20
        if 2 * n in TABLE_21:  # what grows with N^2: 4 N^2 exactly, whatever else is linear
            quadratic = peak(2 * n) - 2 * peak(n)
            assert quadratic == TABLE_21[2 * n] - 2 * measured == 128 * 8 * n * n * 2 / 2**20
        # the benchmark packs q, k, v and copies them to its layout: 10 N d there, q k v o do dv here
        assert measured - peak(n) == 128 * 4 * n * 64 * 2 / 2**20
