"""What a calibration measures: workloads by family, with the sizes that tell constants apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20

#: Tensor sizes from inside L2 to far beyond it.
STREAM_MIB = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: A sum over a whole tensor ends in a second phase, so only long ones show the rate of reading.
READ_MIB = tuple(mib for mib in STREAM_MIB if mib >= 64)
CHAIN_MIB = ((3, (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256)), (5, (2, 8, 16, 64)))
GATED = ((4096, 11008), (2048, 5632))
ROWS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "bias_gelu_dropout": ((1024, 4096), (2048, 4096), (4096, 8192), (8192, 8192)),
    "bias_silu": ((2048, 4096), (4096, 8192)),
    "layernorm": ((1024, 4096), (4096, 4096), (16384, 4096), (65536, 1024), (8192, 8192), (2048, 16384)),
    "softmax": ((8192, 2048), (32768, 1024), (4096, 4096), (8192, 8192), (1024, 16384), (2048, 65536)),
    "swiglu": GATED,
    "geglu": GATED,
}

#: m, n, k: squares, then few rows against weights of usual layers, then long and flat ones.
GEMM_SQUARES = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288)
GEMM_WEIGHTS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192))
GEMM_FEW = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
GEMM_OTHERS = (
    (4096, 4096, 14336),
    (8192, 4096, 4096),
    (1024, 1024, 16384),
    (2048, 2048, 512),
    (32768, 2048, 512),
    (2048, 32768, 2048),
    (4096, 4096, 128),
    (8192, 1024, 8192),
    (8192, 8192, 4096),
)

#: batch, heads, kv heads, tokens; head dim 128.
ATTENTION = (
    (1, 32, 32, 512),
    (8, 32, 8, 512),
    (16, 32, 8, 512),
    (1, 32, 8, 1024),
    (2, 32, 32, 1024),
    (4, 32, 8, 1024),
    (16, 16, 16, 1024),
    (1, 16, 16, 2048),
    (1, 32, 32, 2048),
    (2, 64, 8, 2048),
    (4, 16, 16, 2048),
    (8, 32, 8, 2048),
    (1, 32, 8, 4096),
    (2, 16, 16, 4096),
    (1, 64, 8, 4096),
    (4, 32, 8, 4096),
    (1, 8, 8, 8192),
    (1, 32, 8, 8192),
    (2, 16, 4, 8192),
    (1, 8, 8, 12288),
    (1, 8, 8, 16384),
    (1, 32, 32, 16384),
    (1, 4, 4, 24576),
    (1, 8, 2, 32768),
)
DECODE = (
    (1, 32, 8, 1024),
    (1, 32, 32, 4096),
    (1, 32, 8, 8192),
    (1, 64, 8, 16384),
    (1, 32, 8, 32768),
    (1, 32, 8, 131072),
    (2, 32, 8, 2048),
    (2, 32, 4, 16384),
    (4, 32, 32, 1024),
    (4, 32, 8, 4096),
    (4, 16, 16, 8192),
    (8, 32, 8, 1024),
    (8, 32, 8, 8192),
    (8, 64, 8, 16384),
    (16, 32, 8, 4096),
    (16, 32, 32, 2048),
    (16, 64, 8, 8192),
    (32, 32, 8, 2048),
    (32, 64, 8, 4096),
    (64, 32, 8, 512),
    (64, 32, 8, 4096),
    (128, 32, 8, 1024),
    (128, 32, 4, 4096),
    (256, 32, 8, 512),
)

#: How often `--quick` takes a workload: one in three of each family.
QUICK = 3


@dataclass(frozen=True)
class Workload:
    """One thing to run: the family and variant of a recorded row, and its sizes."""

    family: str
    variant: str
    params: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name for the row: what ran, and its sizes."""
        sizes = "x".join(str(v) for k, v in self.params.items() if not isinstance(v, (str, bool)))
        causal = "_causal" if self.params.get("causal") else ""
        return f"cal_{self.family}_{sizes}{causal}_{self.variant}".replace("__", "_")


def suite(backends: tuple[str, ...], quick: bool = False) -> list[Workload]:
    """Every workload, in order; `backends` are the attention kernels that this GPU has.

    >>> len(suite(("flash", "cudnn")))
    302
    """
    found: dict[str, list[Workload]] = {}
    for one in _all(backends):
        found.setdefault(f"{one.family} {one.variant}", []).append(one)
    step = QUICK if quick else 1
    return [one for members in found.values() for one in members[::step]]


def _all(backends: tuple[str, ...]) -> Iterator[Workload]:
    for variant in ("eager", "stream", "graph"):
        yield Workload("launch", variant, {})
    for variant in ("copy", "read", "write", "triad"):
        for mib in READ_MIB if variant == "read" else STREAM_MIB:
            yield _bf16("stream", variant, n=mib * MIB // 2)
    for ops, sizes in CHAIN_MIB:
        for mib in sizes:
            yield _bf16("chain", "eager", n=mib * MIB // 2, ops=ops)
    for family, shapes in ROWS.items():
        for rows, cols in shapes:
            yield _bf16(family, "eager", rows=rows, cols=cols)
    for m, n, k in _gemms():
        yield _bf16("gemm", "linear", m=m, n=n, k=k)
    for batch, heads, kv_heads, seq in ATTENTION:
        for causal in (False, True):
            for backend in backends:
                heads_of = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "d": 128}
                yield _bf16("attention", backend, **heads_of, causal=causal)
    for batch, heads, kv_heads, seq in DECODE:
        for backend in backends:
            yield _bf16("decode", backend, batch=batch, heads=heads, kv_heads=kv_heads, seq=seq, d=128)


def _gemms() -> Iterator[tuple[int, int, int]]:
    for size in GEMM_SQUARES:
        yield size, size, size
    for n, k in GEMM_WEIGHTS:
        for m in GEMM_FEW:
            yield m, n, k
    yield from GEMM_OTHERS


def _bf16(family: str, variant: str, **params: Any) -> Workload:
    return Workload(family, variant, {**params, "dtype": "bf16"})


def params_text(workload: Workload) -> str:
    """The sizes as the `params` cell of a row."""
    return json.dumps(dict(workload.params))
