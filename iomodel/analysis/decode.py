"""`iomodel decode`: one new token against a KV cache, with and without split-K."""

from __future__ import annotations

from typing import Annotated, Any

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, divides, profiles_of, tokens
from iomodel.arrays import Number, is_array
from iomodel.kernel import Plan
from iomodel.ops.decode import VARIANTS, Decode
from iomodel.parameters import Name, Size, parse_arguments
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.results import Analysis, compare
from iomodel.tensor import BITS, MATMUL_AS
from iomodel.tensor import dtype as canonical_dtype


def decode(
    kv_len: Annotated[Number, Size("cached tokens")],
    batch: Annotated[Number, Size("sequences")] = 1,
    heads: Annotated[Number, Size("query heads")] = 32,
    kv_heads: Annotated[Number | None, Size("key/value heads, if fewer than heads")] = None,
    head_dim: Annotated[float, Size("elements a head", loop=True)] = 128,
    kv_dtype: Annotated[str | None, Name("element type of the KV cache", lambda: BITS, canonical_dtype)] = None,
    splits: Annotated[Number | None, Size("parts of the cache worked on at once, if not chosen")] = None,
    dtype: Annotated[str, DTYPE] = "bf16",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Bytes and time of attention for one query token a sequence.

    K and V [batch, kv_heads, kv_len, head_dim] are read once whatever the number of query heads;
    split-K adds fp32 partial outputs and a combine kernel, and fills the SMs. Sizes may be arrays.

    >>> d = decode(kv_len=8192, kv_heads=8)
    >>> d["no-split"].estimate.bytes.compulsory  # 2 x 8 x 8192 x 128 x 2 B, and q and o of 32 x 128
    33570816.0
    """
    given = {k: v for k, v in locals().items() if k != "gpu"}
    inputs: dict[str, Any] = parse_arguments(decode, given)
    inputs.setdefault("kv_heads", inputs["heads"])
    inputs.setdefault("kv_dtype", inputs["dtype"])
    divides(inputs["kv_heads"], inputs["heads"], "kv-heads", "heads")
    profiles = profiles_of(gpu)
    problem = Decode(
        kv_len=inputs["kv_len"],
        batch=inputs["batch"],
        heads=inputs["heads"],
        kv_heads=inputs["kv_heads"],
        head_dim=inputs["head_dim"],
        dtype=inputs["dtype"],
        kv_dtype=inputs["kv_dtype"],
        compute=MATMUL_AS.get(inputs["dtype"], inputs["dtype"]),
    )

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        return [
            (name, assemble(name, variant(problem, profile, inputs.get("splits")), ("o",)))
            for name, variant in VARIANTS.items()
        ]

    results = compare(profiles, plans, inputs["launch"], inputs["l2"] == "warm")
    echoed = {**inputs, "gpu": [p.name for p in profiles]}
    notes = assumed_note(profiles, results)
    return Analysis("decode", _title(problem), echoed, results, tuple(notes), {p.name: p for p in profiles})


def _title(d: Decode) -> str:
    heads = f"{tokens(d.heads)} heads"
    if is_array(d.kv_heads) or is_array(d.heads) or d.kv_heads != d.heads:
        heads += f" on {tokens(d.kv_heads)} KV heads"
    cache = d.kv_dtype if d.kv_dtype != d.dtype else ""
    parts = [f"1 token on {tokens(d.kv_len)} cached", heads, f"d {d.head_dim:.0f}", d.dtype]
    parts += [f"{cache} cache"] if cache else []
    return ", ".join([*parts, f"batch {tokens(d.batch)}"])
