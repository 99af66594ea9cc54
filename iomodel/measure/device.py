"""The GPU of this machine: what the driver and PyTorch say of it, and the catalogue entry that it is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iomodel.catalogue import load_profile
from iomodel.errors import InputError
from iomodel.lint import catalogue_name
from iomodel.profile import Profile, Value, dimension

PROPERTIES = "torch.cuda.get_device_properties"

#: Key of a profile -> property of the device, and bytes or units that one of it is.
FACTS: Mapping[str, tuple[str, float]] = {
    "memory.l2": ("L2_cache_size", 1.0),
    "sm.count": ("multi_processor_count", 1.0),
    "sm.shared_memory": ("shared_memory_per_block_optin", 1.0),
    "sm.registers": ("regs_per_multiprocessor", 4.0),
    "sm.max_threads": ("max_threads_per_multi_processor", 1.0),
}


@dataclass(frozen=True)
class Device:
    """A GPU as found: its title, the values that the driver reports, and the versions of the software."""

    title: str
    values: Mapping[str, Value]
    software: str

    @property
    def slug(self) -> str:
        """The title as a profile's name."""
        return "-".join(re.findall(r"[a-z0-9]+", self.title.lower().replace("nvidia", ""))) or "gpu"


def find_device(torch: Any) -> Device:
    """The current CUDA device."""
    if not torch.cuda.is_available():
        raise InputError(
            "calibrate: PyTorch sees no GPU here; fit from recorded rows with iomodel calibrate --data FILE"
        )
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    values: dict[str, Value] = {}
    for path, (name, scale) in FACTS.items():
        amount = getattr(properties, name, None)
        if amount:
            values[path] = Value(float(amount) * scale, dimension(path), f"{PROPERTIES}: {name}")
    uuid = getattr(properties, "uuid", None)  # an index would ignore CUDA_VISIBLE_DEVICES
    smi = _nvidia_smi(("driver_version", "clocks.max.sm"), f"GPU-{uuid}") if uuid else {}
    clock = smi.get("clocks.max.sm", "")
    if clock.isdigit():
        values["sm.vector_clock"] = Value(int(clock) * 1e6, "Hz", "nvidia-smi: clocks.max.sm")
    versions = [f"PyTorch {torch.__version__}", f"CUDA {torch.version.cuda}"]
    if torch.backends.cudnn.is_available():
        versions.append(f"cuDNN {torch.backends.cudnn.version()}")
    if "driver_version" in smi:
        versions.append(f"driver {smi['driver_version']}")
    return Device(str(properties.name), values, ", ".join(versions))


def _nvidia_smi(fields: tuple[str, ...], gpu: str) -> dict[str, str]:
    """What nvidia-smi says, by field; nothing where there is no such program."""
    query = f"--query-gpu={','.join(fields)}"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-i", gpu]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in done.stdout.strip().split(",")]
    return dict(zip(fields, cells, strict=False))


def datasheet_of(device: Device, like: str) -> Profile:
    """The catalogue entry whose datasheet rates hold for the device: of that name, or as `--like` says."""
    name = like or catalogue_name(device.title)
    if not name:
        raise InputError(
            f"calibrate: no entry of the catalogue is called {device.title!r}; "
            f"say whose datasheet rates to take, e.g. --like h100-sxm"
        )
    profile = load_profile(name)
    count = device.values.get("sm.count")
    if not like and count and "sm.count" in profile and profile["sm.count"] != count.amount:
        raise InputError(
            f"calibrate: {device.title} has {count.amount:.0f} SMs, the catalogue's {profile.name} "
            f"{profile['sm.count']:.0f}; say whose datasheet rates to take with --like"
        )
    return profile


def described(device: Device, datasheet: Profile) -> Profile:
    """The datasheet's profile with what the device itself reports, where that differs."""
    profile = datasheet
    for path, value in device.values.items():
        if path not in profile or profile[path] != value.amount:
            profile = profile.override(path, value.amount, value.source)
    return profile
