"""`iomodel attention`: standard, FlashAttention loop orders, and the I/O lower bound."""

from __future__ import annotations

from typing import Annotated, Any

from iomodel.analysis.common import DTYPE, GPU, L2, LAUNCH, Gpus, assumed_note, divides, profiles_of, tokens
from iomodel.arrays import Number, is_array, minimum
from iomodel.kernel import Plan
from iomodel.ops.attention import VARIANTS, Attention, Blocks, choose_blocks, outputs, theory
from iomodel.parameters import Flag, Real, Size, parse_arguments
from iomodel.plan import assemble
from iomodel.profile import Profile
from iomodel.results import Analysis, Result, compare
from iomodel.tensor import MATMUL_AS
from iomodel.units import show


def attention(
    seq: Annotated[Number, Size("query tokens")],
    kv_seq: Annotated[Number | None, Size("key/value tokens, if not seq")] = None,
    batch: Annotated[Number, Size("sequences")] = 1,
    heads: Annotated[Number, Size("query heads")] = 32,
    kv_heads: Annotated[Number | None, Size("key/value heads, if fewer than heads")] = None,
    head_dim: Annotated[float, Size("elements a head", loop=True)] = 128,
    causal: Annotated[bool, Flag("a query sees no later key")] = False,
    window: Annotated[Number | None, Size("keys that a query sees at most")] = None,
    mask: Annotated[bool, Flag("an additive [seq, kv-seq] mask is read")] = False,
    dropout: Annotated[float, Real("dropout probability")] = 0.0,
    backward: Annotated[bool, Flag("forward and backward pass")] = False,
    kernel_only: Annotated[bool, Flag("time the kernel alone, without copying K and V to a cache")] = False,
    block_q: Annotated[float | None, Size("query rows of a tile", loop=True)] = None,
    block_kv: Annotated[float | None, Size("key rows of a tile", loop=True)] = None,
    dtype: Annotated[str, DTYPE] = "bf16",
    gpu: Annotated[Gpus, GPU] = "h100-sxm",
    launch: Annotated[str, LAUNCH] = "eager",
    l2: Annotated[str, L2] = "cold",
) -> Analysis:
    """Bytes, FLOPs and time of softmax(Q K^T) V in every variant.

    Shapes: Q, O [batch, heads, seq, head_dim]; K, V [batch, kv_heads, kv_seq, head_dim]. Standard
    moves (2 S_q + 2 S_k) d + 4 S_q S_k elements a head, the I/O lower bound (2 S_q + 2 S_k) d.
    Sizes may be NumPy arrays that broadcast; head_dim and blocks are numbers.

    >>> a = attention(seq=16384)
    >>> a["standard"].estimate.bytes.compulsory / a["io-lower-bound"].estimate.bytes.compulsory
    129.0
    """
    given = {k: v for k, v in locals().items() if k not in ("gpu",)}
    inputs = parse_arguments(attention, given)
    sizes: dict[str, Any] = dict(inputs)
    sizes.setdefault("kv_seq", sizes["seq"])
    sizes.setdefault("kv_heads", sizes["heads"])
    divides(sizes["kv_heads"], sizes["heads"], "kv-heads", "heads")
    profiles = profiles_of(gpu)
    problem = Attention(
        q_len=sizes["seq"],
        kv_len=sizes["kv_seq"],
        batch=sizes["batch"],
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"],
        dtype=sizes["dtype"],
        compute=MATMUL_AS.get(sizes["dtype"], sizes["dtype"]),
        causal=sizes["causal"],
        window=sizes.get("window"),
        mask=sizes["mask"],
        dropout=sizes["dropout"] > 0,
        backward=sizes["backward"],
        append=not (sizes["kernel_only"] or sizes["backward"]),
    )
    notes: list[str] = []

    def plans(profile: Profile) -> list[tuple[str, Plan]]:
        found = []
        for name, variant in VARIANTS.items():
            if not profile.runs(name):
                notes.append(f"{profile.name}: no {name}, which needs Hopper's asynchronous matrix units")
                continue
            blocks = _blocks(problem, name, profile, sizes.get("block_q"), sizes.get("block_kv"), notes)
            found.append((name, assemble(name, variant(problem, blocks, profile), outputs(problem))))
        return found

    results = compare(profiles, plans, sizes["launch"], sizes["l2"] == "warm", bounds=("fa1", "io-lower-bound"))
    notes += _append_note(results) + _theory_note(problem, profiles) + assumed_note(profiles, results)
    echoed = {**sizes, "gpu": [p.name for p in profiles]}
    return Analysis(
        "attention",
        _title(problem),
        echoed,
        results,
        tuple(dict.fromkeys(notes)),
        {p.name: p for p in profiles},
    )


def _blocks(
    problem: Attention, name: str, profile: Profile, q: float | None, kv: float | None, notes: list[str]
) -> Blocks:
    if "sm.shared_memory" not in profile:
        return Blocks(q or 128, kv or 128)
    longest = None if is_array(problem.q_len) else problem.q_len
    fitting = q if longest is None or q is None else min(q, longest)
    blocks = choose_blocks(problem, name, profile["sm.shared_memory"], fitting, kv)
    if longest is not None and q is not None and q > longest:
        notes.append(f"block-q {q:.0f} is above seq {longest:.0f}: a tile of {longest:.0f} rows is used")
        blocks = Blocks(minimum(blocks.q, longest), blocks.kv)
    return blocks  # a kernel's own tile is as large for a short sequence: its other rows are idle


def _title(a: Attention) -> str:
    heads = f"{tokens(a.heads)} heads"
    if is_array(a.kv_heads) or is_array(a.heads) or a.kv_heads != a.heads:
        heads += f" on {tokens(a.kv_heads)} KV heads"
    length = f"{tokens(a.q_len)} tokens"
    if is_array(a.kv_len) or is_array(a.q_len) or a.kv_len != a.q_len:
        length += f" on {tokens(a.kv_len)} keys"
    flags = [name for name in ("causal", "mask", "dropout", "backward") if getattr(a, name)]
    if a.window is not None:
        flags.append(f"window {tokens(a.window)}")
    return ", ".join([length, heads, f"d {a.head_dim:.0f}", a.dtype, f"batch {tokens(a.batch)}", *flags])


def _append_note(results: tuple[Result, ...]) -> list[str]:
    """Says how much of the expected time is the engine's copy of K and V, where that shows."""
    for result in results:
        seconds = result.estimate.seconds
        copying = seconds.expected_by_resource.get("kv_append", 0.0)
        if result.recommended is True and not is_array(copying) and copying > 0.01 * seconds.expected:
            return [
                f"{result.variant} expected includes {show(copying, 's')} for copying new K and V to the cache, "
                "as serving engines time it; --kernel-only leaves it out"
            ]
    return []


def _theory_note(a: Attention, profiles: list[Profile]) -> list[str]:
    profile = profiles[0]
    if "sm.shared_memory" not in profile or any(is_array(x) for x in (a.q_len, a.kv_len, a.batch, a.heads)):
        return []
    memory = profile["sm.shared_memory"]
    upper, lower = theory(a, memory)
    elements = memory / (a.scores("s").bytes / a.scores("s").elements)
    regime = "M >= d^2: N^2 d^2/M" if elements >= a.head_dim**2 else "M < d^2: N^2 d/sqrt(M)"
    return [
        f"Theta(N^2 d^2/M), M = {show(memory, 'binary')} of shared memory ({profile.name}): algorithm 1 moves "
        f"{show(upper, 'bytes')} (constant 12, valid for d <= M <= N d); no exact kernel with only M on chip "
        f"moves less than order {show(lower, 'bytes')} ({regime})"
    ]
