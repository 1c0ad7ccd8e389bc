"""Empties the L2 before every timed call, with a kernel that also marks the start of the call's records.

- cold: READ twice the L2 size, so that the call's data is not in the L2 and no dirty line is waiting to be written
  back. dirty: write instead. warm: leave the L2 alone and mark with a kernel of one store.
- Flush and pause are replayed as CUDA graphs, which takes a few microseconds of host time.
- Calls in a fixed rhythm interfere with something periodic in the memory (on an H200: autocorrelations of 0.7 at lags
  of 4 to 8 calls), which can slow one side down. So the flush has a few lengths, chosen at random.
- A call that the host launches only after the flush has ended finds the GPU idle and is about 50 ns shorter (3% of
  1.7 us). So that no side gains by being slow to launch, the flush repeats, in laps, until the slower of two
  alternating sides has been launched; a warm one cannot.
- The kernel names contain a token stored per user, so that their images are compiled only once.
"""

from __future__ import annotations

import importlib.util
import math
import os
import random
import secrets
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from harness.device.activity import Names

Condition = Literal["cold", "dirty", "warm"]
MARKS: dict[Condition, str] = {"cold": "read", "dirty": "write", "warm": "mark"}
BLOCK = 8192
LENGTHS = 8
STEP = 80 * BLOCK
"""Floats between one length and the next: about 0.6 us on an H200."""
MOST_LAPS = 8.0
"""About a quarter of a millisecond on an H200; a call with more host time is longer than a few microseconds anyway."""
SOURCE = """
import triton
import triton.language as tl


@triton.jit
def kb_read_TOKEN(buffer, count, never, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK % count + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(buffer + place, mask=place < count, other=0.0))
    if total == 1.0e30:
        tl.store(never, total)


@triton.jit
def kb_write_TOKEN(buffer, count, never, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK % count + tl.arange(0, BLOCK)
    tl.store(buffer + place, place.to(tl.float32) * 0.0, mask=place < count)


@triton.jit
def kb_mark_TOKEN(cell):
    tl.store(cell, 1.0)


@triton.jit
def kb_pause_TOKEN(cell):
    tl.store(cell, 2.0)
"""


class Flush:
    """Flushes the L2 on the current stream of one device."""

    def __init__(self, device: str, l2_bytes: int, condition: Condition = "cold") -> None:
        token = _token()
        kernels = _kernels(token)
        self.names = Names(f"kb_{MARKS[condition]}_{token}", f"kb_pause_{token}")
        self._mark = getattr(kernels, self.names.mark)
        self._pause = getattr(kernels, self.names.pause)
        self._count = 0 if condition == "warm" else -(-2 * l2_bytes // 4 // BLOCK) * BLOCK
        self._buffer = torch.zeros(self._count + LENGTHS * STEP, device=device)
        self._cell = torch.zeros(1, device=device)
        self._launch(self._count)
        self._pause[(1,)](self._cell)
        torch.cuda.synchronize()
        self._paused = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._paused):
            self._pause[(1,)](self._cell)
        self._graphs: dict[float, list[torch.cuda.CUDAGraph]] = {}
        self._random = random.Random(0)
        self.ready(1.0)
        self.lap_us = max(1.0, min(self.timed() for _ in range(5)))
        """Microseconds of one lap."""

    def __call__(self, laps: float = 1.0) -> None:
        """Flushes, with a random one of the lengths."""
        self._graphs[laps][self._random.randrange(LENGTHS)].replay()

    def once(self) -> None:
        """Flushes and waits for the end."""
        self()
        torch.cuda.synchronize()

    def laps(self, us: float) -> float:
        """The laps, in quarters, that take at least `us`; prepares a flush of that length."""
        found = laps(us, self.lap_us) if self._count else 1.0
        self.ready(found)
        return found

    def ready(self, laps: float) -> None:
        """Captures the graphs for this number of laps, unless they exist."""
        if laps not in self._graphs:
            self._graphs[laps] = [self._captured(length, laps) for length in range(LENGTHS)]

    def timed(self, laps: float = 1.0) -> float:
        """Microseconds between events around a flush. Another flush runs first, so that the host has launched
        everything by then."""
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        self.ready(laps)
        self(laps)
        begin.record()
        self(laps)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end) * 1000)

    def pause(self) -> None:
        """Everything launched from here to the next mark belongs to no call."""
        self._paused.replay()

    def _captured(self, length: int, laps: float) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._launch(self._count + length * STEP if self._count else 0, laps)
        return graph

    def _launch(self, count: int, laps: float = 1.0) -> None:
        if count:
            grid = (int(laps * count / BLOCK),)
            self._mark[grid](self._buffer, count, self._cell, BLOCK=BLOCK, num_warps=8)
        else:
            self._mark[(1,)](self._cell)


def laps(us: float, lap_us: float) -> float:
    return min(MOST_LAPS, max(1.0, math.ceil(us / lap_us * 4) / 4))


def first_launch(device: str) -> None:
    """Triggers Triton's once-per-process work (its launcher, the driver's library)."""
    token = _token()
    getattr(_kernels(token), f"kb_mark_{token}")[(1,)](torch.zeros(1, device=device))


def _kernels(token: str) -> ModuleType:
    """Imports the kernels from a file, because Triton reads a kernel's source from its file."""
    path = cache_folder() / f"flush_{token}.py"
    text = SOURCE.replace("TOKEN", token)
    if not path.is_file() or path.read_text() != text:
        write_whole(path, text)
    spec: Any = importlib.util.spec_from_file_location(f"kernbench_flush_{token}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _token() -> str:
    path = cache_folder() / "token"
    if not path.is_file():
        write_whole(path, secrets.token_hex(6))
    return path.read_text().strip()


def cache_folder() -> Path:
    """Per user; everything in it can be recreated."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernbench"
    place.mkdir(parents=True, exist_ok=True)
    return place


def write_whole(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never a part."""
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)
