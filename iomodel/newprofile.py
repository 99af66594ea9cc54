"""Profiles as text: a commented one to fill in, and the writer that importers share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from iomodel.catalogue import SECTIONS
from iomodel.errors import InputError
from iomodel.profile import SCHEMA, Profile, Value
from iomodel.units import parse_quantity

#: What a key means, for the comments of a new profile.
HELP: dict[str, str] = {
    "memory.hbm": "DRAM bandwidth, datasheet peak, of the whole package; bytes, not bits: 3.35 TB/s",
    "memory.capacity": "as the vendor labels it: 80 GB",
    "memory.l2": "last cache that all cores share; as the driver reports it: 50 MiB",
    "memory.l2_bandwidth": "measured or published read bandwidth of that cache",
    "compute.matmul": 'dense rates of the matrix units, never "with sparsity"; one line a dtype',
    "compute.vector": "rates of the ordinary lanes (a multiply-add counts two)",
    "sm.count": "cores (SMs, compute units) of the whole package",
    "sm.clock": "the clock that the matrix peak follows",
    "sm.vector_clock": "boost clock of the ordinary lanes",
    "sm.lanes": "fp32 lanes per core",
    "sm.matmul_per_clock": "dense bf16 FLOP per core and clock; matmul:bf16 is count x clock x this",
    "sm.exp_per_clock": "special function results per core and clock",
    "sm.shared_memory": "most that one thread block may use",
    "sm.registers": "register file per core",
    "sm.max_threads": "resident threads per core",
    "board.tdp": "board power",
    "board.interconnect": "GPU to GPU, both directions together",
}

_STEPS = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
_BINARY = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def quantity(amount: float, dimension: str) -> str:
    """An SI amount as text that `parse_quantity` reads back to the same float.

    >>> quantity(3.35e12, "bytes/s"), quantity(232448, "bytes"), quantity(1.83e9, "Hz"), quantity(132, "1")
    ('3.35 TB/s', '227 KiB', '1.83 GHz', '132')
    """
    amount = float(amount)
    if dimension == "1":
        return str(int(amount)) if amount.is_integer() else repr(amount)
    if dimension == "bytes" and amount % 1e9:
        for unit, step in _BINARY.items():
            if amount >= step and amount % step == 0:
                return f"{amount / step:g} {unit}" if amount / step < 1e6 else f"{int(amount)} B"
    if dimension == "FLOP":
        return f"{amount:.10g} FLOP"
    unit = {"bytes": "B", "bytes/s": "B/s"}.get(dimension, dimension)
    if dimension == "s":
        text = f"{amount * 1e6:.6g} us"
        return text if parse_quantity(text, "s") == amount else f"{amount!r} s"
    for prefix, power in _STEPS.items():
        text = f"{amount / power:.10g}"
        if amount >= power and "e" not in text and float(text) * power == amount:
            return f"{text} {prefix}{unit}"
    return f"{amount!r} {unit}"


def profile_text(
    name: str,
    values: Mapping[str, Value],
    *,
    vendor: str = "",
    title: str = "",
    architecture: str = "generic",
    notes: Sequence[str] = (),
    header: Sequence[str] = (),
    comments: bool = False,
) -> str:
    """A profile as YAML that `load_profile` reads; with `comments`, each key says what it is."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._+-]*", name):
        raise InputError(f"profile name {name!r}: write small letters, digits and dashes, e.g. my-h100")
    lines = [f"# {line}" for line in header]
    lines += [f"name: {name}", "aliases: []", f"vendor: {_quoted(vendor)}"]
    lines += [f"title: {_quoted(title or name)}", f"architecture: {architecture}"]
    section = ""
    explained: set[str] = set()
    for path in sorted(values, key=lambda p: SECTIONS.index(p.partition(".")[0])):
        here, _, key = path.partition(".")
        if here != section:
            section = here
            lines.append(f"{section}:")
        topic = path.partition(":")[0]
        if comments and topic in HELP and topic not in explained:
            explained.add(topic)
            lines.append(f"  # {HELP[topic]}")
        lines.append(f"  {_quoted(key) if ':' in key else key}: {_entry(values[path])}")
    if notes:
        lines += ["notes:", *(f"  - {_quoted(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def new_profile(name: str, base: Profile) -> str:
    """A commented profile to fill in, holding `base`'s own values with sources that say TODO."""
    own = {path: value for path, value in base.values.items() if path not in base.assumed}
    todo = {
        path: Value(value.amount, value.dimension, f"TODO: copied from {base.name}", called=value.called)
        for path, value in own.items()
        if path in SCHEMA
    }
    missing = [path for path in HELP if path in SCHEMA and path not in own]
    header = [
        f"A profile made from {base.name}. Change what differs, delete what you do not know, and",
        "give each value the source it is from: a value without one is refused.",
        f"Check it with: iomodel gpus lint {name}.yaml",
        *(["Not known of the base: " + ", ".join(missing)] if missing else []),
    ]
    return profile_text(
        name,
        todo,
        vendor=base.vendor,
        title=name,
        architecture=base.architecture,
        header=header,
        comments=True,
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _entry(value: Value) -> str:
    parts = [f"value: {quantity(value.amount, value.dimension)}"]
    for key in ("called", "source", "note"):
        text = getattr(value, key)
        if text:
            parts.append(f"{key}: {_quoted(text)}")
    return "{" + ", ".join(parts) + "}"
