"""Study files: YAML (or the same keys from Python) made into a `Study`, every fault with file and line."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from iomodel.axes import MOST_PLACES, Axis, Dimension, Drawn, Sample, parse_axis
from iomodel.cases import read_cases
from iomodel.catalogue import configs_folder, find_profiles
from iomodel.errors import InputError, unknown
from iomodel.expression import evaluate
from iomodel.parameters import Parameter, Size, parameters
from iomodel.profile import SCHEMA, Profile
from iomodel.results import Analysis
from iomodel.study import FIGURES, Figures, Question, Study
from iomodel.table import RECORD
from iomodel.yamlfile import Document, read_yaml

QUESTIONS: dict[str, tuple[str, ...]] = {
    "find": ("first", "last", "where", "step"),
    "crossover": ("on", "between", "by", "step"),
    "pareto": ("least", "most", "within"),
    "sensitivity": ("of", "to", "by", "most"),
}
#: Keys of a study, in the order of a file.
KEYS = ("question", "command", "base", "vary", "zip", "cases", "sample", "derive", "where", "variants", "columns")

#: What rows hold where a study names no columns.
COLUMNS: tuple[str, ...] = (
    "bytes_compulsory",
    "bytes_dram_read",
    "bytes_dram_write",
    "seconds_roofline",
    "seconds_expected",
    "bound",
    "speedup",
)


def from_keys(keys: Mapping[str, Any]) -> Study:
    """A study from Python: the keys of a file."""
    return build(Document("study", {name: _plain(value) for name, value in keys.items()}, {}))


def read_study(name: str | Path) -> Study:
    """The study in a file, or a built-in one by name."""
    text = str(name)
    path = Path(text)
    if not path.exists() and not text.endswith((".yaml", ".yml")) and "/" not in text:
        known = studies()
        if text not in known:
            raise unknown("study", text, known)
        path = known[text]
    return build(read_yaml(path))


def studies() -> dict[str, Path]:
    """The built-in studies by name."""
    return {file.stem: file for file in sorted(configs_folder("studies").glob("*.yaml"))}


def analyses() -> dict[str, tuple[str, str]]:
    """The analyses that can be studied: name -> (module, function)."""
    import iomodel

    found = {f: m for f, m in iomodel._PUBLIC.items() if m.startswith("iomodel.analysis.")}
    return {function.replace("_", "-"): (module, function) for function, module in found.items()}


def build(document: Document) -> Study:
    """A study from the data of a document."""
    data = document.data
    document.check_keys((), data, [*KEYS, *QUESTIONS], "study key")
    known = analyses()
    command = data.get("command")
    if command not in known:
        if command is None:
            raise InputError(f"{document.where()}: a study needs command: one of {', '.join(known)}")
        raise unknown("command", command, known, document.where("command"))
    module, function = known[command]
    analyse: Callable[..., Analysis] = getattr(importlib.import_module(module), function)
    reader = _Reader(document, parameters(analyse))
    dimensions = reader.dimensions()
    base, fixed = reader.base()
    profiles, dimensions = reader.gpus(base, dimensions)
    varied = [axis.name for d in dimensions for axis in d.axes]
    both = [name for name in reader.section("base") if name in varied and name != "gpu"]
    if both:
        raise InputError(f"{document.where('base', both[0])}: {both[0]} is varied too; give it once")
    for parameter in parameters(analyse).values():
        if parameter.required and parameter.name not in base and parameter.name not in varied:
            raise InputError(f"{document.where('vary')}: {command} needs {parameter.name}, in base or vary")
    study = Study(
        command=str(command),
        analyse=analyse,
        base=base,
        dimensions=dimensions,
        profiles=profiles,
        fixed=fixed,
        columns=tuple(str(c) for c in reader.listed("columns")) or COLUMNS,
        derive={str(k): str(v) for k, v in reader.section("derive").items()},
        only=str(data.get("where") or ""),
        variants=tuple(str(v) for v in reader.listed("variants")),
        question=reader.question(),
        name=Path(document.path).name,
        title=str(data.get("question") or ""),
    )
    if study.points > MOST_PLACES:
        raise InputError(
            f"{document.where('vary')}: {study.points:.3g} points, above {MOST_PLACES:.0e}; "
            "narrow an axis or use sample:"
        )
    if not study.columns:
        raise InputError(f"{document.where('columns')}: no columns")
    _check_names(study, document)
    return study


def _check_names(study: Study, document: Document) -> None:
    """Evaluate one point, so that a wrong name is found before anything is written."""
    import numpy

    for place in study.places():
        here = study.at(place)
        first = numpy.zeros(1, dtype=int)
        numbers = {a.name: float(a.numbers.at(first)[0]) for d in study.numeric for a in d.axes if a.numbers}
        try:
            analysis = here.analyse(numbers)
        except InputError as error:
            if not study.dimensions or document.path == "study":
                raise InputError(f"{document.where()}: {error}") from None
            raise InputError(f"{document.where('vary')}: {error}") from None
        results = here.results(analysis) if study.question is None or study.variants else (None,)
        for one in results:
            figures = Figures(here, analysis, one, numbers)
            for name in study.derive:
                _at(lambda name=name, f=figures: f[name], document.where("derive", name))  # type: ignore[misc]
            if study.only:
                _at(lambda f=figures: evaluate(study.only, f), document.where("where"))  # type: ignore[misc]
            for index, name in enumerate(study.columns):
                if name not in figures and name not in (a.name for a in study.axes):
                    known = [n for n in figures if not n.startswith("gpu.")]
                    raise unknown("column", name, known, document.where("columns", index))
            break
        break


def _at(call: Callable[[], Any], where: str) -> None:
    try:
        call()
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(where) else f"{where}: {text}") from None


class _Reader:
    """Reads the parts of a study's document."""

    def __init__(self, document: Document, known: Mapping[str, Parameter]) -> None:
        self.document, self.known = document, known
        self.sample = self._sample()

    def section(self, name: str) -> dict[str, Any]:
        """A mapping of the study, empty where it has none."""
        found = self.document.data.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise InputError(f"{self.document.where(name)}: {name} must hold keys with values")
        return found

    def listed(self, name: str) -> list[Any]:
        """A list of the study; one word is a list of one."""
        found = self.document.data.get(name)
        if found is None:
            return []
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def _sample(self) -> Sample | None:
        found = self.section("sample")
        if not found:
            return None
        self.document.check_keys(("sample",), found, ["points", "seed", "scale"])
        where = self.document.where("sample")
        scale = found.get("scale", "log")
        if scale not in ("log", "linear"):
            raise unknown("scale", scale, ["log", "linear"], where)
        try:
            count = Size("").parse(found.get("points", 1000), "points")
            seed = Size("", 0).parse(found.get("seed", 0), "seed")
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        return Sample(int(count), int(seed), scale == "log")

    def dimensions(self) -> tuple[Dimension, ...]:
        """What varies, in the order written; zipped and drawn axes stand where their first one does."""
        axes: dict[str, Axis] = {}
        drawn: list[str] = []
        for name, written in self.section("vary").items():
            draw = None
            if self.sample is not None:
                seed = (self.sample.seed, len(axes))
                draw = Drawn(0, 0, self.sample.points, seed, self.sample.logarithmic, False)
            axes[name] = self._axis(str(name), written, ("vary", name), draw)
            if isinstance(axes[name].numbers, Drawn):
                drawn.append(name)
        groups = [[str(n) for n in group] for group in self._zipped()]
        if drawn:
            groups.append(drawn)
        elif self.sample is not None:
            raise InputError(f"{self.document.where('sample')}: no range to draw from, as seq: 1k..128k")
        dimensions: list[Dimension] = []
        placed: set[str] = set()
        for name in axes:
            if name in placed:
                continue
            group = next((g for g in groups if name in g), [name])
            for other in group:
                if other not in axes:
                    raise unknown("axis", other, axes, self.document.where("zip"))
            lengths = {len(axes[n]) for n in group}
            if len(lengths) > 1:
                text = ", ".join(f"{n} has {len(axes[n])}" for n in group)
                raise InputError(f"{self.document.where('zip')}: zipped axes must be equally long: {text}")
            placed |= set(group)
            dimensions.append(Dimension(tuple(axes[n] for n in group)))
        dimensions += self._cases(axes)
        if not dimensions:
            raise InputError(f"{self.document.where('vary')}: nothing varies; write vary: {{seq: 1k..128k x2}}")
        return tuple(dimensions)

    def _zipped(self) -> list[list[Any]]:
        groups = self.listed("zip")
        return [groups] if groups and not isinstance(groups[0], list) else groups

    def _axis(self, name: str, written: Any, keys: tuple[Any, ...], draw: Drawn | None = None) -> Axis:
        where = self.document.where(*keys)
        if name == "gpu":
            return Axis("gpu", names=tuple(self._gpu_names(written, where)))
        if not name.startswith("set.") and name not in self.known:
            values = [f"set.{path.partition('.')[2]}" for path in SCHEMA]
            raise unknown("axis", name, [*self.known, *values], where)
        try:
            return parse_axis(name, written, self.known.get(name), where, draw)
        except InputError as error:
            text = str(error).removeprefix("--set: ")
            raise InputError(text if text.startswith(where) else f"{where}: {text}") from None

    def _gpu_names(self, written: Any, where: str) -> Iterator[str]:
        self.found: dict[str, Profile] = getattr(self, "found", {})
        for text in written if isinstance(written, (list, tuple)) else [written]:
            try:
                profiles = [text] if isinstance(text, Profile) else find_profiles(str(text))
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            for profile in profiles:
                self.found[profile.name] = profile
                yield profile.name

    def _cases(self, axes: Mapping[str, Axis]) -> list[Dimension]:
        path = self.document.data.get("cases")
        if path is None:
            return []
        file = Path(self.document.path).parent / str(path)
        cases, where = read_cases(str(file))
        if not cases:
            raise InputError(f"{file}: no cases")
        found: list[Axis] = []
        for name in cases[0]:
            if name in axes:
                raise InputError(f"{where(-1)}: {name} is in vary too; give it once")
            column = [case[name] for case in cases]
            if name == "gpu":
                names = list(self._gpu_names(column, where(-1)))
                if len(names) != len(column):
                    raise InputError(f"{where(-1)}: gpu: one GPU a row, not a pattern")
                found.append(Axis("gpu", names=tuple(names)))
                continue
            values: list[Any] = []
            for index, text in enumerate(column):
                axis = self._axis(name, [text], ("cases",)) if text else None
                if axis is None:
                    values.append(None)
                else:
                    values.append(axis.names[0] if axis.numbers is None else axis.numbers.ends()[0])
                del index
            model = self._axis(name, [next((t for t in column if t), "1")], ("cases",))
            if model.numbers is None or None in values:
                found.append(Axis(name, names=tuple(values), key=model.key, multiple=model.multiple))
            else:
                from iomodel.axes import Listed

                found.append(Axis(name, Listed(tuple(values)), key=model.key, multiple=model.multiple))
        return [Dimension(tuple(found))]

    def base(self) -> tuple[dict[str, Any], dict[str, float]]:
        """(values of parameters, values set in profiles) that all points share."""
        base: dict[str, Any] = {}
        fixed: dict[str, float] = {}
        for name, written in self.section("base").items():
            if name == "gpu":
                continue
            axis = self._axis(str(name), [written], ("base", name))
            value = axis.names[0] if axis.numbers is None else axis.numbers.ends()[0]
            if axis.key:
                if axis.multiple:
                    raise InputError(
                        f"{self.document.where('base', name)}: write a quantity; multiples go in vary"
                    )
                fixed[axis.key] = value
            else:
                base[str(name)] = value
        return base, fixed

    def gpus(
        self, base: dict[str, Any], dimensions: tuple[Dimension, ...]
    ) -> tuple[dict[str, Profile], tuple[Dimension, ...]]:
        """The profiles by name; several GPUs in base vary before everything else."""
        written = self.section("base").get("gpu", self.known["gpu"].default)
        varied = any(axis.name == "gpu" for d in dimensions for axis in d.axes)
        if varied and "gpu" in self.section("base"):
            raise InputError(f"{self.document.where('base', 'gpu')}: gpu is varied too; give it once")
        if not varied:
            names = list(self._gpu_names(written, self.document.where("base", "gpu")))
            if len(names) > 1:
                dimensions = (Dimension((Axis("gpu", names=tuple(names)),)), *dimensions)
            base["gpu"] = names[0]
        else:
            base["gpu"] = next(iter(self.found))
        return self.found, dimensions

    def question(self) -> Question | None:
        """What is asked beyond the rows; one question a study."""
        asked = [kind for kind in QUESTIONS if kind in self.document.data]
        if len(asked) > 1:
            raise InputError(f"{self.document.where(asked[1])}: one question a study: {asked[0]} or {asked[1]}")
        if not asked:
            return None
        settings = self.section(asked[0])
        self.document.check_keys((asked[0],), settings, list(QUESTIONS[asked[0]]))
        return Question(asked[0], settings, self.document.where(asked[0]))


def _plain(value: Any) -> Any:
    """Values from Python as YAML would give them."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (Profile, str, bool, int, float)) or value is None:
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return [_plain(v) for v in value]


__all__ = ["FIGURES", "RECORD", "analyses", "build", "read_study", "studies"]
