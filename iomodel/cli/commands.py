"""Which commands there are. An analysing command is the name of a function; its options are the
function's parameters."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Command:
    """A command: its help line, the function behind it, and options that may stand bare."""

    help: str
    module: str
    function: str
    arguments: str = ""  # the parameter that bare words go to
    word: str = ""  # what one bare word is called, where there is only one: FILE

    def load(self) -> Callable[..., Any]:
        """The function, imported now."""
        found: Callable[..., Any] = getattr(importlib.import_module(self.module), self.function)
        return found


#: Commands that take sizes and answer with an Analysis.
ANALYSES: dict[str, Command] = {
    "chain": Command(
        "Elementwise and reduction chains, unfused against fused.", "iomodel.analysis.chain", "chain", "ops"
    ),
    "attention": Command(
        "Standard attention, FlashAttention loop orders, I/O lower bound.",
        "iomodel.analysis.attention",
        "attention",
    ),
    "decode": Command(
        "One new token against a KV cache, with and without split-K.", "iomodel.analysis.decode", "decode"
    ),
    "gemm": Command("C[m,n] = A[m,k] B[k,n], and what an epilogue saves.", "iomodel.analysis.gemm", "gemm"),
    "cross-entropy": Command(
        "The loss over a vocabulary: passes over the logits, unfused and fused.",
        "iomodel.analysis.cross_entropy",
        "cross_entropy",
    ),
    "optimizer": Command(
        "A step of adamw, adam, sgd, lion: one op at a time, multi-tensor, fused.",
        "iomodel.analysis.optimizer",
        "optimizer",
        "name",
        "NAME",
    ),
    "graph": Command("Any op graph: the fusion plan and why.", "iomodel.analysis.graph", "graph", "file", "FILE"),
}

#: Commands with a module of their own in cli/.
OTHERS: dict[str, tuple[str, str]] = {
    "sweep": ("What-if studies: sweeps, solving, comparing.", "iomodel.cli.sweep"),
    "gpus": ("GPU profiles: list, show, compare, lint, make.", "iomodel.cli.gpus"),
    "validate": ("The model against shipped measurements, or your own.", "iomodel.cli.validate"),
    "calibrate": ("A profile for the GPU in this machine.", "iomodel.cli.calibrate"),
}
