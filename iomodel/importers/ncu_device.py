"""A GPU profile from the device attributes in a wide Nsight Compute export."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

from iomodel.catalogue import load_profile
from iomodel.errors import InputError, unknown
from iomodel.lint import catalogue_name
from iomodel.newprofile import profile_text
from iomodel.profile import Profile, Value, dimension
from iomodel.yamlfile import read_text

LARGEST_EXPORT = 200_000_000

ATTRIBUTE = "device__attribute_"
HOW = "run ncu --set full -o report PROGRAM, then ncu --import report.ncu-rep --page raw --csv > FILE"

#: Compute capability -> family, fp32 lanes per SM, dense 16-bit FLOP per SM and clock.
#: Source: NVIDIA's architecture whitepapers (V100, Turing, A100, GA102, Ada, H100, RTX Blackwell) and
#: openxla/xla's target_config specs for B200.
ARCHITECTURES: dict[str, tuple[str, int, int]] = {
    "7.0": ("volta", 64, 1024),
    "7.5": ("turing", 64, 1024),
    "8.0": ("ampere", 64, 2048),
    "8.6": ("ampere", 128, 1024),
    "8.7": ("ampere", 128, 2048),
    "8.9": ("ada", 128, 1024),
    "9.0": ("hopper", 128, 4096),
    "10.0": ("blackwell", 128, 8192),
    "10.3": ("blackwell", 128, 8192),
    "12.0": ("blackwell-consumer", 128, 1024),
    "12.1": ("blackwell-consumer", 128, 1024),
}

_SCALES = {"": 1.0, "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "bit": 1.0, "hz": 1.0, "khz": 1e3}


def profile_from_ncu(path: str | Path) -> str:
    """The YAML text of a profile of the GPU that an export was taken on.

    Bandwidth is bus width / 8 x memory clock x 2 (two transfers a clock). Matrix rates are not in an
    export: they are copied from the catalogue's entry when the device's name, SM count and bandwidth
    match one, else derived as SMs x clock x FLOP per clock of the architecture.

    Source: NVIDIA CUDA Driver API, CUdevice_attribute (clock rates are in kHz).
    """
    attributes = _attributes(path)
    name = attributes.get("display_name", "GPU")
    numbers = {key: value for key, text in attributes.items() if (value := _number(text)) is not None}
    capability = ".".join(f"{numbers.get('compute_capability_' + part, 0):g}" for part in ("major", "minor"))
    if capability not in ARCHITECTURES:
        raise unknown("compute capability", capability, ARCHITECTURES, f"{path}: {name}")
    values = _measured(numbers)
    lacking = [key for key in ("memory.hbm", "sm.count", "sm.vector_clock") if key not in values]
    if lacking:
        raise InputError(f"{path}: the attributes behind {', '.join(lacking)} are empty; {HOW}")
    known_gpu = _catalogued(name, values)
    values |= _rates(values, capability, name, known_gpu)
    slug = "-".join(re.findall(r"[a-z0-9]+", name.lower().replace("nvidia", ""))) or "gpu"
    notes = [f"Made from the device attributes of {name} in {Path(path).name}."]
    if known_gpu is None:
        notes.append("Matrix and vector rates are derived at the boost clock; the tensor clock may be lower.")
    return profile_text(
        f"my-{slug}",
        values,
        vendor="NVIDIA",
        title=name,
        architecture=ARCHITECTURES[capability][0],
        notes=notes,
        header=[f"{name}, read from {Path(path).name}"],
        comments=True,
    )


def _attributes(path: str | Path) -> dict[str, str]:
    """Attribute name -> text with its unit applied, of the one GPU in the export."""
    try:
        text = read_text(path, LARGEST_EXPORT)
    except InputError as error:
        if str(path).endswith(".ncu-rep"):
            raise InputError(f"{path}: a binary report; write ncu --import {path} --page raw --csv") from None
        raise error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    rows = list(csv.reader(lines))
    header = next((row for row in rows if "Kernel Name" in row), [])
    wanted = ["multiprocessor_count", "global_memory_bus_width", "memory_clock_rate", "clock_rate"]
    wanted += ["compute_capability_major", "compute_capability_minor"]
    missing = [name for name in wanted if ATTRIBUTE + name not in header]
    if len(missing) == len(wanted):
        raise InputError(f"{path}: no {ATTRIBUTE}* columns, so the export does not describe the GPU; {HOW}")
    if missing:
        raise InputError(f"{path}: no column {', '.join(ATTRIBUTE + name for name in missing)}; {HOW}")
    columns = {column: i for i, column in enumerate(header) if column.startswith(ATTRIBUTE)}
    body = [row for row in rows[rows.index(header) + 1 :] if len(row) == len(header)]
    units = body[0] if body and not body[0][0].strip() else [""] * len(header)
    kernels = [row for row in body if row[0].strip()]
    if not kernels:
        raise InputError(f"{path}: the export holds no kernel, so no device; {HOW}")
    name = columns.get(ATTRIBUTE + "display_name")
    names = sorted({row[name] for row in kernels}) if name is not None else []
    if len(names) > 1:
        raise InputError(f"{path}: kernels of several GPUs ({', '.join(names)}); export those of one")
    return {c.removeprefix(ATTRIBUTE): _scaled(kernels[0][i], units[i]) for c, i in columns.items()}


def _scaled(text: str, unit: str) -> str:
    """A cell as plain text; a scaled unit (`62.91`, `Mbyte`) is multiplied out."""
    if not unit.strip():
        return text
    scale = _SCALES.get(unit.strip().lower())
    try:
        return repr(float(text.replace(",", "")) * scale) if scale else ""
    except ValueError:
        return ""


def _number(text: str) -> float | None:
    """A whole attribute with or without thousands separators (`6,016`, `6.016`); other text is no number."""
    if re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) and not re.fullmatch(r"\d{1,3}(\.\d{3})+", text):
        return float(text)
    digits = re.sub(r"[,.\s']", "", text)
    return float(digits) if digits.isdigit() and digits.isascii() else None


def _measured(numbers: Mapping[str, float]) -> dict[str, Value]:
    """What the attributes say themselves."""

    def read(path: str, scale: float, *names: str, note: str = "") -> None:
        if all(numbers.get(name) for name in names):
            amount = scale
            for name in names:
                amount *= numbers[name]
            listed = " x ".join(ATTRIBUTE + name for name in names)
            values[path] = Value(amount, dimension(path), f"Nsight Compute export: {listed}", note)

    values: dict[str, Value] = {}
    bus = "bus width / 8 x memory clock x 2"
    read("memory.hbm", 1e3 / 8 * 2, "global_memory_bus_width", "memory_clock_rate", note=bus)
    read("memory.capacity", 1, "total_memory", note="what the driver gives to programs, below the label")
    read("memory.l2", 1, "l2_cache_size")
    read("sm.count", 1, "multiprocessor_count")
    read("sm.vector_clock", 1e3, "clock_rate", note="boost")
    read("sm.shared_memory", 1, "max_shared_memory_per_block_optin")
    read("sm.registers", 4, "max_registers_per_multiprocessor", note="32-bit registers x 4 B")
    read("sm.max_threads", 1, "max_threads_per_multiprocessor")
    return values


def _catalogued(name: str, values: Mapping[str, Value]) -> Profile | None:
    """The catalogue's entry of this device, if its SM count and bandwidth agree too."""
    known = catalogue_name(name)
    profile = load_profile(known) if known else None
    if profile is None or "sm.count" not in profile:
        return None
    same_bandwidth = abs(values["memory.hbm"].amount / profile["memory.hbm"] - 1) < 0.05
    return profile if same_bandwidth and profile["sm.count"] == values["sm.count"].amount else None


def _rates(values: Mapping[str, Value], capability: str, name: str, known: Profile | None) -> dict[str, Value]:
    """Rates and clocks that an export does not hold, copied or derived."""
    if known is not None:
        copied = [key for key in known.values if key.startswith("compute.") and key not in known.assumed]
        copied += ["memory.l2_bandwidth", "sm.clock", "sm.lanes", "sm.matmul_per_clock", "sm.exp_per_clock"]
        return {
            key: Value(v.amount, v.dimension, f"copied from the catalogue's {known.name}: {v.source}", v.note)
            for key in copied
            if key in known and (v := known.values[key])
        }
    _, lanes, flop = ARCHITECTURES[capability]
    half = "GeForce" in name
    flop = flop // 2 if half else flop
    clock, count = values["sm.vector_clock"].amount, values["sm.count"].amount
    white = f"NVIDIA architecture whitepaper, compute capability {capability}"
    at = "at the boost clock" + ("; half rate with fp32 accumulation, as GeForce has" if half else "")
    dtypes = ["fp16"] if capability in ("7.0", "7.5") else ["bf16", "fp16"]
    made: dict[str, tuple[float, str, str]] = {
        f"compute.matmul:{dtype}": (
            count * clock * flop,
            f"DERIVED: {count:g} SMs x {clock / 1e9:g} GHz x {flop} FLOP per clock",
            at,
        )
        for dtype in dtypes
    }
    fp32 = f"DERIVED: {count:g} SMs x {clock / 1e9:g} GHz x {lanes} lanes x 2"
    made["compute.vector:fp32"] = (count * clock * lanes * 2, fp32, "at the boost clock")
    export = f"Nsight Compute export: {ATTRIBUTE}clock_rate"
    made["sm.clock"] = (clock, export, "boost; the tensor clock may be lower")
    made["sm.lanes"] = (lanes, white, "")
    made["sm.matmul_per_clock"] = (flop, white, "")
    exp = 32 if capability == "10.3" else 16
    made["sm.exp_per_clock"] = (exp, "NVIDIA CUDA C++ Programming Guide, instruction throughput", "")
    return {key: Value(amount, dimension(key), source, note) for key, (amount, source, note) in made.items()}
