"""What is shown of profiles: the catalogue as a list, one profile whole, several side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iomodel.arrays import Number
from iomodel.catalogue import configs_folder, load_profile, profile_files
from iomodel.errors import InputError, unknown
from iomodel.profile import SCHEMA, SUSTAINED, Profile
from iomodel.table import Column, Table
from iomodel.tensor import BITS, MATMUL_AS
from iomodel.tensor import dtype as canonical_dtype
from iomodel.units import parse_quantity, show

#: Memory levels by role -> the profile key of their bandwidth, and the key that has the vendor's name.
LEVELS = {"dram": ("memory.hbm", "memory.hbm"), "l2": ("memory.l2_bandwidth", "memory.l2")}
ROLES = {"dram": "DRAM", "l2": "L2"}

#: dtypes of the list, unless one is asked for.
LISTED = ("bf16", "fp8", "fp4")

#: dtypes that units multiply; the others only lie in memory.
MULTIPLIED = [d for d in BITS if d not in MATMUL_AS and d not in ("int64", "int32", "uint8", "bool")]

#: Keys of a flat record, as `--set` takes them -> profile key.
FACTS = {
    name: f"{section}.{name}"
    for wanted in ("memory", "compute", "sm", "board")
    for section, _, name in (key.partition(".") for key in SCHEMA)
    if section == wanted and (not name.startswith("matmul:") or name.removeprefix("matmul:") in MULTIPLIED)
}

#: What `--sort` takes besides a dtype, `name`, `vendor` and `ridge` -> profile key.
SORTS = {name: key for name, key in FACTS.items() if not key.startswith("compute.")}

#: Units of a comparison's rows: one for a quantity, so that rows compare by eye. Caches are powers of two.
_UNITS = {"bytes/s": ("GB/s", 1e9), "bytes": ("GB", 1e9), "FLOP/s": ("TFLOP/s", 1e12), "Hz": ("MHz", 1e6)}
_UNITS |= {"W": ("W", 1.0), "FLOP": ("", 1.0), "1": ("", 1.0)}
_BINARY = {"memory.l2": ("MiB", 2.0**20), "sm.shared_memory": ("KiB", 2.0**10), "sm.registers": ("KiB", 2.0**10)}

#: Units of a single value, the first that makes it at least one.
_STEPS = {
    "bytes/s": [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("B/s", 1.0)],
    "bytes": [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
    "FLOP/s": [("TFLOP/s", 1e12)],
    "Hz": [("GHz", 1e9), ("MHz", 1e6), ("Hz", 1.0)],
    "s": [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)],
    "W": [("W", 1.0)],
    "FLOP": [("FLOP", 1.0)],
    "1": [("", 1.0)],
}


def catalogue() -> tuple[dict[str, Profile], frozenset[str]]:
    """Every known profile by the name that `--gpu` takes, and which of them are a user's own."""
    files = profile_files()
    shipped = configs_folder("gpus")
    own = frozenset(name for name, file in files.items() if file.parent != shipped)
    return {name: load_profile(name) for name in files}, own


def select(
    profiles: Mapping[str, Profile],
    vendor: str | None = None,
    min_capacity: str | None = None,
    dtype: str | None = None,
    sort: str | None = None,
) -> dict[str, Profile]:
    """The profiles that pass every filter, in the order of `sort`: largest first, names from a to z."""
    dtype = None if dtype is None else canonical_dtype(dtype, "--dtype")
    order = _order(sort or "name", dtype or "bf16")
    found = dict(profiles)
    if vendor is not None:
        known = {p.vendor.lower() for p in profiles.values() if p.vendor}
        if vendor.lower() not in known:
            raise unknown("vendor", vendor, known, "--vendor")
        found = {name: p for name, p in found.items() if p.vendor.lower() == vendor.lower()}
    if min_capacity is not None:
        try:
            least = parse_quantity(min_capacity, "bytes")
        except InputError as error:
            raise InputError(f"--min-capacity: {error}") from None
        found = {n: p for n, p in found.items() if "memory.capacity" in p and p["memory.capacity"] >= least}
    if dtype is not None:
        found = {name: p for name, p in found.items() if p.has_rate(f"matmul:{dtype}")}
    return dict(sorted(found.items(), key=lambda item: order(*item)))


def _order(sort: str, dtype: str) -> Callable[[str, Profile], tuple[Any, ...]]:
    """A key for `sorted`; profiles without the value come last."""

    def largest(name: str, amount: Number | None) -> tuple[Any, ...]:
        return (amount is None, -float(amount or 0), name)

    if sort in MULTIPLIED:
        return lambda name, profile: largest(name, _rate(profile, sort))
    if sort in SORTS:
        return lambda name, profile: largest(name, _amount(profile, SORTS[sort]))
    if sort == "ridge":
        return lambda name, profile: largest(name, _ridge(profile, dtype))
    if sort == "vendor":
        return lambda name, profile: (profile.vendor.lower(), name)
    if sort == "name":
        return lambda name, profile: (name,)
    raise unknown("order", sort, ["name", "vendor", "ridge", *SORTS, *MULTIPLIED], "--sort")


def list_table(
    profiles: Mapping[str, Profile], own: frozenset[str] = frozenset(), dtype: str | None = None
) -> Table:
    """A line a profile, the most wanted columns first; a user's own profiles are marked."""
    dtypes = ["bf16", *([d] if (d := canonical_dtype(dtype)) != "bf16" else [])] if dtype else list(LISTED)
    columns = [Column("GPU"), Column("GB/s", "1"), Column("GB", "1")]
    columns += [Column(d, "1") for d in dtypes]
    columns += [Column("ridge"), Column("L2", "1"), Column("W", "1")]
    ridges = _aligned([_ridge_text(_ridge(p, dtypes[-1] if dtype else "bf16")) for p in profiles.values()], 5)
    rows = [
        (
            name,
            _in_unit(profile, "memory.hbm"),
            _in_unit(profile, "memory.capacity"),
            *(_scaled(_rate(profile, d), 1e12) for d in dtypes),
            ridge,
            _in_unit(profile, "memory.l2"),
            _in_unit(profile, "board.tdp"),
        )
        for (name, profile), ridge in zip(profiles.items(), ridges, strict=True)
    ]
    marked = frozenset(i for i, name in enumerate(profiles) if name in own)
    return Table(tuple(columns), tuple(rows), marked)


def list_legend(profiles: Mapping[str, Profile], own: frozenset[str], dtype: str | None = None) -> str:
    """What the columns of the list are."""
    ridge = canonical_dtype(dtype) if dtype else "bf16"
    text = (
        f"{len(profiles)} profiles. DRAM in GB/s and GB; dense matrix rates in TFLOP/s; ridge: FLOP/B where the "
        f"{ridge} units and DRAM take equally long; L2 or what plays its part in MiB; board power in W."
    )
    return text + (" > is a profile of your own." if own & set(profiles) else "")


def list_records(profiles: Mapping[str, Profile]) -> list[dict[str, Any]]:
    """A flat record a profile, raw SI numbers, missing ones None."""
    return [
        {
            "gpu": name,
            "vendor": profile.vendor,
            "title": profile.title,
            "architecture": profile.architecture,
            **{fact: _amount(profile, key) for fact, key in FACTS.items()},
            **{f"ridge:{d}": _ridge(profile, d) for d in ("bf16", "fp16", "fp8", "int8", "fp4")},
        }
        for name, profile in profiles.items()
    ]


def ridge_points(profile: Profile) -> dict[str, dict[str, Number]]:
    """level -> compute resource (`matmul:bf16`, `vector:fp32`) -> FLOP/B, of levels with a known bandwidth."""
    resources = [key.partition(".")[2] for key in profile.values if key.startswith("compute.")]
    return {
        level: {resource: profile.rate(resource) / profile.rate(level) for resource in resources}
        for level, (bandwidth, _) in LEVELS.items()
        if bandwidth in profile
    }


def ridge_table(profile: Profile) -> Table:
    """Ridge points, a row a compute resource, a column a memory level."""
    points = ridge_points(profile)
    columns = [Column("FLOP/B"), Column("TFLOP/s", "1"), *(Column(ROLES[level]) for level in points)]
    shown = [_aligned([_ridge_text(v) for v in values.values()], 5) for values in points.values()]
    resources = list(points["dram"])
    rates = [_scaled(profile.rate(r), 1e12) for r in resources]
    return Table(tuple(columns), tuple(zip(resources, rates, *shown, strict=True)))


def ridge_legend(profile: Profile) -> str:
    """What ridge points are, and the memory levels that they are of."""
    levels = []
    for level, (bandwidth, named) in LEVELS.items():
        if bandwidth in profile:
            called = profile.values[named].called if named in profile else ""
            inside = ", ".join(t for t in (called, amount_text(profile[bandwidth], "bytes/s")) if t)
            levels.append(f"{ROLES[level]} ({inside})")
    return f"ridge points: work per byte at which compute takes as long as {' or '.join(levels)}"


def value_records(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """A row a value of each profile: SI amount, source, the family it is from, ratio to the first profile."""
    first = profiles[0]
    rows = []
    for profile in profiles:
        for key, value in profile.values.items():
            base = _amount(first, key)
            rows.append(
                {
                    "gpu": profile.name,
                    "key": key,
                    "value": value.amount,
                    "unit": value.dimension,
                    "vs_first": value.amount / base if base else None,
                    "family": profile.assumed.get(key),
                    "called": value.called or None,
                    "source": value.source,
                    "note": value.note or meaning(key) or None,
                }
            )
    return rows


def profile_documents(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """Each profile whole, as JSON has it."""
    rows = value_records(profiles)
    return [
        {
            "gpu": profile.name,
            "title": profile.title,
            "vendor": profile.vendor,
            "architecture": profile.architecture,
            "aliases": list(profile.aliases),
            "notes": list(profile.notes),
            "ridge_points": ridge_points(profile),
            "values": {
                row["key"]: {name: cell for name, cell in row.items() if name not in ("gpu", "key")}
                for row in rows
                if row["gpu"] == profile.name
            },
        }
        for profile in profiles
    ]


def values_table(profile: Profile) -> Table:
    """Every value with its source, for Markdown."""
    columns = (Column("value"), Column("amount"), Column("from"), Column("source"), Column("note"))
    rows = []
    for key, value in profile.values.items():
        note = "; ".join(text for text in (value.called, one_line(value.note or meaning(key))) if text)
        family = f"{profile.assumed[key]} family" if key in profile.assumed else "own"
        rows.append((key, value_text(profile, key), family, one_line(value.source), note))
    return Table(columns, tuple(rows))


def meaning(key: str) -> str:
    """What a sustained constant is; the other keys speak for themselves."""
    section, _, name = key.partition(".")
    return SUSTAINED[name][1] if section == "sustained" else ""


def one_line(text: str) -> str:
    """Text without line ends."""
    return " ".join(text.split())


def amount_text(amount: Number, dimension: str) -> str:
    """An amount with the digits that people write: six at most, where `show` gives three.

    >>> amount_text(989.4e12, "FLOP/s"), amount_text(52428800, "bytes"), amount_text(2.11e-9, "s")
    ('989.4 TFLOP/s', '50 MiB', '2.11 ns')
    """
    value = float(amount)
    steps = _STEPS[dimension]
    if dimension == "bytes" and value % 1e9:
        steps = [
            *((unit, step) for unit, step in (("MiB", 2.0**20), ("KiB", 2.0**10)) if not value % step),
            *steps,
        ]
    unit, step = next(((unit, step) for unit, step in steps if value >= step), steps[-1])
    return f"{value / step:.6g} {unit}".strip()


def value_text(profile: Profile, key: str) -> str:
    """A value of a profile with its unit; operations on whole numbers are not floating-point ones."""
    text = amount_text(profile[key], profile.values[key].dimension)
    return text.replace("FLOP/s", "OP/s") if key.endswith((":int8", ":int4")) else text


def comparison_table(profiles: Sequence[Profile]) -> Table:
    """A row a quantity, a column a profile: the value, and its ratio to the first profile's."""
    lines: dict[str, list[Number | None]] = {}
    for key in FACTS.values():
        unit, step = _BINARY.get(key) or _UNITS[SCHEMA[key]]
        unit = "TOP/s" if key.endswith((":int8", ":int4")) else unit
        lines[f"{_label(key)} {unit}".strip()] = [_scaled(_amount(profile, key), step) for profile in profiles]
    for level in LEVELS:
        for dtype in MULTIPLIED:
            own = [profile if dtype in profile.dtypes() else None for profile in profiles]
            lines[f"ridge {dtype} {ROLES[level]}"] = [p and _ridge(p, dtype, level) for p in own]
    lines = {label: line for label, line in lines.items() if any(value is not None for value in line)}
    return _beside(profiles, lines)


def _beside(profiles: Sequence[Profile], lines: Mapping[str, Sequence[Number | None]]) -> Table:
    """Lines of numbers as a table: each with its ratio to the first."""
    columns = [Column("ratio to the first"), *(Column(profile.name) for profile in profiles)]
    cells = [
        [_ridge_text(line[i]) if label.startswith("ridge") else _figure(line[i]) for label, line in lines.items()]
        for i in range(len(profiles))
    ]
    body = [_aligned(cells[0])]
    for index in range(1, len(profiles)):
        ratios = [show(line[index] / line[0], "x") if line[0] and line[index] else "" for line in lines.values()]
        pairs = zip(_aligned(cells[index]), _aligned(ratios), strict=True)
        body.append([f"{value}  {ratio}" for value, ratio in pairs])
    return Table(tuple(columns), tuple(zip(lines, *body, strict=True)))


def _label(key: str) -> str:
    """A profile key as a row's label: `bf16`, `vector fp32`, `interconnect`."""
    name = key.partition(".")[2]
    names = {"hbm": "DRAM", "l2": "L2", "l2_bandwidth": "L2", "count": "cores", "tdp": "power"}
    names |= {"clock": "matmul clock", "matmul_per_clock": "FLOP per clock"}
    return names.get(name, name.removeprefix("matmul:").replace(":", " ").replace("_", " "))


def _in_unit(profile: Profile, key: str) -> Number | None:
    _, step = _BINARY.get(key) or _UNITS[SCHEMA[key]]
    return _scaled(_amount(profile, key), step)


def _scaled(amount: Number | None, step: float) -> Number | None:
    """An amount in a unit, rounded to what a table shows (so that 12345.6 is not shown as 1.235e+04)."""
    if amount is None:
        return None
    value = float(amount) / step
    return float(round(value)) if value >= 1000 else value


def _amount(profile: Profile, key: str) -> Number | None:
    return profile[key] if key in profile else None


def _rate(profile: Profile, dtype: str) -> Number | None:
    resource = f"matmul:{dtype}"
    return profile.rate(resource) if profile.has_rate(resource) else None


def _ridge(profile: Profile, dtype: str, level: str = "dram") -> Number | None:
    has_both = profile.has_rate(f"matmul:{dtype}") and profile.has_rate(level)
    return profile.ridge_point(dtype, level) if has_both else None


def _ridge_text(value: Number | None) -> str:
    """A ridge point with four digits, as people quote it: 200.6, 153.0."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _figure(value: Number | None) -> str:
    return "-" if value is None else show(float(value), "1")


def _aligned(texts: Sequence[str], least: int = 0) -> list[str]:
    """Texts set flush right: columns of words are flush left."""
    width = max([least, *(len(text) for text in texts)])
    return [text.rjust(width) for text in texts]
