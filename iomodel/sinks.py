"""Where the rows of a study go: CSV, JSON, JSON lines, Parquet, or the head and tail for a table.

A sink encodes batches (in whichever process computed them) and writes what it encoded in order. A file
is written under `FILE.part` and renamed when it is whole; `FILE.part.state` says how far it is valid,
so a stopped run leaves rows that can be read, and another one can go on.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from iomodel.cases import Row
from iomodel.errors import InputError, MachineError
from iomodel.study import Batch, Words, rows

#: Rows that a table shows of a long study.
HEAD, TAIL = 24, 8
#: Rows of a Parquet row group.
GROUP_ROWS = 500_000


def _strings(column: Any, missing: str, quote: Callable[[str], str]) -> list[str]:
    """A column as text: whole numbers without a point, other numbers with all their digits."""
    import numpy

    if isinstance(column, Words):
        names = [quote(name) for name in column.names]
        return [names[code] for code in column.codes.tolist()]
    if column.dtype == bool:
        return ["true" if x else "false" for x in column.tolist()]
    whole = (column == numpy.floor(column)) & (numpy.abs(column) < 2.0**63)
    if whole.all():
        return [str(x) for x in column.astype(numpy.int64).tolist()]
    texts = [str(int(x)) if w else repr(x) for x, w in zip(column.tolist(), whole.tolist(), strict=True)]
    for place in numpy.flatnonzero(~numpy.isfinite(column)).tolist():
        texts[place] = missing
    return texts


def _csv_quoted(text: str) -> str:
    if any(c in text for c in ',"\n\r'):
        text = '"' + text.replace('"', '""') + '"'
    return text


def encode_csv(batch: Batch) -> bytes:
    """Rows as CSV, without a header."""
    columns = [_strings(column, "", _csv_quoted) for column in batch.values()]
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True)).encode()


def encode_jsonl(batch: Batch) -> bytes:
    """Rows as JSON, a line each."""
    columns = [
        [f"{json.dumps(name)}: {text}" for text in _strings(column, "null", json.dumps)]
        for name, column in batch.items()
    ]
    return "".join("{" + ", ".join(row) + "}\n" for row in zip(*columns, strict=True)).encode()


def encode_parquet(batch: Batch) -> Any:
    """Rows as an Arrow record batch."""
    pa, _ = _arrow()
    arrays = []
    for column in batch.values():
        if isinstance(column, Words):
            arrays.append(pa.DictionaryArray.from_arrays(column.codes, list(column.names)).cast(pa.string()))
        else:
            arrays.append(pa.array(column))
    return pa.RecordBatch.from_arrays(arrays, names=list(batch))


def encode_ends(batch: Batch) -> tuple[int, list[Row], list[Row]]:
    """(how many rows, the first, the last): what a table shows."""
    first = next(iter(batch.values()))
    count = len(first.codes if isinstance(first, Words) else first)

    def some(start: int, stop: int) -> list[Row]:
        return list(rows({name: _cut(column, start, stop) for name, column in batch.items()}))

    return count, some(0, HEAD + TAIL), some(max(0, count - TAIL), count)


def _cut(column: Any, start: int, stop: int) -> Any:
    return Words(column.names, column.codes[start:stop]) if isinstance(column, Words) else column[start:stop]


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("--format parquet needs pyarrow: pip install 'iomodel[study]'") from None


@dataclass
class Ends:
    """Keeps the first and last rows, and how many there were."""

    encode = staticmethod(encode_ends)
    count: int = 0
    head: list[Row] = field(default_factory=list)
    tail: list[Row] = field(default_factory=list)

    def begin(self, columns: list[str], fingerprint: str, resume: bool) -> int:
        """The first unit to write."""
        del columns, fingerprint, resume
        return 0

    def write(self, payload: Any, units: int) -> None:
        """Take the rows of a unit."""
        del units
        count, first, last = payload
        room = HEAD + TAIL - len(self.head)
        self.head += first[:room]
        self.count += count
        self.tail = [*self.tail, *last][-TAIL:]

    def finish(self) -> None:
        """All rows are there."""

    def stop(self) -> str:
        """The run ends early: what of it can be used, in words."""
        return ""

    def rows(self) -> list[Row]:
        """The rows to show: all, or the first and the last."""
        if self.count <= HEAD + TAIL:
            return self.head
        return [*self.head[:HEAD], *self.tail]


@dataclass
class Part:
    """A file under its temporary name, and how far it is valid."""

    target: Path
    format: str
    stream: BinaryIO | None = None
    fingerprint: str = ""
    valid: dict[str, int] = field(default_factory=dict)
    saved: float = 0.0

    @property
    def path(self) -> Path:
        """The temporary name."""
        return self.target.with_name(self.target.name + ".part")

    @property
    def state(self) -> Path:
        """Where it is said how far the file is valid."""
        return self.target.with_name(self.target.name + ".part.state")

    def recorded(self) -> dict[str, int] | None:
        """How far a stopped run came; None where there is none."""
        if not (self.path.exists() and self.state.exists()):
            return None
        try:
            found = json.loads(self.state.read_text(encoding="utf-8"))
            same = [found.pop("study"), found.pop("format")] == [self.fingerprint, self.format]
            found = {key: int(value) for key, value in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{self.state}: cannot be read; remove it, or run without --resume") from None
        if not same:
            raise InputError(
                f"--resume: {self.path} was left by another study or format; remove it, or run without --resume"
            )
        return found

    def save(self, **valid: int) -> None:
        """Say how far the file is valid, at most once a second."""
        self.valid = valid
        if time.monotonic() - self.saved > 1.0:
            self.save_now()

    def save_now(self) -> None:
        """Say it now."""
        self.saved = time.monotonic()
        text = json.dumps({"study": self.fingerprint, "format": self.format, **self.valid})
        temporary = self.state.with_name(self.state.name + ".new")
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, self.state)

    def done(self) -> None:
        """The file is whole: give it its name."""
        os.replace(self.path, self.target)
        self.state.unlink(missing_ok=True)

    def kept(self) -> str:
        """What a stopped run leaves, in words."""
        return f"{self.valid.get('rows', 0):,} rows are in {self.path}; go on with --resume"


ENCODERS: Mapping[str, Callable[[Batch], bytes]] = {
    "csv": encode_csv,
    "jsonl": encode_jsonl,
    "json": encode_jsonl,
}


class TextFile:
    """CSV, JSON lines or a JSON array, to a file or to standard output."""

    def __init__(self, format_: str, output: str | None) -> None:
        self.format, self.output = format_, output
        self.encode = ENCODERS[format_]
        self.part = None if output is None or _is_device(output) else Part(Path(output), format_)
        self.stream: BinaryIO | None = None
        self.rows = 0

    def begin(self, columns: list[str], fingerprint: str, resume: bool) -> int:
        """Open; the first unit to write."""
        done = None
        if self.part is not None:
            self.part.fingerprint = fingerprint
            done = self.part.recorded() if resume else None
        elif resume:
            raise InputError("--resume needs --output FILE")
        self._guard(lambda: self._open(done))
        if done is not None:
            self.rows = done["rows"]
            return done["units"]
        header = {"csv": ",".join(_csv_quoted(c) for c in columns) + "\n", "json": "["}.get(self.format, "")
        self._guard(lambda: self._put(header.encode()))
        self._guard(lambda: self._mark(0))
        return 0

    def _open(self, done: dict[str, int] | None) -> None:
        if self.output is None:
            return
        path = self.part.path if self.part else Path(self.output)
        if done is not None:
            self.stream = open(path, "r+b", buffering=0)  # noqa: SIM115 - closed by finish or stop
            self.stream.truncate(done["bytes"])
            self.stream.seek(done["bytes"])
            return
        if self.part is not None:
            self.part.state.unlink(missing_ok=True)
        self.stream = open(path, "wb", buffering=0)  # noqa: SIM115

    def write(self, payload: bytes, units: int) -> None:
        """Write the rows of a unit; `units` are whole with it."""
        count = payload.count(b"\n")
        if self.format == "json" and count:
            payload = (b"\n " if not self.rows else b",\n ") + payload[:-1].replace(b"\n", b",\n ")
        self._guard(lambda: self._put(payload))
        self.rows += count
        self._guard(lambda: self._mark(units))

    def _put(self, data: bytes) -> None:
        if self.stream is None:
            if sys.stdout is None:
                raise MachineError("cannot write: standard output is closed")
            sys.stdout.write(data.decode())
            return
        while data:
            data = data[self.stream.write(data) :]

    def _mark(self, units: int) -> None:
        if self.part is not None and self.stream is not None:
            self.part.save(units=units, bytes=self.stream.tell(), rows=self.rows)

    def finish(self) -> None:
        """All rows are there: close, and give the file its name."""
        if self.format == "json":
            self._guard(lambda: self._put(b"\n]\n"))
        if self.stream is not None:
            self._guard(self.stream.close)
        if self.part is not None:
            self._guard(self.part.done)

    def stop(self) -> str:
        """The run ends early: leave what is valid, and say so."""
        if self.stream is None or self.part is None or self.stream.closed:
            return ""
        try:
            self.stream.truncate(self.part.valid["bytes"])
            self.part.save_now()
            if self.format == "json":
                self.stream.seek(self.part.valid["bytes"])
                self.stream.write(b"\n]\n")
            self.stream.close()
        except (OSError, KeyError):
            self.stream.close()
            return f"{self.part.path} holds rows that were written; its end may be torn"
        return self.part.kept()

    def _guard(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except BrokenPipeError:
            raise
        except OSError as error:
            place = f"--output {self.output}" if self.output else "cannot write"
            kept = self.stop()
            raise MachineError(f"{place}: {error.strerror or error}{'; ' + kept if kept else ''}") from None


class ParquetFile:
    """Parquet, in row groups. A stopped run's file is whole and readable; going on copies its row groups."""

    encode = staticmethod(encode_parquet)

    def __init__(self, output: str | None) -> None:
        _arrow()
        if output is None:
            raise InputError("--format parquet needs --output FILE")
        self.part = Part(Path(output), "parquet")
        self.writer: Any = None
        self.waiting: list[Any] = []
        self.units = self.rows = self.held = 0

    def begin(self, columns: list[str], fingerprint: str, resume: bool) -> int:
        """The first unit to write."""
        del columns
        self.part.fingerprint = fingerprint
        done = self.part.recorded() if resume else None
        if done is not None:
            self._copy_kept()
            self.units, self.rows = done["units"], done["rows"]
        else:
            self.part.state.unlink(missing_ok=True)
        return self.units

    def _copy_kept(self) -> None:
        _, pq = _arrow()
        old = self.part.path.with_name(self.part.path.name + ".old")
        if not old.exists():
            os.replace(self.part.path, old)
        try:
            kept = pq.ParquetFile(old)
        except (OSError, ValueError) as error:
            raise InputError(
                f"--resume: {old} is not whole, its run was killed ({error}); remove it, or run without --resume"
            ) from None
        with kept:
            for group in range(kept.num_row_groups):
                self._put(kept.read_row_group(group))
        old.unlink()

    def write(self, payload: Any, units: int) -> None:
        """Take the rows of a unit; row groups are written as they fill."""
        self.waiting.append(payload)
        self.held += payload.num_rows
        if self.held >= GROUP_ROWS:
            self._flush(units)

    def _flush(self, units: int) -> None:
        pa, _ = _arrow()
        if self.held:
            table = pa.Table.from_batches(self.waiting).combine_chunks()
            self.waiting = []
            self._put(table)
            self.rows, self.held = self.rows + table.num_rows, 0
        self.units = units
        self.part.valid = {"units": units, "rows": self.rows}

    def _put(self, table: Any) -> None:
        _, pq = _arrow()
        try:
            if self.writer is None:
                # Dictionaries for words only: of measured figures no two rows are alike, and looking for
                # repeats (or for what zstd would save) costs more than computing them.
                words = [f.name for f in table.schema if not str(f.type).startswith(("double", "bool"))]
                self.writer = pq.ParquetWriter(
                    self.part.path, table.schema, compression="lz4", use_dictionary=words or False
                )
            self.writer.write_table(table, row_group_size=GROUP_ROWS * 64)
        except OSError as error:
            text = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
            self._abandon()
            raise MachineError(f"--output {self.part.target}: {text}") from None

    def _abandon(self) -> None:
        """The file cannot be ended: nothing of it can be read, so nothing of it is left."""
        try:
            self.writer = None
            self.part.path.unlink(missing_ok=True)
            self.part.state.unlink(missing_ok=True)
        except OSError:
            pass

    def finish(self) -> None:
        """All rows are there: close, and give the file its name."""
        self._flush(self.units)
        try:
            if self.writer is None:
                raise InputError(f"{self.part.target}: no row is left to write; look at where:")
            self.writer.close()
            self.part.done()
        except OSError as error:
            raise MachineError(f"--output {self.part.target}: {error.strerror or error}") from None

    def stop(self) -> str:
        """The run ends early: end the file, and say how far it goes."""
        if self.writer is None:
            return ""
        self.waiting, self.held = [], 0
        try:
            writer, self.writer = self.writer, None
            writer.close()
            self.part.save_now()
        except OSError as error:
            return f"{self.part.path} cannot be ended: {error.strerror or error}"
        return self.part.kept()


Sink = Ends | TextFile | ParquetFile


def _is_device(output: str) -> bool:
    """Whether there is nothing to rename over: a device, a pipe."""
    path = Path(output)
    if path.is_dir():
        raise InputError(f"--output {output}: is a directory")
    return path.exists() and not path.is_file()


def open_sink(format_: str, output: str | None) -> Sink:
    """The sink of a format."""
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise MachineError(f"--output {output}: the folder does not exist")
    if format_ in ENCODERS:
        return TextFile(format_, output)
    return ParquetFile(output) if format_ == "parquet" else Ends()
