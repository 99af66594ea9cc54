"""Writes docs/catalogue.md from the profiles: `python docs/generate_catalogue.py`. A test keeps it current."""

from __future__ import annotations

import re
from pathlib import Path

from iomodel.catalogue import configs_folder, load_profile
from iomodel.catalogue_tables import list_table, one_line, value_text
from iomodel.profile import Profile
from iomodel.render.markdown import table_to_markdown
from iomodel.table import Column, Table

PAGE = Path(__file__).with_name("catalogue.md")

#: Notes that say where public numbers differ.
DISPUTE = re.compile(r"\b(disputed|wrong|tables?|lists?|pages|marketing|sheets?)\b", re.IGNORECASE)

#: Roles whose names differ between vendors.
ROLES = {"memory.l2": "L2", "sm.shared_memory": "shared memory", "sm.count": "core"}

HEAD = """\
# The catalogue

<!-- Written by docs/generate_catalogue.py from configs/gpus/*.yaml: change those, then run it again. -->

{count} accelerators, each a YAML file in `configs/gpus/` in which every value has its source. On the command line:

```sh
iomodel gpus list --vendor nvidia --dtype fp8 --sort hbm   # filter and sort
iomodel gpus list --min-capacity 80GB --format csv         # every value, raw SI numbers
iomodel gpus show h100-sxm                                 # each value with its source, ridge points
iomodel gpus show a100-sxm-80gb,h100-sxm,h200              # side by side, ratios to the first
iomodel attention --seq 16k --gpu 'h*'                     # patterns work wherever a GPU is named
```

## The profiles

Memory bandwidth in GB/s and capacity in GB, both decimal; dense matrix rates in TFLOP/s (int8: TOP/s);
ridge: the arithmetic intensity in FLOP/B at which bf16 matrix units and memory take equally long; L2, or the
cache that plays its part, in MiB; board power in W. A dash: the GPU lacks it, or no reliable source was found.
"""

TAIL = """\
## What the numbers mean

**Dense, never sparse.** NVIDIA and AMD print matrix rates "with sparsity": twice what dense matrices reach.
The H100 is sold as 1979 TFLOP/s in bf16; here it has {h100_bf16}. Where the vendor prints both, the note of
the value says so. Two rates look as if they were still to be halved and are not: the {h20_bf16} of the H20 are
dense as printed, and MXFP4 and MXFP6 of the MI355X ({mi355x_fp4}) have no sparse mode.

**GB and GiB.** A GB is 1e9 bytes, a GiB 2^30, here and on the command line. DRAM is labelled in GB by its
vendors and kept so, though programs may see a little more or less. Caches and shared memory are counted in
powers of two, as the driver reports them: the H100's L2 is {h100_l2}.

**Per package, not per die.** A B200 is two dies, a Max 1550 two stacks: software sees one GPU, and the values
are of the whole. An MI250X is two GPUs to software, so there are two profiles: `mi250x` is the package,
`mi250x-gcd` what one process sees. GB200 and GB300 are one of the two GPUs of a superchip; the rack sheets
list pairs.

**Two clocks on Hopper.** Matrix peaks follow a lower clock than vector peaks: {h100_clock} and {h100_vector} on
the H100 SXM. `sm.clock` is that of the matrix units: `sm.count` x `sm.clock` x `sm.matmul_per_clock` is the bf16
rate within 2 % on NVIDIA's boards, but for the exceptions that `tests/test_catalogue.py` lists with reasons.

**GeForce halves fp32 accumulation.** The same tensor cores run fp16 and bf16 at half rate on GeForce boards
when they accumulate in fp32, as frameworks do. The RTX 4090 has {rtx4090_bf16} here; 330 is its rate with fp16
accumulation, or with sparsity. Workstation boards (RTX A6000, RTX PRO 6000, L40S) are not halved.

**B300 is not a faster B200.** Blackwell Ultra gives up int8 ({b200_int8} to {b300_int8}) and fp64
({b200_fp64} to {b300_fp64}) for fp4 ({b200_fp4} to {b300_fp4}) and doubles the rate of exponentials.

**fp32 on matrix units.** NVIDIA's have no such mode: fp32 products run on the vector units there, unless tf32
is asked for. AMD's data-centre parts have one.

**Launch costs and sustained shares** were measured on few GPUs. Others take them from their family
(`configs/families/`); `iomodel gpus show` marks each of these values with the family's name.

## Levels by role

The model knows three levels: DRAM, a cache shared by all cores, and scratch memory in a core. Vendors call
them differently, and some have no such level. Profiles are filled in by the part a level plays; `called:`
keeps the vendor's name, and `show` prints it.

- **L2**, `memory.l2`: the last cache that all cores share.
- **shared memory**, `sm.shared_memory`: scratch memory of one core, what one thread block may use.
- **core**, `sm.count`: what NVIDIA calls an SM.

{roles}

Where a level is missing (TPUs from v5 on have no cache between cores and HBM), so is the value: a kernel then
finds nothing that an earlier one left. `memory.l2_bandwidth` is a measurement where there is one, else the
vendor's figure (its source says which), and missing where there is neither. A question that needs a missing
rate ends with an error that lists the rates there are, never with a guess.

## Profiles of your own

A GPU can be named by the path of a YAML file: `--gpu ./mine.yaml`. Files in these folders are found by their
name alone; the first folder wins, and all of them win over the shipped catalogue:

1. the folders in `IOMODEL_CONFIGS` (separated by `:`, on Windows by `;`);
2. `iomodel/gpus` in the configuration folder: `$XDG_CONFIG_HOME`, `%APPDATA%`, or `~/.config`.

```sh
iomodel gpus new my-h100 --from h100-sxm    # my-h100.yaml, commented, every source still to fill in
iomodel gpus lint my-h100.yaml              # sparse rates, GiB for GB, bits, one die of two, no source
iomodel gpus from-ncu export.csv            # what an Nsight Compute export says of its GPU
```

`lint` exits with 2 when it finds an error. A file that loads but looks doubtful also gives a warning line on
stderr when it is used.

## Adding a GPU to the catalogue

1. `iomodel gpus new NAME --from` the closest GPU, `--output configs/gpus/NAME.yaml`.
2. Replace each value, with a source that others can find: a document and its table, a repository and its
   file. Delete what you cannot source. A derived value says how: `DERIVED: 132 SMs x ...`.
3. Where sources disagree, take the one closest to the hardware and start the note with `disputed:`.
4. `iomodel gpus lint configs/gpus/NAME.yaml`, then `python docs/generate_catalogue.py`, then the tests.

## Disputed and often mistaken

{disputes}
"""


def page() -> str:
    """The whole page."""
    profiles = {f.stem: load_profile(f) for f in sorted(configs_folder("gpus").glob("*.yaml"))}
    parts = [HEAD.format(count=len(profiles))]
    for vendor in sorted({p.vendor for p in profiles.values()}, key=lambda v: (v != "NVIDIA", v != "AMD", v)):
        own = {name: p for name, p in profiles.items() if p.vendor == vendor}
        parts.append(f"### {vendor}\n\n{table_to_markdown(list_table(own))}\n")
        without = [f"`{n}` {_rate(p, 'fp16')}" for n, p in own.items() if _lacks_bf16(p)]
        if without:
            parts.append(f"No bf16, but fp16: {', '.join(without)}.\n")
    values = {
        "h100_bf16": _rate(profiles["h100-sxm"], "bf16"),
        "h20_bf16": _rate(profiles["h20"], "bf16"),
        "mi355x_fp4": _rate(profiles["mi355x"], "fp4"),
        "h100_l2": value_text(profiles["h100-sxm"], "memory.l2"),
        "h100_clock": value_text(profiles["h100-sxm"], "sm.clock"),
        "h100_vector": value_text(profiles["h100-sxm"], "sm.vector_clock"),
        "rtx4090_bf16": _rate(profiles["rtx-4090"], "bf16"),
        **{f"{n}_{d}": _rate(profiles[n], d) for n in ("b200", "b300") for d in ("int8", "fp64", "fp4")},
    }
    parts.append(TAIL.format(roles=_roles(profiles), disputes=_disputes(profiles), **values))
    return "\n".join(parts)


def _lacks_bf16(profile: Profile) -> bool:
    return "bf16" not in profile.dtypes() and "fp16" in profile.dtypes()


def _rate(profile: Profile, dtype: str) -> str:
    return value_text(profile, f"compute.matmul:{dtype}")


def _roles(profiles: dict[str, Profile]) -> str:
    """Which vendor's name plays which part, on which GPUs."""
    rows = []
    for key, role in ROLES.items():
        names: dict[str, list[str]] = {}
        for name, profile in profiles.items():
            if key in profile and profile.values[key].called:
                names.setdefault(profile.values[key].called, []).append(name)
        rows += [(role, called, ", ".join(gpus)) for called, gpus in names.items()]
    return table_to_markdown(Table((Column("role"), Column("called"), Column("on")), tuple(rows)))


def _disputes(profiles: dict[str, Profile]) -> str:
    """The notes of profiles and values that say where public numbers differ."""
    lines = []
    for name, profile in profiles.items():
        said: dict[str, str] = {}
        for key, value in profile.values.items():
            if key not in profile.assumed and DISPUTE.search(value.note):
                said.setdefault(one_line(value.note), f"{key.partition('.')[2]}: ")
        said |= {one_line(note): "" for note in profile.notes if DISPUTE.search(note)}
        lines += [f"- `{name}` {key}{text}" for text, key in said.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
