"""A whole run: the request to the worker, its steps, and its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from harness.shared.codes import L2State
from harness.shared.task import Task

Step = Literal["load", "build", "baseline", "inputs", "check", "time", "recheck"]


@dataclass(frozen=True)
class Environment:
    """Where a run happened. The worker reports it once on startup; every run stores it."""

    device: str = "cpu"
    """cpu or cuda:N, as in torch."""
    uuid: str | None = None
    """The GPU's UUID in NVML's spelling."""
    sm_mhz: int | None = None
    """SM clock when the run began."""
    bandwidth: float | None = None
    """Bytes per second of a large copy on this GPU."""
    device_name: str = ""
    interpreted: bool = False
    """Triton runs interpreted: results are checked, not timed."""
    threads: int | None = None
    condition: str = ""
    """Shown next to every geomean, such as `cold caches (64 MiB rotated), 1 thread`."""
    l2: L2State = ""
    """State of the GPU's L2 in this run; each state is a separate series."""
    python: str = ""
    torch: str | None = None
    triton: str | None = None
    driver: str | None = None
    clocks: str = ""
    """Read during timing, such as `SM 1980 MHz, memory 3201 MHz`; empty if they could not be read."""
    host: str = ""


@dataclass(frozen=True)
class RunRequest:
    """One run, as sent to the worker."""

    run: str
    task: Task
    source: str
    """Folder of the candidate's snapshot."""
    best: str | None = None
    """Folder of the best source's snapshot, if there is one to compare with."""
    baseline: str = "eager"
    """eager, compile, best, or a file; may differ from the task's baseline."""
    cases: tuple[str, ...] = ()
    """Ids in the order to run them; `check` cases come last."""
    seed: int = 0
    """The fresh seed of this run; 0 if there is none."""
    fixed_seed: int = 0
    """The seed that stays the same from run to run; 0 for the worker's own."""
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    """State of the L2 before every timed call on a GPU."""
    floors: dict[str, float] = field(default_factory=dict)
    """A/A floor by case id, if known."""
    controls: bool = False
    """Validate the task first (once per task hash)."""
    build: str = ""
    """Folder for compiled images."""
    quick: bool = False
    """Only the quick checks, on the fixed seed."""
    judge: str = ""
    """Where a confirmation hands over its results."""
