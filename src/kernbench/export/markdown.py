"""md: the log as ITERATIONS.md has it now, with edits by hand; entries missing there come from runs.jsonl.

Ends with the exact numbers, for programs to read. HTML and images in a task or a log are text here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kernbench import render
from kernbench.events import Summary
from kernbench.export import csv_json
from kernbench.export.collect import Collected, name_of
from kernbench.log import gpu_types
from kernbench.log.entries import entry_text, trailer
from kernbench.log.runs import legacy
from kernbench.machine.plain_text import fenced
from kernbench.machine.plain_text import markdown as escaped

EXACT = ["run", "iteration", "case", "status", "baseline_us", "solution_us", "speedup", "speedup_low", "speedup_high"]


def make(about: Collected) -> str:
    told = map(escaped, [*_head(about), *_overview(about), *by_gpu_type(about, about.best), *_entries(about)])
    return "\n".join([*told, *_exact(about)]) + "\n"


def _head(about: Collected) -> list[str]:
    task, best = about.task, about.best
    lines = [f"# {task.name}", "", task.summary, ""]
    if best is not None:
        where = f" on {gpu_types.short(best.environment.device_name)}" if about.types.names else ""
        lines += [
            f"Best{where}: {about.words_for(best)}, geomean {entry_text.speed(best)} against {best.baseline}.",
            "",
        ]
    return lines


def _overview(about: Collected) -> list[str]:
    if not about.entries:
        return ["## Iterations", "", about.nothing_logged, ""]
    speeds = [gpu_types.short(name) for name in about.types.names] or ["geomean"]
    titles = ["#", "when", "source", *speeds, "outcome", "stall", "hypothesis"]
    lines = ["## Iterations", "", entry_text.cells(titles), entry_text.cells(["---"] * len(titles))]
    for item in about.entries:
        cells = [name_of(item), render.minute(item.at) if item.at else "-", item.source[:8]]
        cells += about.types.cells(item) or [entry_text.speed(item)]
        cells += [about.outcome(item), "stalled" if item.stalled else "", entry_text.words(item, about.task.baseline)]
        lines.append(entry_text.cells(cells))
    return [*lines, ""]


def by_gpu_type(about: Collected, item: Summary | None) -> list[str]:
    """A source's rows by GPU type, and the best of each; nothing if there is one type."""
    if not about.types.names:
        return []
    table = about.types.table(item) if item is not None else []
    rows = [*table[:1], ["---", *["---:"] * (len(table[0]) - 1)], *table[1:]] if table else []
    told = [f"{about.words_for(item)}:", "", *map(entry_text.cells, rows), ""] if item is not None and rows else []
    return ["## By GPU type", "", about.types.sentence(), "", *told]


def _entries(about: Collected) -> Iterator[str]:
    """Each iteration as ITERATIONS.md has it; one run here but missing there, with the task's present cases."""
    known = {case.id for case in about.task.cases}
    told = list(zip(about.entries, about.written(), strict=True))
    written = deque((item.iteration or 0, trailer.without(text).rstrip() + "\n") for item, text in told if text)
    missing = {item.run: item for item, text in told if not text}
    for run, rows in about.journal.runs(set(missing)) if missing else ():
        item = missing[run]
        while written and written[0][0] <= (item.iteration or 0):
            yield written.popleft()[1]
        results = {row["id"]: legacy.decode_row(row) for row in rows if row["id"] in known}
        yield trailer.without(entry_text.EntryText(about.task, item, results)(item.iteration or 0))
    yield from (text for _number, text in written)


def _exact(about: Collected) -> list[str]:
    if not about.runs:
        return []
    numbers = csv_json.as_csv(about.frame[EXACT]).rstrip("\n").split("\n")
    return ["## Exact numbers", "", "<details>", "", *fenced(numbers, "csv"), "", "</details>"]
