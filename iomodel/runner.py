"""Runs the units of a study in this process, in several, or on a Dask cluster: the same units, in order."""

from __future__ import annotations

import importlib
import logging
import pickle
import re
import signal
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from iomodel.errors import InputError, IomodelError, MachineError
from iomodel.sinks import Sink
from iomodel.study import Batch, Study, Units, Worker

Encode = Callable[[Batch], Any]
#: Units handed out at once, such tasks ahead for each worker, and how often one is tried again when its
#: worker dies.
TOGETHER, AHEAD, RETRIES = 4, 2, 5


class StoppedError(IomodelError):
    """Stopped by the user; the text says what is kept."""

    exit_code = 130


def run(
    study: Study,
    sink: Sink,
    jobs: int = 1,
    scheduler: str | None = None,
    resume: bool = False,
    progress: Callable[[int], None] = lambda points: None,
) -> None:
    """Write all rows of a study; `progress` is told how many points each unit had."""
    units = Units.of(study)
    fingerprint = study.fingerprint
    worker = Worker(study)
    columns = list(worker.batch(0))
    client = None if scheduler is None else _connect(scheduler)
    try:
        _write(study, sink, units, worker, columns, fingerprint, resume, jobs, client, progress)
    finally:
        if client is not None:
            client.close()


def _write(
    study: Study,
    sink: Sink,
    units: Units,
    worker: Worker,
    columns: list[str],
    fingerprint: str,
    resume: bool,
    jobs: int,
    client: Any,
    progress: Callable[[int], None],
) -> None:
    first = sink.begin(columns, fingerprint, resume)
    for number in range(first):
        progress(units.points(number))
    try:
        for number, payload in payloads(study, sink.encode, range(first, len(units)), jobs, client, worker):
            sink.write(payload, number + 1)
            progress(units.points(number))
    except KeyboardInterrupt:
        kept = sink.stop()
        raise StoppedError(f"interrupted{'; ' + kept if kept else ''}") from None
    except IomodelError as error:
        kept = sink.stop()
        raise type(error)(f"{error}{'; ' + kept if kept else ''}") from None
    sink.finish()


def payloads(
    study: Study,
    encode: Encode,
    numbers: range,
    jobs: int = 1,
    client: Any = None,
    worker: Worker | None = None,
) -> Iterator[tuple[int, Any]]:
    """(unit, its encoded rows) in order."""
    if client is not None:
        yield from _on_cluster(study, encode, numbers, client)
    elif jobs > 1:
        yield from _in_processes(study, encode, numbers, jobs)
    else:
        own = worker or Worker(study)
        for number in numbers:
            yield number, encode(own.batch(number))


# --- several processes ------------------------------------------------------------------------

_local = threading.local()


def _start(blob: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _local.blob, _local.work = blob, pickle.loads(blob)


def _units(numbers: range) -> list[Any]:
    worker, encode = _local.work
    return [encode(worker.batch(number)) for number in numbers]


def _tasks(numbers: range) -> Iterator[range]:
    """The same units, some at a time: handing one out costs as much as a fifth of computing it."""
    for start in range(numbers.start, numbers.stop, TOGETHER):
        yield range(start, min(start + TOGETHER, numbers.stop))


def _pack(study: Study, encode: Encode) -> bytes:
    return pickle.dumps((Worker(study), encode))


def _in_processes(study: Study, encode: Encode, numbers: range, jobs: int) -> Iterator[tuple[int, Any]]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Fresh processes: a fork of one that has threads (NumPy's, a cluster client's) can hang.
    context = multiprocessing.get_context("spawn")
    blob = _pack(study, encode)
    left = _tasks(numbers)
    waiting: deque[range] = deque()
    for attempt in range(RETRIES + 1):
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start, initargs=(blob,))
        futures = deque(pool.submit(_units, task) for task in waiting)
        try:
            while True:
                while len(waiting) < AHEAD * jobs and (task := next(left, None)) is not None:
                    waiting.append(task)
                    futures.append(pool.submit(_units, task))
                if not waiting:
                    return
                payloads = futures[0].result()
                futures.popleft()
                yield from zip(waiting.popleft(), payloads, strict=True)
        except BrokenProcessPool:
            if attempt == RETRIES:
                raise MachineError(f"worker processes died {RETRIES + 1} times; is memory short?") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# --- a Dask cluster ---------------------------------------------------------------------------


def _remote_units(blob: bytes, numbers: range) -> list[Any]:
    if getattr(_local, "blob", None) != blob:
        _local.blob, _local.work = blob, pickle.loads(blob)
    return _units(numbers)


def _connect(address: str) -> Any:
    """A client of a running scheduler, or an error in one line."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs dask.distributed: pip install 'iomodel[study]'") from None
    for name in [n for n in logging.root.manager.loggerDict if n.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors reach the user as one line of ours
    found = re.fullmatch(r"(\w+)://\[?([^\s\[\]/]+)\]?:(\d{1,5})", address)
    if not found:
        raise InputError(f"--scheduler {address!r}: write tcp://HOST:PORT, as dask scheduler shows it")
    try:
        # Asked plainly first: the client retries for long, and not in silence.
        socket.create_connection((found[2], int(found[3])), timeout=CONNECT_SECONDS).close()
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, OverflowError, TimeoutError, ValueError) as error:
        text = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"--scheduler {address}: cannot be reached ({text}); start one with: dask scheduler"
        ) from None


def _on_cluster(study: Study, encode: Encode, numbers: range, client: Any) -> Iterator[tuple[int, Any]]:
    killed = importlib.import_module("distributed").KilledWorker
    blob = _pack(study, encode)
    run_id = uuid.uuid4().hex
    left = _tasks(numbers)
    waiting: deque[tuple[range, Any]] = deque()
    while True:
        ahead = AHEAD * max(2, sum(client.nthreads().values()))
        while len(waiting) < ahead and (task := next(left, None)) is not None:
            key = f"iomodel-{run_id}-{task.start}"
            waiting.append((task, client.submit(_remote_units, blob, task, key=key, retries=RETRIES)))
        if not waiting:
            return
        task, future = waiting.popleft()
        try:
            payloads = future.result()
        except killed:
            raise MachineError(f"the cluster's workers died on unit {task.start}, again and again") from None
        except OSError as error:
            raise MachineError(f"the cluster failed: {error}") from None
        future.release()
        yield from zip(task, payloads, strict=True)


#: How long a scheduler has to answer.
CONNECT_SECONDS = 10
