"""Recorded measurements that ship with the package, and the question that each row answers.

A row of `configs/measurements/` names a workload and its sizes; `prediction` asks the model the same
thing through the public analyses, so validation and a user's own question take one path.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from iomodel.analysis.attention import attention
from iomodel.analysis.chain import chain
from iomodel.analysis.decode import decode
from iomodel.analysis.gemm import gemm
from iomodel.catalogue import configs_folder
from iomodel.errors import InputError
from iomodel.profile import Profile
from iomodel.results import Analysis, Result
from iomodel.yamlfile import read_text

#: Ops of the recorded elementwise chains by their number (`chain_*`), and of the three-op chains.
CHAIN_OPS = ("scale", "scale", "tanh", "scale", "sigmoid", "scale", "relu", "scale")
SHORT_CHAIN = ("scale", "scale", "relu", "scale", "sigmoid")


@dataclass(frozen=True)
class Measured:
    """One measured workload: what ran, DRAM bytes by counter, microseconds by way of timing."""

    name: str
    family: str
    variant: str
    gpu: str
    params: Mapping[str, Any]
    dram_read: float | None
    dram_write: float | None
    seconds: Mapping[str, float]

    @property
    def held_out(self) -> bool:
        """Whether the row was kept back from every fit: by a hash of what ran, fixed for good."""
        key = json.dumps([self.family, dict(sorted(self.params.items()))])
        return int(hashlib.sha256(key.encode()).hexdigest()[-1], 16) % 2 == 1


def read_rows(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(read_text(path, largest=64_000_000))))


def shipped() -> list[Measured]:
    """All recorded rows: H200 workloads with counters, and kernel times of four GPUs."""
    folder = configs_folder("measurements")
    rows: list[Measured] = []
    for name in ("h200_workloads", "h200_more"):
        rows += workloads(str(folder / f"{name}.csv"), "h200")
    return rows + kernel_times(str(folder / "kernel_tables.csv"))


def workloads(path: str, gpu: str) -> list[Measured]:
    """Rows in the format of `h200_workloads.csv` (see docs/validation.md)."""
    found = []
    for row in read_rows(path):
        try:
            params = json.loads(row["params"])
            seconds = {
                way: float(row[f"us_{way}"]) * 1e-6
                for way in ("counters", "graph", "cold")
                if row.get(f"us_{way}") and float(row[f"us_{way}"]) > 0
            }
            counted = float(row["dram_read"] or 0) > 0
            found.append(
                Measured(
                    row["id"],
                    row["family"],
                    row["variant"],
                    row.get("gpu") or gpu,
                    params,
                    float(row["dram_read"]) if counted else None,
                    float(row["dram_write"]) if counted else None,
                    seconds,
                )
            )
        except (KeyError, ValueError) as error:
            raise InputError(f"{path}: row {row.get('id', '?')}: cannot read {error}") from None
    return found


def kernel_times(path: str) -> list[Measured]:
    """Rows in the format of `kernel_tables.csv`: GEMM, context (`ctx`) and generation (`gen`) attention."""
    found = []
    for number, row in enumerate(read_rows(path), 2):
        try:
            keys = (
                ("m", "n", "k")
                if row["op"] == "gemm"
                else ("batch_size", "isl", "step", "heads", "kv_heads", "head_dim")
            )
            params: dict[str, Any] = {key: int(float(row[key])) for key in keys}
            params["dtype"] = row["dtype"]
            family = {"gemm": f"gemm {row['dtype']}", "ctx": "prefill", "gen": "decode"}[row["op"]]
            name = f"{row['gpu']} {row['op']} " + "x".join(str(params[key]) for key in keys)
            seconds = {"table": float(row["latency_us"]) * 1e-6}
            found.append(Measured(name, f"table {family}", "", row["gpu"], params, None, None, seconds))
        except (KeyError, ValueError) as error:
            raise InputError(f"{path}:{number}: cannot read {error}") from None
    return found


#: A question: sizes and names of a row -> the analysis' result for the variant that ran.
Question = Callable[[Measured, Profile, str, str], Result | None]


def _pick(analysis: Analysis, variant: str) -> Result | None:
    return next((r for r in analysis.results if r.variant == variant), None)


def _fused(row: Measured) -> str:
    return "fused" if row.variant in ("compile", "epilogue", "fused") else "unfused"


def _chain_of(*ops: str) -> Question:
    def ask(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
        p = row.params
        shape = [p["rows"], p["cols"]] if "rows" in p else [p["n"]]
        train = "dropout" in ops and row.variant == "eager"
        return _pick(chain(ops, shape, train=train, dtype=p["dtype"], gpu=gpu, launch=launch, l2=l2), _fused(row))

    return ask


def _chain(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
    ops = (CHAIN_OPS if row.name.startswith("chain") else SHORT_CHAIN)[: row.params["ops"]]
    return _chain_of(*ops)(row, gpu, launch, l2)


def _gemm(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
    p = row.params
    epilogue = "bias,gelu" if row.family == "gemm_bias_gelu" and row.variant == "epilogue" else ""
    epilogue = "gelu" if row.family == "gemm_bias_gelu" and row.variant == "eager" else epilogue
    batch = p.get("batch", 1)
    a = gemm(p["m"], p["n"], p["k"], batch, epilogue=epilogue, dtype=p["dtype"], gpu=gpu, launch=launch, l2=l2)
    return _pick(a, _fused(row))


def _attention(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
    p = row.params
    variant = {"flash": "fa2", "cudnn": "fa3", "": "fa3" if gpu.runs("fa3") else "fa2"}.get(row.variant)
    if variant is None:
        return None
    a = attention(
        seq=p.get("seq", p.get("isl")),
        batch=p.get("batch", p.get("batch_size")),
        heads=p["heads"],
        kv_heads=p["kv_heads"],
        head_dim=p.get("d", p.get("head_dim")),
        causal=p.get("causal", True),
        backward=row.family == "attention_fwd_bwd",
        kernel_only=row.family == "attention",
        dtype=p["dtype"],
        gpu=gpu,
        launch=launch,
        l2=l2,
    )
    return _pick(a, variant)


def _decode(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
    p = row.params
    if row.variant == "naive":
        return None
    a = decode(
        kv_len=p["seq"] if "seq" in p else p["step"] + 1,
        batch=p.get("batch", p.get("batch_size")),
        heads=p["heads"],
        kv_heads=p["kv_heads"],
        head_dim=p.get("d", p.get("head_dim")),
        dtype=p["dtype"],
        gpu=gpu,
        launch=launch,
        l2=l2,
    )
    return _pick(a, "split-k")


#: Family -> the question its rows answer. Families that are not here are not compared.
QUESTIONS: Mapping[str, Question] = {
    "chain": _chain,
    "bias_gelu_dropout": _chain_of("bias", "gelu", "dropout"),
    "bias_silu": _chain_of("bias", "silu"),
    "resid_ln_dropout": _chain_of("residual", "layer-norm", "dropout"),
    "relu_add": _chain_of("relu", "add"),
    "softmax": _chain_of("softmax"),
    "layernorm": _chain_of("layer-norm"),
    "swiglu": _chain_of("silu", "mul"),
    "geglu": _chain_of("gelu", "mul"),
    "gemm": _gemm,
    "gemm_bias_gelu": _gemm,
    "bmm": _gemm,
    "attention": _attention,
    "attention_fwd_bwd": _attention,
    "decode": _decode,
    "table gemm bf16": _gemm,
    "table gemm fp8": _gemm,
    "table prefill": _attention,
    "table decode": _decode,
}


def prediction(row: Measured, gpu: Profile, launch: str = "eager", l2: str = "cold") -> Result | None:
    """The model's result for what a row ran, or None where the model has no such variant."""
    question = QUESTIONS.get(row.family)
    return None if question is None else question(row, gpu, launch, l2)
