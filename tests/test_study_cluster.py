"""A real Dask cluster of two workers, one of which is killed at work: the same file, to the byte."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import iomodel
from iomodel.errors import InputError

pytest.importorskip("distributed")

#: Small units of work, so that a kill falls between many of them.
KEYS = {
    "command": "attention",
    "base": {"causal": True},
    "vary": {"gpu": ["a100-sxm-80gb", "h100-sxm"], "heads": "1..48 step 1", "seq": "256..32k step 8"},
    "variants": ["fa2"],
    "columns": ["bytes_dram_read", "seconds_expected", "bound"],
}


@contextlib.contextmanager
def cluster(folder, workers=2):
    """(address, worker processes) of a scheduler and workers that listen on 127.0.0.1 only."""
    file = folder / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [
        *dask,
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        str(file),
    ]
    processes = [subprocess.Popen(command, env=environment, **quiet)]
    try:
        address = until(lambda: json.loads(file.read_text())["address"] if file.exists() else None)
        command = [
            *dask,
            "worker",
            address,
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
        ]
        processes += [subprocess.Popen(command, env=environment, **quiet) for _ in range(workers)]
        yield address, processes[1:]
    finally:
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(timeout=20)


def until(ask, seconds=60):
    """What `ask` answers once it answers anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(ValueError, KeyError):
            answer = ask()
            if answer:
                return answer
        time.sleep(0.02)
    raise AssertionError(f"nothing happened in {seconds} s")


def test_a_killed_worker_changes_nothing(tmp_path):
    alone, together = tmp_path / "alone.csv", tmp_path / "together.csv"
    iomodel.sweep(**KEYS).write(alone)
    study = tmp_path / "study.yaml"
    study.write_text(json.dumps(KEYS), encoding="utf-8")  # JSON is YAML
    with cluster(tmp_path) as (address, workers):
        from distributed import Client

        with Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        command = [sys.executable, "-m", "iomodel", "sweep", str(study), "--format", "csv", "--scheduler", address]
        run = subprocess.Popen([*command, "--output", str(together)], stderr=subprocess.PIPE, text=True)
        part = tmp_path / "together.csv.part"
        until(lambda: part.exists() and part.stat().st_size > alone.stat().st_size / 20)
        workers[0].send_signal(signal.SIGKILL)
        assert not together.exists(), "the kill has to fall into the run"
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
        assert errors == ""
        assert workers[0].wait(timeout=20) == -signal.SIGKILL
        assert workers[1].poll() is None
    assert together.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:9", "tcp://no-such-host.invalid:8786", "somewhere", "tcp://127.0.0.1"]
)
def test_a_scheduler_that_cannot_be_reached_is_wrong_input(address, tmp_path):
    target = tmp_path / "rows.csv"
    with pytest.raises(InputError, match="--scheduler"):
        iomodel.sweep(command="attention", vary={"seq": [1024]}).write(target, scheduler=address)
    assert list(tmp_path.iterdir()) == []
