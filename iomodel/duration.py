"""What a well-made kernel takes: sustained rates, tails, floors, launches. The one place for it.

Every constant is a `sustained.*` value of the profile, named after the style of kernel it was fitted
on: `<style>.matmul` is the share of the matrix peak, `<style>.memory` of the DRAM peak.
"""

from __future__ import annotations

from collections.abc import Mapping

from iomodel.arrays import Number, is_array, maximum, sqrt
from iomodel.kernel import Kernel
from iomodel.profile import Profile
from iomodel.registers import issue_slowdown, spilled_bytes
from iomodel.tiling import matmul_share
from iomodel.traffic import Bytes

#: Resources that wait for one another: what one memory level serves, the others do not.
MEMORY = ("dram", "l2", "spill")

#: How kernels reach the GPU.
LAUNCHES = ("eager", "stream", "graph")


def expected_by_resource(kernel: Kernel, moved: Bytes, profile: Profile) -> dict[str, Number]:
    """Seconds of each resource at its sustained rate, executed work instead of needed work.

    dram: (reads + writes) / (share x peak), or writes alone at their own, lower rate. l2: what a
    streaming kernel asked for and L2 served. matmul: executed FLOPs. issue: thread instructions over
    SMs x lanes x clock (vector FLOPs where a profile does not say how many lanes). spill: what registers
    past the limit of a thread move (`registers`).
    """
    tiling = kernel.tiling
    style = tiling.style
    peak = profile.rate("dram")
    if style == "stream":
        times: dict[str, Number] = {
            "dram": maximum(
                moved.dram / (peak * profile["sustained.dram"]),
                moved.dram_write / (peak * profile["sustained.dram_write"]),
            )
        }
        spilled = spilled_bytes(kernel)
        if is_array(spilled) or spilled:
            times["spill"] = spilled / (peak * profile["sustained.dram"])
        if "sm.count" in profile and "sm.clock" in profile:
            hits = maximum(moved.l2 - moved.dram, 0.0)
            rate = profile["sm.count"] * profile.clock() * profile["sustained.l2_per_clock"]
            times["l2"] = hits / maximum(rate, peak)  # few large cores: not slower than DRAM
    else:
        times = {"dram": moved.dram / (peak * profile[f"sustained.{style}.memory"])}
    for resource, amount in {**kernel.work, **tiling.executed}.items():
        if resource.startswith("matmul:"):
            share = profile[matmul_share(style, resource, profile)] * tiling.speed
            times[resource] = amount / (profile.rate(resource) * share)
        elif resource == "issue" and profile.has_rate("issue"):
            slower = issue_slowdown(kernel, profile)
            times["issue"] = amount * slower / (profile.rate("issue") * profile["sustained.issue"])
        elif resource.startswith("vector:") and style == "stream" and _no_issue_but(resource, profile):
            times[resource] = amount / (profile.rate(resource) * profile["sustained.issue"])
    return times


def _no_issue_but(resource: str, profile: Profile) -> bool:
    """Whether a profile knows a vector rate but not how many instructions issue."""
    return profile.has_rate(resource) and not profile.has_rate("issue")


def fixed_seconds(kernel: Kernel, profile: Profile, launch: str) -> dict[str, Number]:
    """Seconds that no overlap hides: `floor`, and named extras. A replayed graph counts part of a
    floor as its node's launch, and between nodes a kernel's start and end show less."""
    seconds: dict[str, Number] = {"floor": 0.0}
    for name, amount in kernel.tiling.fixed.items():
        constant = profile[f"sustained.{name}"]
        if name.endswith(".append"):  # bytes at a share of the DRAM peak, where the constant is not 0
            seconds["kv_append"] = amount / (constant * profile.rate("dram")) if constant else 0.0
        elif ".quantize" in name:
            seconds["quantize"] = seconds.get("quantize", 0.0) + amount * constant
        else:
            seconds["floor"] = seconds["floor"] + amount * constant
    if launch == "graph":
        saved = profile["launch.graph"]
        if kernel.tiling.style == "stream":
            saved = saved + profile["sustained.graph_overlap"]
        seconds["floor"] = maximum(seconds["floor"] - saved, 0.0)
    return seconds


def kernel_seconds(times: Mapping[str, Number], fixed: Mapping[str, Number]) -> Number:
    """Fixed costs plus the smooth maximum of memory (DRAM and L2, one after the other) and the rest:
    (sum of t^4)^(1/4)."""
    memory = times["dram"]
    for level in MEMORY[1:]:
        if level in times:
            memory = memory + times[level]
    squared = memory * memory
    total = squared * squared
    for resource, time in times.items():
        if resource not in MEMORY:
            squared = time * time
            total = total + squared * squared
    seconds = sqrt(sqrt(total))
    for extra in fixed.values():
        seconds = seconds + extra
    return seconds


def launch_seconds(kernels: int, busy: Number, profile: Profile, launch: str) -> tuple[Number, Number]:
    """(host time of the launches, time added to the GPU's).

    The host runs ahead of the GPU: elapsed = max(busy, kernels x cost) + one latency. In a replayed
    graph each node adds its own cost.
    """
    host = kernels * profile[f"launch.{launch}"]
    if launch == "graph":
        return host, host
    return host, maximum(host - busy, 0.0) + profile["launch.latency"]
