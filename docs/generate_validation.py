"""Writes docs/validation.md and its plot from the recorded rows: `python docs/generate_validation.py`.

A test keeps the page current. The plot needs the extra `plot`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from iomodel.catalogue import configs_folder, load_profile
from iomodel.measurements import Measured, kernel_times, shipped, workloads
from iomodel.recorded import unasked
from iomodel.render.markdown import table_to_markdown
from iomodel.table import Column, Table
from iomodel.units import show
from iomodel.validate import AGAINST, Comparison, Report, Writes, quantile, summarise, validate

PAGE = Path(__file__).with_name("validation.md")
PLOT = Path(__file__).with_name("validation.png")

#: Sets of rows: file, what it is.
SETS = {
    "h200_workloads": "one H200, first session: DRAM counters, kernel durations, graph replays",
    "h200_more": "one H200, two more sessions: more shapes of the same kinds",
    "h200_calibrate": "one H200: times only, by `iomodel calibrate`",
    "kernel_tables": "A100, H100, H200, L40S: a sample of aiconfigurator's kernel tables",
}

#: Kinds of kernels, by how a family's name begins, in the plot's order and colours.
KINDS = (
    ("decode", ("decode", "table decode"), "#D55E00"),
    ("prefill attention", ("attention", "table prefill"), "#0072B2"),
    ("GEMM", ("gemm", "bmm", "table gemm"), "#009E73"),
    ("streaming, norms, softmax", ("",), "#999999"),
)

#: Why rows are likely missed: figures (bytes or times), part of the row's name, reason; the first that fits.
BYTES, TIMES = "bytes", "times"
REASONS = (
    (BYTES, "c_flash", "causal FlashAttention-2 drifts; 5 to 30 % from run to run"),
    (BYTES, "16384x16384x16384", "12.7 to 16.8 GB from run to run"),
    (BYTES, "gemm", "which panels of a wave survive: the closed form is within 20 %"),
    (BYTES, "linear", "which panels of a wave survive: the closed form is within 20 %"),
    (BYTES, "_flash", "waves of blocks at the edge of L2"),
    (BYTES, "chain_bf16_n4096", "a few kB: code and parameters"),
    (BYTES, "layernorm", "part of the input was in L2 before the count began"),
    (TIMES, "decode", "constants are of an engine's kernel, with its splits and set-up"),
    (TIMES, "_cudnn", "constants are of an engine's kernel, which copies K and V and starts later"),
    (TIMES, "l40s", "found in 96 MB of L2 in part; or its library splits no K"),
    (TIMES, "gemm 257x", "fp8 with m no multiple of 16 runs at half speed; cause not established"),
    (TIMES, "compile", "generated code: varies by up to 40 % between compilations"),
    (TIMES, "gemm", "replayed products at the power limit run slower"),
    (TIMES, "linear", "replayed products at the power limit run slower"),
    (TIMES, "stream", "a short write or sum: fixed costs that the rule for streams leaves out"),
)

HEAD = """\
# Validation

<!-- Written by docs/generate_validation.py from configs/measurements: change those, then run it again. -->

How far the model is from {rows} recorded rows, {comparisons} figures in all. `iomodel validate` prints the same
from the rows that ship with the package, in under a second; `--data FILE` takes your own.

```sh
iomodel validate                                  # every family: median, 90th percentile, worst rows, bounds
iomodel validate --family attention --gpu h200    # some of them
iomodel validate --against roofline               # what a plain roofline says of the same rows
iomodel validate --held-out --json                # rows that fits leave out, for a script
iomodel validate --data rows.csv --gpu h200       # your own rows, in either format below
iomodel validate --profile my-h200.yaml           # with the profile that `iomodel calibrate` wrote
```

![Predicted against measured: DRAM reads on the left, times on the right, both on logarithmic axes](validation.png)

*Each dot is a figure of a row; the band is 20 % either way.*

## In short

{short}

The roofline is compulsory bytes and work at datasheet peaks. The rule of thumb is compulsory bytes at 0.8 of
the DRAM peak, work at its peak, and 3 us a launch. Both count each kernel's bytes once, so for DRAM reads they
are the same.

## What was measured, and how

{sets}

The H200 ran PyTorch 2.11 and CUDA 13 (driver 580) in November 2026, its clocks as found. Four ways of timing,
the column `figure` below:

- **counters**: kernel durations under Nsight Compute, in one pass with the DRAM counters
  (`dram__bytes_read.sum`, `dram__bytes_write.sum`), caches neither flushed nor locked by the profiler, L2
  filled with other clean lines before each workload. Compared with `expected - launch` on a cold L2.
- **queued**: CUDA events around one call behind a kernel that reads eight times L2, so that launches wait in
  the queue and leave no gaps. Compared with the same plus `launch.latency`.
- **graph**: a CUDA graph of the call, replayed back to back. Compared with `--launch graph --l2 warm`.
- **table**: the published latency, from replayed graphs: `--launch graph --l2 warm`. The GEMM benchmark rotates
  six weights, so its rows are between cold and warm by what six weights take of L2.

Elapsed times of single calls from Python (`us_cold`) hold what the program did between launches; they are only
used to check that no roofline is above them.

## Which rows the constants have seen

`Measured.held_out` splits rows by a hash of family and sizes, fixed in the code; `iomodel calibrate` fits on
the one half and reports both. The constants that ship are older than that rule:

- **Kernel tables** (GEMM, prefill, decode on A100, H100, H200, L40S): fitted on half of the rows by a hash of
  the raw row, so `--held-out` keeps rows of which about half were seen. Fitted again on the split in the code,
  medians on rows that were never seen are within about one point of those of the shipped constants (the table
  below), some better, some worse, so what is shipped was not replaced.
- **Streaming rates** (`dram`, `l2_per_clock`, `issue`, `floor`, `graph_overlap`): fitted on half of the
  streaming rows; the edges of L2 were set looking at all of them.
- **DRAM reads of attention and GEMM**: forms and constants were chosen looking at all rows of `h200_workloads`
  and `h200_more`. Only other shapes can judge them.
- **Nothing that ships was fitted on `h200_calibrate`**: its rows judge every shipped constant.
- **B200**: no constant is fitted on it; it takes Hopper's, scaled by published GEMM rates.

{refit}

## DRAM reads

Errors are |predicted / measured - 1|. `compulsory` is what both simple models say.

{reads}

## Times

{times}

## DRAM writes

The last lines that a plan writes are still in L2 when counting stops, so measured writes lie between each
kernel's writes less what L2 can hold, and 5 % more than its tensors. `in range` counts the rows that do (4 MB
either way: an earlier kernel's dirty lines); `off` is how far the model's own figure is from the counter.

{writes}

FlashAttention-2 writes 1.27 times its output at head dim 64 and 128 (not at 256, and no other kernel does; the
log-sum-exp is far too small to explain it). Its backward rows and the generated residual + layer norm + dropout
kernel write copies that their ops do not name. Those are the rows outside.

## Bounds

`seconds.roofline` may not be above any time measured on a cold cache, nor a single kernel's compulsory reads
above the counter. {violations}

## The rows that are missed most

{worst}

## One GPU, two sets of constants

`iomodel calibrate` ran on an H200 on 2026-11-29 (PyTorch 2.11.0+cu130, CUDA 13.0, cuDNN 9.19, driver
580.159.04; 302 workloads in 34 s). Its rows are `h200_calibrate.csv`, its profile `h200_calibrate.yaml`, both
in `configs/measurements/`. Attention constants that ship with `h200` are those of a serving engine's tables: K
and V are copied to the cache, and each call is set up by the engine. A kernel alone is faster, and the
calibrated profile is of kernels alone. On rows that neither has seen, and on the tables:

{calibrated}

So: `h200` for what an engine will show, the calibrated profile for the kernels themselves (`--gpu
configs/measurements/h200_calibrate.yaml`). Streaming constants agree within 5 % (`dram` 0.883 against 0.885,
`dram_write` 0.696 against 0.70, `issue` 0.726 against 0.745, L2 25.7 against 26.8 bytes an SM and clock). A
matrix product timed by events on that machine reaches 0.83 of the peak against 0.97 in the tables (cause not
established: power or clocks), so no GEMM constant was replaced either. The same suite run again a minute later:
medians of 0.1 to 1.5 % apart by family, at most 16 %.

## Calibrating your own GPU

```sh
pip install iomodel[measure]
iomodel calibrate                                 # my-NAME.csv and my-NAME.yaml, in under three minutes
iomodel calibrate --quick                         # a third of the workloads
iomodel calibrate --like h100-sxm                 # datasheet rates of another entry, if yours has none
iomodel calibrate --data my-h200.csv              # fit again from the rows, with no GPU
iomodel validate --data my-h200.csv --profile my-h200.yaml
```

It times streams, chains, norms, softmax, matrix products, prefill and decode attention and launches as PyTorch
runs them, cold (queued) and replayed (graph), with the clocks as they are. Facts about the chip come from the
driver, datasheet rates from the catalogue's entry of that name. Then few constants are fitted through the engine
itself, style by style, by robust least squares on log(predicted / measured), each within what is physically
possible; what the rows do not show stays where it was. DRAM bytes cannot be counted without a profiler, so
constants of residency stay the family's. Files are written at the end, whole or not at all.

## Known limits

- **Causal FlashAttention-2** re-reads K and V as its blocks drift apart: 5 to 30 % from run to run beyond a
  third of L2 a head. The Hopper kernel does not.
- **GEMM reads at 16384^3** came out between 12.7 and 16.8 GB in three sessions, 8192x28672x8192 between 4.8 and
  7.9.
- **Compiled kernels** vary by up to 40 % between autotuning runs of the same source; the model predicts none of
  them in particular.
- **Long matrix work replayed as a graph** meets the power limit and runs 10 to 25 % slower than single calls
  (`graph` rows of GEMMs and long prefill).
- **The kernel tables are a serving engine's**: prefill rows hold the copy of K and V to the cache, fp8 rows the
  quantisation of the activation, and the smallest rows what the engine sets up.
- **L40S**: small rows are found in its 96 MB of L2 in ways that six rotated weights describe roughly; its fp8
  library has no split-K.
- **Not compared**, since no one-line analysis covers them: {skipped}.

## Formats

Workloads, `iomodel validate --data` and `iomodel calibrate --data`, a row each: `id`, `family`, `variant`,
`params` (JSON: sizes and `dtype`), and any of `gpu`, `dram_read`, `dram_write` (bytes), `us_counters`,
`us_graph`, `us_queued`, `us_cold`, `us_launch` (microseconds), `how`. An empty or zero cell is not measured.
Families and the sizes they need:

| family | variant | params |
| --- | --- | --- |
| stream | copy, read, write, triad | n |
| chain | eager, compile | n, ops (3: scale, scale, relu; 5: and scale, sigmoid) |
| bias_gelu_dropout, bias_silu, resid_ln_dropout, layernorm, softmax, swiglu, geglu | eager, compile | rows, cols |
| relu_add | eager | n |
| gemm, bmm | eager, linear | m, n, k, batch |
| attention | flash, cudnn | batch, heads, kv_heads, seq, d, causal |
| decode | flash, cudnn | batch, heads, kv_heads, seq, d |
| launch | eager, stream, graph | |

Kernel times: `gpu`, `op` (`gemm`, `ctx`, `gen`), `dtype`, `latency_us`, with `m`, `n`, `k` or `batch_size`,
`isl`, `step`, `heads`, `kv_heads`, `head_dim`."""

#: Median and 90th percentile of |error| on the rows kept back, after `iomodel calibrate --data
#: configs/measurements/kernel_tables.csv --like GPU`, and the shipped constants' median on the same rows.
REFIT = (
    ("A100", "gemm bf16", 40, 5.77, 15.9, 6.18),
    ("A100", "prefill", 48, 3.09, 13.0, 2.48),
    ("A100", "decode", 49, 4.63, 12.3, 4.86),
    ("H100", "gemm bf16", 31, 4.88, 10.7, 4.25),
    ("H100", "prefill", 54, 3.32, 8.44, 3.46),
    ("H100", "decode", 49, 4.41, 9.80, 4.13),
    ("H200", "gemm bf16", 35, 6.58, 15.4, 6.14),
    ("H200", "prefill", 46, 4.82, 12.3, 5.02),
    ("H200", "decode", 58, 4.48, 9.95, 3.62),
    ("L40S", "gemm bf16", 49, 6.98, 20.2, 6.15),
    ("L40S", "prefill", 56, 5.26, 18.0, 4.32),
    ("L40S", "decode", 55, 3.25, 9.31, 3.56),
)

PERCENT = "1"


def page() -> str:
    """The whole page."""
    rows = shipped()
    reports = {against: validate(rows, against) for against in AGAINST}
    model = reports["model"]
    skipped = ", ".join(f"{name} ({count})" for name, count in unasked(rows).items())
    return HEAD.format(
        rows=len(rows),
        comparisons=len(model.comparisons),
        short=_short(reports),
        sets=_sets(),
        refit=_refit(),
        reads=_errors(reports, lambda c: c.figure == "DRAM read", ("model", "roofline"), ("model", "compulsory")),
        times=_errors(reports, lambda c: c.figure != "DRAM read", AGAINST, ("model", "roofline", "rule of thumb")),
        writes=_writes(model.writes),
        violations=_violations(model),
        worst=_worst(model.comparisons),
        calibrated=_calibrated(rows),
        skipped=skipped,
    )


def _percent(value: float) -> str:
    """A share in percent: one decimal below ten, none above."""
    return f"{100 * value:.1f}" if value < 0.0995 else f"{100 * value:.0f}"


def _pair(errors: Sequence[float]) -> str:
    """Median / 90th percentile in percent."""
    return f"{_percent(quantile(errors, 0.5))} / {_percent(quantile(errors, 0.9))}" if errors else "-"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    columns = tuple(Column(head) for head in heads)
    return table_to_markdown(Table(columns, tuple(tuple(str(cell) for cell in row) for row in rows)))


def _short(reports: dict[str, Report]) -> str:
    """The page in one table: a few groups of figures, the three predictors side by side."""
    groups = (
        ("DRAM reads, H200", lambda c: c.figure == "DRAM read"),
        (
            "streaming kernels, norms, softmax, H200, eager",
            lambda c: c.figure in ("counters", "graph", "queued") and _is_eager(c),
        ),
        ("GEMM, bf16, four GPUs", lambda c: c.row.family == "table gemm bf16"),
        ("prefill attention, bf16, four GPUs", lambda c: c.row.family == "table prefill"),
        ("decode attention, bf16, four GPUs", lambda c: c.row.family == "table decode"),
        ("GEMM, fp8, three GPUs", lambda c: c.row.family == "table gemm fp8"),
    )
    body = []
    for name, wanted in groups:
        errors = [[abs(c.error) for c in reports[a].comparisons if wanted(c)] for a in AGAINST]
        body.append((name, len(errors[0]), *(_pair(e) for e in errors)))
    heads = ("median / 90th percentile of the error, %", "figures", "model", "roofline", "rule of thumb")
    return _table(heads, body)


def _is_eager(one: Comparison) -> bool:
    return _kind(one.row) == KINDS[-1][0] and one.row.variant != "compile"


def _kind(row: Measured) -> str:
    return next(name for name, starts, _ in KINDS if row.family.startswith(starts))


def _sets() -> str:
    folder = configs_folder("measurements")
    body = []
    for name, what in SETS.items():
        path = str(folder / f"{name}.csv")
        rows = kernel_times(path) if name == "kernel_tables" else workloads(path, "h200")
        body.append((f"`{name}.csv`", len(rows), what))
    source = "github.com/ai-dynamo/aiconfigurator, Apache-2.0"
    return _table(("file", "rows", "what"), body) + f"\n\nThe kernel tables are from {source}."


def _refit() -> str:
    heads = ("GPU", "family", "rows kept back", "fitted on the others, %", "shipped, median %")
    return _table(heads, ((g, f, n, f"{m:.1f} / {p:.0f}", f"{s:.1f}") for g, f, n, m, p, s in REFIT))


def _errors(reports: dict[str, Report], wanted: Any, against: Sequence[str], heads: Sequence[str]) -> str:
    """Median / 90th percentile by family and figure, each predictor a column; the model's worst too."""
    tables = {a: summarise([c for c in reports[a].comparisons if wanted(c)]) for a in against}
    body = []
    for index, one in enumerate(tables["model"]):
        cells = []
        for a in against:
            other = tables[a][index]
            assert (other.family, other.figure) == (one.family, one.figure)
            cells.append(f"{_percent(other.median)} / {_percent(other.p90)}")
        figure = () if one.figure == "DRAM read" else (one.figure,)
        family = one.family.removeprefix("table ")
        body.append((family, *figure, one.rows, *cells, _percent(one.worst)))
    first = ("family", "figure") if tables["model"][0].figure != "DRAM read" else ("family",)
    return _table((*first, "rows", *(f"{head}, %" for head in heads), "model's worst, %"), body)


def _writes(writes: Sequence[Writes]) -> str:
    groups: dict[str, list[Writes]] = {}
    for one in writes:
        groups.setdefault(one.family, []).append(one)
    body = []
    for family, members in groups.items():
        off = [abs(one.predicted - one.measured) for one in members]
        inside = sum(one.inside for one in members)
        body.append((family, len(members), inside, show(quantile(off, 0.5), "bytes"), show(max(off), "bytes")))
    return _table(("family", "rows", "in range", "median off", "most off"), body)


def _violations(report: Report) -> str:
    if not report.violations:
        return "None is."
    listed = "\n".join(f"- {text}" for text in report.violations)
    why = (
        "Part of that input was still in L2 from before the count: the library's norm kernel reads a row twice,\n"
        "and lines that were hit survive a later stream."
    )
    return f"{len(report.violations)} {'is' if len(report.violations) == 1 else 'are'}:\n\n{listed}\n\n{why}"


def _worst(comparisons: Sequence[Comparison]) -> str:
    body = []
    groups = {
        "DRAM reads": [c for c in comparisons if c.figure == "DRAM read"],
        "H200 times": [c for c in comparisons if c.figure in ("counters", "graph", "queued")],
        "kernel tables": [c for c in comparisons if c.figure == "table"],
    }
    for members in groups.values():
        for one in sorted(members, key=lambda c: -abs(c.error))[:10]:
            unit = "bytes" if one.figure == "DRAM read" else "s"
            values = (show(one.predicted, unit), show(one.measured, unit))
            body.append((one.row.name, one.figure, *values, f"{100 * one.error:+.0f}", _reason(one)))
    return _table(("row", "figure", "predicted", "measured", "error, %", "likely why"), body)


def _reason(one: Comparison) -> str:
    figure = BYTES if one.figure == "DRAM read" else TIMES
    return next((why for of, part, why in REASONS if of == figure and part in one.row.name), "not known")


def _calibrated(rows: Sequence[Measured]) -> str:
    """The shipped and the calibrated profile on the same rows of the H200."""
    profiles = (load_profile("h200"), load_profile(configs_folder("measurements") / "h200_calibrate.yaml"))
    own = [row for row in rows if row.gpu == "h200"]
    reports = [validate(own, profile=profile).comparisons for profile in profiles]
    body: list[tuple[Any, ...]] = []

    def add(name: str, figure: str, wanted: Any) -> None:
        errors = [[abs(c.error) for c in found if c.figure == figure and wanted(c.row)] for found in reports]
        body.append((name, figure, len(errors[0]), *(_pair(e) for e in errors)))

    def before(row: Measured) -> bool:
        return not row.name.startswith("cal_")

    def kept(row: Measured) -> bool:
        return row.name.startswith("cal_") and row.held_out

    streaming = KINDS[-1][0]
    families = (
        ("prefill, Hopper kernel", lambda r: (r.family, r.variant) == ("attention", "cudnn")),
        ("prefill, FlashAttention-2", lambda r: (r.family, r.variant) == ("attention", "flash")),
        ("decode, cuDNN", lambda r: (r.family, r.variant) == ("decode", "cudnn")),
        ("GEMM", lambda r: r.family == "gemm"),
        ("streaming, eager", lambda r: _kind(r) == streaming and r.variant != "compile"),
    )
    for name, is_one in families:
        add(f"{name}: earlier sessions", "counters", lambda r, f=is_one: before(r) and f(r))
        add(f"{name}: kept back", "queued", lambda r, f=is_one: kept(r) and f(r))
        add(f"{name}: kept back", "graph", lambda r, f=is_one: kept(r) and f(r))
    for family in ("gemm bf16", "prefill", "decode"):
        add(f"{family}: an engine's table", "table", lambda r, f=f"table {family}": r.family == f)
    return _table(("rows", "figure", "n", "`h200`, %", "calibrated, %"), body)


def plot(path: Path) -> None:
    """Predicted against measured: DRAM reads, and times."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    comparisons = validate(shipped()).comparisons
    figure, axes = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
    panels = (
        (axes[0], "DRAM reads, H200", "bytes", [c for c in comparisons if c.figure == "DRAM read"]),
        (axes[1], "Times, four GPUs", "s", [c for c in comparisons if c.figure != "DRAM read"]),
    )
    for ax, title, unit, members in panels:
        low = 0.6 * min(min(c.measured, c.predicted) for c in members)
        high = 1.6 * max(max(c.measured, c.predicted) for c in members)
        ax.fill_between([low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high], color="#EEEEEE", zorder=0)
        ax.plot([low, high], [low, high], color="#666666", linewidth=0.8, zorder=1)
        for name, _, colour in reversed(KINDS):
            own = [c for c in members if _kind(c.row) == name]
            ax.scatter(
                [c.measured for c in own],
                [c.predicted for c in own],
                s=11,
                color=colour,
                alpha=0.55,
                linewidths=0,
                label=f"{name} ({len(own)})",
                zorder=2,
            )
        ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal", title=title)
        ax.set(xlabel="measured", ylabel="predicted")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(
                lambda value, _, unit=unit: show(value, unit).replace(".00", "").replace(".0", "")
            )
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="upper left", frameon=False, fontsize=9, markerscale=1.8, handletextpad=0.2)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    plot(PLOT)
