"""A GPU as the model sees it: resources with rates, capacities and costs, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from iomodel.arrays import Number
from iomodel.errors import InputError, unknown
from iomodel.tensor import BITS, MATMUL_AS
from iomodel.units import DIMENSIONS, parse_quantity

#: Every key a profile may hold -> the dimension of its value. `compute.` keys are listed per dtype.
SCHEMA: dict[str, str] = {
    "memory.hbm": "bytes/s",
    "memory.capacity": "bytes",
    "memory.l2": "bytes",
    "memory.l2_bandwidth": "bytes/s",
    "sm.count": "1",
    "sm.shared_memory": "bytes",
    "sm.registers": "bytes",
    "sm.max_threads": "1",
    "sm.clock": "Hz",
    "sm.vector_clock": "Hz",
    "sm.lanes": "1",
    "sm.issue": "1",
    "sm.matmul_per_clock": "FLOP",
    "sm.exp_per_clock": "1",
    "launch.eager": "s",
    "launch.stream": "s",
    "launch.graph": "s",
    "launch.latency": "s",
    "board.tdp": "W",
    "board.interconnect": "bytes/s",
}
SCHEMA |= {f"compute.matmul:{dtype}": "FLOP/s" for dtype in BITS if dtype not in MATMUL_AS}
SCHEMA |= {f"compute.vector:{dtype}": "FLOP/s" for dtype in ("fp64", "fp32", "fp16", "bf16")}

#: Without these there is no roofline.
REQUIRED = ("memory.hbm",)

#: Constants that measurement gives: what well-made kernels reach. Name -> (dimension, what it is).
SUSTAINED: dict[str, tuple[str, str]] = {
    "dram": ("1", "share of the DRAM peak that streaming kernels reach"),
    "dram_write": ("1", "share of the DRAM peak that writes alone reach"),
    "l2_per_clock": ("1", "bytes an SM and clock that L2 delivers to streaming kernels"),
    "issue": ("1", "share of SMs x lanes x clock at which instructions issue"),
    "floor": ("s", "what a kernel takes however little it does"),
    "graph_overlap": ("s", "how much of that floor a replayed graph hides"),
    "l2_edge_low": ("1", "share of L2 up to which what was touched since a last use is found there"),
    "l2_edge_high": ("1", "share of L2 from which nothing is found there"),
    "l2_keep": ("1", "share of L2 that still holds the last bytes touched when a plan ends"),
    "l2_dirty": ("1", "share of L2 that lines not yet written back fill when a plan ends"),
    "l2_dirty_low": ("1", "share of L2 up to which lines written and overwritten never reach DRAM"),
    "l2_dirty_high": ("1", "share of L2 from which all of them do"),
    "code_read": ("bytes", "what a kernel reads of its own code and parameters"),
    "row_slip": ("1", "footprint of rows in flight, relative to rows moving in step"),
}
for _style, _name in (("fa2", "FlashAttention-2"), ("fa3", "FlashAttention-3 class")):
    SUSTAINED |= {
        f"{_style}.matmul": ("1", f"share of the matrix peak of {_name} kernels at head dim 128"),
        f"{_style}.memory": ("1", f"share of the DRAM peak of {_name} kernels"),
        f"{_style}.append": (
            "1",
            "share of the DRAM peak at which new K and V are copied to the cache; 0: they are not",
        ),
        f"{_style}.floor": ("s", f"what a {_name} kernel takes however little it does"),
        f"{_style}.start": ("1", "tiles of 128 keys that beginning and ending a thread block costs"),
        f"{_style}.tail": ("1", "share of the longest thread block that nothing overlaps"),
        f"{_style}.d64": ("1", "speed at head dim 64 relative to 128"),
        f"{_style}.d256": ("1", "speed at head dim 256 relative to 128"),
        f"{_style}.backward": ("1", "speed of the backward kernel relative to the forward one"),
        f"{_style}.ctas": ("1", "thread blocks resident an SM"),
        f"{_style}.l2_low": (
            "1",
            "K and V in flight, as a share of L2, up to which the next wave finds them there",
        ),
        f"{_style}.l2_high": ("1", "share from which the next wave finds nothing"),
        f"{_style}.drift": ("1", "causal: how fast re-reads grow as thread blocks drift apart"),
    }
SUSTAINED |= {
    "fa3.drift_low": ("1", "causal: share of L2 up to which drifting blocks re-read nothing"),
    "decode.matmul": ("1", "share of the matrix peak of decode attention on padded tiles"),
    "decode.memory": ("1", "share of the DRAM peak of decode attention"),
    "decode.floor": ("s", "what decode attention takes however short the cache"),
    "decode.split": ("s", "what splitting and combining costs"),
    "decode.per_split": ("s", "what each part of a cache costs on top"),
    "decode.start": ("1", "steps of 64 keys that beginning and ending a thread block costs"),
    "decode.rows": ("1", "rows that the query heads of one K/V head are padded to"),
    "bound.matmul": ("1", "share of the matrix peak of a kernel that only has to compute"),
    "bound.memory": ("1", "share of the DRAM peak of a kernel that only has to move"),
    "matmul.matmul": ("1", "share of the matrix peak of GEMM tiles"),
    "matmul.matmul_fp8": ("1", "the same for fp8"),
    "matmul.memory": ("1", "share of the DRAM peak of GEMM kernels"),
    "matmul.floor": ("s", "what a GEMM kernel takes however little it does"),
    "matmul.l2_per_flop": ("1", "bytes that SMs get from L2 per FLOP of the bf16 peak"),
    "matmul.split": ("s", "what reducing the parts of a split K costs"),
    "matmul.split_k": ("1", "least K that a thread block takes"),
    "matmul.power": ("1", "how much long matrix work slows as it meets the power limit"),
    "matmul.power_time": ("s", "after how long half of that shows"),
    "matmul.quantize": ("s", "what the kernel takes that quantises A before an 8-bit product, as engines call it"),
    "matmul.quantize_row": ("s", "the same, for each round of rows over the SMs"),
    "matmul.quantize_element": ("s", "the same, for each element of such a row"),
    "matmul.tile_m": ("1", "rows of C that share one read of B's panel"),
    "matmul.tile_n": ("1", "columns of C that share one read of A's panel"),
    "matmul.short_side": ("1", "short side of a wave of tiles over the side of the square of its area"),
    "matmul.panels": ("1", "waves of panels that must stay in L2 next to an operand for it to be found there"),
    "matmul.l2_reach": ("1", "footprint over L2 at which 71 % of re-reads miss"),
    "matmul.l2_drift": ("1", "panels x sqrt(waves) over L2 at which drift along K costs half a second reading"),
}


@dataclass(frozen=True, slots=True)
class Value:
    """One number of a profile: SI amount, its source, and a note where one is due."""

    amount: Number
    dimension: str
    source: str
    note: str = ""
    called: str = ""
    fitted_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """A GPU. Values are keyed by dotted path (`memory.hbm`, `compute.matmul:bf16`, `sm.count`).

    Rates and capacities go by role, not by one vendor's names: `memory.l2` is the last cache that
    all cores share and `sm.shared_memory` the scratch memory of one core; `Value.called` keeps the
    vendor's name. Constants in `sustained.*` that were not measured on this GPU come from its
    family; `assumed` says which.
    """

    name: str
    values: Mapping[str, Value]
    vendor: str = ""
    architecture: str = ""
    title: str = ""
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __getitem__(self, key: str) -> Number:
        """The SI amount of one value; a missing one is an error that lists what the profile has."""
        try:
            return self.values[key].amount
        except KeyError:
            raise self._missing(key) from None

    def rate(self, resource: str) -> Number:
        """Datasheet rate of a resource: `dram`, `l2`, `matmul:<dtype>`, `vector:<dtype>`, `exp`, `issue`."""
        if resource == "dram":
            return self["memory.hbm"]
        if resource == "l2":
            return self["memory.l2_bandwidth"]
        if resource == "issue":
            per_clock = self["sm.issue" if "sm.issue" in self else "sm.lanes"]
            return self["sm.count"] * per_clock * self.clock()
        if resource == "exp":
            return self["sm.count"] * self["sm.exp_per_clock"] * self.clock()
        unit, _, dtype = resource.partition(":")
        key = f"compute.{unit}:{MATMUL_AS.get(dtype, dtype)}"
        if key == "compute.matmul:fp32" and key not in self:
            key = "compute.vector:fp32"  # GPUs without fp32 matrix units multiply fp32 on the vector units
        return self[key]

    def clock(self) -> Number:
        """The clock of the vector units, Hz: `sm.vector_clock`, or `sm.clock` where there is but one."""
        return self["sm.vector_clock" if "sm.vector_clock" in self else "sm.clock"]

    def has_rate(self, resource: str) -> bool:
        """Whether `rate` would answer."""
        try:
            self.rate(resource)
        except InputError:
            return False
        return True

    def dtypes(self) -> list[str]:
        """dtypes with a matrix rate, in the order of the profile."""
        prefix = "compute.matmul:"
        return [key.removeprefix(prefix) for key in self.values if key.startswith(prefix)]

    def runs(self, variant: str) -> bool:
        """Whether a kernel design that only some architectures can run (`fa3`) runs here."""
        return variant != "fa3" or self.architecture in ("hopper", "blackwell")

    def ridge_point(self, dtype: str, level: str = "dram") -> Number:
        """Arithmetic intensity at which the matrix units and a memory level take equally long, FLOP/B.

        Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
        """
        return self.rate(f"matmul:{dtype}") / self.rate(level)

    def override(self, key: str, amount: Number, source: str = "set for this run") -> Profile:
        """A copy with one value replaced; `key` is a path or its last word (`hbm`, `launch.eager`)."""
        path = resolve_key(key)
        values = dict(self.values)
        values[path] = Value(amount, dimension(path), source)
        assumed = {name: family for name, family in self.assumed.items() if name != path}
        return replace(self, values=values, assumed=assumed)

    def _missing(self, key: str) -> InputError:
        section, _, leaf = key.partition(".")
        unit, _, dtype = leaf.partition(":")
        if section == "compute":
            have = [k.split(":")[1] for k in self.values if k.startswith(f"compute.{unit}:")]
            return InputError(
                f"{self.name} has no {dtype} {unit} rate; it has {unit} rates for: {', '.join(have) or 'none'}"
            )
        return InputError(f"{self.name} has no {key}; add it to its profile, or pass --set {key}=QUANTITY")


def dimension(path: str) -> str:
    """The dimension of the value at a path."""
    section, _, name = path.partition(".")
    return SUSTAINED[name][0] if section == "sustained" else SCHEMA[path]


def resolve_key(key: str) -> str:
    """The full path of a key that may be given by its last word.

    >>> resolve_key("hbm"), resolve_key("eager"), resolve_key("matmul:bf16"), resolve_key("sm.count")
    ('memory.hbm', 'launch.eager', 'compute.matmul:bf16', 'sm.count')
    """
    paths = [*SCHEMA, *(f"sustained.{name}" for name in SUSTAINED)]
    if key in paths:
        return key
    matches = [path for path in paths if path.partition(".")[2] == key]
    if not matches:
        raise unknown("profile key", key, [path.partition(".")[2] for path in paths], "--set")
    return matches[0]


def parse_override(text: str) -> tuple[str, float]:
    """`KEY=QUANTITY` as (path, SI amount): `hbm=4.0TB/s`."""
    key, equals, quantity = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r}: write KEY=QUANTITY, e.g. --set hbm=4.0TB/s")
    path = resolve_key(key.strip())
    try:
        amount = parse_quantity(quantity, dimension(path))
    except InputError as error:
        raise InputError(f"--set {key}: {error}") from None
    if amount == 0 and dimension(path) != "s":
        raise InputError(f"--set {key}: {quantity!r} must be above zero")
    return path, amount


assert set(SCHEMA.values()) <= set(DIMENSIONS)
