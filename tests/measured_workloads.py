"""The recorded GPU workloads as workload files: what was run, op for op, and in which planner mode."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "measured"

CHAINS = {
    1: "mul",
    3: "mul add tanh",
    5: "mul add tanh mul sigmoid",
    8: "mul add tanh mul sigmoid sub relu mul",
}


@dataclass(frozen=True)
class Recorded:
    """One recorded run: kernels (memsets and seed generators aside), bytes read from DRAM."""

    id: str
    family: str
    variant: str
    params: dict[str, Any]
    kernels: int
    dram_read: float


def recorded(file: str) -> list[Recorded]:
    """The rows of one CSV in tests/data/measured."""
    with (DATA / file).open() as stream:
        return [
            Recorded(
                row["id"],
                row["family"],
                row["variant"],
                json.loads(row["params"]),
                int(row["kernels"]),
                float(row["dram_read"]),
            )
            for row in csv.DictReader(stream)
        ]


def mode(row: Recorded) -> str:
    """How the run was planned: an eager framework, or a compiler."""
    if row.variant == "compile":
        return "compiler"
    return "auto" if row.variant == "epilogue" else "library"


def text(row: Recorded) -> str:
    """The workload file of a recorded run."""
    q, inputs, ops, outputs = row.params, [], [], []
    element = q.get("dtype", "bf16")
    family = row.family

    def has(**shapes: str) -> None:
        inputs.extend(f"{name}: {shape}" for name, shape in shapes.items())

    def op(name: str, taken: str, out: str, more: str = "") -> None:
        ops.append(f"  - {{op: {name}, in: [{taken}], out: {out}{', ' + more if more else ''}}}")

    size = f"[{q['rows']}, {q['cols']}]" if "rows" in q else f"[{q['n']}]" if "n" in q else ""
    cols = f"[{q['cols']}]" if "cols" in q else ""
    if family == "chain":
        has(x=size)
        names = (
            CHAINS[q["ops"]]
            if row.id.startswith("chain")
            else {3: "mul add relu", 5: "mul add relu mul sigmoid"}[q["ops"]]
        )
        _chain(names.split(), op)
        outputs.append(f"t{q['ops']}")
    elif family == "chain_inplace":
        has(x=size)
        op("mul_", "x, 1.5", "a")
        op("add_", "a, 0.5", "b")
        op("relu_", "b", "c")
        outputs.append("c")
    elif family in ("relu_add", "relu_add_self"):
        has(x=size)
        if family == "relu_add":
            has(z=size)
        op("relu", "x", "a")
        op("add", "a, " + ("z" if family == "relu_add" else "x"), "y")
    elif family == "mul_sum":
        has(x=size)
        op("mul", "x, 1.5", "a")
        op("sum", "a", "y")
    elif family == "sum_twice":
        has(x=size)
        op("sum", "x", "a")
        op("sum", "x", "b")
    elif family in ("bias_gelu_dropout", "bias_silu"):
        has(x=size, b=cols)
        op("add", "x, b", "h")
        op("gelu" if "gelu" in family else "silu", "h", "y" if family == "bias_silu" else "g")
        if family == "bias_gelu_dropout":
            op("dropout", "g", "y", "p: 0.1" + (", train: true" if row.variant == "eager" else ""))
    elif family in ("resid_ln_dropout", "resid_ln", "resid_rmsnorm"):
        has(x=size, r=size, w=cols, b=cols)
        op("add", "x, r", "h")
        last = "n" if family == "resid_ln_dropout" else "y"
        op("rms_norm", "h, w", last) if "rms" in family else op("layer_norm", "h, w, b", last)
        if family == "resid_ln_dropout":
            op("dropout", "n", "y", "p: 0.1" + (", train: true" if row.variant == "eager" else ""))
        if "rms" in family:
            outputs.append("h")
        outputs.append("y")
    elif family == "manual_layernorm":
        has(x=size, r=size, w=cols, b=cols)
        op("add", "x, r", "h")
        op("mean", "h", "mean", "dim: -1, keepdim: true")
        op("var", "h", "var", "dim: -1, keepdim: true")
        op("sub", "h, mean", "c")
        op("mul", "w, c", "gc")
        op("add", "var, 1.0e-5", "v2")
        op("sqrt", "v2", "sd")
        op("div", "gc, sd", "d")
        op("add", "d, b", "y")
    elif family == "rmsnorm" and q.get("impl") == "F.rms_norm":
        has(x=size, w=cols)
        op("rms_norm", "x, w", "y")
    elif family == "rmsnorm":
        has(x=size, w=cols)
        x = "x"
        if q.get("impl"):
            op("float", "x", "f")
            x = "f"
        op("pow", x, "q", "exponent: 2")
        op("mean", "q", "m", "dim: -1, keepdim: true")
        op("add", "m, 1.0e-6", "e")
        op("rsqrt", "e", "s")
        op("mul", f"{x}, s", "n")
        if q.get("impl"):
            op("to", "n", "nb", f"dtype: {element}")
        op("mul", ("nb" if q.get("impl") else "n") + ", w", "y")
    elif family in ("softmax", "scaled_softmax"):
        has(x=size)
        if family == "scaled_softmax":
            op("mul", "x, 0.125", "a")
        op("softmax", "a" if family == "scaled_softmax" else "x", "y")
    elif family == "layernorm":
        has(x=size, w=cols, b=cols)
        op("layer_norm", "x, w, b", "y")
    elif family == "cross_entropy":
        has(x=size, t=f"{{shape: [{q['rows']}], dtype: int64}}")
        op("cross_entropy", "x, t", "loss")
    elif family in ("swiglu", "geglu"):
        has(g=size, u=size)
        op("silu" if family == "swiglu" else "gelu", "g", "s")
        op("mul", "s, u", "y")
    elif family == "rope":
        table = f"[1, 1, {q['seq']}, {q['d']}]"
        has(x=f"[{q['batch']}, {q['heads']}, {q['seq']}, {q['d']}]", c=table, s=table)
        op("rope", "x, c, s", "y")
    elif family == "cast":
        has(x=size)
        op("to", "x", "y", f"dtype: {q['to']}")
    elif family in ("rowsum", "colsum"):
        has(x=size)
        op("sum", "x", "y", f"dim: {-1 if family == 'rowsum' else 0}")
    elif family == "transpose":
        has(x=size)
        op("t", "x", "v")
        op("contiguous", "v", "y")
    elif family == "permute":
        has(x=f"[{q['seq']}, {q['heads'] * q['d']}]")
        op("view", "x", "v", f"shape: [1, {q['seq']}, {q['heads']}, {q['d']}]")
        op("transpose", "v", "w", "dim0: 1, dim1: 2")
        op("contiguous", "w", "y")
    elif family == "gemm":
        has(x=f"[{q['m']}, {q['k']}]", w=f"[{q['n']}, {q['k']}]")
        op("linear", "x, w", "y")
    elif family == "gemm_bias_gelu":
        has(x=f"[{q['m']}, {q['k']}]", w=f"[{q['n']}, {q['k']}]", b=f"[{q['n']}]")
        op("linear", "x, w, b", "h")
        op("gelu", "h", "y")
    elif family == "bmm":
        has(a=f"[{q['batch']}, {q['m']}, {q['k']}]", b=f"[{q['batch']}, {q['k']}, {q['n']}]")
        op("bmm", "a, b", "y")
    elif family == "qkv":
        has(x=f"[{q['m']}, {q['k']}]")
        if row.variant == "one":
            has(w=f"[{3 * q['n']}, {q['k']}]")
            op("linear", "x, w", "y")
        else:
            for name in "qkv":
                has(**{f"w{name}": f"[{q['n']}, {q['k']}]"})
                op("linear", f"x, w{name}", name)
    elif family in ("attention", "decode"):
        _attention(row, has, op)
    elif family == "attention_fwd_bwd":
        _attention_backward(row, has, op)
        outputs.extend(["dq", "dk", "dv"])
    elif family == "adamw":
        step = {"foreach": "multi-tensor"}.get(row.variant, row.variant)
        has(p=size, g=size, m=size, v=size)
        op("adamw", "p, g, m, v", "[p2, m2, v2]", f"step: {step}")
    elif family == "llama_block":
        _llama(row, has, op)
        outputs.append("y")
    else:
        raise AssertionError(f"{row.id}: no workload for family {family}")
    found = outputs or [ops[-1].split("out: ")[1].split("}")[0].split(",")[0]]
    if family == "qkv" and row.variant == "three":
        found = ["q", "k", "v"]
    if family == "sum_twice":
        found = ["a", "b"]
    if family == "adamw":
        found = ["p2", "m2", "v2"]
    return "\n".join(
        [
            f"name: {row.id}",
            f"dtype: {element}",
            "inputs:",
            *(f"  {line}" for line in inputs),
            "ops:",
            *ops,
            f"outputs: [{', '.join(found)}]",
        ]
    )


def _chain(names: list[str], op: Any) -> None:
    for index, name in enumerate(names):
        taken = "x" if index == 0 else f"t{index}"
        number = ", 0.5" if name in ("mul", "add", "sub") else ""
        op(name, f"{taken}{number}", f"t{index + 1}")


def _attention(row: Recorded, has: Any, op: Any) -> None:
    q = row.params
    queries = 1 if row.family == "decode" else q["seq"]
    has(q=f"[{q['batch']}, {q['heads']}, {queries}, {q['d']}]")
    for name in "kv":
        has(**{name: f"[{q['batch']}, {q['kv_heads']}, {q['seq']}, {q['d']}]"})
    if row.variant == "naive":
        op("transpose", "k", "kt")
        op("matmul", "q, kt", "s")
        op("mul", "s, 0.1", "a")
        op("softmax", "a", "p")
        op("matmul", "p, v", "o")
        return
    kernel = {"flash": "fa2", "cudnn": "fa3"}[row.variant]
    causal = "true" if q.get("causal") else "false"
    op("scaled_dot_product_attention", "q, k, v", "o", f"is_causal: {causal}, kernel: {kernel}")


def _attention_backward(row: Recorded, has: Any, op: Any) -> None:
    q = row.params
    shape = f"[{q['batch']}, {q['heads']}, {q['seq']}, {q['d']}]"
    has(q=shape, k=shape, v=shape, do=shape)
    causal = q.get("causal")
    if row.variant != "naive":
        kernel = {"flash": "fa2", "cudnn": "fa3"}[row.variant]
        more = f"is_causal: {'true' if causal else 'false'}, kernel: {kernel}"
        op("scaled_dot_product_attention", "q, k, v", "[o, lse]", more)
        op("scaled_dot_product_attention_backward", "do, q, k, v, o, lse", "[dq, dk, dv]", more)
        return
    if causal:
        has(mask=f"{{shape: [{q['seq']}, {q['seq']}], dtype: bool}}")
    op("transpose", "k", "kt")
    op("matmul", "q, kt", "s")
    op("mul", "s, 0.1", "a")
    if causal:
        op("masked_fill", "a, mask", "am")
    op("softmax", "am" if causal else "a", "p")
    op("matmul", "p, v", "o")
    op("transpose", "p", "pt")
    op("transpose", "v", "vt")
    op("matmul", "pt, do", "dv")
    op("matmul", "do, vt", "dp")
    op("mul", "dp, p", "pdp")
    op("softmax_backward", "pdp, p", "da")
    if causal:
        op("masked_fill", "da, mask", "dam", "value: 0")
    op("mul", ("dam" if causal else "da") + ", 0.1", "ds")
    op("transpose", "q", "qt")
    op("matmul", "qt, ds", "dkt")
    op("matmul", "ds, k", "dq")
    op("transpose", "dkt", "dk" if row.id.startswith("x_") else "dkv")
    if not row.id.startswith("x_"):  # accumulated into .grad: copied to the leaf's layout
        op("contiguous", "dkv", "dk")


def _llama(row: Recorded, has: Any, op: Any) -> None:
    """Two Llama layers as Hugging Face's model runs them: positions and rotary tables, then the layers."""
    q = row.params
    batch, seq, hidden, wide = q["batch"], q["seq"], q["hidden"], q["intermediate"]
    heads, kv_heads = q["heads"], q["kv_heads"]
    d = hidden // heads
    has(ids=f"{{shape: [{batch}, {seq}], dtype: int64}}", table=f"[32000, {hidden}]", w=f"[{hidden}]")
    has(freq=f"{{shape: [{batch}, {d // 2}, 1], dtype: fp32}}")
    weights = {"wq": (hidden, hidden), "wk": (kv_heads * d, hidden), "wv": (kv_heads * d, hidden)}
    weights |= {"wo": (hidden, hidden), "wg": (wide, hidden), "wu": (wide, hidden), "wd": (hidden, wide)}
    for layer in range(q["layers"]):
        has(**{f"{name}{layer}": f"[{n}, {k}]" for name, (n, k) in weights.items()})
    op("embedding", "table, ids", "x")
    _positions(batch, seq, op)
    if row.variant == "compile":  # and a mask in memory
        op("full", "", "zeros", f"shape: [{batch}, 1, {seq}, {seq}], dtype: bf16")
        op("reshape", "p10", "documents", f"shape: [{batch}, 1, 1, {seq}]")
        op("to", "documents", "documents16", "dtype: bf16")
        op("add", "zeros, documents16", "mask")
    x = "x"
    for i in range(q["layers"]):
        _rms(op, x, f"a{i}")
        for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            op("linear", f"a{i}, w{name}{i}", f"{name}f{i}")
            op("view", f"{name}f{i}", f"{name}c{i}", f"shape: [{batch}, {seq}, {count}, {d}]")
            op("transpose", f"{name}c{i}", f"{name}{i}", "dim0: 1, dim1: 2")
        for name in "qk":
            t = f"{name}{i}"
            op("mul", f"{t}, cos", f"{t}cos")
            op("chunk", t, f"[{t}a, {t}b]", "dim: -1")
            op("neg", f"{t}b", f"{t}n")
            op("cat", f"{t}n, {t}a", f"{t}r", "dim: -1")
            op("mul", f"{t}r, sin", f"{t}sin")
            op("add", f"{t}cos, {t}sin", f"{t}rot")
        k, v = f"k{i}rot", f"v{i}"
        if row.variant == "compile":  # the compiler's attention takes as many K and V heads as queries
            for name in (k, v):
                op("unsqueeze", name, f"{name}5", "dim: 2")
                op("expand", f"{name}5", f"{name}e", f"shape: [-1, -1, {heads // kv_heads}, -1, -1]")
                op("reshape", f"{name}e", f"{name}all", f"shape: [{batch}, {heads}, {seq}, {d}]")
            k, v = f"{k}all", f"{v}all, mask"
        op("scaled_dot_product_attention", f"q{i}rot, {k}, {v}", f"o{i}", "is_causal: true, kernel: fa3")
        op("transpose", f"o{i}", f"ot{i}", "dim0: 1, dim1: 2")
        op("reshape", f"ot{i}", f"of{i}", f"shape: [{batch}, {seq}, {hidden}]")
        op("linear", f"of{i}, wo{i}", f"proj{i}")
        op("add", f"{x}, proj{i}", f"h{i}")
        _rms(op, f"h{i}", f"b{i}")
        op("linear", f"b{i}, wg{i}", f"g{i}")
        op("silu", f"g{i}", f"s{i}")
        op("linear", f"b{i}, wu{i}", f"u{i}")
        op("mul", f"s{i}, u{i}", f"z{i}")
        op("linear", f"z{i}, wd{i}", f"d{i}")
        op("add", f"h{i}, d{i}", f"y{i}")
        x = f"y{i}"
    _rms(op, x, "y")


def _rms(op: Any, x: str, out: str) -> None:
    op("float", x, f"{out}f")
    op("pow", f"{out}f", f"{out}q", "exponent: 2")
    op("mean", f"{out}q", f"{out}m", "dim: -1, keepdim: true")
    op("add", f"{out}m, 1.0e-6", f"{out}e")
    op("rsqrt", f"{out}e", f"{out}s")
    op("mul", f"{out}f, {out}s", f"{out}n")
    op("to", f"{out}n", f"{out}b", "dtype: bf16")
    op("mul", f"w, {out}b", out)


def _positions(batch: int, seq: int, op: Any) -> None:
    """20 kernels of a few kilobytes: positions, which documents they belong to, cos and sin."""
    op("arange", "", "p0", f"shape: [{batch}, {seq}]")
    op("add", "p0, 0", "p1")
    op("add", "p1, 0", "p2")
    op("chunk", "p2", "[p2a, p2b]", "dim: -1")
    op("cat", "p2a, p2b", "p3", "dim: -1")
    op("sub", "p3, 1", "p4")
    op("ne", "p4, 1", "p5")
    op("to", "p5", "p6", "dtype: int64")
    op("cumsum", "p6", "p7")
    op("add", "p7, 0", "p8")
    op("eq", "p8, 0", "p9")
    op("to", "p9", "p10", "dtype: int64")
    op("reshape", "p2", "p11", f"shape: [{batch}, 1, {seq}]")
    op("float", "p11", "pos")
    op("matmul", "freq, pos", "angles")
    op("transpose", "angles", "angles_t")
    op("cat", "angles_t, angles_t", "emb", "dim: -1")
    for name in ("cos", "sin"):
        op(name, "emb", f"{name}1")
        op("mul", f"{name}1, 1.0", f"{name}2")
        op("to", f"{name}2", f"{name}3", "dtype: bf16")
        op("unsqueeze", f"{name}3", name, "dim: 1")
