"""md: the log with its tables, from runs.jsonl alone; at the end the exact numbers, to be read back by a program."""

from __future__ import annotations

from collections.abc import Iterator

from harness.records.lines import decode
from harness.records.results import CaseResult
from kernbench import entry, render
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
    titles = ["#", "when", "source", "geomean", "outcome", "stall", "hypothesis"]
    lines = ["## Iterations", "", entry.cells(titles), entry.cells(["---"] * len(titles))]
    for item in about.entries:
        cells = [name_of(item), render.minute(item.at), item.source[:8], render.geomean(item.ratio)]
        cells += [render.outcome(item), "stalled" if item.stalled else "", item.hypothesis or "-"]
        lines.append(entry.cells(cells))
    return [*lines, ""]


def _entries(about: Collected) -> Iterator[str]:
    """Each iteration as ITERATIONS.md would tell it, with the cases that the task still has."""
    wanted = {item.run: item for item in about.entries}
    known = {case.id for case in about.task.cases}
    for run, rows in about.journal.runs():
        if run in wanted:
            results = {row["id"]: decode(CaseResult, row) for row in rows if row["id"] in known}
            item = wanted[run]
            yield entry.EntryText(about.task, item, results)(item.iteration or 0).replace(
                "## 0 ·", f"## run {item.source[:8]} ·", 1
            )


def _exact(about: Collected) -> list[str]:
    numbers = about.frame[EXACT].to_csv(index=False, lineterminator="\n")
    return ["## Exact numbers", "", "<details>", "", "```csv", numbers.rstrip("\n"), "```", "", "</details>"]
