"""iomodel: how many bytes must cross HBM, how many will, how long that takes, what binds, and what fusing saves.

>>> import iomodel
>>> result = iomodel.attention(seq=16384, gpu="h100-sxm")["io-lower-bound"]
>>> result.estimate.bytes.compulsory
536870912.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from iomodel.analysis.attention import attention as attention
    from iomodel.analysis.chain import chain as chain
    from iomodel.analysis.cross_entropy import cross_entropy as cross_entropy
    from iomodel.analysis.decode import decode as decode
    from iomodel.analysis.gemm import gemm as gemm
    from iomodel.analysis.graph import graph as graph
    from iomodel.analysis.optimizer import optimizer as optimizer
    from iomodel.catalogue import load_profile as load_profile
    from iomodel.errors import InputError as InputError
    from iomodel.errors import IomodelError as IomodelError
    from iomodel.errors import MachineError as MachineError
    from iomodel.sweeping import sweep as sweep

#: Public name -> module that holds it. Loaded on first use, so that importing iomodel costs nothing.
_PUBLIC = {
    "attention": "iomodel.analysis.attention",
    "chain": "iomodel.analysis.chain",
    "decode": "iomodel.analysis.decode",
    "gemm": "iomodel.analysis.gemm",
    "graph": "iomodel.analysis.graph",
    "cross_entropy": "iomodel.analysis.cross_entropy",
    "optimizer": "iomodel.analysis.optimizer",
    "sweep": "iomodel.sweeping",
    "load_profile": "iomodel.catalogue",
    "InputError": "iomodel.errors",
    "IomodelError": "iomodel.errors",
    "MachineError": "iomodel.errors",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'iomodel' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
