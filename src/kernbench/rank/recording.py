"""What a recording comes to, whatever it was read from: pieces of device time, each with the code it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

LAUNCHED_BY_GRAPH = "cudaGraphLaunch"


class Tensor(NamedTuple):
    """The largest one that an operator got."""

    dims: tuple[int, ...] = ()
    item_bytes: int = 1

    @property
    def size(self) -> int:
        return prod(self.dims) if self.dims else 0


UNRECORDED = Tensor()


@dataclass(frozen=True)
class Frame:
    """A Python function on the stack."""

    file: str
    """As the recording has it: often relative to an entry of the program's sys.path."""
    line: int
    """Where the function begins; of one that was running already, where it was."""
    name: str
    owner: str = ""
    """The class of the torch.nn.Module that was being called, if that is known."""


@dataclass(frozen=True)
class Origin:
    """What device time belongs to."""

    kernel: str
    """On a CPU the operator."""
    operator: str = ""
    """The innermost torch operator around it."""
    frames: tuple[Frame, ...] = ()
    """The innermost function outside torch, and its caller."""
    span: str = ""
    """The innermost NVTX range, where a recording has those instead of Python."""
    graph: bool = False
    """A CUDA graph launched it."""


@dataclass
class Amount:
    us: float = 0.0
    calls: int = 0
    largest: Tensor = UNRECORDED


@dataclass
class Recording:
    source: str
    on_gpu: bool = True
    work: dict[Origin, Amount] = field(default_factory=dict)
    window_us: float = 0.0
    """From the first piece of work to the end of the last."""
    busy_us: float = 0.0
    """Of the window, with some work going on."""
    unknown: list[str] = field(default_factory=list)
    """Sentences about what this source cannot know."""

    @property
    def device_us(self) -> float:
        return sum(amount.us for amount in self.work.values())

    @property
    def idle_us(self) -> float:
        return max(self.window_us - self.busy_us, 0.0)

    def add(self, origin: Origin, us: float, largest: Tensor = UNRECORDED, calls: int = 1) -> None:
        amount = self.work.setdefault(origin, Amount())
        amount.us += us
        amount.calls += calls
        amount.largest = max(amount.largest, largest, key=lambda tensor: tensor.size)

    def cover(self, spans: Iterable[tuple[float, float]]) -> None:
        """Count the time that these spans of one device cover together, and the time from the first to the last."""
        first = last = None
        for start, end in sorted(spans):
            if first is None or last is None:
                first = last = start
            self.busy_us += max(end - max(start, last), 0.0)
            last = max(last, end)
        if first is not None and last is not None:
            self.window_us += last - first

    def merge(self, other: Recording) -> None:
        """Another process of the same command."""
        for origin, amount in other.work.items():
            self.add(origin, amount.us, amount.largest, amount.calls)
        self.window_us += other.window_us
        self.busy_us += other.busy_us
        self.unknown += [line for line in other.unknown if line not in self.unknown]
