"""Hardware and model files of other tools: which tool's, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Foreign:
    """A file format of another tool: how to know it, and where it keeps what a profile needs."""

    name: str
    marks: tuple[str, ...]
    #: iomodel key -> (path in the foreign file, how its number reads as a quantity)
    fields: dict[str, tuple[str, Callable[[float], str]]] = field(default_factory=dict)


def _unit(unit: str, scale: float = 1.0) -> Callable[[float], str]:
    return lambda number: f"{number * scale:.6g} {unit}"


def _gib(number: float) -> str:
    # calculon's a100_80e.json says "GiB": 80000000000, which is bytes.
    return f"{number / 1e9:.6g} GB" if number > 1e6 else f"{number:.6g} GB"


#: Known formats, the most telling first. Source: each tool's own files, as its repository ships them.
FORMATS = [
    Foreign(
        "a calculon system file",
        ("matrix", "vector", "mem1"),
        {
            "memory.hbm": ("mem1.GBps", _unit("GB/s")),
            "memory.capacity": ("mem1.GiB", _gib),
            "compute.matmul:fp16": ("matrix.float16.tflops", _unit("TFLOP/s")),
            "compute.vector:fp16": ("vector.float16.tflops", _unit("TFLOP/s")),
        },
    ),
    Foreign(
        "an llm-analysis GPU file",
        ("hbm_bandwidth_in_GB_per_sec", "mem_per_GPU_in_GB"),
        {
            "memory.hbm": ("hbm_bandwidth_in_GB_per_sec", _unit("GB/s")),
            "memory.capacity": ("mem_per_GPU_in_GB", _unit("GB")),
            "compute.matmul:fp16": ("peak_fp16_TFLOPS", _unit("TFLOP/s")),
            "compute.matmul:int8": ("peak_i8_TFLOPS", _unit("TOP/s")),
        },
    ),
    Foreign("an llm-analysis model file (a model, not a GPU)", ("num_layers", "n_head", "hidden_dim")),
    Foreign(
        "an LLMCompass system file",
        ("device.compute_chiplet",),
        {
            "sm.count": ("device.compute_chiplet.core_count", _unit("")),
            "sm.clock": ("device.frequency_Hz", _unit("GHz", 1e-9)),
            "memory.capacity": ("device.memory.total_capacity_GB", _unit("GB")),
        },
    ),
    Foreign(
        "an aiconfigurator system file",
        ("gpu.mem_bw",),
        {
            "memory.hbm": ("gpu.mem_bw", _unit("TB/s", 1e-12)),
            "memory.capacity": ("gpu.mem_capacity", lambda number: f"{number / 2**30:.6g} GB"),
            "compute.matmul:bf16": ("gpu.bfloat16_tc_flops", _unit("TFLOP/s", 1e-12)),
            "compute.matmul:int8": ("gpu.int8_tc_flops", _unit("TOP/s", 1e-12)),
            "compute.matmul:fp8": ("gpu.fp8_tc_flops", _unit("TFLOP/s", 1e-12)),
        },
    ),
    Foreign("an aiconfigurator version table", ("schema_version", "defaults")),
    Foreign("an aiconfigurator table of attention kernels", ("sglang", "vllm")),
    Foreign("an ASTRA-sim system file (as GenZ writes it)", ("scheduling-policy", "local-mem-bw")),
    Foreign("a Hugging Face config.json (a model: use iomodel model)", ("model_type",)),
    Foreign("a Hugging Face config.json (a model: use iomodel model)", ("hidden_size", "num_hidden_layers")),
    Foreign("an iomodel workload (use iomodel graph)", ("ops", "inputs")),
    Foreign("an iomodel study (use iomodel sweep)", ("command", "vary")),
]


def look_up(data: Any, path: str) -> Any:
    """The value at a dotted path of nested mappings, or None."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def recognise(data: Any) -> Foreign | None:
    """The other tool's format that the data looks like, if any."""
    for known in FORMATS:
        if all(look_up(data, mark) is not None for mark in known.marks):
            return known
    return None


def advice(data: Any, known: Foreign) -> str:
    """What the foreign file's numbers are as lines of a profile: `memory: {hbm: {value: 2048 GB/s, ...}}`."""
    sections: dict[str, list[str]] = {}
    for key, (path, show) in known.fields.items():
        number = look_up(data, path)
        if isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0:
            section, _, leaf = key.partition(".")
            leaf = f'"{leaf}"' if ":" in leaf else leaf
            value = show(number).strip()
            sections.setdefault(section, []).append(f"{leaf}: {{value: {value}, source: ...}}")
    if sections and "memory.hbm" not in known.fields:
        sections.setdefault("memory", []).insert(0, "hbm: {value: ..., source: ...}")
    return "; ".join(f"{section}: {{{', '.join(entries)}}}" for section, entries in sections.items())
