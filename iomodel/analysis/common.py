"""What every analysis takes besides its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iomodel.arrays import is_array
from iomodel.catalogue import find_profiles
from iomodel.duration import LAUNCHES
from iomodel.errors import InputError
from iomodel.parameters import Name, Text
from iomodel.profile import Profile
from iomodel.registers import MOST, is_generated, live_values, registers
from iomodel.results import Result
from iomodel.tensor import BITS
from iomodel.tensor import dtype as canonical_dtype

GPU = Text("GPU names, aliases, patterns (h*) or profile files, joined by commas", many=True)
DTYPE = Name("element type of the tensors", lambda: BITS, canonical_dtype)
LAUNCH = Name("how kernels reach the GPU: a framework op each, bare launches, a replayed graph", lambda: LAUNCHES)
L2 = Name("what the first kernel finds in L2: nothing of its own, or all that fits", lambda: ("cold", "warm"))

#: Registers a thread above which fewer than 48 warps fit the register file of an SM (65536 / 32 / 48).
MANY = 42

#: A GPU as analyses take it: names as in `--gpu`, a Profile, or several Profiles.
Gpus = str | Profile | Sequence[Profile]


def profiles_of(gpu: Gpus) -> list[Profile]:
    """The profiles that a `gpu` argument means."""
    if isinstance(gpu, str):
        return find_profiles(gpu)
    found = [gpu] if isinstance(gpu, Profile) else list(gpu)
    if not found:
        raise InputError("gpu: name at least one GPU")
    return found


def divides(divisor: Any, number: Any, divisor_name: str, number_name: str) -> None:
    """Refuse sizes of which one does not divide the other."""
    rest = number % divisor
    if is_array(rest):
        if rest.any():
            raise InputError(f"{divisor_name} must divide {number_name} in every case")
    elif rest:
        raise InputError(f"{divisor_name} ({divisor:.0f}) must divide {number_name} ({number:.0f})")


def assumed_note(profiles: Sequence[Profile], results: Sequence[Result]) -> list[str]:
    """A note on the GPUs for which a result used sustained constants that were fitted on other GPUs."""
    borrowing: dict[str, list[str]] = {}
    for profile in profiles:
        styles = {k.tiling.style for r in results if r.gpu == profile.name for k in r.plan.kernels}
        lenders: set[str] = set()
        for key in profile.assumed:
            section, _, name = key.partition(".")
            if section == "sustained" and (name.partition(".")[0] in styles or "." not in name):
                lenders |= set(profile.values[key].fitted_on)
        if lenders:
            borrowing.setdefault(", ".join(sorted(lenders)), []).append(profile.name)
    blind = [profile.name for profile in profiles if not profile.has_rate("vector:fp32")]
    notes = [f"{', '.join(blind)}: no fp32 vector rate is known; vector work is not counted"] if blind else []
    return notes + [
        f"{', '.join(names)}: not measured here in full; expected uses constants fitted on {lenders}"
        for lenders, names in borrowing.items()
    ]


def registers_note(results: Sequence[Result]) -> list[str]:
    """A note on generated kernels that hold so many values that registers spill or few warps are resident."""
    notes = []
    for result in results:
        for kernel in result.plan.kernels:
            if not is_generated(kernel):
                continue
            held = f"{result.variant}: {kernel.name} holds {live_values(kernel)} values an element"
            if registers(kernel) > MOST:
                notes.append(
                    f"{held}, about {registers(kernel)} registers a thread of {MOST}: they spill (estimated)"
                )
            elif registers(kernel) > MANY:
                notes.append(
                    f"{held}, about {registers(kernel)} registers a thread: fewer warps are resident (estimated)"
                )
    return list(dict.fromkeys(notes))


def tokens(value: Any) -> str:
    """A size in a title: the number, or how many of them."""
    return f"{value.size} values of" if is_array(value) else f"{value:.0f}"
