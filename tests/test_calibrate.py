"""`iomodel calibrate`: constants recovered from rows made with known ones, files, failures. No GPU needed."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from iomodel.catalogue import load_profile
from iomodel.cli import calibrate as command
from iomodel.errors import InputError, MachineError
from iomodel.lint import lint
from iomodel.measure import device as devices
from iomodel.measure import session
from iomodel.measure.device import Device, datasheet_of, described, find_device
from iomodel.measure.session import rows_text
from iomodel.measure.suite import suite
from iomodel.measure.timing import Timer
from iomodel.measurements import Measured, read_measurements
from iomodel.profile import Value
from iomodel.recorded import batches
from iomodel.validate import compare_all, predicted_seconds

pytest.importorskip("scipy", reason="fitting needs the extra measure")

from iomodel.measure.fit import STYLES, fit

FOLDER = Path(__file__).parent.parent / "configs" / "measurements"
TABLES = str(FOLDER / "kernel_tables.csv")

#: Constants that no shipped profile has, by style of kernel.
KNOWN = {
    "sustained.dram": 0.80,
    "sustained.dram_write": 0.62,
    "sustained.l2_per_clock": 22.0,
    "sustained.issue": 0.65,
    "sustained.graph_overlap": 1.0e-6,
    "launch.latency": 2.0e-6,
    "sustained.matmul.matmul": 0.85,
    "sustained.matmul.memory": 0.75,
    "sustained.matmul.floor": 4.0e-6,
    "sustained.matmul.l2_per_flop": 0.025,
    "sustained.fa2.matmul": 0.40,
    "sustained.fa2.start": 0.9,
    "sustained.fa3.append": 0.0,
    "sustained.fa3.matmul": 0.70,
    "sustained.fa3.floor": 5.0e-6,
    "sustained.fa3.start": 1.2,
    "sustained.decode.memory": 0.80,
    "sustained.decode.floor": 8.0e-6,
    "sustained.decode.split": 5.0e-6,
}
LAUNCHES = {"eager": 7e-6, "stream": 4e-6, "graph": 0.8e-6}


def made(noise=0.0, constants=KNOWN, held_out_factor=1.0):
    """Rows of the whole suite as an H200 with known constants would give them."""
    profile = load_profile("h200")
    for way, cost in LAUNCHES.items():
        profile = profile.override(f"launch.{way}", cost)
    for key, value in constants.items():
        profile = profile.override(key, value)
    drawn = random.Random(7)
    blank = [
        Measured(w.name, w.family, w.variant, "h200", dict(w.params), None, None, {}, "made up")
        for w in suite(("flash", "cudnn"))
    ]
    rows = {}
    for batch in batches(blank):
        for way in ("queued", "graph"):
            seconds = predicted_seconds(batch, way, profile)
            for i, row in enumerate(batch.rows):
                value = float(seconds[i] if getattr(seconds, "ndim", 0) else seconds)
                value *= 1.0 + noise * drawn.gauss(0.0, 1.0)
                value *= held_out_factor if row.held_out else 1.0
                rows.setdefault(row.name, {})[way] = value
    launches = [replace(row, seconds={"launch": LAUNCHES[row.variant]}) for row in blank[:3]]
    return launches + [replace(row, seconds=rows[row.name]) for row in blank[3:]]


def source(style, figures):
    return f"{style} {figures}"


def recovered(rows):
    return fit(load_profile("h200"), rows, source).profile


@lru_cache(maxsize=1)
def recovered_exactly():
    return recovered(made())


def test_known_constants_are_recovered():
    """Exact rows: rates and shares within 1 %, floors within 6 %; what is left is the stiffness that holds
    constants where they were, and the floor of decode against its split."""
    profile = recovered_exactly()
    for key, value in KNOWN.items():
        few = key.endswith((".floor", ".split", ".start"))
        assert profile[key] == pytest.approx(value, rel=0.06 if few else 0.01, abs=1e-12), key
    for way, cost in LAUNCHES.items():
        assert profile[f"launch.{way}"] == cost


def test_known_constants_are_recovered_from_noisy_rows():
    """3 % of noise on each figure: shares of a peak within 6 %; they rest on a dozen figures or more."""
    profile = recovered(made(noise=0.03))
    for key in ("dram", "dram_write", "issue", "matmul.matmul", "fa2.matmul", "fa3.matmul", "decode.memory"):
        assert profile[f"sustained.{key}"] == pytest.approx(KNOWN[f"sustained.{key}"], rel=0.06), key


def test_a_row_far_off_does_not_move_the_fit():
    rows = made()
    odd = next(i for i, row in enumerate(rows) if row.family == "gemm" and not row.held_out)
    rows[odd] = replace(rows[odd], seconds={way: 5 * t for way, t in rows[odd].seconds.items()})
    assert recovered(rows)["sustained.matmul.matmul"] == pytest.approx(0.85, rel=0.03)


def test_rows_kept_back_never_touch_the_fit():
    assert recovered(made(held_out_factor=10.0)).values == recovered_exactly().values


def test_constants_stay_in_their_range():
    """Rows of a machine faster than its datasheet: shares end at 1, and say so."""
    rows = [
        row if row.family == "launch" else replace(row, seconds={w: t / 3 for w, t in row.seconds.items()})
        for row in made()
    ]
    fitted = fit(load_profile("h200"), rows, source)
    limits = {c.key: c for style in STYLES for c in style.constants if "engine" not in style.name}
    for found in fitted.found:
        if found.key in limits:
            assert limits[found.key].low <= found.value <= limits[found.key].high, found.key
    assert next(f for f in fitted.found if f.key == "sustained.dram").at_bound


def test_too_few_rows_leave_a_style_alone():
    rows = [row for row in made() if row.family == "decode" and row.variant == "cudnn" and not row.held_out][:3]
    fitted = fit(load_profile("h200"), rows, source)
    assert fitted.found == ()
    assert "too few" in fitted.left[0]


def test_engine_tables_fit_the_cache_copy_too():
    rows = [r for r in read_measurements(TABLES) if r.gpu == "a100-sxm-80gb"]
    fitted = fit(load_profile("a100-sxm-80gb"), rows, source)
    assert {f.style for f in fitted.found} == {"matmul", "fa2, engine", "decode, engine"}
    assert "sustained.fa2.append" in {f.key for f in fitted.found}
    kept = [row for row in rows if row.held_out]
    errors = sorted(abs(one.error) for one in compare_all(kept, profile=fitted.profile)[0])
    assert errors[len(errors) // 2] < 0.07


# --- files -------------------------------------------------------------------------------------------------


def test_rows_survive_the_file(tmp_path):
    rows = made(noise=0.03)
    file = tmp_path / "rows.csv"
    file.write_text(rows_text(rows))
    again = read_measurements(str(file))
    assert [(r.name, r.family, r.variant, r.gpu, dict(r.params), r.how) for r in again] == [
        (r.name, r.family, r.variant, r.gpu, dict(r.params), r.how) for r in rows
    ]
    for one, other in zip(rows, again, strict=True):  # written to 0.1 ns
        assert other.seconds == pytest.approx(one.seconds, abs=0.6e-10)


def test_fit_from_a_file_writes_a_profile(iomodel_run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows, target = tmp_path / "rows.csv", tmp_path / "my-h200.yaml"
    rows.write_text(rows_text(made()))
    ran = iomodel_run("calibrate", "--data", rows, "--output", target)
    assert (ran.code, ran.err) == (0, "")
    assert "residuals" in ran.out
    assert max(len(line) for line in ran.out.splitlines()[:-1]) <= 80
    assert f"written: {target}" in ran.out
    profile = load_profile(target)
    assert profile["sustained.dram"] == pytest.approx(0.80, rel=0.03)
    assert profile["memory.hbm"] == 4.8e12
    assert profile.values["memory.hbm"].source.startswith("copied from the catalogue's h200: ")
    fitted = profile.values["sustained.dram"].source
    assert "rows.csv" in fitted
    assert "figures of stream kernels" in fitted
    assert lint(target) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my-h200.yaml", "rows.csv"]


def test_the_written_profile_predicts_as_the_fitted_one(iomodel_run, tmp_path):
    rows, target = tmp_path / "rows.csv", tmp_path / "my-h200.yaml"
    rows.write_text(rows_text(made()))
    iomodel_run("calibrate", "--data", rows, "--output", target)
    read = read_measurements(str(rows))
    fitted = recovered(read)
    expected, found = (compare_all(read, profile=p)[0] for p in (fitted, load_profile(target)))
    assert [one.predicted for one in found] == [one.predicted for one in expected]


def test_rows_of_several_gpus_need_a_choice(iomodel_run, tmp_path):
    ran = iomodel_run("calibrate", "--data", TABLES, "--output", tmp_path / "a.yaml")
    assert ran.code == 2
    assert "choose one of these with --like" in ran.err
    ran = iomodel_run("calibrate", "--data", TABLES, "--like", "l40s", "--output", tmp_path / "a.yaml")
    assert ran.code == 0
    assert "decode, engine" in ran.out
    assert (tmp_path / "a.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--output", "x.csv"), "ends in .yaml"),
        (("--output", "My GPU.yaml"), "small letters"),
        (("--output", "no/such/place.yaml"), "there is no folder no/such"),
        (("--quick", "--data", "rows.csv"), "nothing is measured"),
        (("--data", "rows.csv"), "rows.csv: No such file"),
        (("--data", "rows.csv", "--like", "h2000"), "unknown GPU"),
    ],
)
def test_wrong_options_are_one_line(iomodel_run, arguments, says):
    ran = iomodel_run("calibrate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "arguments", "name"),
    [("torch", (), "PyTorch"), ("scipy.optimize", ("--data", TABLES), "SciPy")],
)
def test_a_missing_extra_is_one_line(iomodel_run, monkeypatch, module, arguments, name):
    monkeypatch.setitem(sys.modules, module, None)
    ran = iomodel_run("calibrate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert name in ran.err
    assert "pip install iomodel[measure]" in ran.err
    assert ran.err.count("\n") == 1


# --- a session, on a pretended GPU ---------------------------------------------------------------------------


class Quiet:
    """Stands for torch.no_grad()."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def pretended_torch(**properties):
    """As much of PyTorch as a session touches besides the programs themselves."""
    facts = {
        "name": "NVIDIA H200",
        "multi_processor_count": 132,
        "L2_cache_size": 62914560,
        "regs_per_multiprocessor": 65536,
        "max_threads_per_multi_processor": 2048,
        "shared_memory_per_block_optin": 232448,
        **properties,
    }
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_device=lambda: 0,
        get_device_properties=lambda index: SimpleNamespace(**facts),
        empty_cache=lambda: None,
    )
    return SimpleNamespace(
        cuda=cuda,
        __version__="9.9",
        version=SimpleNamespace(cuda="13.0"),
        backends=SimpleNamespace(cudnn=SimpleNamespace(is_available=lambda: False)),
        manual_seed=lambda seed: None,
        no_grad=Quiet,
    )


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """A GPU whose times are those of `made`; `fail` maps a workload's place to what happens there."""
    times = {row.name: dict(row.seconds) for row in made()}
    fail = {}
    seen = []

    def timed(workload, timer, torch):
        seen.append(workload.name)
        if len(seen) - 1 in fail:
            raise fail[len(seen) - 1]
        return times[workload.name]

    monkeypatch.setitem(sys.modules, "torch", pretended_torch())
    monkeypatch.setattr(session, "_times", timed)
    monkeypatch.setattr(session, "flusher", lambda torch, l2: lambda: None)
    monkeypatch.chdir(tmp_path)
    return SimpleNamespace(fail=fail, seen=seen, folder=tmp_path)


def test_a_session_leaves_rows_and_a_profile(iomodel_run, pretended):
    ran = iomodel_run("calibrate")
    assert (ran.code, ran.err) == (0, "")
    assert sorted(p.name for p in pretended.folder.iterdir()) == ["my-h200.csv", "my-h200.yaml"]
    assert "written: my-h200.csv and my-h200.yaml" in ran.out
    profile = load_profile(pretended.folder / "my-h200.yaml")
    assert profile["sustained.matmul.matmul"] == pytest.approx(0.85, rel=0.03)
    assert "PyTorch 9.9" in profile.values["sustained.matmul.matmul"].source
    rows = read_measurements(str(pretended.folder / "my-h200.csv"))
    assert len(rows) == len(suite(("flash", "cudnn")))
    assert {row.gpu for row in rows} == {"h200"}


def test_quick_measures_a_third(iomodel_run, pretended):
    assert iomodel_run("calibrate", "--quick").code == 0
    assert len(pretended.seen) < 0.4 * len(suite(("flash", "cudnn")))


def test_a_workload_that_fails_is_left_out_and_named(iomodel_run, pretended):
    pretended.fail[5] = RuntimeError("no kernel\nfor this")
    ran = iomodel_run("calibrate")
    assert ran.code == 0
    assert ran.err == f"left out: {pretended.seen[5]}: no kernel for this\n"


@pytest.mark.parametrize("place", [0, 100, 301])
def test_interrupted_leaves_nothing(iomodel_run, pretended, place):
    pretended.fail[place] = KeyboardInterrupt()
    ran = iomodel_run("calibrate")
    assert (ran.code, ran.out) == (130, "")
    assert list(pretended.folder.iterdir()) == []


def test_a_disk_that_fails_leaves_nothing_half_written(iomodel_run, pretended, monkeypatch):
    def full(text, output):
        raise MachineError(f"--output {output}: No space left on device")

    monkeypatch.setattr(command, "write_out", full)
    ran = iomodel_run("calibrate")
    assert (ran.code, ran.out) == (1, "")
    assert list(pretended.folder.iterdir()) == []


def test_no_gpu_says_what_else_to_do(iomodel_run, monkeypatch):
    torch = pretended_torch()
    torch.cuda.is_available = lambda: False
    monkeypatch.setitem(sys.modules, "torch", torch)
    ran = iomodel_run("calibrate")
    assert ran.code == 2
    assert "iomodel calibrate --data FILE" in ran.err


def test_an_unknown_gpu_asks_for_like(monkeypatch):
    device = find_device(pretended_torch(name="NVIDIA X9000"))
    assert device.slug == "x9000"
    with pytest.raises(InputError, match="--like h100-sxm"):
        datasheet_of(device, "")
    assert datasheet_of(device, "h100-sxm").name == "h100-sxm"


def test_another_chip_of_the_same_name_asks_for_like():
    device = find_device(pretended_torch(multi_processor_count=114))
    with pytest.raises(InputError, match="114 SMs"):
        datasheet_of(device, "")


def test_what_the_device_reports_wins_over_the_datasheet():
    values = {
        "memory.l2": Value(50e6, "bytes", "device"),
        "sm.count": Value(132.0, "1", "device"),
    }
    datasheet = load_profile("h200")
    profile = described(Device("NVIDIA H200", values, "x"), datasheet)
    assert (profile["memory.l2"], profile.values["memory.l2"].source) == (50e6, "device")
    assert profile.values["sm.count"] == datasheet.values["sm.count"]


def test_nvidia_smi_may_be_missing(monkeypatch):
    def absent(*arguments, **options):
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(devices.subprocess, "run", absent)
    device = find_device(pretended_torch(uuid="0"))
    assert device.software == "PyTorch 9.9, CUDA 13.0"
    assert device.values["sm.registers"].amount == 65536 * 4


class Clock:
    """Events that read a clock; programs and flushes advance it."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def event(self, enable_timing):
        clock = self

        class Event:
            def record(self):
                self.at = clock.now

            def elapsed_time(self, other):
                return (other.at - self.at) * 1e3

            def synchronize(self):
                pass

        return Event()

    def step(self, name, seconds):
        def run():
            self.log.append(name)
            self.now += seconds

        return run


def test_every_cold_call_is_behind_a_flush_that_is_not_counted():
    clock = Clock()
    torch = SimpleNamespace(cuda=SimpleNamespace(Event=clock.event))
    timer = Timer(torch, clock.step("flush", 1.0))
    assert timer.queued(clock.step("call", 2e-3), 2e-3) == pytest.approx(2e-3)
    assert clock.log == ["flush", "call"] * (len(clock.log) // 2)
    assert 5 <= len(clock.log) // 2 <= 15


def test_the_suite_has_no_two_rows_of_one_name_and_both_halves_of_each_style():
    workloads = suite(("flash", "cudnn"))
    assert len({w.name for w in workloads}) == len(workloads)
    rows = [Measured(w.name, w.family, w.variant, "h200", dict(w.params), None, None, {}) for w in workloads]
    gpu = load_profile("h200")
    for style in STYLES:
        own = [row for row in rows if row.family != "launch" and style.takes(row, gpu)]
        if own:
            fitted = sum(not row.held_out for row in own)
            assert fitted >= len(style.constants) + 2, style.name
            assert len(own) - fitted >= 5, style.name


def test_every_workload_has_a_program():
    from iomodel.measure.programs import _BUILDERS

    assert {w.family for w in suite(("flash", "cudnn"))} - {"launch"} == set(_BUILDERS)


def test_nothing_of_the_extra_is_imported_for_a_question():
    code = "import sys, iomodel.cli.app as a; a.run(['decode', '--kv-len', '1k']); print(sorted(sys.modules))"
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.rsplit("\n", 2)[-2]
    for name in ("'scipy'", "'torch'", "'iomodel.measure'"):
        assert name not in modules


def test_the_shipped_session_is_in_the_shipped_format():
    rows = read_measurements(str(FOLDER / "h200_calibrate.csv"))
    assert {row.name for row in rows} == {w.name for w in suite(("flash", "cudnn"))}
    assert len({row.how for row in rows}) == 1
    assert "PyTorch 2.11.0" in rows[0].how
