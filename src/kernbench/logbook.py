"""Everything a task remembers: runs.jsonl, ITERATIONS.md and the kept sources, behind one door.

The session asks it which source is best, which entry knows a source, which floor a case has; and tells it what a run
came to. ITERATIONS.md lies in the task's folder whatever the state folder is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.records import CaseResult, Environment, Task
from kernbench import compare, iterations
from kernbench.events import Summary
from kernbench.journal import Journal


class Logbook:
    def __init__(self, folder: Path, state: Path) -> None:
        self.path = folder / "ITERATIONS.md"
        self.state = state
        self.journal = Journal(state)

    def series(self, task: Task, baseline: str, device_name: str) -> list[Summary]:
        """Runs that may be compared; against best, the task's own series is meant."""
        name = task.baseline if baseline == "best" else baseline
        return compare.series_of(self.journal.summaries, task.hash, name, device_name)

    def best(self, task: Task, baseline: str, environment: Environment | None) -> str | None:
        """Hash of the series' best source, if its snapshot is on this machine."""
        if environment is None:
            return None
        best = compare.best_of(self.series(task, baseline, environment.device_name))
        return best.source if best and self.source(best.source).is_dir() else None

    def source(self, sha: str) -> Path:
        return self.state / "sources" / sha

    def knows(self, sha: str) -> bool:
        """Whether some entry is about this very source; the log may come from another machine."""
        return self.journal.iteration_of(sha) is not None or iterations.last_source(self.path) == sha[:8]

    def last_entry(self) -> Summary | None:
        return next(reversed(self.journal.iterations()), None)

    def enter(self, task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> Summary:
        """Writes the entry and returns the summary with its number."""
        text = iterations.EntryText(task, summary, results)
        return compare.numbered(summary, iterations.append(self.path, text, self.journal.highest()))

    def reword(self, entry: Summary, hypothesis: str, next_step: str) -> None:
        """Changes the words of an entry in both places; the one that people read first."""
        iterations.reword(self.path, entry, replace(entry, hypothesis=hypothesis, next=next_step))
        self.journal.words(entry.iteration or 0, hypothesis, next_step)

    def text(self, number: int) -> str:
        return iterations.entry_of(self.path, number) or f"{self.path.name} has no entry {number}"

    def floor(self, key: str) -> float | None:
        return self.journal.floors.get(key)


def floor_key(task: Task, baseline: str, environment: Environment, case: str) -> str:
    """An A/A floor holds for this machine, these versions, this task and case."""
    parts = (environment.device_name, environment.torch, environment.triton, task.hash, baseline, case)
    return "|".join(str(part) for part in parts)
