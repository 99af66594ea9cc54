"""Finds workload files: the built-in ones in configs/workloads by name, a user's own by path."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iomodel.catalogue import configs_folder
from iomodel.errors import InputError, unknown
from iomodel.opgraph import Graph, read_graph
from iomodel.yamlfile import parse_yaml, read_yaml

#: Endings of other formats -> (module, function) that reads a path into a Graph. Loaded when used.
READERS: dict[str, tuple[str, str]] = {}


def workload_files() -> dict[str, Path]:
    """The built-in workloads, name (the file's stem) -> file."""
    return {file.stem: file for file in sorted(configs_folder("workloads").glob("*.yaml"))}


def find_graph(text: str, sizes: Mapping[str, Any] | None = None, dtype: str = "") -> Graph:
    """The graph that `iomodel graph` names: a file, a built-in workload, or (from Python) YAML text.

    >>> find_graph("residual-layernorm-dropout").outputs
    ('y',)
    """
    if "\n" in text:
        return read_graph(parse_yaml(text, "workload"), sizes, dtype)
    ending = Path(text).suffix.lower()
    if ending in READERS:
        if sizes or dtype:
            raise InputError(f"{text}: sizes and dtype stand in the file; only a YAML workload takes others")
        module, function = READERS[ending]
        found: Graph = getattr(importlib.import_module(module), function)(text)
        return found
    if ending in (".yaml", ".yml") or "/" in text or "\\" in text:
        return read_graph(read_yaml(text), sizes, dtype)
    files = workload_files()
    if text not in files:
        raise unknown("workload", text, files, "graph (a built-in name, or a path ending in .yaml)")
    return read_graph(read_yaml(files[text]), sizes, dtype)
