"""`iomodel sweep STUDY`: a what-if study to a table, CSV, JSON, JSON lines or Parquet."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from iomodel.cli.output import write_out
from iomodel.errors import InputError, unknown
from iomodel.study import Study

FORMATS = ("table", "csv", "json", "jsonl", "markdown", "parquet")


def add(app: typer.Typer, name: str, text: str) -> None:
    """Add the command to the application."""
    app.command(name, help=text)(sweep)


def sweep(
    study: str = typer.Argument(None, help="A YAML file, or the name of a built-in study.", metavar="STUDY"),
    format_: str = typer.Option("table", "--format", help=", ".join(FORMATS) + ".", metavar="NAME"),
    output: str = typer.Option(None, "--output", help="Write here; under FILE.part until whole.", metavar="FILE"),
    jobs: int = typer.Option(1, "--jobs", help="Processes at work.", metavar="N"),
    scheduler: str = typer.Option(
        None, "--scheduler", help="A running Dask cluster: tcp://host:8786.", metavar="ADDRESS"
    ),
    resume: bool = typer.Option(False, "--resume", help="Go on with FILE.part of a stopped run."),
    list_: bool = typer.Option(False, "--list", help="The built-in studies and what they ask."),
) -> int:
    """Run a study."""
    from iomodel.runner import run
    from iomodel.sinks import Ends, open_sink
    from iomodel.studyfile import read_study

    if list_:
        write_out(_listing(), output)
        return 0
    if study is None:
        raise InputError("sweep needs a study: a YAML file, or a name from iomodel sweep --list")
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS, "--format")
    if jobs < 1:
        raise InputError(f"--jobs {jobs}: at least 1")
    found = read_study(study)
    if found.question is not None:
        if format_ == "parquet" or resume or scheduler:
            raise InputError(
                f"{found.name} asks for {found.question.kind}: use table, csv, json, jsonl or markdown"
            )
        from iomodel.solve import answer

        answers = answer(found)
        write_out(_render(found, answers.rows, len(answers.rows), answers.notes, format_), output)
        return 0
    sink = open_sink(format_, output)
    with _terminable(), _progress(found.points) as advance:
        run(found, sink, jobs, scheduler, resume, advance)
    if isinstance(sink, Ends):
        write_out(_render(found, sink.rows(), sink.count, (), format_), output)
    return 0


def _listing() -> str:
    from iomodel.studyfile import studies
    from iomodel.yamlfile import read_yaml

    found = {name: str(read_yaml(path).data.get("question") or "") for name, path in studies().items()}
    width = max((len(name) for name in found), default=0)
    return "".join(f"{name:{width}}  {question}\n" for name, question in found.items())


def _render(study: Study, rows: Sequence[dict[str, Any]], count: int, notes: Sequence[str], format_: str) -> str:
    from iomodel.render.machine import rows_to_csv, rows_to_json

    if format_ == "csv":
        return rows_to_csv(rows)
    if format_ == "json":
        return rows_to_json(rows)
    if format_ == "jsonl":
        import json

        from iomodel.table import plain

        return "".join(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows)
    from iomodel.render.markdown import table_to_markdown
    from iomodel.render.text import table_to_text, terminal
    from iomodel.studytable import study_table

    foot = list(notes)
    if count > len(rows):
        foot.append(f"the first and last of {count:,} rows; --format csv has them all")
    if not rows:
        foot.append("no rows")
        return "\n".join([study.title, *foot]).strip() + "\n"
    table = study_table(study, rows)
    text = table_to_markdown(table) if format_ == "markdown" else table_to_text(table, *terminal())
    return "\n\n".join(part for part in (study.title, text, "\n".join(foot)) if part) + "\n"


@contextmanager
def _terminable() -> Iterator[None]:
    """A polite kill ends a study as Ctrl-C does: what is written stays usable."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(points: int) -> Iterator[Callable[[int], None]]:
    """A bar with rate and time left on standard error, where that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Points a second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f} points/s")

    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=points)
        yield lambda done: bar.advance(task, done)
