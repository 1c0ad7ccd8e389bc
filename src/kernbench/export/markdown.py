"""md: the log with its tables, from runs.jsonl, or from ITERATIONS.md where an entry was made elsewhere.

At the end the exact numbers, to be read back by a program.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.records.lines import decode
from harness.records.results import CaseResult
from kernbench import entry, render
from kernbench.events import Elsewhere
from kernbench.export.collect import Collected, name_of

EXACT = ["run", "iteration", "case", "status", "baseline_us", "solution_us", "speedup", "speedup_low", "speedup_high"]


def make(about: Collected) -> str:
    return "\n".join([*_head(about), *_overview(about), *_entries(about), *_exact(about)]) + "\n"


def _head(about: Collected) -> list[str]:
    task, best = about.task, about.best
    lines = [f"# {task.name}", "", task.summary, ""]
    if best is not None:
        lines += [f"Best: {about.words_for(best)}, geomean {render.geomean(best.ratio)} against {best.baseline}.", ""]
    return lines


def _overview(about: Collected) -> list[str]:
    if not about.entries:
        return ["## Iterations", "", about.nothing_logged, ""]
    titles = ["#", "when", "source", "geomean", "outcome", "stall", "hypothesis"]
    lines = ["## Iterations", "", entry.cells(titles), entry.cells(["---"] * len(titles))]
    for item in about.entries:
        cells = [name_of(item), render.minute(item.at) if item.at else "-", item.source[:8], entry.speed(item)]
        cells += [about.outcome(item), "stalled" if item.stalled else "", entry.words(item, about.task.baseline)]
        lines.append(entry.cells(cells))
    return [*lines, ""]


def _entries(about: Collected) -> Iterator[str]:
    """Each iteration as ITERATIONS.md tells it: one's own with the cases that the task still has, in one pass."""
    known = {case.id for case in about.task.cases}
    wanted = {item.run: item for item in about.made}
    others = [item for item in about.entries if isinstance(item, Elsewhere)]
    for run, rows in about.journal.runs(set(wanted)):
        item = wanted[run]
        while others and (others[0].iteration or 0) <= (item.iteration or 0):
            yield about.written(others.pop(0))
        results = {row["id"]: decode(CaseResult, row) for row in rows if row["id"] in known}
        yield entry.EntryText(about.task, item, results)(item.iteration or 0)
    yield from map(about.written, others)


def _exact(about: Collected) -> list[str]:
    numbers = about.frame[EXACT].to_csv(index=False, lineterminator="\n")
    return ["## Exact numbers", "", "<details>", "", "```csv", numbers.rstrip("\n"), "```", "", "</details>"]
