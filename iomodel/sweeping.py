"""The library's `iomodel sweep`: a study as an object with rows, columns and answers.

>>> import iomodel
>>> rows = iomodel.sweep(command="attention", vary={"seq": [1024, 4096]}, variants="fa3", columns="speedup").rows()
>>> [row["seq"] for row in rows]
[1024.0, 4096.0]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from iomodel.cases import Row
from iomodel.errors import InputError
from iomodel.study import Study, Words, Worker, rows


class Sweep:
    """A what-if study, ready to run. `study` says what it is."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @property
    def points(self) -> int:
        """Places of the grid; each gives a row a variant."""
        return self.study.points

    def batches(self, jobs: int = 1) -> Iterator[dict[str, Any]]:
        """Columns of a block of rows, name -> array, block after block: memory does not grow."""
        import numpy

        from iomodel.runner import payloads
        from iomodel.study import Units

        for _, batch in payloads(self.study, _as_is, range(len(Units.of(self.study))), jobs):
            yield {name: numpy.array(c.names)[c.codes] if isinstance(c, Words) else c for name, c in batch.items()}

    def columns(self, jobs: int = 1) -> dict[str, Any]:
        """All rows, name -> array."""
        import numpy

        parts = list(self.batches(jobs))
        return {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rows(self) -> Iterator[Row]:
        """The rows one by one, as dictionaries; the answers of a study that asks a question."""
        if self.study.question is not None:
            yield from self.answers()
            return
        worker = Worker(self.study)
        for number in range(len(worker.units)):
            yield from rows(worker.batch(number))

    def answers(self) -> tuple[Row, ...]:
        """The answers of `find`, `crossover`, `pareto` or `sensitivity`."""
        from iomodel.solve import answer

        if self.study.question is None:
            raise InputError(f"{self.study.name}: asks no question; give find, crossover, pareto or sensitivity")
        return answer(self.study).rows

    def write(
        self,
        output: str | Path,
        kind: str | None = None,
        jobs: int = 1,
        scheduler: str | None = None,
        resume: bool = False,
    ) -> None:
        """Write all rows to a file: csv, jsonl, json or parquet, by its ending unless named."""
        from iomodel.runner import run
        from iomodel.sinks import open_sink

        named = kind or Path(output).suffix.removeprefix(".")
        if named not in ("csv", "json", "jsonl", "parquet"):
            raise InputError(f"{output}: end it in .csv, .json, .jsonl or .parquet, or name the kind")
        run(self.study, open_sink(named, str(output)), jobs, scheduler, resume)


def _as_is(batch: Any) -> Any:
    return batch


def sweep(study: str | Path | None = None, /, **keys: Any) -> Sweep:
    """A study from a file, the name of a built-in one, or its keys."""
    from iomodel.studyfile import from_keys, read_study

    if study is not None and keys:
        raise InputError("sweep: give a file or keys, not both")
    return Sweep(from_keys(keys) if study is None else read_study(study))
