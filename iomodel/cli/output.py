"""Where output goes: stdout, or a file that is replaced whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from iomodel.errors import InputError, MachineError


def write_out(text: str, output: str | None) -> None:
    """Write text to a file (through a temporary name, then renamed) or to stdout."""
    if output is None:
        if sys.stdout is None:
            raise MachineError("cannot write: standard output is closed")
        sys.stdout.write(_encodable(text))
        sys.stdout.flush()
        return
    target = Path(output)
    if target.is_dir():
        raise InputError(f"--output {output}: is a directory")
    if target.exists() and not target.is_file():
        try:  # a device or a pipe: nothing to rename over
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise MachineError(f"--output {output}: {error.strerror or error}") from None
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise MachineError(f"--output {output}: {error.strerror or error}") from None


def _encodable(text: str) -> str:
    """The text with characters that the terminal's encoding lacks spelled in ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.encode("ascii", "replace").decode("ascii")
    return text
