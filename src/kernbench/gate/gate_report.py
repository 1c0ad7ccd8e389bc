"""What a gate found, as a table, as Markdown for GitHub, as JUnit XML and as JSON lines. Pure: returns the text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as Xml

from harness.shared import format as fmt
from harness.shared.lines import SCHEMA, encode
from kernbench.gate.gate_rows import WORST_FIRST, GateRow, TaskOutcome, Word, exit_code, worst
from kernbench.machine.git_folder import Revision
from kernbench.machine.plain_text import markdown, one_line
from kernbench.report import columns

TITLES = ("case", "before us", "now us", "speedup", "verdict")
HEADS: dict[Word, str] = {
    "wrong": "failed",
    "slower": "failed",
    "cannot tell": "cannot tell",
    "not timed": "passed as far as it can be checked here",
    "pass": "passed",
}
MOST_NAMED = 5
"""Rows that the last line names; the table has them all."""


@dataclass(frozen=True)
class Findings:
    """All that a gate found."""

    revision: Revision
    outcomes: Sequence[TaskOutcome]

    @property
    def against(self) -> str:
        short = self.revision.commit[:12]
        return short if self.revision.is_bare else f"{self.revision.name} ({short})"

    @property
    def verdict(self) -> str:
        """One line: `failed against origin/main (1a2b3c): 1 wrong, 2 slower: softmax 19x3072, ...`."""
        if not self.outcomes:
            return f"passed: no task differs from {self.against}"
        word = worst(outcome.word for outcome in self.outcomes)
        rows = [(outcome, row) for outcome in self.outcomes for row in outcome.rows]
        counts = Counter(row.word for _, row in rows)
        said = [f"{counts[name]} {name}" for name in WORST_FIRST[:-1] if counts[name]]
        passed = f"{fmt.plural(counts['pass'], 'row')} of {fmt.plural(len(self.outcomes), 'task')} passed"
        named = [f"{outcome.name} {row.label}" for outcome, row in rows if row.word == word]
        shown = ", ".join(named[:MOST_NAMED]) + (", ..." if len(named) > MOST_NAMED else "")
        which = f": {shown}" if exit_code(self.outcomes) else ""
        return f"{HEADS[word]} against {self.against}: {', '.join([*said, passed])}{which}"


def table(found: Findings, outcome: TaskOutcome) -> list[str]:
    """A task's timed rows and failures, with remarks below the first of several rows; the rest is counted."""
    shown, rest = _shown(outcome)
    lines = [_title(found, outcome), *(f"    {note}" for note in outcome.notes)]
    if shown:
        text = columns([TITLES, *map(_cells, shown)], left=(0, 4))
        lines.append(text[0])
        for before, row, line in zip([None, *shown], shown, text[1:], strict=False):
            is_said = not row.why or (before is not None and before.why == row.why)
            lines += [line] if is_said else [line, f"    {row.why}"]
    return lines + rest


def summary(found: Findings) -> str:
    """GitHub's summary of a job."""
    lines = [f"### kernbench gate: {_safe(found.verdict)}", ""]
    for outcome in found.outcomes:
        shown, rest = _shown(outcome)
        is_open = " open" if exit_code([outcome]) else ""
        lines += [f"<details{is_open}><summary>{_html(_title(found, outcome))}: {outcome.word}</summary>", ""]
        lines += [f"> {_safe(note)}\n" for note in outcome.notes]
        if shown:
            lines += [f"| {' | '.join(TITLES)} | |", "| --- | ---: | ---: | ---: | --- | --- |"]
            cells = ([*map(_safe, _cells(row)), _safe(row.why)] for row in shown)
            lines += [f"| {' | '.join(row)} |" for row in cells]
        lines += ["", *map(_safe, rest), "", "</details>", ""]
    return "\n".join(lines)


def junit(found: Findings) -> str:
    """One suite per task, one test per row."""
    root = Xml.Element("testsuites", name=f"kernbench gate against {found.against}")
    for outcome in found.outcomes:
        counts = Counter(_result(row) for row in outcome.rows)
        suite = Xml.SubElement(root, "testsuite", name=one_line(outcome.name), tests=str(len(outcome.rows)))
        suite.set("failures", str(counts["failure"]))
        suite.set("errors", str(counts["error"]))
        suite.set("skipped", str(counts["skipped"]))
        suite.set("time", fmt.fixed(outcome.seconds, 3))
        for row in outcome.rows:
            test = Xml.SubElement(suite, "testcase", classname=one_line(outcome.name), name=one_line(row.label))
            if kind := _result(row):
                said = one_line(" ".join(filter(None, [_speed(row), row.why])))
                Xml.SubElement(test, kind, message=f"{row.word}: {said}" if said else row.word)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def json_lines(found: Findings) -> Iterator[str]:
    for outcome in found.outcomes:
        about = {"task": outcome.task, "python": outcome.python, "device": outcome.device, "new": outcome.is_new}
        for row in outcome.rows:
            yield encode("row", row, **about)
        notes = list(outcome.notes)
        yield encode("task", **about, word=outcome.word, notes=notes, seconds=outcome.seconds)
    word, code = worst(outcome.word for outcome in found.outcomes), exit_code(found.outcomes)
    about = {"against": found.revision.name, "commit": found.revision.commit, "word": word, "exit": code}
    yield encode("gate", schema=SCHEMA, **about, sentence=found.verdict)


def _title(found: Findings, outcome: TaskOutcome) -> str:
    against = f"new since {found.against}" if outcome.is_new else f"against {found.against}"
    return ", ".join(filter(None, [f"{outcome.name} {against}", outcome.device, fmt.seconds(outcome.seconds)]))


def _shown(outcome: TaskOutcome) -> tuple[list[GateRow], list[str]]:
    """The rows that the table has, and lines that count the others."""
    shown = [row for row in outcome.rows if row.ratio is not None or row.word in WORST_FIRST[:3]]
    rest = [row for row in outcome.rows if row not in shown]
    right = sum(row.word == "pass" for row in rest)
    lines = [f"{fmt.plural(right, 'other case' if shown else 'case')} passed"] if right else []
    missing = Counter(row.why for row in rest if row.word == "not timed")
    return shown, lines + [f"not timed: {count} ({why})" for why, count in missing.items()]


def _cells(row: GateRow) -> tuple[str, ...]:
    word = f"{row.word}, twice" if row.tries > 1 and row.word in ("slower", "cannot tell") else row.word
    return row.label, fmt.microseconds(row.before_us), fmt.microseconds(row.now_us), fmt.speedup(row.ratio), word


def _speed(row: GateRow) -> str:
    return "" if row.ratio is None else fmt.speedup(row.ratio)


def _result(row: GateRow) -> str:
    """JUnit's element for the row; empty if it passed."""
    kinds: dict[Word, str] = {"wrong": "failure", "slower": "failure", "cannot tell": "error", "not timed": "skipped"}
    return kinds.get(row.word, "")


def _safe(text: str) -> str:
    """For a cell of a table."""
    return markdown(one_line(text)).replace("|", "\\|")


def _html(text: str) -> str:
    return one_line(text).replace("&", "&amp;").replace("<", "&lt;")


def all_tables(found: Findings) -> Iterable[str]:
    for outcome in found.outcomes:
        yield from (*table(found, outcome), "")
