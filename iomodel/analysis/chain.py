"""`iomodel chain`: elementwise and row-reduction chains, a kernel an op against one kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, profiles_of, registers_note
from iomodel.arrays import Number, is_array
from iomodel.errors import InputError, unknown
from iomodel.kernel import Plan
from iomodel.op import Op
from iomodel.ops.normalise import row_op
from iomodel.ops.pointwise import pointwise
from iomodel.parameters import Flag, Size, Text, parse_arguments
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.results import Analysis, compare
from iomodel.tensor import Tensor, dtype, itemsize
from iomodel.tiling import generated_group, library_group

#: Ops by the name on the command line -> (op, extra inputs: `full` tensors or one `row`).
OPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "op": ("op", ()),
    "add": ("add", ("full",)),
    "residual": ("add", ("full",)),
    "mul": ("mul", ("full",)),
    "bias": ("bias", ("row",)),
    "scale": ("scale", ()),
    "relu": ("relu", ()),
    "gelu": ("gelu", ()),
    "gelu-tanh": ("gelu_tanh", ()),
    "silu": ("silu", ()),
    "swiglu": ("swiglu", ("full",)),
    "tanh": ("tanh", ()),
    "sigmoid": ("sigmoid", ()),
    "exp": ("exp", ()),
    "dropout": ("dropout", ()),
    "cast": ("cast", ()),
    "layer-norm": ("layer_norm", ()),
    "rms-norm": ("rms_norm", ()),
    "softmax": ("softmax", ()),
}
ROW_OPS = ("layer_norm", "rms_norm", "softmax")


def chain(
    ops: Annotated[int | str | Sequence[str], Text("how many ops, or their names")],
    shape: Annotated[str | Sequence[Number], Text("rows x columns, e.g. 4096x8192")] = "4096x8192",
    train: Annotated[bool, Flag("save what a backward pass needs: masks, row statistics")] = False,
    keep: Annotated[str | Sequence[str], Text("ops whose outputs the caller keeps too")] = "",
    dtype: Annotated[str, DTYPE] = "bf16",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Traffic and time of a chain of ops on [rows, columns], unfused and fused.

    `ops` is a number of generic unary ops or names (`residual layer-norm dropout`, `cast:fp32`).
    Unfused moves every op's inputs and outputs; fused reads each outside input once and writes the
    last output (and what `train` or `keep` ask for) once. Norms are without learned weights: those
    are a row or two, not a tensor. Shape sizes may be arrays.

    >>> c = chain(3)
    >>> c["unfused"].estimate.bytes.compulsory, c["fused"].estimate.bytes.compulsory
    (402653184.0, 134217728.0)
    """
    given = {"train": train, "dtype": dtype, "launch": launch, "l2": l2}
    inputs = parse_arguments(chain, given)
    names = _op_names(ops)
    sizes = _shape(shape)
    profiles = profiles_of(gpu)
    kept = [k for k in (keep.split(",") if isinstance(keep, str) else keep) if k]
    chained, outputs = _ops(names, sizes, inputs["dtype"], inputs["train"], kept)

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        unfused = [library_group(op, profile) for op in chained]
        fused = [generated_group("fused", tuple(chained), profile)]
        return [
            ("unfused", assemble("unfused", unfused, outputs)),
            ("fused", assemble("fused", fused, outputs)),
        ]

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    echoed = {**inputs, "ops": names, "shape": list(sizes), "keep": kept, "gpu": [p.name for p in profiles]}
    title = f"{_summary(names)} on {'x'.join(_size(s) for s in sizes)}, {inputs['dtype']}"
    if inputs["train"]:
        title += ", training"
    notes = [
        *_notes(results[0].estimate.kernels, results[1].estimate),
        *registers_note(results),
        *assumed_note(profiles, results),
    ]
    return Analysis("chain", title, echoed, results, tuple(notes), {p.name: p for p in profiles})


def _op_names(ops: int | str | Sequence[str]) -> list[str]:
    if isinstance(ops, str):
        ops = [name for name in re.split(r"[,\s]+", ops) if name]
        if len(ops) == 1 and ops[0].isdigit():
            ops = int(ops[0])
    if isinstance(ops, int):
        if not 1 <= ops <= 10_000:
            raise InputError(f"--ops: {ops} must be a number from 1 to 10000")
        return ["op"] * ops
    if not ops:
        raise InputError("chain: name the ops (bias gelu dropout) or give --ops N")
    for name in ops:
        if name.split(":")[0] not in OPS:
            raise unknown("op", name, OPS)
    return list(ops)


def _shape(shape: str | Sequence[Number]) -> tuple[Number, ...]:
    size = Size("", 1)
    if isinstance(shape, str):
        parts: Sequence[Any] = re.split(r"\s*[xX,*]\s*", shape.strip())
    else:
        parts = list(shape)
    if len(parts) < 1 or "" in [p for p in parts if isinstance(p, str)]:
        raise InputError(f"--shape {shape!r}: write rows x columns, e.g. 4096x8192")
    sizes = [size.parse(part, "--shape") for part in parts]
    return tuple(sizes)


def _ops(
    names: list[str], sizes: tuple[Number, ...], first: str, train: bool, kept: list[str]
) -> tuple[list[Op], tuple[str, ...]]:
    """The ops of a chain over tensors x -> t1 -> t2 ..., and the tensors that the caller keeps."""
    current = Tensor("x", sizes, first)
    ops: list[Op] = []
    outputs: list[str] = []
    for index, spelled in enumerate(names, 1):
        short, _, argument = spelled.partition(":")
        name, extras = OPS[short]
        if argument and name != "cast":
            raise InputError(f"op {spelled!r}: only cast takes a dtype, as cast:fp32")
        out_dtype = current.dtype
        if name == "cast":
            out_dtype = dtype(argument, "cast") if argument else ("fp32" if itemsize(first) < 4 else "bf16")
            if not argument and current.dtype == out_dtype:
                out_dtype = first
        out = Tensor(f"t{index}", sizes, out_dtype)
        inputs = [current]
        for extra in extras:
            extra_shape = sizes if extra == "full" else sizes[-1:]
            inputs.append(Tensor(f"{short}{index}", extra_shape, current.dtype))
        if name in ROW_OPS:
            ops.append(row_op(name, tuple(inputs), out, train))
        else:
            saved = (Tensor(f"mask{index}", sizes, "bool"),) if name == "dropout" and train else ()
            ops.append(pointwise(name, tuple(inputs), out, saved))
        if spelled in kept or short in kept:
            outputs.append(out.name)
        current = out
    for name in kept:
        if name not in names and name not in [n.split(":")[0] for n in names]:
            raise unknown("op to keep", name, names, "--keep")
    return ops, (*(o for o in outputs if o != current.name), current.name)


def _summary(names: list[str]) -> str:
    if set(names) == {"op"}:
        return f"{len(names)} elementwise op{'s' if len(names) > 1 else ''}"
    shown = " + ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} + {len(names) - 4} more"


def _size(value: Any) -> str:
    return f"[{value.size} values]" if is_array(value) else f"{value:.0f}"


def _notes(unfused: Sequence[Any], fused: Any) -> list[str]:
    """Why fusing gains less than the traffic says, where it does."""
    notes = []
    bound = fused.bound
    if isinstance(bound, str) and bound == "issue":
        ops = [op for kernel in fused.kernels for op in kernel.kernel.ops]
        costly = max(ops, key=lambda op: op.work.get("issue", 0.0))
        elements = costly.writes[0].elements
        per_element = fused.work["issue"] / elements
        notes.append(
            f"fused is bound by instruction issue, not by memory: about {per_element:.0f} instructions an "
            f"element, of which {costly.name} takes {costly.work['issue'] / elements:.0f}"
        )
    return notes
