"""The contract of the command line: keys, columns, options, exit codes, and tables that fit."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys

import pytest

from iomodel import attention, load_profile

COMMANDS = {
    "chain": ("chain", "bias", "gelu", "dropout"),
    "attention": ("attention", "--seq", "4096"),
    "decode": ("decode", "--kv-len", "8192", "--kv-heads", "8"),
    "gemm": ("gemm", "--m", "4096", "--n", "8192", "--k", "4096", "--epilogue", "bias,gelu"),
}
VARIANTS = {
    "chain": ["unfused", "fused"],
    "attention": ["standard", "fa1", "fa2", "fa3", "io-lower-bound"],
    "decode": ["no-split", "split-k"],
    "gemm": ["unfused", "fused"],
}
#: CSV's columns, as scripts rely on them.
HEADER = ["gpu", "variant", "recommended", "launches", "flops"]
HEADER += ["bytes_compulsory", "bytes_l2", "bytes_dram_read", "bytes_dram_write", "intensity", "bound"]
HEADER += ["seconds_roofline", "seconds_expected", "seconds_launch", "speedup"]
RESULT_KEYS = {
    *("gpu", "variant", "recommended", "launches", "flops", "bytes", "intensity", "bound", "seconds", "speedup"),
    *("memory_peak", "kernels"),
}


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def numbers(ran, *columns):
    return [tuple(row[c] for c in columns) for row in rows(ran.out)]


def good(ran):
    assert (ran.code, ran.err) == (0, ""), ran.err
    return ran


# --- JSON and CSV ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_json(iomodel_run, command):
    answer = json.loads(good(iomodel_run(*COMMANDS[command], "--format", "json")).out)
    assert {"iomodel", "command", "inputs", "results", "notes"} <= answer.keys()
    assert answer["command"] == command
    assert all(isinstance(note, str) for note in answer["notes"])
    assert [r["variant"] for r in answer["results"]] == VARIANTS[command]
    assert sum(r["recommended"] for r in answer["results"]) == 1
    for result in answer["results"]:
        assert result.keys() >= RESULT_KEYS
        assert result["gpu"] == "h100-sxm"
        assert isinstance(result["recommended"], bool)
        for one in (result, *result["kernels"]):
            assert one["bytes"].keys() >= {"compulsory", "l2", "dram_read", "dram_write"}
            assert one["seconds"].keys() >= {"roofline", "expected", "launch", "by_resource"}
            assert "dram" in one["seconds"]["by_resource"]
            assert one["bound"] == "launch" or one["bound"].split(":")[0] in (
                "dram",
                "l2",
                "matmul",
                "vector",
                "exp",
                "issue",
            )
        for kernel in result["kernels"]:
            assert kernel.keys() >= {"name", "ops", "reads", "writes"}
            moved = sum(kernel["reads"].values()) + sum(kernel["writes"].values())
            assert moved == kernel["bytes"]["compulsory"]
        moved = result["bytes"]["dram_read"] + result["bytes"]["dram_write"]
        assert result["intensity"] == pytest.approx(result["flops"] / moved, rel=1e-12)
        first = answer["results"][0]["seconds"]["expected"]
        assert result["speedup"] == pytest.approx(first / result["seconds"]["expected"], rel=1e-12)
        assert result["launches"] == len(result["kernels"])


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_is_the_json_flat(iomodel_run, command):
    text = good(iomodel_run(*COMMANDS[command], "--format", "csv")).out
    assert text.splitlines()[0].split(",") == HEADER
    results = json.loads(iomodel_run(*COMMANDS[command], "--format", "json").out)["results"]
    for row, result in zip(rows(text), results, strict=True):
        assert (row["gpu"], row["variant"], row["bound"]) == (result["gpu"], result["variant"], result["bound"])
        assert row["recommended"] == str(result["recommended"]).lower()
        for column, value in row.items():
            section, _, key = column.partition("_")
            if section in ("bytes", "seconds"):
                assert float(value) == result[section][key]
        for column in ("launches", "flops", "intensity", "speedup"):
            assert float(row[column]) == result[column]


def test_machine_formats_are_not_rounded(iomodel_run):
    """402,653,184 bytes and their quotient by 3.35e12 to the last bit."""
    (unfused, _) = rows(iomodel_run("chain", "--ops", 3, "--format", "csv").out)
    assert unfused["bytes_compulsory"] == "402653184"
    assert float(unfused["seconds_roofline"]) == pytest.approx(402_653_184 / 3.35e12, rel=1e-15)


# --- tables ----------------------------------------------------------------------------------------------

SIX = "a100-sxm-80gb,h100-sxm,h200,b200,l40s,mi300x"
SHAPES = {
    **COMMANDS,
    "chain of five": ("chain", "--ops", "5"),
    "residual": (
        "chain",
        "residual",
        "layer-norm",
        "dropout",
        "--train",
        "--shape",
        "2048x4096",
        "--dtype",
        "fp16",
    ),
    "short prefill": ("attention", "--seq", "128"),
    "long prefill": ("attention", "--seq", "128k", "--kv-heads", "8", "--causal"),
    "training": (
        "attention",
        "--seq",
        "8192",
        "--batch",
        "4",
        "--causal",
        "--backward",
        "--dropout",
        "0.1",
        "--mask",
    ),
    "window": ("attention", "--seq", "32k", "--causal", "--window", "4096", "--head-dim", "64"),
    "llama-3 decode": ("decode", "--kv-len", "131072", "--batch", "64", "--kv-heads", "8", "--kv-dtype", "fp8"),
    "skinny": ("gemm", "--m", "1", "--n", "28672", "--k", "8192"),
    "square": ("gemm", "--m", "16384", "--n", "16384", "--k", "16384", "--epilogue", "gelu"),
    "batched": ("gemm", "--m", "1024", "--n", "1024", "--k", "64", "--batch", "64"),
}


@pytest.mark.parametrize("gpus", [("h100-sxm",), ("a100-sxm-80gb,h100-sxm,h200,b200",), (SIX,)])
@pytest.mark.parametrize("shape", SHAPES)
def test_tables_fit_80_columns(iomodel_run, monkeypatch, shape, gpus):
    monkeypatch.delenv("COLUMNS", raising=False)
    ran = good(iomodel_run(*SHAPES[shape], "--gpu", *gpus))
    widest = max(ran.out.splitlines(), key=len)
    assert len(widest) <= 80, widest
    for gpu in gpus[0].split(","):
        assert gpu in ran.out
    assert "\u2026" not in ran.out  # nothing is cut
    assert not [line for line in ran.out.splitlines() if line != line.rstrip()]


def test_first_screen_answers_which_by_how_much_and_why(iomodel_run):
    """The recommended variant, its gain, and the bound, before the table."""
    lines = good(iomodel_run("attention", "--seq", "16384")).out.splitlines()
    assert lines[0].startswith("attention  16384 tokens, 32 heads, d 128, bf16, batch 1")
    assert lines[0].endswith("h100-sxm 3.35 TB/s")
    head = " ".join(lines[1:5])
    a = attention(seq=16384)
    assert a["fa3"].recommended
    assert f"{a['fa3'].speedup:.2f}x faster than standard" in head
    assert "bound by matmul" in head
    marked = [line for line in lines if line.startswith("> ")]
    assert len(marked) == 1
    assert marked[0].split()[1] == "fa3"


def test_llama_3_8b_on_four_gpus(iomodel_run, monkeypatch):
    """32 query heads on 8 K/V heads at 8192 tokens, causal prefill and decode, four GPUs in one command each."""
    monkeypatch.delenv("COLUMNS", raising=False)
    gpus = "a100-sxm-80gb,h100-sxm,h200,b200"
    for command in (
        ("attention", "--seq", "8192", "--kv-heads", "8", "--causal"),
        ("decode", "--kv-len", "8192", "--kv-heads", "8"),
    ):
        ran = good(iomodel_run(*command, "--gpu", gpus))
        assert max(map(len, ran.out.splitlines())) <= 80
        answer = json.loads(iomodel_run(*command, "--gpu", gpus, "--format", "json").out)
        expected = {}
        for gpu in gpus.split(","):
            best = [r for r in answer["results"] if r["gpu"] == gpu and r["recommended"]]
            assert len(best) == 1
            expected[gpu] = best[0]["seconds"]["expected"]
            in_tables = re.findall(rf"^[> ] {gpu} +[\d.]", ran.out, re.MULTILINE)
            assert len(in_tables) == 2  # its best variant, then all of them
        assert expected["b200"] < expected["h200"] <= expected["h100-sxm"] < expected["a100-sxm-80gb"]
    # Prefill by hand: 4 x 128 x 32 x 8192 x 8193 / 2 FLOPs and Q, O (2 x 67.1 MB), K, V (2 x 16.8 MB).
    answer = json.loads(
        iomodel_run("attention", "--seq", "8192", "--kv-heads", "8", "--causal", "--format", "json").out
    )
    fa3 = next(r for r in answer["results"] if r["variant"] == "fa3")
    assert fa3["flops"] == 4 * 128 * 32 * 8192 * 8193 // 2
    assert fa3["bytes"]["compulsory"] == 2 * 67_108_864 + 2 * 16_777_216


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("gpus", ["h100-sxm", SIX])
def test_markdown(iomodel_run, command, gpus):
    text = good(iomodel_run(*COMMANDS[command], "--format", "markdown", "--gpu", gpus)).out
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert tables
    for lines in tables:
        widths = {line.replace("\\|", "").count("|") for line in lines}
        assert len(widths) == 1  # every row has the header's cells
        assert set(lines[1]) <= set("| -:")
    assert "**" in text


# --- options ---------------------------------------------------------------------------------------------


def test_set_changes_one_value_for_this_run(iomodel_run):
    """At 6.7 TB/s a chain's roofline halves; other figures of the profile stay."""
    base = numbers(iomodel_run("chain", "--ops", 3, "--format", "csv"), "seconds_roofline")
    fast = numbers(iomodel_run("chain", "--ops", 3, "--format", "csv", "--set", "hbm=6.7TB/s"), "seconds_roofline")
    for (before,), (after,) in zip(base, fast, strict=True):
        assert float(after) == pytest.approx(float(before) / 2, rel=1e-12)
    assert load_profile("h100-sxm")["memory.hbm"] == 3.35e12  # nothing leaked into the catalogue
    full = iomodel_run("chain", "--ops", 3, "--format", "csv", "--set", "memory.hbm=6.7TB/s", "--set", "l2=1MB")
    assert numbers(full, "seconds_roofline") == fast
    moved = numbers(full, "bytes_compulsory", "bytes_dram_read")
    for compulsory, read in moved:  # with next to no L2 all reads come from DRAM: half of a copy's bytes
        assert float(read) == pytest.approx(float(compulsory) / 2, rel=1e-3)


def test_launch(iomodel_run):
    """50 tiny kernels: the host's 6.2, 3.3 and 0.9 us each bound the elapsed time (H200's host, as profiled)."""
    elapsed = {}
    for launch, cost in (("eager", 6.2e-6), ("stream", 3.3e-6), ("graph", 0.9e-6)):
        answer = json.loads(
            iomodel_run("chain", "--ops", 50, "--shape", "1x64", "--launch", launch, "--format", "json").out
        )
        one = answer["results"][0]
        assert one["seconds"]["host"] == pytest.approx(50 * cost, rel=1e-9)
        elapsed[launch] = one["seconds"]["expected"]
    assert elapsed["eager"] > elapsed["stream"] > elapsed["graph"]
    assert elapsed["eager"] == pytest.approx(50 * 6.2e-6, rel=0.02)
    eager = json.loads(iomodel_run("chain", "--ops", 50, "--shape", "1x64", "--format", "json").out)
    assert eager["results"][0]["seconds"]["expected"] == elapsed["eager"]  # the default
    assert eager["results"][0]["bound"] == "launch"


def test_l2(iomodel_run):
    """A 16 MiB tensor in a loop over the same buffers is found in a 50 MB L2; a 1 GiB one is not."""
    small = ("chain", "scale", "--shape", "1024x4096", "--format", "csv")
    large = ("chain", "scale", "--shape", "131072x4096", "--format", "csv")
    cold, warm = (numbers(iomodel_run(*small, "--l2", how), "bytes_dram_read") for how in ("cold", "warm"))
    assert all(float(read) >= 8_388_608 for (read,) in cold)
    assert all(float(read) < 0.01 * 8_388_608 for (read,) in warm)
    assert numbers(iomodel_run(*large, "--l2", "warm"), "bytes_dram_read") == numbers(
        iomodel_run(*large), "bytes_dram_read"
    )


def test_assert(iomodel_run):
    command = ("attention", "--seq", "16384", "--format", "csv")
    ran = iomodel_run(
        *command, "--assert", "fa3.speedup >= 2", "--assert", "io-lower-bound.bytes_compulsory < 1e9"
    )
    assert ran.code == 0
    assert ran.err == ""
    false = iomodel_run(*command, "--assert", "fa3.speedup >= 2", "--assert", "fa3.speedup >= 250")
    assert false.code == 3
    assert false.err.count("\n") == 1
    assert "fa3.speedup >= 250" in false.err
    assert false.out == ran.out  # the answer is there all the same
    units = iomodel_run(*command, "--assert", "fa3.seconds_expected < 1 s and fa3.bytes_dram_read < 1 GB")
    assert units.code == 0
    assert iomodel_run(*command, "--assert", "fa3.bytes_l2 - fa2.bytes_l2 == 0").code == 0  # a minus, not a hyphen
    several = iomodel_run(*command, "--gpu", "h100,h200", "--assert", "fa2.seconds_roofline > 0")
    assert several.code == 0
    one_is_false = iomodel_run(
        "chain", "--ops", 3, "--gpu", "h100,h200", "--assert", "fused.seconds_roofline < 35 us"
    )
    assert one_is_false.code == 3  # 40 us on the H100, 28 on the H200
    assert "h100-sxm" in one_is_false.err
    assert "h200" not in one_is_false.err


def test_the_documented_assertion(iomodel_run):
    assert iomodel_run("attention", "--seq", "16384", "--assert", "fa3.speedup >= 2.5").code == 0


def test_gpus(iomodel_run):
    """Names, aliases, patterns, files, twice the same: each GPU once, in the order given."""
    text = iomodel_run("chain", "--ops", 2, "--gpu", "h200,h100,h100-sxm,a100-sxm*", "--format", "csv").out
    assert [row["gpu"] for row in rows(text)[::2]] == ["h200", "h100-sxm", "a100-sxm-40gb", "a100-sxm-80gb"]


# --- --output --------------------------------------------------------------------------------------------


def test_output_replaces_a_file_whole(iomodel_run, tmp_path):
    file = tmp_path / "answer.csv"
    file.write_text("old " * 10_000)
    link = tmp_path / "hard"
    os.link(file, link)
    ran = good(iomodel_run("chain", "--ops", 3, "--format", "csv", "--output", file))
    assert ran.out == ""
    assert file.read_text() == iomodel_run("chain", "--ops", 3, "--format", "csv").out
    assert link.read_text().startswith("old ")  # renamed over, not written into
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["answer.csv", "hard"]  # no temporary file left
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


def test_output_leaves_the_old_file_when_the_input_is_wrong(iomodel_run, tmp_path):
    file = tmp_path / "answer.csv"
    file.write_text("old")
    assert iomodel_run("chain", "geluu", "--output", file).code == 2
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


# --- --cases ---------------------------------------------------------------------------------------------

MIXED = """seq,heads,gpu,kv_heads,dtype,causal
1024,32,h200,,bf16,
4096,8,a100,8,fp16,true
1024,32,h200,8,bf16,no
,64,h100,,bf16,
512,32,h200,,bf16,
"""


def test_cases_are_the_single_runs_in_order(iomodel_run, tmp_path):
    """Mixed GPUs and dtypes, empty cells left to the options and defaults; the case's columns first."""
    file = tmp_path / "cases.csv"
    file.write_text(MIXED)
    text = good(iomodel_run("attention", "--cases", file, "--seq", "2048", "--format", "csv")).out
    assert text.splitlines()[0].split(",")[:6] == ["seq", "heads", "gpu", "kv_heads", "dtype", "causal"]
    found = [
        dict(zip(text.splitlines()[0].split(",")[6:], line.split(",")[6:], strict=True))
        for line in text.splitlines()[1:]
    ]
    alone = []
    for case in rows(MIXED):
        options = ["--seq", case["seq"] or "2048", "--heads", case["heads"], "--gpu", case["gpu"]]
        options += ["--dtype", case["dtype"]] + (["--kv-heads", case["kv_heads"]] if case["kv_heads"] else [])
        options += ["--causal"] if case["causal"] == "true" else []
        alone += rows(iomodel_run("attention", *options, "--format", "csv").out)
    assert len(found) == len(alone) == 5 + 4 + 5 + 5 + 5  # no fa3 on the A100
    for one, other in zip(found, alone, strict=True):
        assert one == {key: other[key] for key in one}


def test_cases_from_stdin_and_as_json(iomodel_run, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("m,n,k\n16,4096,4096\n\n4k,4096,4096\n"))
    text = good(iomodel_run("gemm", "--cases", "-", "--format", "json")).out
    document = json.loads(text)
    assert list(document) == ["iomodel", "command", "inputs", "results", "notes"]
    answer = document["results"]
    assert [(row["m"], row["variant"]) for row in answer] == [
        ("16", "unfused"),
        ("16", "fused"),
        ("4k", "unfused"),
        ("4k", "fused"),
    ]
    # 16 x 4096 A and C, 4096 x 4096 B
    assert answer[0]["bytes_compulsory"] == (2 * 16 * 4096 + 4096 * 4096) * 2
    assert answer[2]["bytes_compulsory"] == 3 * 4096 * 4096 * 2


@pytest.mark.parametrize("shape", ["table", "markdown"])
def test_cases_as_tables(iomodel_run, tmp_path, shape):
    file = tmp_path / "cases.csv"
    file.write_text("kv-len,gpu\n1024,h100\n8192,h200\n")  # hyphens as on the command line
    text = good(iomodel_run("decode", "--cases", file, "--format", shape)).out
    assert text.count("split-k") == 2
    assert "8192" in text
    assert "h200" in text


def test_cases_with_set_and_output(iomodel_run, tmp_path):
    file, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    file.write_text("ops,shape\n3,4096x8192\nbias gelu,128x256\n")
    good(iomodel_run("chain", "--cases", file, "--set", "hbm=6.7TB/s", "--format", "csv", "--output", out))
    found = rows(out.read_text())
    assert [row["ops"] for row in found] == ["3", "3", "bias gelu", "bias gelu"]
    assert float(found[1]["seconds_roofline"]) == pytest.approx(134_217_728 / 6.7e12, rel=1e-12)


def test_a_thousand_cases_take_no_longer_than_they_should(iomodel_run, tmp_path):
    """Cases that differ in sizes are one call with arrays; the last is still its own single run."""
    file = tmp_path / "cases.csv"
    file.write_text("seq,batch\n" + "".join(f"{128 + i},{1 + i % 7}\n" for i in range(1000)))
    found = rows(good(iomodel_run("attention", "--cases", file, "--format", "csv")).out)
    assert len(found) == 5000
    alone = rows(iomodel_run("attention", "--seq", 128 + 999, "--batch", 1 + 999 % 7, "--format", "csv").out)
    for one, other in zip(found[-5:], alone, strict=True):
        assert {key: one[key] for key in other} == other


def test_module_and_script_are_one_program():
    done = subprocess.run(
        [sys.executable, "-m", "iomodel", "chain", "--ops", "3", "--format", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert rows(done.stdout)[0]["bytes_compulsory"] == "402653184"


def test_a_repeated_gpu_option_compares_both(iomodel_run):
    found = json.loads(
        good(iomodel_run("chain", "--ops", 2, "--gpu", "h100", "--gpu", "a100", "--format", "json")).out
    )
    assert {r["gpu"] for r in found["results"]} == {"h100-sxm", "a100-sxm-80gb"}
