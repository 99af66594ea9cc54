"""Tensors: a name, a shape and a dtype, and how many bytes that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from iomodel.arrays import Number
from iomodel.errors import unknown

#: Bits per element in memory. Block-scaled formats carry their scales: nvfp4 has an fp8 scale for
#: 16 elements (4 + 8/16 bits), mxfp4 and mxfp8 an 8-bit scale for 32 (OCP Microscaling 1.0, 2023).
BITS: dict[str, float] = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "mxfp8": 8.25,
    "int8": 8,
    "fp6": 6,
    "int4": 4,
    "fp4": 4,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "int64": 64,
    "int32": 32,
    "uint8": 8,
    "bool": 8,
}

#: Other spellings of the same formats.
ALIASES: dict[str, str] = {
    "float64": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
}

#: Which matrix rate a dtype computes at, where the storage format differs from the unit's.
MATMUL_AS: dict[str, str] = {"mxfp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}


def dtype(name: str, where: str = "") -> str:
    """The canonical name of a dtype; an unknown one is an error that offers what is close.

    >>> dtype("bfloat16")
    'bf16'
    """
    text = str(name).lower().removeprefix("torch.")
    text = ALIASES.get(text, text)
    if text not in BITS:
        raise unknown("dtype", name, BITS, where)
    return text


def itemsize(name: str) -> float:
    """Bytes per element; fractional for packed and block-scaled formats.

    >>> itemsize("bf16"), itemsize("nvfp4")
    (2.0, 0.5625)
    """
    return BITS[name] / 8


@dataclass(frozen=True)
class Tensor:
    """The part of a tensor that an op touches: name, shape (numbers or arrays), dtype."""

    name: str
    shape: tuple[Number, ...]
    dtype: str

    @cached_property
    def elements(self) -> Number:
        """Product of the shape."""
        count: Number = 1.0
        for size in self.shape:
            count = count * size
        return count

    @cached_property
    def bytes(self) -> Number:
        """elements x bits / 8."""
        return self.elements * itemsize(self.dtype)
