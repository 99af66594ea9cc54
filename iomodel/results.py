"""What an analysis answers: one Result a GPU and variant, with notes in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from iomodel.arrays import Number, is_array, is_traced, minimum, settled, where
from iomodel.kernel import Plan
from iomodel.profile import Profile
from iomodel.roofline import Estimate, divide, estimate
from iomodel.traffic import memory_peak


@dataclass(frozen=True)
class Result:
    """One variant on one GPU. `speedup` is the first variant's expected time over this one's."""

    gpu: str
    variant: str
    estimate: Estimate
    plan: Plan
    speedup: Number
    recommended: Any

    @cached_property
    def memory_peak(self) -> Number:
        """Most bytes alive at once in device memory."""
        return settled(memory_peak(self.plan))


@dataclass(frozen=True)
class Analysis:
    """The answer to one question: inputs as understood, results in order of GPU and variant, notes."""

    command: str
    title: str
    inputs: Mapping[str, Any]
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {name: settled(value) for name, value in self.inputs.items()}
        object.__setattr__(self, "inputs", given)

    def __getitem__(self, variant: str) -> Result:
        """The result of a variant on the first GPU that has it."""
        for result in self.results:
            if result.variant == variant:
                return result
        raise KeyError(variant)

    def on(self, gpu: str) -> dict[str, Result]:
        """The results of one GPU by variant."""
        return {result.variant: result for result in self.results if result.gpu == gpu}


#: The totals that a flat record shows, by where they stand.
BYTES = ("compulsory_read", "compulsory_write", "l2", "dram_read", "dram_write")
SECONDS = ("roofline", "expected", "launch")

#: Plans of the variants on one GPU, in the order to show; the first is what speedups count against.
Planner = Callable[[Profile], Sequence[tuple[str, Plan]]]


def compare(
    profiles: Sequence[Profile],
    planner: Planner,
    launch: str,
    warm: bool,
    bounds: Sequence[str] = (),
) -> tuple[Result, ...]:
    """Estimate every variant on every GPU; `bounds` are variants that no one can run, so never recommended."""
    results: list[Result] = []
    for profile in profiles:
        estimates = [(name, plan, estimate(plan, profile, launch, warm)) for name, plan in planner(profile)]
        expected = [e.seconds.expected for _, _, e in estimates]
        best: Number = float("inf")
        for (name, _, _), time in zip(estimates, expected, strict=True):
            if name not in bounds:
                best = minimum(best, time)
        taken: Any = False
        for (name, plan, one), time in zip(estimates, expected, strict=True):
            chosen: Any = False
            if name not in bounds:
                chosen = where(taken, False, time == best) if is_array(taken) else (time == best) & (not taken)
                taken = taken | chosen
            results.append(Result(profile.name, name, one, plan, divide(expected[0], time), chosen))
    return _settled(results)


def _settled(results: list[Result]) -> tuple[Result, ...]:
    """Results of long arrays with their totals computed, all at once. The rest (kernels, tensors,
    seconds by resource) stays recorded, and is computed when it is looked at."""
    if not any(is_traced(x) for r in results for x in (r.speedup, r.estimate.flops, r.estimate.bytes.l2)):
        return tuple(results)
    from iomodel.tape import settle

    found: list[Any] = []
    for one in results:
        found += [one.speedup, one.recommended, *_figures(one.estimate)]
    values = iter(settle(found))
    computed = []
    for one in results:
        speedup, recommended = next(values), next(values)
        computed.append(
            replace(one, estimate=_with(one.estimate, values), speedup=speedup, recommended=recommended)
        )
    return tuple(computed)


def _figures(one: Estimate) -> list[Any]:
    moved = [getattr(one.bytes, name) for name in BYTES]
    return [one.flops, *moved, *(getattr(one.seconds, name) for name in SECONDS)]


def _with(one: Estimate, values: Iterator[Any]) -> Estimate:
    """The estimate with the figures that `_figures` lists replaced, in its order."""
    flops = next(values)
    moved = replace(one.bytes, **{name: next(values) for name in BYTES})
    seconds = replace(one.seconds, **{name: next(values) for name in SECONDS})
    return replace(one, flops=flops, bytes=moved, seconds=seconds)
