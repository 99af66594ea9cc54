"""What is shown of profiles: the catalogue as a list, one profile whole, several side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iomodel.arrays import Number
from iomodel.catalogue import configs_folder, load_profile, profile_files
from iomodel.errors import InputError, unknown
from iomodel.newprofile import quantity
from iomodel.profile import SCHEMA, SUSTAINED, Profile
from iomodel.table import Column, Table
from iomodel.tensor import dtype as canonical_dtype
from iomodel.units import parse_quantity, show

#: Memory levels by role -> the profile key of their bandwidth, and the key that has the vendor's name.
LEVELS = {"dram": ("memory.hbm", "memory.hbm"), "l2": ("memory.l2_bandwidth", "memory.l2")}

#: dtypes of the list, unless one is asked for.
LISTED = ("bf16", "fp8", "fp4")

#: What `--sort` takes besides a dtype -> profile key.
SORTS = {key.partition(".")[2]: key for key in SCHEMA if key.partition(".")[0] in ("memory", "sm", "board")}

#: Keys of a flat record, as `--set` takes them, and the SI value behind each.
FACTS = {key.partition(".")[2]: key for key in SCHEMA if not key.startswith("launch.")}

_UNITS = {"bytes/s": ("GB/s", 1e9), "bytes": ("GB", 1e9), "FLOP/s": ("TFLOP/s", 1e12), "Hz": ("MHz", 1e6)}
_UNITS |= {"W": ("W", 1.0), "FLOP": ("FLOP", 1.0), "1": ("", 1.0)}

#: Capacities of on-chip memory are powers of two.
_BINARY = {"memory.l2": ("MiB", 2.0**20), "sm.shared_memory": ("KiB", 2.0**10), "sm.registers": ("KiB", 2.0**10)}


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
    order = _order(sort or "name", dtype)
    found = dict(profiles)
    if vendor is not None:
        known = sorted({p.vendor for p in profiles.values()})
        if vendor.lower() not in [v.lower() for v in known]:
            raise unknown("vendor", vendor, known, "--vendor")
        found = {name: p for name, p in found.items() if p.vendor.lower() == vendor.lower()}
    if min_capacity is not None:
        try:
            least = parse_quantity(min_capacity, "bytes")
        except InputError as error:
            raise InputError(f"--min-capacity: {error}") from None
        found = {n: p for n, p in found.items() if "memory.capacity" in p and p["memory.capacity"] >= least}
    if dtype is not None:
        wanted = f"matmul:{canonical_dtype(dtype, '--dtype')}"
        found = {name: p for name, p in found.items() if p.has_rate(wanted)}
    return dict(sorted(found.items(), key=lambda item: order(*item)))


def _order(sort: str, dtype: str | None) -> Callable[[str, Profile], tuple[Any, ...]]:
    """A key for `sorted`; profiles without the value come last."""

    def largest(name: str, amount: Number | None) -> tuple[Any, ...]:
        return (amount is None, -float(amount or 0), name)

    rates = [key.partition(":")[2] for key in SCHEMA if key.startswith("compute.matmul:")]
    if sort in rates:
        return lambda name, profile: largest(name, _rate(profile, sort))
    if sort in SORTS:
        return lambda name, profile: largest(name, _amount(profile, SORTS[sort]))
    if sort == "ridge":
        return lambda name, profile: largest(name, _ridge(profile, dtype or "bf16"))
    if sort == "vendor":
        return lambda name, profile: (profile.vendor.lower(), name)
    if sort == "name":
        return lambda name, profile: (name,)
    raise unknown("order", sort, ["name", "vendor", "ridge", *SORTS, *rates], "--sort")


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
    """level -> compute resource (`matmul:bf16`, `vector:fp32`) -> FLOP/B; levels without a bandwidth are left out."""
    resources = [key.partition(".")[2] for key in profile.values if key.startswith("compute.")]
    return {
        level: {resource: profile.rate(resource) / profile.rate(level) for resource in resources}
        for level, (bandwidth, _) in LEVELS.items()
        if bandwidth in profile
    }


def ridge_table(profile: Profile) -> Table:
    """Ridge points, a row a compute resource, a column a memory level."""
    points = ridge_points(profile)
    columns = [Column("ridge points"), Column("rate")]
    shown = []
    for level, values in points.items():
        bandwidth, named = LEVELS[level]
        called = (profile.values[named].called if named in profile else "") or {"dram": "DRAM", "l2": "L2"}[level]
        header = f"{called}, {show(profile[bandwidth], 'bytes/s')}"
        columns.append(Column(header))
        shown.append(_aligned([_ridge_text(value) for value in values.values()], len(header)))
    resources = list(points["dram"])
    rates = _aligned([quantity(profile.rate(r), "FLOP/s") for r in resources])
    return Table(tuple(columns), tuple(zip(resources, rates, *shown, strict=True)))


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
        note = "; ".join(text for text in (value.called, value.note or meaning(key)) if text)
        family = f"{profile.assumed[key]} family" if key in profile.assumed else "own"
        rows.append((key, quantity(float(value.amount), value.dimension), family, value.source, note))
    return Table(columns, tuple(rows))


def meaning(key: str) -> str:
    """What a sustained constant is; the other keys speak for themselves."""
    section, _, name = key.partition(".")
    return SUSTAINED[name][1] if section == "sustained" else ""


def comparison_table(profiles: Sequence[Profile]) -> Table:
    """A row a quantity, a column a profile: the value, and its ratio to the first profile's."""
    quantities = [key for key in SCHEMA if not key.startswith("launch.")]
    labels: list[str] = []
    lines: list[list[Number | None]] = []
    for key in quantities:
        if any(key in profile for profile in profiles):
            unit, step = _unit(key)
            labels.append(f"{_label(key)} {unit}".strip())
            lines.append([_scaled(_amount(profile, key), step) for profile in profiles])
    for level, dtypes in _shared_ridges(profiles).items():
        for dtype in dtypes:
            labels.append(f"ridge {dtype} {level}")
            lines.append([_ridge(profile, dtype, level) for profile in profiles])
    columns = [Column("against the first"), *(Column(profile.name) for profile in profiles)]
    cells = [[_figure(value) for value in column] for column in zip(*lines, strict=True)]
    body = [_aligned(cells[0], len(profiles[0].name))]
    for index in range(1, len(profiles)):
        ratios = [show(line[index] / line[0], "x") if line[0] and line[index] else "" for line in lines]
        pairs = zip(_aligned(cells[index]), _aligned(ratios), strict=True)
        body.append(_aligned([f"{value}  {ratio}" for value, ratio in pairs], len(profiles[index].name)))
    return Table(tuple(columns), tuple(zip(labels, *body, strict=True)))


def _shared_ridges(profiles: Sequence[Profile]) -> dict[str, list[str]]:
    """level -> dtypes for which any of the profiles has a ridge point."""
    dtypes = list(dict.fromkeys(d for profile in profiles for d in profile.dtypes()))
    return {
        level: [d for d in dtypes if any(_ridge(p, d, level) is not None for p in profiles)] for level in LEVELS
    }


def _label(key: str) -> str:
    """A profile key as a row's label: `bf16`, `vector fp32`, `interconnect`."""
    name = key.partition(".")[2]
    names = {
        "hbm": "DRAM",
        "l2": "L2",
        "l2_bandwidth": "L2",
        "count": "cores",
        "tdp": "power",
        "clock": "matmul clock",
    }
    return names.get(name, name.removeprefix("matmul:").replace(":", " ").replace("_", " "))


def _unit(key: str) -> tuple[str, float]:
    return _BINARY.get(key) or _UNITS[SCHEMA[key]]


def _in_unit(profile: Profile, key: str) -> Number | None:
    return _scaled(_amount(profile, key), _unit(key)[1])


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
