"""From bytes and work to seconds: the bound, the prediction, and what binds.

Seconds are work over rate, never work over performance. `roofline` is a bound: datasheet peaks,
perfect overlap of resources within a kernel, no launch cost. `expected` is a prediction: sustained
rates, tails, floors, launches (see `duration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from iomodel.arrays import Number, choose, is_array, maximum, minimum, settled, where
from iomodel.duration import expected_by_resource, fixed_seconds, kernel_seconds, launch_seconds
from iomodel.kernel import Kernel, Plan
from iomodel.op import matrix_flops, merge, vector_flops
from iomodel.profile import Profile
from iomodel.traffic import Bytes, memory_peak, plan_bytes


@dataclass(frozen=True)
class Seconds:
    """Times of a kernel or plan. `expected` includes `launch`, so `expected - launch` is the time
    on the GPU; `host` is what the launches cost the host, hidden or not."""

    roofline: Number
    expected: Number
    launch: Number
    host: Number
    by_resource: Mapping[str, Number]
    expected_by_resource: Mapping[str, Number]


@dataclass(frozen=True)
class Estimate:
    """Bytes by level, work and seconds of one kernel or of a whole plan (then `kernels` holds its parts)."""

    name: str
    launches: int
    flops: Number
    work: Mapping[str, Number]
    bytes: Bytes
    seconds: Seconds
    kernels: tuple[Estimate, ...] = ()
    kernel: Kernel | None = None

    @cached_property
    def intensity(self) -> Number:
        """FLOPs per byte that crosses DRAM; infinite where nothing does."""
        return settled(divide(self.flops, self.bytes.dram))

    @cached_property
    def bound(self) -> str | Number:
        """The resource that takes longest at sustained rates, or `launch` (which the kernels' floors
        belong to); an array of names for arrays."""
        times = dict(self.seconds.expected_by_resource)
        times["launch"] = self.seconds.launch + times.pop("floor", 0.0)
        return settled(largest(times))


def divide(a: Number, b: Number) -> Number:
    """a / b, infinite where b is zero."""
    if is_array(b):
        import numpy

        with numpy.errstate(divide="ignore", invalid="ignore"):
            return numpy.where(b == 0, numpy.inf, a / b)
    return a / b if b else a * float("inf") if a else float("inf")


def largest(times: Mapping[str, Number]) -> str | Number:
    """The name of the largest value, the first of equals; for arrays the name at each place."""
    names = list(times)
    index: Number = 0.0
    longest = times[names[0]]
    for place, name in enumerate(names):
        index = where(times[name] > longest, float(place), index)
        longest = maximum(longest, times[name])
    chosen: str | Number = choose(names, index)
    return chosen


def roofline_by_resource(work: Mapping[str, Number], moved: Bytes, profile: Profile) -> dict[str, Number]:
    """Seconds of each resource at its datasheet peak.

    DRAM is charged what must cross it: compulsory bytes, less what L2 still held from the kernel
    before (a bound must not charge that). Instruction issue is left out: how many instructions a
    kernel needs is a property of its code, not of the problem.
    """
    must_read = minimum(moved.compulsory_read, moved.dram_read)
    times = {"dram": (must_read + moved.compulsory_write) / profile.rate("dram")}
    for resource, amount in work.items():
        if resource != "issue" and (resource.startswith("matmul:") or profile.has_rate(resource)):
            times[resource] = amount / profile.rate(resource)
    return times


def estimate(plan: Plan, profile: Profile, launch: str = "eager", warm: bool = False) -> Estimate:
    """The Estimate of a plan on a GPU: its kernels' estimates, and their sum with launches on top.

    `launch` is how kernels reach the GPU (`eager`, `stream`, `graph`); `warm` as in `plan_bytes`.
    """
    has_matrix = any(r.startswith("matmul:") for k in plan.kernels for r in k.work)
    count_flops = matrix_flops if has_matrix else vector_flops
    moved = plan_bytes(plan, profile, warm)
    cold = plan_bytes(plan, profile) if warm else moved
    times: list[Number] = []
    bounds: list[dict[str, Number]] = []
    expected: list[dict[str, Number]] = []
    for kernel, own, own_cold in zip(plan.kernels, moved, cold, strict=True):
        bounds.append(roofline_by_resource(kernel.work, own_cold, profile))
        resources = expected_by_resource(kernel, own, profile)
        fixed = fixed_seconds(kernel, profile, launch)
        seconds = kernel_seconds(resources, fixed)
        expected.append({**resources, **fixed})
        times.append(seconds if warm else maximum(seconds, _longest(bounds[-1])))
    busy: Number = 0.0
    for time in times:
        busy = busy + time
    host, waiting = launch_seconds(len(plan.kernels), busy, profile, launch)
    parts: list[Estimate] = []
    total_bytes, roofline = Bytes(), 0.0
    for kernel, own, time, bound, resources in zip(plan.kernels, moved, times, bounds, expected, strict=True):
        count = len(plan.kernels)
        longest = _longest(bound)
        seconds = Seconds(longest, time + waiting / count, waiting / count, host / count, bound, resources)
        parts.append(Estimate(kernel.name, 1, count_flops(kernel.work), kernel.work, own, seconds, (), kernel))
        total_bytes = total_bytes + own
        roofline = roofline + longest
    work = merge(*(kernel.work for kernel in plan.kernels))
    seconds = Seconds(roofline, busy + waiting, waiting, host, merge(*bounds), merge(*expected))
    return Estimate(plan.name, len(plan.kernels), count_flops(work), work, total_bytes, seconds, tuple(parts))


def _longest(times: Mapping[str, Number]) -> Number:
    longest: Number = 0.0
    for time in times.values():
        longest = maximum(longest, time)
    return longest


__all__ = ["Estimate", "Seconds", "divide", "estimate", "largest", "memory_peak", "roofline_by_resource"]
