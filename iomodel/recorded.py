"""The question that each recorded row answers, asked of the model through the public analyses.

So validation, fitting and a user's own question take one path. Rows that differ only in sizes are
asked together, as arrays: an array gives the same bits as its numbers one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iomodel.analysis.attention import attention
from iomodel.analysis.chain import chain
from iomodel.analysis.decode import decode
from iomodel.analysis.gemm import gemm
from iomodel.errors import InputError
from iomodel.kernel import Group
from iomodel.measurements import Measured, kernel_times, read_rows, shipped, workloads
from iomodel.op import Op
from iomodel.ops.pointwise import COSTS
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.results import Analysis, Result, compare
from iomodel.tensor import Tensor

#: Ops of the recorded elementwise chains by their number (`chain_*`), and of the three-op chains.
CHAIN_OPS = ("scale", "scale", "tanh", "scale", "sigmoid", "scale", "relu", "scale")
SHORT_CHAIN = ("scale", "scale", "relu", "scale", "sigmoid")

#: Sizes that may differ among rows asked together.
SIZES = ("n", "rows", "cols", "m", "k", "batch", "batch_size", "heads", "kv_heads", "seq", "isl", "step")

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


#: Streams by variant: tensors of n elements read and written, and the op whose library kernel it is.
STREAMS: Mapping[str, tuple[int, int, str]] = {
    "copy": (1, 1, "scale"),
    "read": (1, 0, ""),
    "write": (0, 1, ""),
    "triad": (2, 1, "add"),
}


def _stream(row: Measured, gpu: Profile, launch: str, l2: str) -> Result | None:
    """One kernel that only moves data; a read leaves a sum of one element."""
    if row.variant not in STREAMS:
        return None
    read, write, op = STREAMS[row.variant]
    n, dtype = row.params["n"], row.params["dtype"]
    reads = tuple(Tensor(f"x{i}", (n,), dtype) for i in range(read))
    out = Tensor("y", (n if write else 1.0,), dtype)
    work = {"issue": n * COSTS[op].library} if op else {}
    plan = assemble(row.variant, [Group(row.variant, (Op(row.variant, reads, (out,), work),))], ("y",))
    return compare([gpu], lambda _: [(row.variant, plan)], launch, l2 == "warm")[0]


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
        kernel_only=row.family == "attention",  # the tables time an engine's copy of K and V with it
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
    "stream": _stream,
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
    if question is None:
        return None
    try:
        return question(row, gpu, launch, l2)
    except (KeyError, TypeError) as error:
        raise InputError(f"row {row.name}: family {row.family} needs other params: {error}") from None
    except InputError as error:
        raise InputError(f"row {row.name}: {error}") from None


@dataclass(frozen=True)
class Batch:
    """Rows that differ only in sizes, asked in one go."""

    rows: tuple[Measured, ...]

    def ask(self, gpu: Profile, launch: str = "eager", l2: str = "cold") -> Result | None:
        """The result for all rows, its figures arrays in their order (or numbers that all share)."""
        return prediction(self._together, gpu, launch, l2)

    def sizes(self, name: str) -> Any:
        """One size of every row, as an array."""
        return self._together.params[name]

    @property
    def _together(self) -> Measured:
        import numpy

        first = self.rows[0]
        params = dict(first.params)
        for name in SIZES:
            if name in params:
                params[name] = numpy.array([float(row.params[name]) for row in self.rows])
        return replace(first, params=params)


def batches(rows: Iterable[Measured]) -> list[Batch]:
    """Rows that the model can be asked about, those of a kind together, in the order of first appearance."""
    kinds: dict[tuple[Any, ...], list[Measured]] = {}
    for row in rows:
        if row.family in QUESTIONS:
            kinds.setdefault(_kind(row), []).append(row)
    return [Batch(tuple(members)) for members in kinds.values()]


def _kind(row: Measured) -> tuple[Any, ...]:
    names = tuple((key, None if key in SIZES else str(value)) for key, value in sorted(row.params.items()))
    for key, value in row.params.items():
        if key in SIZES and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise InputError(f"row {row.name}: {key} {value!r} is not a number")
    return (row.gpu, row.family, row.variant, row.name.startswith("chain"), names, tuple(sorted(row.seconds)))


def unasked(rows: Sequence[Measured]) -> dict[str, int]:
    """Families that the model is not asked about, and how many rows each has."""
    found: dict[str, int] = {}
    for row in rows:
        if row.family not in QUESTIONS:
            found[row.family] = found.get(row.family, 0) + 1
    return found


__all__ = [
    "QUESTIONS",
    "Batch",
    "Measured",
    "batches",
    "kernel_times",
    "prediction",
    "read_rows",
    "shipped",
    "unasked",
    "workloads",
]
