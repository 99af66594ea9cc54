"""Finds the mistakes that hardware tables make: sparse for dense, GiB for GB, bits for bytes, one die."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iomodel.catalogue import (
    SECTIONS,
    TOP_KEYS,
    aliases,
    configs_folder,
    load_profile,
    profile_files,
    read_values,
)
from iomodel.errors import InputError
from iomodel.foreign import advice, recognise
from iomodel.profile import REQUIRED, Profile
from iomodel.units import show
from iomodel.yamlfile import Document, read_yaml

#: Bytes/s. From a phone's LPDDR to three times the fastest package of the catalogue (8 TB/s): eight
#: times an HBM part, as bits taken for bytes give, falls outside.
BANDWIDTH = (10e9, 25e12)

#: Seconds to read all of memory once. DRAM parts pair size and speed: the catalogue has 0.02 s (one
#: HBM stack) to 1.7 s (a server CPU's twelve channels).
READ_ALL = (0.01, 20.0)

#: FLOP/B of 16-bit matrix units against DRAM. The catalogue has 26 (GPUs without matrix units) to
#: 560 (TPU v6e); twice the largest, for a sparse rate, is still inside, a wrong prefix is not.
RIDGE_16 = (8.0, 1200.0)

#: The same for any dtype: 0.16 (B300 in fp64, which is emulated) to 1875 (GB300 in fp4).
RIDGE_ANY = (0.05, 5000.0)

#: Packages of two dies (or stacks): published per-die figures are half of the package's.
TWO_DIES = ("b200", "gb200", "b300", "gb300", "mi250x", "max-1550")

#: Families whose 8-bit rate is four times bf16, since GeForce halves fp32 accumulation.
HALVED = ("ampere", "ada", "blackwell-consumer")


@dataclass(frozen=True)
class Finding:
    """One thing to look at: `level` is error or warning, `where` is file:line."""

    level: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.level}: {self.text}"


@dataclass(frozen=True)
class Doubt:
    """What is odd about one value of a profile that loads; `key` is its path."""

    level: str
    key: str
    text: str


def lint(path: str | Path) -> list[Finding]:
    """Everything that is wrong or odd in a profile file; an unreadable file is an InputError.

    A file of another tool gives one finding that names the tool and what to write instead.
    """
    document = read_yaml(path)
    data = document.data
    foreign = _foreign(document)
    if foreign:
        return [foreign]
    findings = [_from_error(error, document) for error in _faults(document, data)]
    findings += _written(document, data)
    if any(finding.level == "error" for finding in findings):
        return _sorted(findings)
    try:
        profile = load_profile(Path(path).absolute())
    except InputError as error:
        text = str(error).replace(str(Path(path).absolute()), document.path)
        return _sorted([*findings, _from_error(InputError(text), document)])
    doubts = doubtful(profile)
    binary = {finding.where for finding in findings if "binary units" in finding.text}
    for doubt in doubts:
        where = document.where(*doubt.key.split(".", 1))
        if where not in binary:
            findings.append(Finding(doubt.level, where, f"{doubt.key}: {doubt.text}"))
    return _sorted(findings)


def doubtful(profile: Profile) -> list[Doubt]:
    """What is odd about a loaded profile: by arithmetic, and against the catalogue's entry of its name."""
    return [*_implausible(profile), *_inconsistent(profile), *_unlike_catalogue(profile)]


def catalogue_name(text: str) -> str | None:
    """The shipped profile that a device name means: its name, an alias, or one inside a longer name.

    >>> catalogue_name("NVIDIA H100 80GB HBM3"), catalogue_name("my-h200"), catalogue_name("gtx-480")
    ('h100-sxm', 'h200', None)
    """
    words = re.findall(r"[a-z0-9+.]+", text.lower())
    names = {name: name for name in profile_files()} | aliases()
    shipped = {file.stem for file in configs_folder("gpus").glob("*.yaml")}
    found: dict[str, int] = {}
    for name, target in names.items():
        parts = name.split("-")
        if target in shipped and any(words[i : i + len(parts)] == parts for i in range(len(words))):
            found[target] = max(found.get(target, 0), len(parts))
    return max(found, key=lambda target: found[target]) if found else None


def _sorted(findings: list[Finding]) -> list[Finding]:
    def line(finding: Finding) -> int:
        return int(finding.where.rpartition(":")[2]) if finding.where.rpartition(":")[2].isdigit() else 0

    return sorted(dict.fromkeys(findings), key=line)


def _foreign(document: Document) -> Finding | None:
    data = document.data
    own = isinstance(data, dict) and any(section in data for section in SECTIONS)
    known = None if own else recognise(data)
    if own and known is None:
        return None
    keys = list(data) if isinstance(data, dict) else []
    unfamiliar = [str(key) for key in keys if key not in TOP_KEYS]
    if known is None and not unfamiliar and keys:
        return None
    looks = f"looks like {known.name}, not" if known else "is not"
    lacks = ", ".join([*([] if "name" in keys else ["name"]), *REQUIRED])
    text = f"this {looks} an iomodel profile; missing: {lacks}"
    if unfamiliar:
        text += f"; unknown: {', '.join(unfamiliar[:6])}{', ...' if len(unfamiliar) > 6 else ''}"
    written = advice(data, known) if known else ""
    text += f"; write {written}" if written else "; start one with: iomodel gpus new NAME --from h100-sxm"
    return Finding("error", f"{document.path}:1", text)


def _faults(document: Document, data: dict[str, Any]) -> Iterator[InputError]:
    """Every fault that the loader would stop at, not only the first."""
    for key, value in data.items():
        try:
            document.check_keys((), {key: value}, TOP_KEYS, "profile key")
        except InputError as error:
            yield error
    for section in SECTIONS:
        entries = data.get(section)
        if not isinstance(entries, dict):
            entries = {} if entries is None else {"value": entries}
        source = {"source": entries["source"]} if "source" in entries else {}
        for key, entry in entries.items():
            if key != "source":
                try:
                    read_values(document, {section: {**source, key: entry}})
                except InputError as error:
                    yield error


def _from_error(error: InputError, document: Document) -> Finding:
    text = str(error)
    match = re.match(re.escape(document.path) + r"(?::(\d+))?: ", text)
    where = f"{document.path}:{match.group(1) or 1}" if match else f"{document.path}:1"
    text = text[match.end() :] if match else text
    if re.search(r"unit '[kKMGTP]?i?(b|bit|bits)(/s|ps)?'", text):
        text += " (a small b is bits: divide by 8)"
    return Finding("error", where, text)


def _written(document: Document, data: dict[str, Any]) -> Iterator[Finding]:
    """Doubts that only the text shows: binary units for decimal labels, sources still to fill in."""
    for section in SECTIONS:
        entries = data.get(section)
        for key, entry in entries.items() if isinstance(entries, dict) else ():
            fields = entry if isinstance(entry, dict) else {"value": entry}
            where = document.where(section, key)
            value = str(fields.get("value", ""))
            source = str(fields.get("source") or "") if key != "source" else str(entry)
            if re.search(r"\b(todo|fixme|xxx)\b", source, re.IGNORECASE):
                yield Finding("warning", where, f"{section}.{key}: the source is still to fill in ({source})")
            if (section, key) in (("memory", "hbm"), ("memory", "capacity")) and "i" in value:
                decimal = value.replace("i", "")
                yield Finding(
                    "warning",
                    where,
                    f"{section}.{key}: {value} is in binary units; vendors label DRAM in decimal ones: "
                    f"write {decimal}",
                )


def _outside(amount: float, limits: tuple[float, float]) -> bool:
    return not limits[0] <= amount <= limits[1]


def _implausible(profile: Profile) -> Iterator[Doubt]:
    hbm = profile["memory.hbm"]
    if _outside(hbm, BANDWIDTH):
        span = " to ".join(show(limit, "bytes/s") for limit in BANDWIDTH)
        yield Doubt(
            "error",
            "memory.hbm",
            f"{show(hbm, 'bytes/s')} is outside {span}, the range of DRAM: off by 1000, or bits for bytes?",
        )
    if "memory.capacity" in profile:
        capacity = profile["memory.capacity"]
        if _outside(capacity / hbm, READ_ALL):
            yield Doubt(
                "error",
                "memory.capacity",
                f"reading all {show(capacity, 'bytes')} at {show(hbm, 'bytes/s')} would take "
                f"{show(capacity / hbm, 's')}; DRAM takes {' to '.join(show(t, 's') for t in READ_ALL)}",
            )
    for dtype in profile.dtypes():
        ridge = profile.ridge_point(dtype)
        limits = RIDGE_16 if dtype in ("bf16", "fp16") else RIDGE_ANY
        if _outside(ridge, limits):
            yield Doubt(
                "error",
                f"compute.matmul:{dtype}",
                f"ridge point {ridge:.4g} FLOP/B is outside {limits[0]:g} to {limits[1]:g}, where hardware "
                "lies: the rate or memory.hbm is off (by 1000, or by 8 for bits)",
            )


def _inconsistent(profile: Profile) -> Iterator[Doubt]:
    """The 16-bit rate against cores x clock x FLOP per clock, and the 8-bit rate against the 16-bit one."""
    dtype = next((d for d in ("bf16", "fp16") if f"compute.matmul:{d}" in profile), "")
    parts = ("sm.count", "sm.clock", "sm.matmul_per_clock")
    if dtype and all(part in profile for part in parts):
        made = profile[parts[0]] * profile[parts[1]] * profile[parts[2]]
        rate = profile[f"compute.matmul:{dtype}"]
        shown, product = show(rate, "FLOP/s"), f"SMs x clock x FLOP per clock = {show(made, 'FLOP/s')}"
        if _near(rate / made, 2, 0.1):
            text = f"{shown} looks like the 2:4-sparse rate: {product} dense"
            yield Doubt("warning", f"compute.matmul:{dtype}", text)
        elif not _near(rate / made, 1, 0.1):
            text = f"{shown}, but {product}: one of the four is off"
            yield Doubt("warning", f"compute.matmul:{dtype}", text)
    for narrow in ("fp8", "int8"):
        if dtype and f"compute.matmul:{narrow}" in profile and profile.architecture not in HALVED:
            ratio = profile[f"compute.matmul:{narrow}"] / profile[f"compute.matmul:{dtype}"]
            if ratio > 3.5:
                text = f"{ratio:.3g} times the {dtype} rate, where hardware has 2: looks like a 2:4-sparse rate"
                yield Doubt("warning", f"compute.matmul:{narrow}", text)


def _unlike_catalogue(profile: Profile) -> Iterator[Doubt]:
    """Ratios to the shipped profile of the same name that have a well-known reason."""
    name = catalogue_name(profile.name)
    if name is None:
        return
    known = load_profile(configs_folder("gpus") / f"{name}.yaml")
    for key, value in profile.values.items():
        rate = key.startswith("compute.matmul:")
        if key not in known or not (rate or key in ("memory.hbm", "memory.capacity")):
            continue
        ratio = value.amount / known[key]
        reason = _reason(ratio, rate, name in TWO_DIES)
        if reason:
            level, text = reason
            theirs = show(known[key], known.values[key].dimension)
            yield Doubt(
                level, key, f"{show(value.amount, value.dimension)} {text} (the catalogue's {name}: {theirs})"
            )


def _reason(ratio: float, rate: bool, two_dies: bool) -> tuple[str, str] | None:
    if rate and _near(ratio, 2, 0.03):
        return "warning", "looks like the 2:4-sparse rate, twice the dense one"
    if two_dies and _near(ratio, 0.5, 0.05):
        return "warning", "looks like one die of a package of two"
    if not rate and _near(ratio, 2**30 / 1e9, 0.003):
        return "warning", "looks like GiB where the label is GB"
    for factor, text in ((1000, "is off by 1000: a wrong prefix"), (8, "is off by 8: bits for bytes")):
        if _near(ratio, factor, 0.08) or _near(ratio, 1 / factor, 0.08):
            return "error", text
    return None


def _near(ratio: float, target: float, tolerance: float) -> bool:
    return math.isclose(ratio, target, rel_tol=tolerance)
