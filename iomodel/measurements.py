"""Recorded measurements: the rows that ship with the package, and files of one's own in the same formats."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iomodel.catalogue import configs_folder
from iomodel.errors import InputError
from iomodel.yamlfile import read_text

#: Ways of timing a workload, as the `us_` columns name them. `counters`: kernel durations under a
#: profiler, L2 cold. `graph`: a replayed graph, back to back, L2 warm. `cold`: one call as a program
#: makes it, L2 flushed, launch gaps included. `queued`: the same with its launches waiting behind the
#: flush, so without gaps. `launch`: what one launch costs.
WAYS = ("counters", "graph", "cold", "queued", "launch")

#: Columns that tell the two formats apart.
WORKLOAD_COLUMNS = ("id", "family", "variant", "params")
KERNEL_COLUMNS = ("gpu", "op", "dtype", "latency_us")

LARGEST_FILE = 64_000_000


@dataclass(frozen=True)
class Measured:
    """One measured workload: what ran, DRAM bytes by counter, seconds by way of timing; `how` says
    with what it was taken."""

    name: str
    family: str
    variant: str
    gpu: str
    params: Mapping[str, Any]
    dram_read: float | None
    dram_write: float | None
    seconds: Mapping[str, float]
    how: str = ""

    @property
    def held_out(self) -> bool:
        """Whether a fit must leave the row out: by a hash of what ran, fixed for good."""
        key = json.dumps([self.family, dict(sorted(self.params.items()))])
        return int(hashlib.sha256(key.encode()).hexdigest()[-1], 16) % 2 == 1


def read_rows(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    try:
        return list(csv.DictReader(io.StringIO(read_text(path, largest=LARGEST_FILE))))
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None


def shipped() -> list[Measured]:
    """All recorded rows: H200 workloads with counters and times, and kernel times of four GPUs."""
    folder = configs_folder("measurements")
    rows: list[Measured] = []
    for name in ("h200_workloads", "h200_more", "h200_calibrate"):
        rows += workloads(str(folder / f"{name}.csv"), "h200")
    return rows + kernel_times(str(folder / "kernel_tables.csv"))


def read_measurements(path: str, gpu: str = "") -> list[Measured]:
    """The rows of a file in either format; `gpu` is for rows that do not name theirs."""
    rows = read_rows(path)
    if not rows:
        raise InputError(f"{path}: no rows; the first line names the columns")
    if set(WORKLOAD_COLUMNS) <= set(rows[0]):
        return workloads(path, gpu)
    if set(KERNEL_COLUMNS) <= set(rows[0]):
        return kernel_times(path)
    raise InputError(
        f"{path}:1: neither a file of workloads (columns {', '.join(WORKLOAD_COLUMNS)}, us_...) "
        f"nor of kernel times (columns {', '.join(KERNEL_COLUMNS)}, ...)"
    )


def workloads(path: str, gpu: str) -> list[Measured]:
    """Rows in the format of `h200_workloads.csv`: a workload each, its sizes as JSON in `params`."""
    found = []
    for number, row in enumerate(read_rows(path), 2):
        name = row.get("id") or "?"
        try:
            params = json.loads(row["params"])
            if not isinstance(params, dict):
                raise ValueError(f"params {row['params']!r}: not a JSON object")
            seconds = {way: amount * 1e-6 for way in WAYS if (amount := _amount(row, f"us_{way}"))}
            read, write = _amount(row, "dram_read"), _amount(row, "dram_write")
            own = row.get("gpu") or gpu
            if not own:
                raise ValueError("which GPU it ran on: add a column gpu, or name it (--gpu; calibrate: --like)")
            found.append(
                Measured(
                    name,
                    row["family"],
                    row["variant"],
                    own,
                    params,
                    read or None,
                    write if read else None,
                    seconds,
                    row.get("how") or "",
                )
            )
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"{path}:{number}: row {name}: cannot read {error}") from None
    return found


def _amount(row: Mapping[str, str], column: str) -> float:
    """A cell as a number from 0 up; an empty or missing one is 0, not measured."""
    text = row.get(column)
    if not text:
        return 0.0
    amount = float(text)
    if not (math.isfinite(amount) and amount >= 0):
        raise ValueError(f"{column} {text!r}: not a number from 0 up")
    return amount


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
            latency = _amount(row, "latency_us")
            if not latency:
                raise ValueError("latency_us: it is not above zero")
            seconds = {"table": latency * 1e-6}
            found.append(Measured(name, f"table {family}", "", row["gpu"], params, None, None, seconds))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{path}:{number}: cannot read {error}") from None
    return found
