"""`iomodel gemm`: C[m,n] = A[m,k] B[k,n], and what an epilogue saves."""

from __future__ import annotations

import re
from typing import Annotated, Any

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, profiles_of, tokens
from iomodel.arrays import Number, is_array
from iomodel.errors import unknown
from iomodel.kernel import Group, Plan
from iomodel.op import Op
from iomodel.ops.matmul import io_lower_bound, matmul
from iomodel.ops.pointwise import pointwise
from iomodel.parameters import Flag, Name, Size, Text, parse_arguments
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.results import Analysis, Result, compare
from iomodel.tensor import BITS, MATMUL_AS, Tensor, itemsize
from iomodel.tensor import dtype as canonical_dtype
from iomodel.tiling import library_group, matmul_tiling
from iomodel.units import show

#: Epilogue ops by name -> (op, its extra input: none, a `row` or a `full` tensor).
EPILOGUES: dict[str, tuple[str, str]] = {
    "bias": ("bias", "row"),
    "relu": ("relu", ""),
    "gelu": ("gelu", ""),
    "gelu-tanh": ("gelu_tanh", ""),
    "silu": ("silu", ""),
    "tanh": ("tanh", ""),
    "sigmoid": ("sigmoid", ""),
    "scale": ("scale", ""),
    "residual": ("add", "full"),
    "add": ("add", "full"),
    "mul": ("mul", "full"),
    "dropout": ("dropout", ""),
}


def gemm(
    m: Annotated[Number, Size("rows of A and C")],
    n: Annotated[Number, Size("columns of B and C")],
    k: Annotated[Number, Size("columns of A, rows of B")],
    batch: Annotated[Number, Size("independent products")] = 1,
    epilogue: Annotated[str, Text("ops on C, joined by commas: bias,gelu")] = "",
    out_dtype: Annotated[str | None, Name("element type of C", lambda: BITS, canonical_dtype)] = None,
    kernel_only: Annotated[bool, Flag("8-bit: time the product alone, without quantising A")] = False,
    dtype: Annotated[str, DTYPE] = "bf16",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Bytes, FLOPs and time of a matrix product, its epilogue as kernels of their own or in the product's.

    2 m n k FLOPs; compulsory (m k + k n + m n) elements; tiles ask L2 for A once per tile column and
    for B once per tile row. C has `dtype`, or bf16 where that is narrower than 16 bits.

    >>> g = gemm(m=4096, n=8192, k=4096, epilogue="gelu")
    >>> g["unfused"].estimate.bytes.compulsory - g["fused"].estimate.bytes.compulsory
    134217728.0
    """
    inputs = parse_arguments(
        gemm,
        {
            "m": m,
            "n": n,
            "k": k,
            "batch": batch,
            "out_dtype": out_dtype,
            "kernel_only": kernel_only,
            "dtype": dtype,
            "launch": launch,
            "l2": l2,
        },
    )
    element = inputs["dtype"]
    out_element = inputs.get("out_dtype") or (element if itemsize(element) >= 2 else "bf16")
    names = [name for name in re.split(r"[,\s+]+", epilogue) if name]
    for name in names:
        if name not in EPILOGUES:
            raise unknown("epilogue op", name, EPILOGUES, "--epilogue")
    profiles = profiles_of(gpu)
    b, rows, columns, inner = inputs["batch"], inputs["m"], inputs["n"], inputs["k"]
    c = Tensor("c", (b, rows, columns), out_element)
    product = matmul(
        Tensor("a", (b, rows, inner), element),
        Tensor("b", (b, inner, columns), element),
        c,
        MATMUL_AS.get(element, element),
        inner,
    )
    after = _epilogue(names, c)
    last = after[-1].writes[0].name if after else "c"

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        tiling = matmul_tiling(product, profile, quantize=not inputs["kernel_only"])
        unfused = [Group("gemm", (product,), tiling), *(library_group(op, profile) for op in after)]
        fused = [Group("+".join(["gemm", *names]), (product, *after), tiling, generated=bool(after))]
        return [
            ("unfused", assemble("unfused", unfused, (last,))),
            ("fused", assemble("fused", fused, (last,))),
        ]

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    echoed = {**inputs, "out_dtype": out_element, "epilogue": names, "gpu": [p.name for p in profiles]}
    title = f"{tokens(rows)} x {tokens(inner)} @ {tokens(inner)} x {tokens(columns)}, {element}"
    if is_array(b) or b != 1:
        title += f", batch {tokens(b)}"
    if names:
        title += ", " + " + ".join(names)
    notes = [*_quantize_note(results), *_bound_note(inputs, element, profiles), *assumed_note(profiles, results)]
    return Analysis("gemm", title, echoed, results, tuple(notes), {p.name: p for p in profiles})


def _epilogue(names: list[str], c: Tensor) -> list[Op]:
    ops: list[Op] = []
    current = c
    for index, name in enumerate(names, 1):
        op, extra = EPILOGUES[name]
        inputs = [current]
        if extra:
            inputs.append(Tensor(f"{name}{index}", c.shape if extra == "full" else c.shape[-1:], c.dtype))
        out = Tensor(f"c{index}", c.shape, c.dtype)
        ops.append(pointwise(op, tuple(inputs), out))
        current = out
    return ops


def _quantize_note(results: tuple[Result, ...]) -> list[str]:
    """Says how much of the expected time quantises A."""
    spent = results[0].estimate.seconds.expected_by_resource.get("quantize", 0.0)
    if is_array(spent) or spent == 0:
        return []
    return [
        f"expected includes {show(spent, 's')} for quantising A, as serving engines call an 8-bit product; "
        "--kernel-only leaves it out"
    ]


def _bound_note(inputs: dict[str, Any], element: str, profiles: list[Profile]) -> list[str]:
    sizes = [inputs[name] for name in ("m", "n", "k", "batch")]
    profile = profiles[0]
    if any(is_array(s) for s in sizes) or "memory.l2" not in profile or "sm.shared_memory" not in profile:
        return []
    m, n, k, batch = sizes
    width = itemsize(element)
    texts = []
    for key, between in (("sm.shared_memory", "L2 and the SMs"), ("memory.l2", "DRAM and L2")):
        moved = batch * io_lower_bound(m, n, k, profile[key] / width) * width
        texts.append(f"{show(moved, 'bytes')} between {between} ({show(profile[key], 'binary')})")
    return [f"2mnk/sqrt(M), the least that must move into a memory of M: {', '.join(texts)}"]
