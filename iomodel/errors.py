"""The two ways a run can fail, and the suggestion that goes with an unknown name."""

from __future__ import annotations

from collections.abc import Iterable

#: Longer lists of known names are cut to those that are close.
LONGEST_LIST = 40


class IomodelError(Exception):
    """Base of every error that iomodel raises on purpose; its text is one line."""

    exit_code = 1


class InputError(IomodelError):
    """The input is wrong: the text says what, where, and what to do. Exit code 2."""

    exit_code = 2


class MachineError(IomodelError):
    """The machine failed (disk full, file not writable). Exit code 1."""

    exit_code = 1


def unknown(kind: str, name: object, known: Iterable[str], where: str = "") -> InputError:
    """An error that names what is unknown, says where, and offers what is close.

    >>> str(unknown("dtype", "bf61", ["bf16", "fp16"]))
    "unknown dtype 'bf61', did you mean 'bf16'? known: bf16, fp16"
    """
    import difflib

    choices = sorted(set(known))
    text = str(name)
    close = difflib.get_close_matches(text.lower(), choices, n=1, cutoff=0.5)
    shown = text if len(text) <= 60 else text[:57] + "..."
    if len(choices) > LONGEST_LIST:
        near = difflib.get_close_matches(text.lower(), choices, n=8, cutoff=0.3)
        choices = [*(near or choices[:8]), f"... {len(choices)} in all"]
    place = f"{where}: " if where else ""
    hint = f", did you mean '{close[0]}'?" if close else "."
    return InputError(f"{place}unknown {kind} {shown!r}{hint} known: {', '.join(choices)}")
