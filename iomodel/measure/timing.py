"""Times of a program on the GPU, by CUDA events: cold behind a flush of L2, warm as a replayed graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iomodel.measure.programs import Program

#: Seconds of GPU time that one figure may take, and how often a single call is repeated at least and most.
FIGURE_SECONDS = 0.04
REPEATS = (5, 15)

#: A program whose first call takes longer is left out: a calibration has three minutes.
LONGEST = 0.2

#: Time that one replay of a graph should hold, so that starting it does not show.
REPLAY_SECONDS = 400e-6
MOST_CALLS = 64

#: Calls of a launch measurement.
LAUNCHES = 2000


@dataclass(frozen=True)
class Timer:
    """Times programs on the current device; `flush` reads more than L2 holds, leaving clean lines."""

    torch: Any
    flush: Callable[[], None]

    def once(self, program: Program) -> float:
        """Seconds of one call, by events around it."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        program()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def queued(self, program: Program, first: float) -> float:
        """Seconds of one call on a cold L2: the flush keeps the GPU busy while the call is launched, so
        no launch gap shows."""
        times = []
        for _ in range(_repeats(first)):
            self.flush()
            times.append(self.once(program))
        return _median(times)

    def graph(self, program: Program, first: float) -> float:
        """Seconds of one call in a graph of many, replayed back to back: L2 as the call before left it."""
        calls = max(1, min(MOST_CALLS, round(REPLAY_SECONDS / max(first, 1e-6))))
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            program()
        self.torch.cuda.current_stream().wait_stream(side)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(calls):
                program()
        graph.replay()
        replays = max(1, round(FIGURE_SECONDS / 4 / max(first * calls, 1e-5)))

        def run() -> None:
            for _ in range(replays):
                graph.replay()

        return _median([self.once(run) / (replays * calls) for _ in range(5)])

    def launch(self, way: str) -> float:
        """Seconds that one launch costs the host: a framework op, the barest kernel launch that PyTorch
        offers, and a node of a replayed graph of those."""
        x = self.torch.zeros(1, device="cuda")

        def eager() -> Any:
            return x.add_(1.0)

        def bare() -> Any:
            return self.torch.cuda._sleep(0)

        program = eager if way == "eager" else bare
        if way == "graph":
            return self.graph(program, REPLAY_SECONDS / MOST_CALLS)

        def run() -> None:
            for _ in range(LAUNCHES):
                program()

        run()
        return _median([self.once(run) / LAUNCHES for _ in range(5)])


def flusher(torch: Any, l2: float) -> Callable[[], None]:
    """A function that sums a buffer of at least eight times L2 (and 256 MB) twice."""
    buffer = torch.ones(int(max(8 * l2, 256e6)) // 4, device="cuda")
    out = torch.zeros((), device="cuda")

    def flush() -> None:
        for _ in range(2):
            torch.sum(buffer, dim=0, out=out)

    return flush


def _repeats(first: float) -> int:
    low, high = REPEATS
    return max(low, min(high, round(FIGURE_SECONDS / max(first, 1e-6))))


def _median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]
