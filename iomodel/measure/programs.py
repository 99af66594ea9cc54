"""Workloads as PyTorch programs: library kernels called as a framework calls them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from iomodel.measure.suite import Workload

#: A call to time. Its inputs exist already; what it returns may be dropped.
Program = Callable[[], Any]


def build(workload: Workload, torch: Any) -> Program:
    """The program of a workload, its inputs drawn at random on the GPU."""
    return _BUILDERS[workload.family](workload.variant, workload.params, torch)


def _random(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _stream(variant: str, p: Mapping[str, Any], torch: Any) -> Program:
    if variant == "write":
        out = torch.empty(p["n"], device="cuda", dtype=torch.bfloat16)
        return lambda: out.fill_(1.5)
    x = _random(torch, p["n"])
    if variant == "read":
        return lambda: torch.sum(x)
    out = torch.empty_like(x)
    if variant == "copy":  # a kernel, where copy_ would call the driver's own copy
        return lambda: torch.mul(x, 1.5, out=out)
    z = _random(torch, p["n"])
    return lambda: torch.add(x, z, out=out)


def _chain(variant: str, p: Mapping[str, Any], torch: Any) -> Program:
    del variant
    x, ops = _random(torch, p["n"]), p["ops"]

    def run() -> Any:
        y = torch.relu((x * 1.5) + 0.5)
        return torch.sigmoid(y * 0.7) if ops == 5 else y

    return run


def _rows(variant: str, p: Mapping[str, Any], torch: Any, family: str) -> Program:
    del variant
    rows, cols = p["rows"], p["cols"]
    x = _random(torch, rows, cols)
    f = torch.nn.functional
    if family == "softmax":
        return lambda: f.softmax(x, -1)
    if family == "layernorm":
        weight, bias = _random(torch, cols), _random(torch, cols)
        return lambda: f.layer_norm(x, (cols,), weight, bias)
    if family == "bias_silu":
        bias = _random(torch, cols)
        return lambda: f.silu(x + bias)
    if family == "bias_gelu_dropout":
        bias = _random(torch, cols)
        return lambda: f.dropout(f.gelu(x + bias), 0.1, True)
    gate = _random(torch, rows, cols)
    activation = f.silu if family == "swiglu" else f.gelu
    return lambda: activation(x) * gate


def _gemm(variant: str, p: Mapping[str, Any], torch: Any) -> Program:
    del variant
    x, weight = _random(torch, p["m"], p["k"]), _random(torch, p["n"], p["k"])
    return lambda: torch.nn.functional.linear(x, weight)


def _attend(variant: str, p: Mapping[str, Any], torch: Any, decode: bool) -> Program:
    attention = importlib.import_module("torch.nn.attention")
    backend = {
        "flash": attention.SDPBackend.FLASH_ATTENTION,
        "cudnn": attention.SDPBackend.CUDNN_ATTENTION,
    }[variant]
    q = _random(torch, p["batch"], p["heads"], 1 if decode else p["seq"], p["d"])
    k, v = (_random(torch, p["batch"], p["kv_heads"], p["seq"], p["d"]) for _ in range(2))
    grouped = p["kv_heads"] < p["heads"]
    causal = p.get("causal", False)

    def run() -> Any:
        with attention.sdpa_kernel([backend]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return run


def _attention(variant: str, p: Mapping[str, Any], torch: Any) -> Program:
    return _attend(variant, p, torch, decode=False)


def _decode(variant: str, p: Mapping[str, Any], torch: Any) -> Program:
    return _attend(variant, p, torch, decode=True)


def _rows_of(family: str) -> Callable[[str, Mapping[str, Any], Any], Program]:
    return lambda variant, p, torch: _rows(variant, p, torch, family)


_BUILDERS: Mapping[str, Callable[[str, Mapping[str, Any], Any], Program]] = {
    "stream": _stream,
    "chain": _chain,
    "gemm": _gemm,
    "attention": _attention,
    "decode": _decode,
    **{
        family: _rows_of(family)
        for family in ("softmax", "layernorm", "bias_silu", "bias_gelu_dropout", "swiglu", "geglu")
    },
}
