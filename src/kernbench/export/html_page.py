"""html: one self-contained file that opens offline. All text is escaped, and the page makes no requests.

The list of iterations is complete; tables and diffs are included for those that became best and for the newest, and the
page says how many it leaves out (the csv has them all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.results import CaseResult
from kernbench import render
from kernbench.events import Summary
from kernbench.export import charts
from kernbench.export.collect import Collected, name_of
from kernbench.export.formats import ExportError
from kernbench.log import gpu_types, profile_evidence
from kernbench.log.entries import entry_text
from kernbench.log.runs.series import series_of
from kernbench.machine.plain_text import plain
from kernbench.version import __version__

TOLD_IN_FULL = 60
DIFF_LINES = 600
EXTRA = "`pip install 'kernbench[report]'`"
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class CaseCells:
    """A row of a table of cases, sorted by its `_key` fields."""

    id: str
    label: str
    headline: bool
    baseline_us: str
    baseline_key: float
    solution_us: str
    solution_key: float
    speedup: str
    speedup_key: float
    wall: str
    verdict: str
    word: str
    error: str
    note: str


@dataclass(frozen=True)
class EntryDetail:
    """One iteration in full."""

    name: str
    anchor: str
    summary: Summary
    score: str
    when: list[str]
    provenance: list[str]
    words: list[str]
    result: str
    cases: list[CaseCells]
    checks: str
    diff: list[tuple[str, str]]
    diff_note: str


def page(path: Path, title: str, **values: Any) -> str:
    """The page of a template, which extends frame.html; all text in it is escaped."""
    try:
        import jinja2
    except ImportError:
        raise ExportError(f"html needs Jinja2, which is not installed; {EXTRA} installs it") from None
    loader = jinja2.FileSystemLoader([path.parent, FOLDER])
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    text = environment.get_template(path.name).render(title=title, fmt=fmt, made=made, version=__version__, **values)
    return plain(text)


def make(about: Collected) -> str:
    chosen = told_in_full(about)
    linked = {id(item) for item in chosen}
    best = about.best
    return page(
        FOLDER / "page.html",
        about.task.name,
        task=about.task,
        best=best,
        best_rows=[case_cells(about, row) for row in shown(about, about.rows(best))] if best else [],
        last=about.entries[-1] if about.entries else about.runs[-1],
        entries=[(item, anchor(item) if id(item) in linked else "") for item in reversed(about.entries)],
        nothing_logged=about.nothing_logged,
        trajectory=charts.trajectory(about.series),
        heatmap=heatmap(about),
        group=-(-len(about.series) // charts.MOST_COLUMNS),
        details=[_told(about, item, previous) for item, previous in _with_previous(about, chosen)],
        left_out=len(about.entries) - len(chosen),
        types=about.types,
        type_table=about.types.table(best) if best and about.types.names else [],
        short=gpu_types.short,
        elsewhere=len(about.entries) - len(about.made),
        other_series=len(about.made) - len(series_of(about.made, about.present)),
        profiles=_profiles(about),
        environments=_environments(about),
        name_of=name_of,
        words_for=about.words_for,
        outcome=about.outcome,
        entry=entry_text,
        render=render,
    )


def told_in_full(about: Collected) -> list[Summary]:
    """The entries that became best and the newest, oldest first."""
    if len(about.entries) <= TOLD_IN_FULL:
        return list(about.entries)
    bests = [item for item in about.entries if item.holds][-TOLD_IN_FULL // 2 :]
    chosen = {id(item) for item in [*bests, *about.entries[len(bests) - TOLD_IN_FULL :]]}
    return [item for item in about.entries if id(item) in chosen]


def anchor(item: Summary) -> str:
    return f"it-{item.iteration or item.source[:8]}"


def shown(about: Collected, rows: dict[str, CaseResult]) -> list[CaseResult]:
    """Rows of a table: of the check cases only those that failed."""
    return [row for row in rows.values() if about.task.case(row.id).kind != "check" or row.failed]


def case_cells(about: Collected, row: CaseResult) -> CaseCells:
    case = about.task.case(row.id)
    speedup = row.speedup or 0.0
    notes = [render.place(row.where, row.detail)] if row.detail else []
    notes += [words] if (words := render.accuracy(row)) else []
    return CaseCells(
        id=row.id,
        label=case.label,
        headline=case.headline,
        baseline_us=fmt.microseconds(row.baseline_us),
        baseline_key=row.baseline_us or -1.0,
        solution_us=fmt.microseconds(row.solution_us),
        solution_key=row.solution_us or -1.0,
        speedup=fmt.speedup(row.ratio),
        speedup_key=speedup,
        wall=fmt.times(row.wall.speedup) if row.wall and row.clock != "wall" else "",
        verdict=render.verdict(row),
        word="wrong" if row.failed else row.verdict or "none",
        error=fmt.error(row.error.max if row.error else None),
        note="; ".join([*notes, *(f"{finding.name}: {finding.help}" for finding in row.findings)]),
    )


def _with_previous(about: Collected, chosen: Sequence[Summary]) -> list[tuple[Summary, Summary | None]]:
    """Each with the iteration before it, newest first."""
    before = dict(zip([id(item) for item in about.entries[1:]], about.entries, strict=False))
    return [(item, before.get(id(item))) for item in reversed(chosen)]


def _told(about: Collected, item: Summary, previous: Summary | None) -> EntryDetail:
    rows = about.rows(item)
    checks = [row for row in rows.values() if about.task.case(row.id).kind == "check"]
    when, words, result = _lines(about, item, rows) if item.local_run is item else _pulled_lines(about.text_of(item))
    lines, note = _diff(about, item, previous)
    return EntryDetail(
        name=name_of(item),
        anchor=anchor(item),
        summary=item,
        score=entry_text.score(item, about.task.baseline),
        when=when,
        provenance=entry_text.provenance(item),
        words=words,
        result=result,
        cases=[case_cells(about, row) for row in shown(about, rows)],
        checks=render.checks(checks),
        diff=lines,
        diff_note=note,
    )


def _lines(about: Collected, item: Summary, rows: dict[str, CaseResult]) -> tuple[list[str], list[str], str]:
    """Circumstances, words and result of an entry that a run here made."""
    told = "\n".join(line for block in entry_text.own_lines(item) for line in block)
    words = [line.strip() for line in told.removeprefix("- ").split("\n- ")]
    words += [entry_text.stall(item).removeprefix("- ")] if item.stalled else []
    return entry_text.circumstances(item), words, entry_text.result(about.task, item, rows)


def _pulled_lines(text: str) -> tuple[list[str], list[str], str]:
    """The same of a pulled entry, as its text has them."""
    lines = text.split("\n")
    elsewhere = ("when", "with task", "command", "result")
    points = [line for line in lines if line[:1] in entry_text.BULLETS and line[1:2] == " "]
    words = [line[2:].strip() for line in points if not any(entry_text.mark_of(line, name) for name in elsewhere)]
    when, result = (entry_text.said(lines, name) or "" for name in ("when", "result"))
    return when.split(" · "), words, result


def _diff(about: Collected, item: Summary, previous: Summary | None) -> tuple[list[tuple[str, str]], str]:
    """Lines with their kinds, and what follows the word `Change`."""
    if previous is None:
        return [], ": first iteration, nothing to compare with"
    lines = about.diff(previous, item)
    if lines is None:
        return [], ": the sources are not in this state folder"
    kinds = {"+": "add", "-": "del", "@": "at"}
    told = [
        ("at" if line.startswith(("--- ", "+++ ")) else kinds.get(line[:1], ""), line) for line in lines[:DIFF_LINES]
    ]
    more = len(lines) - len(told)
    note = f" from {name_of(previous)} to {name_of(item)}"
    return told, f"{note}; {fmt.plural(more, 'more line')}" if more else note if lines else f"{note}: none"


def heatmap(about: Collected) -> str:
    """Timed cases over the iterations of the current series."""
    columns = charts.columns(about.series)
    labels = {case.id: case.label for case in about.task.timed}
    own = {item.run for item in columns if item.local_run is item}
    landed = {
        run: {row["id"]: (row.get("status", ""), row.get("speedup")) for row in rows}
        for run, rows in (about.journal.runs(own) if own else ())
    }
    cells = [
        landed.get(item.run) or {case: (row.status, row.speedup) for case, row in about.rows(item).items()}
        for item in columns
    ]
    return charts.heatmap(columns, labels, cells)


def _profiles(about: Collected) -> list[tuple[str, str, list[profile_evidence.Change]]]:
    """Nsight Compute before and after, for the sides with profiles: the baseline or first source, and the best."""
    best, first = about.best, about.first_of(about.present)
    if best is None or first is None:
        return []
    cases = [case.id for case in about.hottest(about.rows(best))]
    labels = {case.id: case.label for case in about.task.cases}
    pairs = [
        ("baseline", profile_evidence.baseline_pairs(about.profiles, best.source, cases)),
        (about.words_for(first), profile_evidence.pairs(about.profiles, first.source, best.source, cases)),
    ]
    return [
        (name, labels[pair[1].case], profile_evidence.changes(*pair)) for name, found in pairs for pair in found[:3]
    ]


def _environments(about: Collected) -> list[tuple[str, list[str]]]:
    """Each distinct setup once, newest first, with its iterations."""
    found: dict[tuple[str, ...], list[Summary]] = {}
    for item in about.entries:
        machine = item.environment.device_name or item.environment.device
        key = (machine, item.environment.condition, f"baseline {item.baseline}", *entry_text.provenance(item))
        found.setdefault(key, []).append(item)
    return [
        (" to ".join(dict.fromkeys((name_of(items[0]), name_of(items[-1])))), [part for part in key if part])
        for key, items in reversed(found.items())
    ]
