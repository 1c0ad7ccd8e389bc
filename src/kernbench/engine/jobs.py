"""What a session is asked: its options, and a job (a save, a key, a command)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernbench.worker.supervisor import Deadlines


@dataclass(frozen=True)
class Options:
    device: str | None = None
    python: str | None = None
    baseline: str | None = None
    case: str | None = None
    """Pattern for ids and labels; a run of a part of the cases never makes a best."""
    grid: bool = False
    """All grid cases instead of a draw."""
    poll: bool = False
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    """State of the L2 before every timed call on a GPU."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    harness: Path | None = None
    """Another measuring half, for the engine's own tests."""
    spares: bool = True
    floors: bool = True
    standby: bool = True
    """Keep an ncu waiting while nothing is timed."""
    ncu: str | None = None
    """Another ncu than the one on PATH."""
    has_keys: bool = True
    """A person can press a key, such as r; `kernbench watch` has none."""


@dataclass(frozen=True)
class Job:
    reason: Literal["save", "key", "command", "open"]
    at: float
    """Monotonic time of the save, key or command."""
    iteration: bool
    """Makes an entry in ITERATIONS.md if it is built and run; opening does so only for a source no entry knows."""
    is_asked: bool = False
    """A save that waited, and a key asked for it: it is timed now, whatever changed and whether paused or not."""
