"""Workload files: shapes and dtypes inferred as PyTorch infers them, views or copies by layout, and
errors that name the op and the line."""

from __future__ import annotations

import pytest

import iomodel
from iomodel.errors import InputError
from iomodel.opgraph import read_graph
from iomodel.ops.registry import OPS
from iomodel.planner import plan
from iomodel.roofline import estimate
from iomodel.workloads import find_graph, workload_files
from iomodel.yamlfile import parse_yaml

H200 = iomodel.load_profile("h200")


def graph(ops, inputs="x: [4, 8]", dtype="bf16", outputs="", sizes=""):
    lines = [f"dtype: {dtype}", f"inputs: {{{inputs}}}", "ops:", *(f"  - {{{op}}}" for op in ops)]
    if outputs:
        lines.append(f"outputs: [{outputs}]")
    if sizes:
        lines.append(f"sizes: {{{sizes}}}")
    return read_graph(parse_yaml("\n".join(lines), "w.yaml"))


def view(ops, inputs="x: [4, 8]", dtype="bf16"):
    found = graph(ops, inputs, dtype)
    return found.views[found.outputs[-1]]


@pytest.mark.parametrize(
    ("op", "inputs", "shape", "dtype"),
    [
        # torch.result_type: both have axes, the wider wins; fp16 with bf16 gives fp32
        ("op: add, in: [x, y]", "x: [4, 8], y: {shape: [8], dtype: fp32}", (4, 8), "fp32"),
        ("op: add, in: [x, y]", "x: [4, 8], y: {shape: [4, 1], dtype: fp16}", (4, 8), "fp32"),
        # a tensor without axes does not widen its own kind
        ("op: mul, in: [x, y]", "x: [4, 8], y: {shape: [], dtype: fp32}", (4, 8), "bf16"),
        ("op: mul, in: [x, 2.5]", "x: [4, 8]", (4, 8), "bf16"),
        # a Python float makes integers floating point; division too; a Python int does not
        ("op: mul, in: [x, 2.5]", "x: {shape: [3], dtype: int64}", (3,), "fp32"),
        ("op: mul, in: [x, 2]", "x: {shape: [3], dtype: int64}", (3,), "int64"),
        ("op: div, in: [x, 2]", "x: {shape: [3], dtype: int64}", (3,), "fp32"),
        ("op: gt, in: [x, 0]", "x: [4, 8]", (4, 8), "bool"),
        ("op: sum, in: [x]", "x: {shape: [3], dtype: bool}", (), "int64"),
        ("op: sum, in: [x], dim: -1", "x: [4, 8]", (4,), "bf16"),
        ("op: mean, in: [x], dim: 0, keepdim: true", "x: [4, 8]", (1, 8), "bf16"),
        ("op: var, in: [x], dim: [0, 1]", "x: [4, 8]", (), "bf16"),
        ("op: argmax, in: [x], dim: 1", "x: [4, 8]", (4,), "int64"),
        ("op: float, in: [x]", "x: [4, 8]", (4, 8), "fp32"),
        ("op: linear, in: [x, w]", "x: [2, 4, 8], w: [16, 8]", (2, 4, 16), "bf16"),
        ("op: matmul, in: [x, w]", "x: [2, 1, 4, 8], w: [3, 8, 5]", (2, 3, 4, 5), "bf16"),
        (
            "op: matmul, in: [x, w]",
            "x: {shape: [4, 8], dtype: fp8}, w: {shape: [8, 2], dtype: fp8}",
            (4, 2),
            "bf16",
        ),
        ("op: embedding, in: [w, i]", "w: [100, 8], i: {shape: [2, 3], dtype: int64}", (2, 3, 8), "bf16"),
        ("op: index_select, in: [x, i], dim: 1", "x: [4, 8], i: {shape: [3], dtype: int64}", (4, 3), "bf16"),
        ("op: cat, in: [x, y], dim: 1", "x: [4, 8], y: [4, 2]", (4, 10), "bf16"),
        ("op: stack, in: [x, y]", "x: [4, 8], y: [4, 8]", (2, 4, 8), "bf16"),
        ("op: permute, in: [x], dims: [2, 0, 1]", "x: [2, 3, 4]", (4, 2, 3), "bf16"),
        ("op: expand, in: [x], shape: [5, -1, 8]", "x: [4, 1]", (5, 4, 8), "bf16"),
        ("op: narrow, in: [x], dim: 1, start: 2, length: 3", "x: [4, 8]", (4, 3), "bf16"),
        ("op: slice, in: [x], dim: 1, start: -4, step: 2", "x: [4, 8]", (4, 2), "bf16"),
        ("op: cumsum, in: [x], dim: 0", "x: [4, 8]", (4, 8), "bf16"),
        ("op: quantize, in: [x], dtype: fp8", "x: [4, 8]", (4, 8), "fp8"),
        (
            "op: dequantize, in: [x, s]",
            "x: {shape: [4, 8], dtype: int4}, s: {shape: [4, 2], dtype: fp32}",
            (4, 8),
            "bf16",
        ),
    ],
)
def test_shapes_and_dtypes_are_what_pytorch_infers(op, inputs, shape, dtype):
    found = view([f"{op}, out: r"], inputs)
    assert (found.shape, found.dtype) == (shape, dtype)


def test_views_launch_nothing_and_copies_do():
    # [2, 3, 4] transposed to [3, 2, 4]: its strides do not merge into 6, so reshape copies; as [3, 2, 2, 2]
    # they do, and it stays a view.
    ops = ["op: transpose, in: [x], out: t, dim0: 0, dim1: 1"]
    copy = graph([*ops, "op: reshape, in: [t], out: y, shape: [6, 4]"], "x: [2, 3, 4]")
    assert [node.op.name for node in copy.nodes] == ["copy"]
    kept = graph([*ops, "op: reshape, in: [t], out: y, shape: [3, 2, 2, 2]"], "x: [2, 3, 4]")
    assert kept.nodes == ()
    assert kept.views["y"].root == "x"


def test_contiguous_is_free_where_the_tensor_is():
    assert graph(["op: contiguous, in: [x], out: y"]).nodes == ()
    assert len(graph(["op: t, in: [x], out: v", "op: contiguous, in: [v], out: y"]).nodes) == 1


def test_broadcasting_reads_an_input_at_its_real_size():
    # x 4x8 bf16 = 64 bytes, b 8 = 16; expanded to [4, 8] first it is still 16; y = 64
    for ops in (
        ["op: add, in: [x, b], out: y"],
        ["op: expand, in: [b], out: e, shape: [4, 8]", "op: add, in: [x, e], out: y"],
    ):
        found = graph(ops, "x: [4, 8], b: [8]")
        assert estimate(plan(found, "none", H200), H200).bytes.compulsory == 64 + 16 + 64


def test_parts_of_one_tensor_count_once_each():
    # gate and up are halves of h: one kernel reads h once, whole: 4x8x2 bytes, and writes 4x4x2
    found = graph(["op: chunk, in: [x], out: [g, u]", "op: mul, in: [g, u], out: y"])
    assert estimate(plan(found, "none", H200), H200).bytes.compulsory == 64 + 32
    # x read whole by one op and in part by another of the same kernel: still once
    found = graph(
        ["op: chunk, in: [x], out: [g, u]", "op: mul, in: [g, u], out: y", "op: relu, in: [x], out: z"],
        outputs="y, z",
    )
    fused = plan(found, "auto", H200)
    assert estimate(fused, H200).bytes.compulsory <= 64 + 64 + 32 + 64


def test_in_place_ops_overwrite_and_their_old_name_is_gone():
    found = graph(["op: relu_, in: [x], out: y"])
    assert found.views["y"].root == "x"
    with pytest.raises(InputError, match=r"w.yaml:5: add: 'x' no longer holds: relu_ \(w.yaml:4\).*'y'"):
        graph(["op: relu_, in: [x], out: y", "op: add, in: [x, 1], out: z"])


@pytest.mark.parametrize(
    ("ops", "inputs", "message"),
    [
        (
            ["op: laer_norm, in: [x], out: y"],
            "x: [4, 8]",
            r"^w.yaml:4: unknown op 'laer_norm', did you mean 'layer_norm'",
        ),
        (["op: add, in: [x, z], out: y"], "x: [4, 8]", r"^w.yaml:4: add: unknown tensor 'z'"),
        (
            ["op: add, in: [x, y], out: z"],
            "x: [4, 8], y: [3]",
            r"w.yaml:4: add: shapes x \[4, 8\] and y \[3\] do not broadcast",
        ),
        (
            ["op: matmul, in: [x, y], out: z"],
            "x: [4, 8], y: [4, 8]",
            r"w.yaml:4: matmul: .*inner sizes 8 and 4 differ",
        ),
        (["op: matmul, in: [x, y], out: z"], "x: [4, 8], y: {shape: [8, 2], dtype: fp32}", "cast one"),
        (["op: sum, in: [x], out: y, dim: 2"], "x: [4, 8]", "dim 2 is not an axis of a tensor with 2 axes"),
        (["op: sum, in: [x], out: y, dims: 1"], "x: [4, 8]", "unknown attribute 'dims', did you mean 'dim'"),
        (["op: reshape, in: [x], out: y, shape: [5, 5]"], "x: [4, 8]", "has 32 elements"),
        (["op: layer_norm, in: [x, w], out: y"], "x: [4, 8], w: [4]", r"normalises over \[4\]"),
        (["op: dropout, in: [x], out: y, p: 1.5"], "x: [4, 8]", "p: 1.5"),
        (["op: embedding, in: [x, x], out: y"], "x: [4, 8]", "whole numbers are needed"),
        (["op: relu, in: [x], out: x"], "x: [4, 8]", "'x' is already made, an input"),
        (["op: relu, in: [x], out: y", "op: relu, in: [x], out: y"], "x: [4, 8]", "already made"),
        (["op: relu, in: [x]"], "x: [4, 8]", "needs out"),
        (["op: softmax, in: [x], out: y"], "x: {shape: [4], dtype: int64}", "cast it to floating point"),
        (["op: view, in: [t], out: y, shape: [32]"], "x: [4, 8]", "unknown tensor 't'"),
        (
            ["op: cross_entropy, in: [x, t], out: y"],
            "x: [4, 8], t: {shape: [3], dtype: int64}",
            "not one class for each",
        ),
        (["op: to, in: [x], out: y, dtype: bf61"], "x: [4, 8]", "unknown dtype 'bf61', did you mean 'bf16'"),
        (["op: relu, in: [x, 3, 4], out: y"], "x: [4, 8]", "takes 1 inputs, found 3"),
        (["op: nonzero, in: [x], out: y"], "x: [4, 8]", "needs expected"),
    ],
)
def test_mistakes_are_named_with_op_and_line(ops, inputs, message):
    with pytest.raises(InputError, match=message):
        graph(ops, inputs)


def test_a_workload_of_the_wrong_shape_is_refused():
    for text in (
        "ops: []",
        "inputs: {x: [1]}",
        "inputs: {x: 3}\nops: [{op: relu, in: x, out: y}]",
        "inputs: {x: [a]}\nops: [1]",
    ):
        with pytest.raises(InputError, match=r"^w\.yaml"):
            read_graph(parse_yaml(text, "w.yaml"))


def test_sizes_are_names_and_expressions_and_can_be_replaced():
    text = """
sizes: {rows: 4, wide: rows * 8}
inputs: {x: [rows, wide]}
ops: [{op: reshape, in: [x], out: y, shape: [-1, rows]}]
"""
    document = parse_yaml(text, "w.yaml")
    assert read_graph(document).views["y"].shape == (32, 4)
    assert read_graph(document, {"rows": "2k"}).views["x"].shape == (2048, 16384)
    with pytest.raises(InputError, match="unknown size 'row', did you mean 'rows'"):
        read_graph(document, {"row": 3})


def test_dtype_replaces_the_files_own_and_keeps_stated_others():
    found = find_graph("adamw-mixed", {"params": 8}, "fp16")
    assert (found.views["p"].dtype, found.views["m"].dtype) == ("fp16", "fp32")


def test_every_listed_op_is_known():
    listed = """add sub mul div pow sqrt rsqrt exp log tanh sigmoid relu gelu silu where clamp cast dropout
    sum mean max var softmax log_softmax layer_norm rms_norm group_norm batch_norm cross_entropy matmul linear
    bmm addmm scaled_dot_product_attention embedding index_select gather concat split slice
    transpose permute reshape expand rope topk cumsum quantize dequantize sgd adam adamw"""
    assert set(listed.split()) <= set(OPS)


@pytest.mark.parametrize("name", sorted(workload_files()))
def test_every_built_in_workload_plans_in_every_mode_and_never_moves_more_than_none(name):
    found = find_graph(name)
    none = estimate(plan(found, "none", H200), H200).bytes.compulsory
    for mode in ("library", "compiler", "auto"):
        moved = estimate(plan(found, mode, H200), H200).bytes
        assert moved.compulsory <= none * (1 + 1e-12), mode
        assert moved.compulsory_read + moved.compulsory_write == moved.compulsory


def test_the_analysis_says_bound_peak_and_boundaries():
    found = iomodel.graph("swiglu-mlp", gpu="h200")
    text = "\n".join(found.notes)
    # x, weight, three matrices in, y out: 2 x 16.8 MB + 3 x 117.4 MB = 386 MB
    assert "I/O lower bound of the whole graph: 386 MB" in text
    assert "peak memory: unfused" in text
    assert "two matrix products" in text
    assert found["fused"].plan.boundaries


def test_graph_takes_text_and_explicit_groups():
    text = """
inputs: {x: [4, 8]}
ops: [{op: relu, in: [x], out: a}, {op: exp, in: [a], out: b}, {op: neg, in: [b], out: c}]
"""
    found = iomodel.graph(text, groups="a+b,c")
    assert [len(k.kernel.ops) for k in found["fused"].estimate.kernels] == [2, 1]
    with pytest.raises(InputError, match="cannot be one kernel: two matrix products"):
        iomodel.graph("feed-forward", groups="up+y")


def test_fuse_none_is_a_kernel_an_op():
    found = iomodel.graph("bias-gelu-dropout", fuse="none")
    assert [r.variant for r in found.results] == ["unfused"]
    # the seeds: six passes of 4096 x 8192 x 2 bytes, and the bias row
    assert found["unfused"].estimate.bytes.compulsory == 6 * 4096 * 8192 * 2 + 8192 * 2
