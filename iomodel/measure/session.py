"""A measuring session: every workload timed in turn, within three minutes, with a bar for whoever waits."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from iomodel.measure.device import Device
from iomodel.measure.programs import build
from iomodel.measure.suite import Workload, params_text, suite
from iomodel.measure.timing import LONGEST, Timer, flusher
from iomodel.measurements import Measured
from iomodel.profile import Profile

#: Seconds after which no further workload is started.
BUDGET = 150.0

COLUMNS = ("id", "family", "variant", "params", "gpu", "us_queued", "us_graph", "us_launch", "how")


@dataclass(frozen=True)
class Session:
    """What a session gave: rows, and a line for each workload that was left out."""

    rows: tuple[Measured, ...]
    left_out: tuple[str, ...]


def measure(torch: Any, device: Device, profile: Profile, name: str, quick: bool, seed: int) -> Session:
    """Time the suite on the current device; `name` is what the rows call the GPU."""
    torch.manual_seed(seed)
    timer = Timer(torch, flusher(torch, profile["memory.l2"]))
    backends = ("flash", "cudnn") if profile.runs("fa3") else ("flash",)
    how = f"{date.today().isoformat()}, {device.software}"
    rows: list[Measured] = []
    left_out: list[str] = []
    workloads = suite(backends, quick)
    started = time.monotonic()
    with torch.no_grad(), _Bar(len(workloads), device.title) as step:
        for workload in workloads:
            step(workload.name)
            if time.monotonic() - started > BUDGET:
                left_out.append(f"{workload.name}: no time left")
                continue
            try:
                seconds = _times(workload, timer, torch)
            except (RuntimeError, NotImplementedError) as error:  # a kernel that this GPU or build lacks
                left_out.append(f"{workload.name}: {' '.join(str(error).split())[:120]}")
                continue
            finally:
                torch.cuda.empty_cache()  # a graph's memory is not given to the next one otherwise
            if seconds:
                rows.append(_row(workload, name, seconds, how))
            else:
                left_out.append(f"{workload.name}: one call takes longer than {LONGEST} s")
    return Session(tuple(rows), tuple(left_out))


def _times(workload: Workload, timer: Timer, torch: Any) -> dict[str, float]:
    if workload.family == "launch":
        return {"launch": timer.launch(workload.variant)}
    program = build(workload, torch)
    program()  # loads modules, picks algorithms
    torch.cuda.synchronize()
    first = min(timer.once(program), timer.once(program))
    if first > LONGEST:
        return {}
    return {"queued": timer.queued(program, first), "graph": timer.graph(program, first)}


def _row(workload: Workload, gpu: str, seconds: dict[str, float], how: str) -> Measured:
    return Measured(
        workload.name, workload.family, workload.variant, gpu, dict(workload.params), None, None, seconds, how
    )


def rows_text(rows: Sequence[Measured]) -> str:
    """Rows as CSV, in the format that `workloads` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        params = params_text(Workload(row.family, row.variant, row.params))
        times = [f"{row.seconds[w] * 1e6:.4f}" if w in row.seconds else "" for w in ("queued", "graph", "launch")]
        writer.writerow([row.name, row.family, row.variant, params, row.gpu, *times, row.how])
    return text.getvalue()


class _Bar:
    """A progress bar on stderr where that is a terminal; nothing elsewhere."""

    def __init__(self, total: int, title: str) -> None:
        self._progress: Any = None
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Callable[[str], None]:
        if self._progress is not None:
            self._progress.start()
        return self._step

    def _step(self, name: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, advance=1, description=name)

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()
