"""How long each step of a run may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deadlines:
    """Seconds a step may take."""

    build: float = 60.0
    baseline: float = 120.0
    check: float = 10.0
    time: float = 5.0
    compile: float = 600.0
    """For any step, while a compiler is at work."""
    cancel: float = 1.0
    cancel_build: float = 10.0
    """It may be compiling for the cache, and a new worker would have to import torch."""
    cancel_spared: float = 3.0
    """The same if a warm spare is ready."""
    slow_start: float = 20.0
    """After this time of starting, a notice says that the worker is slow."""
    start: float = 180.0
    look: float = 1.0
    """How often a silent worker is searched for a compiler."""

    def of(self, step: str) -> float:
        return {"load": self.build, "build": self.build, "baseline": self.baseline, "time": self.time}.get(
            step, self.check
        )

    def to_cancel(self, step: str, spared: bool) -> float:
        """How long a cancelled step may go on: longest for a baseline, which is compiled for all later saves."""
        if step not in ("load", "build", "baseline"):
            return self.cancel
        return self.cancel_spared if spared and step != "baseline" else self.cancel_build
