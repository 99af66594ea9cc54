"""`iomodel sweep`: outputs, streaming, resuming, many processes, and what a stopped run leaves."""

import csv
import io
import json
import math
import os
import pty
import resource
import signal
import subprocess
import sys
import time

import pytest

import iomodel
from iomodel.cli.app import run
from iomodel.errors import MachineError
from iomodel.render.machine import rows_to_csv
from iomodel.sinks import TextFile, encode_csv, encode_jsonl, open_sink
from iomodel.study import Worker, rows
from iomodel.table import plain
from iomodel.tape import BLOCK

SMALL = """\
question: Does L2 matter?
command: attention
base: {causal: true}
vary: {gpu: [a100-sxm-80gb, h100-sxm], seq: 1k..8k x2, "set.l2": [1x, 2x]}
columns: [bytes_dram_read, seconds_expected, intensity, bound, recommended]
"""
#: 61 lengths and 256 batches for each of four places of the names: two units each.
LONG = """\
command: attention
vary: {gpu: [a100-sxm-80gb, h100-sxm], dtype: [bf16, fp16], seq: 1k..16k step 256, batch: 1..256 step 1}
variants: [standard, fa2]
columns: [bytes_dram_read, seconds_expected, bound]
"""


@pytest.fixture
def study(tmp_path):
    def write(text, name="study.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def sweep(capsys, *arguments):
    """(exit code, stdout, stderr) of one command line."""
    capsys.readouterr()
    code = run(["sweep", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# --- formats ----------------------------------------------------------------------------------


def test_csv_json_and_json_lines_hold_the_same_rows(study, capsys):
    path = study(SMALL)
    expected = [plain(row) for row in iomodel.sweep(path).rows()]
    assert len(expected) == 8 * 4 + 8 * 5
    code, text, errors = sweep(capsys, path, "--format", "json")
    assert (code, errors) == (0, "")
    assert json.loads(text) == expected
    code, text, errors = sweep(capsys, path, "--format", "jsonl")
    assert (code, errors) == (0, "")
    assert [json.loads(line) for line in text.splitlines()] == expected
    code, text, errors = sweep(capsys, path, "--format", "csv")
    assert (code, errors) == (0, "")
    assert text == rows_to_csv(expected)
    assert text.splitlines()[0] == (
        "gpu,seq,set.l2,variant,bytes_dram_read,seconds_expected,intensity,bound,recommended"
    )


def test_cells_are_written_as_the_other_commands_write_them():
    import numpy

    values = [0.0, -0.0, 1.0, 1e15, 2.0**62, 2.0**63, 1e300, 0.1, 1e-9, float("inf"), float("nan"), -3.0, 123456.5]
    for column in (numpy.array(values), numpy.array(values[:5]), numpy.array([0.5, 2.0])):
        batch = {"x": column, "yes": column > 1}
        own = [{"x": x, "yes": bool(x > 1)} for x in column.tolist()]
        assert "x,yes\n" + encode_csv(batch).decode() == rows_to_csv(own)
        assert [json.loads(line) for line in encode_jsonl(batch).splitlines()] == [plain(row) for row in own]


def test_names_with_commas_and_quotes_survive(study, capsys):
    path = study('command: chain\nvary: {ops: ["bias,gelu", "scale"], dtype: [bf16]}\ncolumns: [speedup]\n')
    _, text, _ = sweep(capsys, path, "--format", "csv")
    assert [row["ops"] for row in csv.DictReader(io.StringIO(text))] == ["bias,gelu"] * 2 + ["scale"] * 2


def test_parquet_holds_the_same_rows(study, capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = study(SMALL)
    code, text, errors = sweep(capsys, path, "--format", "parquet", "--output", str(tmp_path / "rows.parquet"))
    assert (code, text, errors) == (0, "", "")
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == list(iomodel.sweep(path).rows())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.parquet", "study.yaml"]
    code, text, errors = sweep(capsys, path, "--format", "parquet")
    assert (code, text) == (2, "")
    assert errors == "iomodel: --format parquet needs --output FILE\n"


def test_a_table_shows_head_and_tail_of_a_long_study(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, text, errors = sweep(capsys, study(LONG))
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    shown = [line for line in lines if line.strip().startswith(("a100", "h100"))]
    assert len(shown) == 32
    assert "the first and last of 124,928 rows; --format csv has them all" in lines[-1]
    assert shown[0].split()[:5] == ["a100-sxm-80gb", "bf16", "1024", "1", "standard"]
    assert shown[-1].split()[:5] == ["h100-sxm", "fp16", "16384", "256", "fa2"]


def test_a_short_study_is_shown_whole_with_its_question(study, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = SMALL.replace("[a100-sxm-80gb, h100-sxm]", "[h100-sxm]").replace("1k..8k x2", "[1k, 2k]")
    _, shown, _ = sweep(capsys, study(text))
    assert shown.startswith("Does L2 matter?\n\n")
    assert sum("io-lower-bound" in line for line in shown.splitlines()) == 4
    assert "--format csv" not in shown
    _, markdown, _ = sweep(capsys, study(text), "--format", "markdown")
    assert "| gpu | seq | set.l2" in markdown


def test_no_row_is_left(study, capsys):
    path = study(SMALL + "where: speedup > 1e9\n")
    header = "gpu,seq,set.l2,variant,bytes_dram_read,seconds_expected,intensity,bound,recommended\n"
    assert sweep(capsys, path, "--format", "csv")[:2] == (0, header)
    assert json.loads(sweep(capsys, path, "--format", "json")[1]) == []
    assert "no rows" in sweep(capsys, path)[1]


def test_answers_go_to_every_text_format(study, capsys):
    path = study(SMALL + "find: {first: seq, where: fa2.speedup > 3}\n")
    answers = [plain(row) for row in iomodel.sweep(path).answers()]
    assert [row["answer"] for row in answers] == ["found"] * 4
    assert json.loads(sweep(capsys, path, "--format", "json")[1]) == answers
    assert [json.loads(x) for x in sweep(capsys, path, "--format", "jsonl")[1].splitlines()] == answers
    assert sweep(capsys, path, "--format", "csv")[1] == rows_to_csv(answers)
    assert "found" in sweep(capsys, path)[1]
    code, text, errors = sweep(capsys, path, "--format", "parquet", "--output", "x.parquet")
    assert (code, text) == (2, "")
    assert errors.count("\n") == 1


def test_the_list_of_built_in_studies(capsys):
    code, text, _ = sweep(capsys, "--list")
    assert code == 0
    assert all("?" in line or "," in line for line in text.splitlines())
    assert len(text.splitlines()) >= 12


# --- many processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_two_processes_write_the_same_file(study, tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    found = iomodel.sweep(study(LONG))
    found.write(tmp_path / f"one.{ending}")
    found.write(tmp_path / f"two.{ending}", jobs=2)
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()


def test_a_process_that_dies_is_replaced(study, tmp_path):
    found = iomodel.sweep(study(LONG))
    found.write(tmp_path / "one.csv")
    killed = []

    class Killing(TextFile):
        def write(self, payload, units):
            if units == 3:
                import multiprocessing

                child = multiprocessing.active_children()[0]
                killed.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)
            super().write(payload, units)

    from iomodel.runner import run as run_study

    run_study(found.study, Killing("csv", str(tmp_path / "two.csv")), jobs=2)
    assert killed
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


# --- stopping and going on --------------------------------------------------------------------


class StopsError(Exception):
    pass


def stopping(sink, after, error=KeyboardInterrupt):
    """The sink, failing when so many units are written."""
    write = sink.write

    def wrapped(payload, units):
        if units > after:
            raise error
        write(payload, units)

    sink.write = wrapped
    return sink


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_stopped_run_is_readable_and_resumed_to_the_same_file(study, tmp_path, ending, after, monkeypatch):
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        monkeypatch.setattr("iomodel.sinks.GROUP_ROWS", 10000)
    from iomodel.runner import StoppedError
    from iomodel.runner import run as run_study

    found = iomodel.sweep(study(LONG))
    whole, target = tmp_path / f"whole.{ending}", tmp_path / f"rows.{ending}"
    found.write(whole)
    with pytest.raises(StoppedError, match="interrupted") as stopped:
        run_study(found.study, stopping(open_sink(ending, str(target)), after))
    part = tmp_path / f"rows.{ending}.part"
    assert not target.exists()
    if ending != "parquet" or after:
        assert "go on with --resume" in str(stopped.value)
        units = json.loads((tmp_path / f"rows.{ending}.part.state").read_text())["units"]
        worker = Worker(found.study)
        kept = [row for number in range(units) for row in rows(worker.batch(number))]
        if ending == "parquet":
            assert parquet.read_table(part).to_pylist() == kept
        elif ending == "csv":
            assert len(part.read_text().splitlines()) == len(kept) + 1
        elif ending == "json":
            assert json.loads(part.read_text()) == [plain(row) for row in kept]
        else:
            assert [json.loads(x) for x in part.read_text().splitlines()] == [plain(row) for row in kept]
    found.write(target, resume=True)
    if ending == "parquet":
        assert parquet.read_table(target).equals(parquet.read_table(whole))
    else:
        assert target.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["study.yaml", whole.name, target.name])


def test_torn_rows_after_a_kill_are_written_again(study, tmp_path):
    from iomodel.runner import run as run_study

    found = iomodel.sweep(study(LONG))
    found.write(tmp_path / "whole.csv")
    sink = open_sink("csv", str(tmp_path / "rows.csv"))
    with pytest.raises(StopsError):
        run_study(found.study, stopping(sink, 3, StopsError))
    sink.part.save_now()
    with open(tmp_path / "rows.csv.part", "ab") as part:
        part.write(b"h100-sxm,bf16,10")
    found.write(tmp_path / "rows.csv", resume=True)
    assert (tmp_path / "rows.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_another_study_s_part_is_not_gone_on_with(study, tmp_path, capsys):
    from iomodel.runner import StoppedError
    from iomodel.runner import run as run_study

    found = iomodel.sweep(study(LONG))
    target = str(tmp_path / "rows.csv")
    with pytest.raises(StoppedError):
        run_study(found.study, stopping(open_sink("csv", target), 2))
    other = study(LONG.replace("256 step", "255 step"), "other.yaml")
    code, text, errors = sweep(capsys, other, "--format", "csv", "--output", target, "--resume")
    assert (code, text) == (2, "")
    assert errors.startswith("iomodel: --resume: ")
    assert "another study" in errors
    assert errors.count("\n") == 1
    (tmp_path / "rows.csv.part.state").write_text("{", encoding="utf-8")
    code, _, errors = sweep(capsys, study(LONG), "--format", "csv", "--output", target, "--resume")
    assert code == 2
    assert "rows.csv.part.state: cannot be read" in errors
    code, _, errors = sweep(capsys, study(LONG), "--format", "csv", "--resume")
    assert code == 2
    assert "--resume needs --output FILE" in errors


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_leaves_rows_that_can_be_read_and_says_so(study, tmp_path, how, jobs):
    # 20 million points: it is stopped long before it ends
    text = LONG.replace("step 256", "step 1").replace("1..256", "1..640")
    target = tmp_path / "rows.csv"
    command = [sys.executable, "-m", "iomodel", "sweep", study(text), "--format", "csv", "--output", str(target)]
    process = subprocess.Popen(
        [*command, "--jobs", str(jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    part = tmp_path / "rows.csv.part"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (part.exists() and part.stat().st_size > 12_000_000):
        time.sleep(0.02)
    process.send_signal(how)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert errors.startswith("iomodel: interrupted; ")
    assert errors.endswith("go on with --resume\n")
    assert errors.count("\n") == 1
    assert not target.exists()
    state = json.loads((tmp_path / "rows.csv.part.state").read_text())
    lines = part.read_text().splitlines()
    assert len(lines) == state["rows"] + 1
    assert state["rows"] > 0
    assert all(line.count(",") == lines[0].count(",") for line in lines)


# --- a machine that fails ---------------------------------------------------------------------


def test_a_full_device_is_one_line_and_exit_code_1(study, capsys):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    code, text, errors = sweep(capsys, study(LONG), "--format", "csv", "--output", "/dev/full")
    assert (code, text) == (1, "")
    assert errors == "iomodel: --output /dev/full: No space left on device\n"


def test_a_disk_that_fills_loses_no_row(study, tmp_path, monkeypatch):
    # the file may grow to 300 kB; then every write fails, as on a full disk
    found = iomodel.sweep(study(LONG))
    found.write(tmp_path / "whole.csv")
    real = TextFile._put

    def put(self, data):
        if self.stream.tell() + len(data) > 3_000_000:
            room = 3_000_000 - self.stream.tell()
            real(self, data[:room])
            raise OSError(28, "No space left on device")
        real(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(TextFile, "_put", put)
        with pytest.raises(
            MachineError, match=r"rows.csv: No space left on device; [\d,]+ rows are in .*--resume"
        ):
            found.write(tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()
    kept = (tmp_path / "rows.csv.part").read_bytes()
    assert (tmp_path / "whole.csv").read_bytes().startswith(kept)
    assert kept.endswith(b"\n")
    assert len(kept) > 1_000_000
    found.write(tmp_path / "rows.csv", resume=True)
    assert (tmp_path / "rows.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("arguments", [
    ["--format", "xml"], ["--jobs", "0"], ["--jobs", "two"], ["--scheduler", "here"],
    ["--scheduler", "tcp://127.0.0.1:9"], ["--output", "."],
])  # fmt: skip
def test_wrong_options_are_wrong_input(study, capsys, arguments):
    if "--scheduler" in arguments:
        pytest.importorskip("distributed")
    code, text, errors = sweep(capsys, study(SMALL), "--format", "csv", *arguments)
    assert (code, text) == (2, "")
    assert errors.startswith("iomodel: ")
    assert errors.count("\n") == 1


def test_a_folder_that_is_not_there_is_a_failure_to_write(study, capsys):
    code, text, errors = sweep(capsys, study(SMALL), "--format", "csv", "--output", "no/such/rows.csv")
    assert (code, text) == (1, "")
    assert errors == "iomodel: --output no/such/rows.csv: the folder does not exist\n"


def test_a_study_is_named(capsys):
    code, text, errors = sweep(capsys)
    assert (code, text) == (2, "")
    assert "--list" in errors
    code, text, errors = sweep(capsys, "none.yaml")
    assert (code, text) == (2, "")
    assert errors == "iomodel: none.yaml: No such file or directory\n"


# --- size -------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_grid(study, tmp_path):
    """3 and 30 million points to Parquet: the same peak, and below 500 MB."""
    pytest.importorskip("pyarrow")
    if not os.path.exists("/proc/self/status"):
        pytest.skip("reads /proc")
    peaks = []
    for last in (1_000_000, 10_000_000):
        text = (
            f"command: attention\nbase: {{gpu: h100-sxm}}\nvary: {{batch: 1..{last} step 1, seq: [1k, 4k, 16k]}}\n"
        )
        text += "variants: [fa2]\nwhere: seconds_expected < 1 ms\ncolumns: [seconds_expected]\n"
        # the kernel's own mark of this process: getrusage counts what the parent had before exec
        code = (
            "import re, sys; from iomodel.cli.app import run; code = run(sys.argv[1:]); "
            "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1]); sys.exit(code)"
        )
        target = tmp_path / "rows.parquet"
        words = ["sweep", study(text), "--format", "parquet", "--output", str(target)]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout) * 1024)
        target.unlink()
    assert peaks[1] < 500e6
    assert peaks[1] < peaks[0] + 60e6


def test_the_size_of_a_grid_takes_no_memory():
    keys = {"command": "attention", "vary": {"batch": "1..1000000 step 1", "seq": "1..1000000 step 1"}}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    study = iomodel.sweep(**keys, variants="fa2", columns="seconds_expected")
    assert study.points == 10**12
    worker = Worker(study.study)
    assert len(worker.units) == 10**6 * math.ceil(10**6 / BLOCK)
    last = worker.batch(len(worker.units) - 1)
    assert (last["batch"][-1], last["seq"][-1]) == (1e6, 1e6)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


# --- progress ---------------------------------------------------------------------------------


def test_progress_is_shown_on_a_terminal_only(study, tmp_path):
    text = LONG.replace("step 256", "step 64")
    command = [
        sys.executable,
        "-m",
        "iomodel",
        "sweep",
        study(text),
        "--format",
        "csv",
        "--output",
        str(tmp_path / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"points/s" in seen
    assert b"%" in seen
    assert process.stdout.read() == b""
