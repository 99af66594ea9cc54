"""`iomodel validate`: its figures recomputed by hand on a few rows, its filters, formats and errors."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from iomodel.catalogue import load_profile
from iomodel.errors import InputError
from iomodel.measurements import Measured, read_measurements, shipped
from iomodel.recorded import batches, prediction
from iomodel.validate import (
    Comparison,
    Writes,
    compare_all,
    predicted_seconds,
    quantile,
    summarise,
    validate,
)

ROOT = Path(__file__).parent.parent

#: 1 TB/s, no L2, no SMs: a kernel is its floor and its bytes. Half of the peak is sustained, 100 us a kernel.
PLAIN = """\
name: plain
memory:
  hbm: {value: 1 TB/s, source: made up}
sustained:
  source: made up
  dram: 0.5
  floor: 100 us
  code_read: 0 B
launch:
  latency: {value: 10 us, source: made up}
"""

HEADER = "id,family,variant,params,gpu,dram_read,dram_write,us_counters,us_queued"

#: 5e8 elements of two bytes: 1 GB read, 2 bytes written. At half of 1 TB/s: 2 ms and the floor, 2100 us.
READ = '"{""n"": 500000000, ""dtype"": ""bf16""}"'


@pytest.fixture
def plain(tmp_path):
    file = tmp_path / "plain.yaml"
    file.write_text(PLAIN)
    return file


@pytest.fixture
def rows_file(tmp_path):
    def write(*lines, header=HEADER):
        file = tmp_path / "rows.csv"
        file.write_text("\n".join([header, *lines]) + "\n")
        return file

    return write


def three_reads(plain, rows_file):
    """Measured 2000, 2500 and 3000 us, reading 1, 1.25 and 2 GB."""
    return rows_file(
        f"r1,stream,read,{READ},{plain},1000000000,,2000,",
        f"r2,stream,read,{READ},{plain},1250000000,,2500,",
        f"r3,stream,read,{READ},{plain},2000000000,,3000,",
    )


def test_errors_by_hand(plain, rows_file):
    report = validate(read_measurements(str(three_reads(plain, rows_file))))
    times = [one for one in report.comparisons if one.figure == "counters"]
    # (2 GB/ms)^-1 x (1 GB + 2 B) + 100 us; the 2 bytes are 4e-12 s
    assert [one.predicted for one in times] == pytest.approx([2100e-6] * 3, rel=1e-6)
    assert [one.error for one in times] == pytest.approx([0.05, -0.16, -0.3], abs=1e-6)
    reads = [one.error for one in report.comparisons if one.figure == "DRAM read"]
    assert reads == pytest.approx([0.0, -0.2, -0.5], abs=1e-6)
    assert report.violations == ()


def test_summary_by_hand(plain, rows_file):
    comparisons, _ = compare_all(read_measurements(str(three_reads(plain, rows_file))))
    read, counters = summarise(comparisons)
    assert (counters.family, counters.figure, counters.rows) == ("stream read", "counters", 3)
    # |errors| 0.05, 0.16, 0.3: the middle one, and 80 % of the way from it to the last
    assert counters.median == pytest.approx(0.16, abs=1e-6)
    assert counters.p90 == pytest.approx(0.16 + 0.8 * 0.14, abs=1e-6)
    assert (counters.worst, counters.worst_row) == (pytest.approx(0.3, abs=1e-6), "r3")
    assert (read.figure, read.median) == ("DRAM read", pytest.approx(0.2, abs=1e-6))


def test_queued_calls_take_the_latency_on_top(plain, rows_file):
    file = rows_file(f"q,stream,read,{READ},{plain},,,,4000")
    (one,) = validate(read_measurements(str(file))).comparisons
    assert one.predicted == pytest.approx(2110e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("against", "expected"),
    [
        ("roofline", 1000e-6),  # 1 GB at 1 TB/s
        ("constant", 1253e-6),  # at 0.8 TB/s, and 3 us for the one launch
    ],
)
def test_against_simple_models(plain, rows_file, against, expected):
    comparisons, _ = compare_all(read_measurements(str(three_reads(plain, rows_file))), against)
    times = [one.predicted for one in comparisons if one.figure == "counters"]
    assert times == pytest.approx([expected] * 3, rel=1e-6)
    reads = [one.predicted for one in comparisons if one.figure == "DRAM read"]
    assert reads == pytest.approx([1e9] * 3)


def test_constant_takes_the_longer_of_bytes_and_work():
    # 4096^3: 137.4 GFLOP at 989.4 TFLOP/s are 138.9 us, 100.7 MB at 0.8 x 4.8 TB/s only 26 us
    params = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
    row = Measured("g", "gemm", "linear", "h200", params, None, None, {"counters": 2e-4})
    (one,) = compare_all([row], "constant")[0]
    assert one.predicted == pytest.approx(2 * 4096**3 / 989.4e12 + 3e-6, rel=1e-9)


def test_unknown_baseline_lists_the_known(iomodel_run):
    ran = iomodel_run("validate", "--against", "rooflin")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean 'roofline'" in ran.err


def test_violations_are_found(plain, rows_file):
    file = rows_file(
        f"below,stream,read,{READ},{plain},900000000,,2000,",  # 0.9 GB counted, 1 GB compulsory
        f"fast,stream,read,{READ},{plain},1000000000,,900,",  # 0.9 ms, 1 ms at the peak
        f"quick,stream,read,{READ},{plain},,,,999",
        f"fine,stream,read,{READ},{plain},1000000000,,1001,",
    )
    report = validate(read_measurements(str(file)))
    assert [text.split(":")[0] for text in report.violations] == ["below", "fast", "quick"]
    assert "compulsory 1.00 GB" in report.violations[0]
    assert "roofline 1.00 ms" in report.violations[1]


def test_a_short_count_within_the_slack_is_no_violation(plain, rows_file):
    file = rows_file(f"near,stream,read,{READ},{plain},996000000,,2000,")
    assert validate(read_measurements(str(file))).violations == ()


def test_writes_lie_between_what_l2_can_hold_and_five_percent_more():
    # a copy of 128 MiB on an H200 (60 MiB of L2): at least 68 MiB are written, at most 134.4 MiB
    params = {"n": 64 * 2**20, "dtype": "bf16"}
    for written, inside in ((60 * 2**20, False), (100 * 2**20, True), (142 * 2**20, False)):
        row = Measured("w", "stream", "copy", "h200", params, 2.0**27, float(written), {})
        (one,) = validate([row]).writes
        assert (one.least, one.most) == (68 * 2**20, pytest.approx(1.05 * 2**27))
        assert one.inside is inside
        assert isinstance(one, Writes)
        assert one.least <= one.predicted <= one.most


def test_rotated_weights_decide_between_warm_and_cold():
    # H100: 50 MiB of L2. Six weights of 64 MiB are far beyond it, six of 0.5 MiB well inside.
    gpu = load_profile("h100-sxm")

    def times(n, k):
        params = {"m": 256, "n": n, "k": k, "dtype": "bf16"}
        row = Measured("t", "table gemm bf16", "", "h100-sxm", params, None, None, {"table": 1e-4})
        (batch,) = batches([row])
        asked = [prediction(row, gpu, "graph", l2) for l2 in ("cold", "warm")]
        return float(predicted_seconds(batch, "table", gpu)[0]), *(r.estimate.seconds.expected for r in asked)

    predicted, cold, warm = times(8192, 4096)
    assert predicted == cold != warm
    predicted, cold, warm = times(512, 512)
    assert predicted == warm < cold


def test_asking_together_gives_the_same_bits_as_one_by_one():
    rows = [row for row in shipped() if row.gpu == "h200"][::7]
    profile = load_profile("h200")
    asked = 0
    for batch in batches(rows):
        together = batch.ask(profile, "graph", "warm")
        for index, row in enumerate(batch.rows):
            alone = prediction(row, profile, "graph", "warm")
            assert (alone is None) == (together is None)
            if alone is not None:
                asked += 1
                for figure in ("expected", "roofline"):
                    values = getattr(together.estimate.seconds, figure)
                    value = values[index] if getattr(values, "ndim", 0) else values
                    assert value == getattr(alone.estimate.seconds, figure), row.name
    assert asked > 100


def test_comparisons_come_in_the_order_of_the_rows():
    rows = [row for row in shipped() if row.family in ("chain", "attention")]
    place = {row.name: i for i, row in enumerate(rows)}
    places = [place[one.row.name] for one in compare_all(rows)[0]]
    assert places == sorted(places)


def test_quantile_by_hand():
    assert quantile([5.0], 0.9) == 5.0
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([0.0, 10.0], 0.9) == pytest.approx(9.0)


# --- what ships --------------------------------------------------------------------------------------------


def test_everything_in_under_two_seconds():
    start = time.perf_counter()
    report = validate(shipped())
    assert time.perf_counter() - start < 2.0
    assert len(report.comparisons) > 2500


def test_no_bound_is_beaten_but_by_a_known_artefact():
    report = validate(shipped())
    assert [text.split(":")[0] for text in report.violations] == ["x_layernorm_4096x4096_eager"]


def test_the_model_is_far_closer_than_the_simple_ones():
    rows = [row for row in shipped() if row.family.startswith("table") and row.params["dtype"] == "bf16"]
    medians = {
        against: quantile([abs(one.error) for one in compare_all(rows, against)[0]], 0.5)
        for against in ("model", "roofline", "constant")
    }
    assert medians["model"] < 0.07
    assert medians["roofline"] > 0.4
    assert medians["constant"] > 0.3


def test_the_split_is_fixed_and_about_half():
    rows = shipped()
    kept = sum(row.held_out for row in rows)
    assert 0.45 < kept / len(rows) < 0.55
    # by what ran, not by what it was called or by which kernel
    attention = next(row for row in rows if row.family == "attention")
    assert replace(attention, name="other", variant="other").held_out == attention.held_out
    one = Measured("a", "stream", "copy", "h200", {"n": 134217728, "dtype": "bf16"}, None, None, {})
    other = Measured("a", "stream", "copy", "h200", {"n": 524288, "dtype": "bf16"}, None, None, {})
    assert (one.held_out, other.held_out) == (False, True)


def test_calibrated_profile_loads_and_predicts_kernels_alone():
    """On the sessions before it was measured: the Hopper kernel's durations to 3 % in the median."""
    profile = load_profile(ROOT / "configs" / "measurements" / "h200_calibrate.yaml")
    rows = [
        r for r in shipped() if (r.family, r.variant) == ("attention", "cudnn") and not r.name.startswith("cal_")
    ]
    comparisons, _ = compare_all(rows, profile=profile)
    errors = [abs(one.error) for one in comparisons if one.figure == "counters"]
    assert len(errors) == 81
    assert quantile(errors, 0.5) < 0.03


def generator():
    spec = importlib.util.spec_from_file_location("generate_validation", ROOT / "docs" / "generate_validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    made = generator()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), "run: python docs/generate_validation.py"
    assert "not known" not in made.page()


def test_the_plot_is_a_picture_and_linked():
    made = generator()
    assert made.PLOT.read_bytes().startswith(b"\x89PNG")
    assert f"]({made.PLOT.name})" in made.PAGE.read_text(encoding="utf-8")


# --- the command -------------------------------------------------------------------------------------------


def test_text_fits_80_columns_and_ends_with_the_bounds(iomodel_run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = iomodel_run("validate")
    assert (ran.code, ran.err) == (0, "")
    assert max(len(line) for line in ran.out.splitlines()) <= 80
    for expected in ("gemm bf16 h100-sxm", "worst rows", "bound violated: x_layernorm", "not compared"):
        assert expected in ran.out


def test_json_holds_what_the_library_says(iomodel_run):
    ran = iomodel_run("validate", "--json", "--family", "decode", "--gpu", "h200")
    found = json.loads(ran.out)
    rows = [r for r in shipped() if r.gpu == "h200" and r.family in ("decode", "table decode")]
    summaries = summarise(compare_all(rows)[0])
    assert [(f["family"], f["figure"], f["median"]) for f in found["families"]] == [
        (s.family, s.figure, s.median) for s in summaries
    ]
    assert found["command"] == "validate"
    assert found["inputs"]["gpu"] == "h200"
    assert found["violations"] == []
    assert len(found["worst"]) == 12


def test_csv_is_a_row_a_figure(iomodel_run):
    ran = iomodel_run("validate", "--format", "csv", "--family", "softmax", "--held-out")
    found = list(csv.DictReader(io.StringIO(ran.out)))
    assert found
    assert {row["held_out"] for row in found} == {"true"}
    for row in found:
        error = float(row["predicted"]) / float(row["measured"]) - 1
        assert float(row["error"]) == pytest.approx(error)


def test_markdown_and_output(iomodel_run, tmp_path):
    file = tmp_path / "report.md"
    ran = iomodel_run("validate", "--format", "markdown", "--family", "chain", "--output", file)
    assert (ran.code, ran.out) == (0, "")
    assert "| chain eager | counters | 43 |" in file.read_text()


def test_held_out_and_the_rest_are_all(iomodel_run):
    whole = json.loads(iomodel_run("validate", "--json", "--family", "attention").out)["rows"]
    kept = json.loads(iomodel_run("validate", "--json", "--family", "attention", "--held-out").out)["rows"]
    assert 0 < kept < whole


def test_own_rows_with_a_profile_of_ones_own(iomodel_run, plain, rows_file):
    file = rows_file(f"mine,stream,read,{READ},,,,2000,")
    nameless = iomodel_run("validate", "--data", file)
    assert nameless.code == 2
    assert "row mine" in nameless.err
    assert "--gpu" in nameless.err
    ran = iomodel_run("validate", "--data", file, "--gpu", plain, "--format", "csv")
    assert ran.code == 0
    assert float(next(csv.DictReader(io.StringIO(ran.out)))["error"]) == pytest.approx(0.05, abs=1e-6)
    other = iomodel_run("validate", "--data", file, "--gpu", "h200", "--profile", plain, "--format", "csv")
    assert float(next(csv.DictReader(io.StringIO(other.out)))["error"]) == pytest.approx(0.05, abs=1e-6)


def test_kernel_times_are_read_too(iomodel_run, tmp_path):
    file = tmp_path / "times.csv"
    file.write_text("gpu,op,dtype,m,n,k,latency_us\nh200,gemm,bf16,4096,4096,4096,200\n")
    ran = iomodel_run("validate", "--data", file, "--json")
    (family,) = json.loads(ran.out)["families"]
    assert (family["family"], family["rows"]) == ("table gemm bf16 h200", 1)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"a,stream,read,{READ},h200,,,fast,", ":2: row a: cannot read could not convert"),
        (f"a,stream,read,{READ},h200,,,-3,", "us_counters '-3': not a number from 0 up"),
        (f"a,stream,read,{READ},h200,nan,,3,", "dram_read 'nan'"),
        ("a,stream,read,[1],h200,,,3,", "not a JSON object"),
        ("a,stream,read,{,h200,,,3,", "row a: cannot read"),
        ('a,stream,read,"{""dtype"": ""bf16""}",h200,,,3,', "family stream needs other params: 'n'"),
        ('a,stream,read,"{""n"": ""x"", ""dtype"": ""bf16""}",h200,,,3,', "n 'x' is not a number"),
        ('a,stream,read,"{""n"": 1, ""dtype"": ""b16""}",h200,,,3,', "b16"),
        (f"a,stream,read,{READ},h2000,,,3,", "unknown GPU 'h2000'"),
        (f"a,dance,read,{READ},h200,,,3,", "none of the rows holds a figure"),
    ],
)
def test_a_wrong_row_is_one_line(iomodel_run, rows_file, line, says):
    ran = iomodel_run("validate", "--data", rows_file(line))
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no rows"),
        ("a,b\n1,2\n", "neither a file of workloads"),
        ("gpu,op,dtype,latency_us,m,n,k\nh200,gemm,bf16,0,1,1,1\n", "latency_us: it is not above zero"),
        ("gpu,op,dtype,latency_us,m,n,k\nh200,dance,bf16,3,1,1,1\n", ":2: cannot read"),
    ],
)
def test_a_wrong_file_is_one_line(iomodel_run, tmp_path, text, says):
    file = tmp_path / "wrong.csv"
    file.write_text(text)
    ran = iomodel_run("validate", "--data", file)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--family", "chian"), "did you mean 'chain'"),
        (("--gpu", "b200"), "no rows of it"),
        (("--gpu", "nonesuch"), "unknown GPU"),
        (("--format", "xml"), "unknown format"),
        (("--data", "missing.csv"), "missing.csv: No such file"),
    ],
)
def test_wrong_options_are_one_line(iomodel_run, arguments, says):
    ran = iomodel_run("validate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_families_of_tables_are_told_apart_by_gpu_and_others_by_variant():
    row = Measured("t", "table decode", "", "l40s", {}, None, None, {})
    assert Comparison(row, "table", 1.0, 2.0).family == "table decode l40s"
    assert Comparison(replace(row, family="decode", variant="flash"), "graph", 1.0, 2.0).family == "decode flash"
    assert Comparison(row, "table", 1.0, 2.0).error == -0.5


def test_reading_says_what_is_not_csv(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_measurements(str(tmp_path / "none.csv"))
