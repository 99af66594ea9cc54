"""What L2 keeps: shares lost as a footprint outgrows it. Shared by traffic and tilings."""

from __future__ import annotations

from typing import Protocol

from iomodel.arrays import Number, clip


class Facts(Protocol):
    """What a tiling may ask of a GPU: values by dotted key (`sm.count`, `sustained.fa2.ctas`)."""

    def __getitem__(self, key: str) -> Number: ...

    def __contains__(self, key: str) -> bool: ...

    def rate(self, resource: str) -> Number:
        """Datasheet rate of a resource, as `Profile.rate`."""
        ...


def ramp(filled: Number, low: Number, high: Number) -> Number:
    """0 up to `low`, 1 from `high`, straight between.

    >>> ramp(1.5, 1.0, 2.0), ramp(3.0, 1.0, 2.0)
    (0.5, 1.0)
    """
    return clip((filled - low) / (high - low), 0.0, 1.0)


def edge(filled: Number, low: Number, high: Number) -> Number:
    """0 up to `low`, 1 from `high`, and 3 t^2 - 2 t^3 between: a soft edge.

    >>> edge(0.5, 0.0, 1.0)
    0.5
    """
    t = ramp(filled, low, high)
    return t * t * (3.0 - 2.0 * t)


def miss(distance: Number, gpu: Facts) -> Number:
    """Share of a tensor that has left L2 after `distance` bytes were touched since its last use.

    edge(distance / L2) between `sustained.l2_edge_low` and `sustained.l2_edge_high`: replacement is
    not strict LRU and the sets do not fill evenly, so the edge is soft. Without an L2 all is lost.

    Source: DRAM counters of chains of elementwise kernels, 1 to 96 MiB, H200, 2026.
    """
    if "memory.l2" not in gpu:
        return 1.0
    return edge(distance / gpu["memory.l2"], gpu["sustained.l2_edge_low"], gpu["sustained.l2_edge_high"])
