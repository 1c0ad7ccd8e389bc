"""Series, and the best of one. Pure rules over runs; log/best.py applies them for every command and pane.

A series is everything measured by the same task over the same baseline, on the same device, with its L2 in the same
state; runs of two series are never compared. The series over the task's own baseline decides what is best: its first
source that is right everywhere, until another beats it in a direct, interleaved comparison. Either counts once it is
confirmed in a new worker. A source that once turned out wrong cannot stay best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from harness.shared.task import Task
from kernbench.events import Summary


@dataclass(frozen=True)
class Series:
    """What has to be the same for two runs to be compared."""

    task_hash: str
    baseline: str
    device_name: str
    l2: str
    """State of a GPU's L2 before each timed call; empty on a CPU."""
    old_task_hashes: frozenset[str] = field(default=frozenset(), compare=False)
    """Hashes that older versions gave the same task."""

    @classmethod
    def of(cls, run: Summary) -> Series:
        about = run.environment
        return cls(run.task_hash, run.baseline, about.device_name, _state(about.device, about.l2))

    @classmethod
    def present(
        cls, task: Task, device: str, device_name: str, l2: str, baseline: str, known: frozenset[str]
    ) -> Series:
        """The task's series on a device over a baseline; `known` has the hashes that older versions gave the task."""
        return cls(task.hash, baseline, device_name, _state(device, l2), known)

    def includes(self, run: Summary) -> bool:
        """Whether the run belongs to this series; it may have an old hash of the task."""
        if run.task_hash != self.task_hash and run.task_hash not in self.old_task_hashes:
            return False
        about = run.environment
        place = run.baseline, about.device_name, _state(about.device, about.l2)
        return place == (self.baseline, self.device_name, self.l2)


def _state(device: str, l2: str) -> str:
    return l2 if device.startswith("cuda") else ""


def series_of(summaries: Iterable[Summary], wanted: Series) -> list[Summary]:
    return [item for item in summaries if wanted.includes(item)]


def best_of(series: Sequence[Summary]) -> Summary | None:
    """The run with which the best source became best, unless that source has turned out wrong since.

    A timeout alone does not count as wrong: on a busy machine or with a short deadline any source may time out. A best
    that is timed again keeps the number and the words with which it became best.
    """
    failed: set[str] = set()
    for place in range(len(series) - 1, -1, -1):
        run = series[place]
        if run.disproved:
            failed |= run.names
        elif run.holds and not failed & run.names:
            return _take_over(series, place)
    return None


def may_be_best(series: Sequence[Summary], run: Summary) -> bool:
    """Whether a run that waits for its confirmation would be best with it: its source has not turned out wrong since,
    and it was timed against the source that is best now, or is that one, confirmed by another process."""
    best = best_of(series)
    is_wrong = any(other.disproved and run.names & other.names for other in _after(series, run))
    is_comparable = best is None or best.geomean == run.best_geomean or bool(run.names & best.names)
    return run.is_unsettled and not is_wrong and is_comparable


def _after(series: Sequence[Summary], run: Summary) -> Iterator[Summary]:
    return takewhile(lambda other: other.run != run.run, reversed(series))


def _take_over(series: Sequence[Summary], place: int) -> Summary:
    """The run with which the best at this index became best: the first of the same source, else the last that took
    over."""
    best = series[place]
    if best.new_best:
        return best
    last: Summary | None = None
    for earlier in range(place - 1, -1, -1):
        run = series[earlier]
        if run.new_best and run.holds and run.names & best.names:
            return run
        last = last or (run if run.took_over and run.holds else None)
    return best if best.took_over or last is None else last
