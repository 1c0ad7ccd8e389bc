"""Before every timed call: the L2 emptied, then a mark from which the call's records are counted.

cold: READ twice the L2, so that what the call needs is not there and no dirty line waits to be written back. dirty:
write it instead. warm: leave it. All three end in the mark, a kernel of one store, which also keeps a launch that
depends on its predecessor out of the flush. Flush and mark are replayed as one CUDA graph: one launch, a few
microseconds of host time. The kernels' names carry a token kept per user, so that their images are compiled once.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from harness.activity import Names

Condition = Literal["cold", "dirty", "warm"]
BLOCK = 8192
SOURCE = """
import triton
import triton.language as tl


@triton.jit
def kb_read_TOKEN(buffer, count, never, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(buffer + place, mask=place < count, other=0.0))
    if total == 1.0e30:
        tl.store(never, total)


@triton.jit
def kb_write_TOKEN(buffer, count, never, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(buffer + place, place.to(tl.float32) * 0.0, mask=place < count)


@triton.jit
def kb_mark_TOKEN(cell):
    tl.store(cell, 1.0)


@triton.jit
def kb_pause_TOKEN(cell):
    tl.store(cell, 2.0)
"""


class Flush:
    """Ready to be called on the current stream of one device."""

    def __init__(self, device: str, l2_bytes: int, condition: Condition = "cold") -> None:
        token = _token()
        kernels = _kernels(token)
        name = "write" if condition == "dirty" else "read"
        self.names = Names(f"kb_{name}_{token}", f"kb_mark_{token}", f"kb_pause_{token}")
        self._sweep = getattr(kernels, self.names.flush)
        self._mark = getattr(kernels, self.names.mark)
        self._pause = getattr(kernels, self.names.pause)
        self._count = 0 if condition == "warm" else 2 * l2_bytes // 4
        self._buffer = torch.zeros(max(self._count, 1), device=device)
        self._cell = torch.zeros(1, device=device)
        self._launch()
        self.pause()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._launch()

    def __call__(self) -> None:
        self._graph.replay()

    def pause(self) -> None:
        """What is launched from here to the next mark belongs to no call."""
        self._pause[(1,)](self._cell)

    def _launch(self) -> None:
        if self._count:
            grid = (-(-self._count // BLOCK),)
            self._sweep[grid](self._buffer, self._count, self._cell, BLOCK=BLOCK, num_warps=8)
        self._mark[(1,)](self._cell)


def _kernels(token: str) -> ModuleType:
    """Triton reads a kernel's source from its file, so the file has to be there."""
    path = cache_folder() / f"flush_{token}.py"
    text = SOURCE.replace("TOKEN", token)
    if not path.is_file() or path.read_text() != text:
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(text)
        scratch.replace(path)
    spec: Any = importlib.util.spec_from_file_location(f"kernbench_flush_{token}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _token() -> str:
    path = cache_folder() / "token"
    if not path.is_file():
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(secrets.token_hex(6))
        scratch.replace(path)
    return path.read_text().strip()


def cache_folder() -> Path:
    """Per user; what lies here can be made again."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernbench"
    place.mkdir(parents=True, exist_ok=True)
    return place
