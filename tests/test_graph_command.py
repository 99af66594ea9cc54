"""`iomodel graph`, `cross-entropy`, `optimizer` as scripts use them."""

from __future__ import annotations

import json

import pytest

from iomodel.cli.app import run


def output(capsys, *arguments):
    code = run(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_json_has_variants_kernels_and_boundaries(capsys):
    code, out, _ = output(capsys, "graph", "swiglu-mlp", "--gpu", "h200", "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["command"] == "graph"
    assert [r["variant"] for r in document["results"]] == ["unfused", "fused"]
    fused = document["results"][1]
    assert fused["launches"] == len(fused["kernels"]) == 4
    assert {"before", "after", "reason"} <= set(fused["boundaries"][0])
    assert all(set(k["reads"]) for k in fused["kernels"])


def test_a_file_by_path_and_sizes_on_top(tmp_path, capsys):
    file = tmp_path / "own.yaml"
    file.write_text("sizes: {n: 8}\ninputs: {x: [n, n]}\nops: [{op: relu, in: x, out: y}]\n")
    _, out, _ = output(capsys, "graph", str(file), "--sizes", "n=1k", "--format", "csv")
    # 1024 x 1024 bf16 read and written
    assert out.splitlines()[1].split(",")[5] == str(2 * 1024 * 1024 * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["graph"], "graph needs FILE"),
        (["graph", "swiglu"], "did you mean 'swiglu-mlp'"),
        (["graph", "missing.yaml"], "missing.yaml: No such file"),
        (["graph", "rope", "--fuse", "all"], "known: auto, compiler, library, none"),
        (["graph", "rope", "--sizes", "seq"], "write NAME=SIZE"),
        (["graph", "rope", "--groups", "x"], "unknown op output 'x'"),
        (["graph", "rope", "--recompute", "x"], "--recompute goes with --backward"),
        (["optimizer", "adamx", "--params", "1e9"], "did you mean 'adam"),
        (["optimizer", "--params", "1e9"], "optimizer needs NAME"),
        (["cross-entropy", "--tokens", "4"], "needs --vocab"),
        (["cross-entropy", "--tokens", "4", "--vocab", "0"], "--vocab: 0 must be at least 1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, message, capsys):
    code, out, err = output(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_error_in_a_file_names_its_line(tmp_path, capsys):
    file = tmp_path / "own.yaml"
    file.write_text(
        "inputs: {x: [4, 4]}\nops:\n  - {op: relu, in: x, out: y}\n  - {op: matmull, in: [x, y], out: z}\n"
    )
    code, _, err = output(capsys, "graph", str(file))
    assert code == 2
    assert f"{file}:4: unknown op 'matmull', did you mean 'matmul'?" in err


def test_cases_take_sizes(tmp_path, capsys):
    file = tmp_path / "cases.csv"
    file.write_text("tokens,vocab\n8192,32000\n4096,128256\n")
    code, out, _ = output(capsys, "cross-entropy", "--cases", str(file), "--format", "csv")
    assert code == 0
    assert len(out.splitlines()) == 1 + 2 * 2


def test_a_graph_that_only_views_launches_nothing(tmp_path, capsys):
    file = tmp_path / "own.yaml"
    file.write_text("inputs: {x: [4, 4]}\nops: [{op: t, in: x, out: y}]\n")
    code, _, err = output(capsys, "graph", str(file))
    assert code == 2
    assert "launches nothing" in err
