"""A run as a whole: what is asked of the worker, the steps it goes through, and where it happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from harness.shared.codes import L2State
from harness.shared.task import Task

Step = Literal["load", "build", "baseline", "inputs", "check", "time", "recheck"]


@dataclass(frozen=True)
class Environment:
    """Where a run happened: said once by the worker when it starts, kept with every run."""

    device: str = "cpu"
    """cpu or cuda:N, as torch names it."""
    uuid: str | None = None
    """Of the GPU, as NVML spells it."""
    sm_mhz: int | None = None
    """SM clock when the run began."""
    bandwidth: float | None = None
    """Bytes per second of a large copy on this GPU."""
    device_name: str = ""
    interpreted: bool = False
    """Triton runs interpreted: results are checked, not timed."""
    threads: int | None = None
    condition: str = ""
    """Words that stand beside every geomean, such as `rotated over 64 MiB, 1 thread`."""
    l2: L2State = ""
    """State of the GPU's L2 in this run; two states are two series."""
    python: str = ""
    torch: str | None = None
    triton: str | None = None
    driver: str | None = None
    clocks: str = ""
    """As read while timing, such as `SM 1980 MHz, memory 3201 MHz`; empty where nothing could be read."""
    host: str = ""


@dataclass(frozen=True)
class RunRequest:
    """One run, as the worker gets it."""

    run: str
    task: Task
    source: str
    """Folder of the candidate's snapshot."""
    best: str | None = None
    """Folder of the best source's snapshot, when there is one to compare with."""
    baseline: str = "eager"
    """eager, compile, best, or a file: may differ from the task's own choice."""
    cases: tuple[str, ...] = ()
    """Ids in the order in which they are to be answered; `check` cases come after the others."""
    seed: int = 0
    """The fresh seed of this run; the fixed one is 0."""
    budget_ms: float = 100.0
    condition: Literal["cold", "warm", "dirty"] = "cold"
    """State of the L2 before every timed call on a GPU."""
    floors: dict[str, float] = field(default_factory=dict)
    """A/A floor by case id, where one is known."""
    controls: bool = False
    """Try the task against itself first (once per task hash)."""
    build: str = ""
    """Folder where compiled images may be kept."""
