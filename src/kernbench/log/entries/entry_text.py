"""The text of an ITERATIONS.md entry: what a reviewer needs to know about one iteration, all of it measured.

Pure: turns a summary and its rows into lines. Only the lines of `own_lines` may be reworded later.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.results import CaseResult
from harness.shared.task import Task
from kernbench import render
from kernbench.events import Confirmed, Summary
from kernbench.log.entries import trailer
from kernbench.machine.plain_text import markdown, one_line, plain

SHORT = 60
HASH = 8
WRAPPED = re.compile(r" {2,}(?![-*+>] |\d+[.)] |```)\S")
"""A continuation line, from a multi-line note or an editor that wrapped it; not a list below, which people wrote."""
BULLETS = frozenset("-*+")
SECOND_TRY = "tried again"
"""Name of the field that is added if a wrong row is right the second time."""
CONFIRMED, REFUSED = "confirmed", "refused"
"""Name of the field that is added once a run that would be best was confirmed, or was not."""


class EntryText:
    """An entry that has no number yet."""

    def __init__(
        self,
        task: Task,
        summary: Summary,
        results: Mapping[str, CaseResult],
        evidence: str | None = None,
        confirmation: Confirmed | None = None,
    ) -> None:
        self._task, self._summary, self._results, self._evidence = task, summary, results, evidence
        self._confirmation = confirmation

    def __call__(self, number: int) -> str:
        """The entry's text. A failed iteration gets a short one: it has no speedup to prove."""
        summary, is_short = self._summary, not self._summary.right
        hypothesis, move, next_step = own_lines(summary)
        lines = [
            heading(number, summary, self._task.baseline),
            markdown(f"- when {' · '.join(circumstances(summary))}"),
            *([markdown(f"- with {' · '.join(provenance(summary))}")] if provenance(summary) and not is_short else []),
            *([f"- command: `{one_line(summary.command)}`"] if summary.command and not is_short else []),
            *hypothesis,
            markdown(f"- result: {result(self._task, summary, self._results)}"),
            *([f"- evidence: {self._evidence}"] if self._evidence else []),
            *([confirmation(self._confirmation)] if self._confirmation else []),
            *move,
            *([stall(summary)] if summary.stalled else []),
            *next_step,
        ]
        rows = [] if is_short else ["", *table(self._task, self._results)]
        rows += ["", summary.tried] if summary.tried else []
        return plain("\n".join([*lines, *rows, "", trailer.line(self._task, summary, self._results)])) + "\n"


def title(summary: Summary) -> str:
    text = " ".join(summary.hypothesis.split()) or "no hypothesis"
    return text if len(text) <= SHORT else text[: SHORT - 3].rstrip() + "..."


def heading(number: int, summary: Summary, usual: str) -> str:
    return f"## {number} · {title(summary)} · {score(summary, usual)}"


def confirmation(event: Confirmed) -> str:
    return f"- {CONFIRMED if event.confirmed else REFUSED}: {markdown(one_line(event.why))}"


VERSUS_BEST = {"faster": "faster than best", "slower": "slower than best", "same": "same as best"}
"""The verdict is against the best, timed in the same run, not the baseline: 0.53x may be faster."""


def score(summary: Summary, usual: str) -> str:
    """`usual` is the task's baseline. A run against the best does not repeat the best's speedup."""
    word, other = render.outcome(summary), over(summary, usual)
    known = summary.best_geomean and word != "best" and summary.baseline != "best"
    best, versus = fmt.times(summary.best_geomean), VERSUS_BEST.get(word) if known else None
    notes = [best] if versus else []
    notes += [other] if other else []
    notes += [f"{'best:' if word in ('unclear', 'undecided') else 'best was'} {best}"] if known and not versus else []
    notes += [f"same source as #{summary.repeats}"] if summary.repeats is not None else []
    words = f"{versus or word} ({', '.join(notes)})" if notes else word
    return f"{fmt.times(summary.geomean)} · {words}" if summary.right and summary.geomean is not None else words


def origin(summary: Summary) -> list[str]:
    """For a pulled entry: that it is one, and the result of its source on this machine."""
    run = summary.local_run
    if run is summary:
        return []
    again = [f"timed again here: {fmt.times(run.geomean) if run.ratio else render.outcome(run)}"] if run else []
    return ["from another machine", *again]


def over(summary: Summary, usual: str) -> str:
    """`over compile`, if that is not the task's baseline."""
    return f"over {Path(summary.baseline).name}" if summary.baseline and summary.baseline != usual else ""


def words(summary: Summary, usual: str) -> str:
    """Hypothesis, baseline if unusual, and origin in one cell."""
    said, other = " ".join(summary.hypothesis.split()) or "-", over(summary, usual)
    notes = [*([other] if other else []), *origin(summary)]
    return f"{said} ({', '.join(notes)})" if notes else said


def speed(summary: Summary) -> str:
    """The geomean, with its interval if the verdict is known."""
    return render.geomean(summary) if summary.ratio else fmt.times(summary.geomean if summary.right else None)


def circumstances(summary: Summary) -> list[str]:
    parts = [render.minute(summary.at), f"source {summary.source[:HASH]}"]
    parts += [summary.environment.device_name or summary.environment.device, f"baseline {summary.baseline}"]
    if summary.environment.condition:
        parts.append(summary.environment.condition)
    if summary.failed_builds:
        parts.append(f"after {fmt.plural(summary.failed_builds, 'failed build')}")
    if summary.repeats is not None:
        parts.append(f"same source as {summary.repeats}")
    return parts


def provenance(summary: Summary) -> list[str]:
    """Hashes and versions, as far as known."""
    about = summary.environment
    named = [
        ("task", summary.task_hash[:HASH]),
        ("baseline", summary.baseline_hash[:HASH]),
        ("driver", about.driver),
        ("clocks", render.clocks(about)),
    ]
    return [f"{name} {value}" for name, value in named if value] + versions(summary)


def versions(summary: Summary) -> list[str]:
    about = summary.environment
    named = [
        ("torch", about.torch),
        ("triton", about.triton),
        ("Python", about.python),
        ("kernbench", summary.version),
    ]
    return [f"{name} {value}" for name, value in named if value]


WORDS, OLD_WORDS = ("written", "not given"), ("said", "not said")
"""Of lines below, as they are written now and as earlier versions wrote them."""


def own_lines(summary: Summary, words: tuple[str, str] = WORDS) -> tuple[list[str], list[str], list[str]]:
    """Hypothesis (with author and time), move after a stall, next step: the lines that may be reworded."""
    said = field("- hypothesis:", summary.hypothesis)
    if summary.hypothesis and summary.hypothesis_at:
        order = "before the run" if summary.hypothesis_at <= summary.at else "after the run"
        author = f"by {summary.hypothesis_by}, " if summary.hypothesis_by else ""
        said.append(f"- {words[0]} {author}{render.minute(summary.hypothesis_at)}, {order}")
    move = [f"- after the stall: {summary.move or f'{words[1]} ({render.MOVES})'}"] if summary.after_stall else []
    return said, move, field("- next:", summary.next)


def field(mark: str, text: str) -> list[str]:
    """The mark and its words; further lines are indented below if they would be read as its continuation."""
    first, *more = [line for words in text.split("\n") if (line := one_line(words))] or ["-"]
    lines = [f"{mark} {first}"]
    for line in more:
        if WRAPPED.match(f"  {line}"):
            lines.append(f"  {line}")
        else:
            lines[-1] += f" {line}"
    return lines


def said(lines: Sequence[str], name: str) -> str | None:
    """The words of one field, even if an editor wrapped them; None if there is no such field."""
    found = next(fields(lines, name), None)
    if found is None:
        return None
    text = " ".join(line.strip() for line in lines[found]).removeprefix(mark_of(lines[found.start], name)).strip()
    return "" if text == "-" else text


def fields(lines: Sequence[str], name: str) -> Iterator[slice]:
    """Where the lines of a field are, with continuation lines."""
    for place, line in enumerate(lines):
        if mark_of(line, name):
            more = itertools.takewhile(WRAPPED.match, lines[place + 1 :])
            yield slice(place, place + 1 + sum(1 for _line in more))


def mark_of(line: str, name: str) -> str:
    """The mark, such as `- next:`, with any bullet that a formatter chose; empty if the line is not that field.

    Only `when` and `with task` have no colon: `- next to that, ...` is a person's remark.
    """
    found = _mark(name).match(line) if line[:1] in BULLETS else None
    return found[0] if found else ""


@functools.cache
def _mark(name: str) -> re.Pattern[str]:
    return re.compile(rf"[-*+] +{name}{'[: ]' if name in ('when', 'with task') else ':'}")


def stall(summary: Summary) -> str:
    return f"- stalled: {summary.streak or 3} iterations without a new best; {render.MOVES}"


def result(task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> str:
    parts = [*_failures(task, results), *speeds(task, summary, results)]
    if summary.vs_best is not None:
        parts.append(f"against best {fmt.geomean(summary.vs_best)}")
    if why_not := render.not_best(summary):
        parts.append(why_not)
    parts.append(render.counts(summary, results.values()))
    parts += accuracy(task, results)
    names = sorted(
        {finding.name for row in results.values() for finding in row.findings} | {f.name for f in summary.findings}
    )
    if names:
        parts.append(f"findings: {', '.join(names)}")
    return "; ".join(parts)


def accuracy(task: Task, results: Mapping[str, CaseResult]) -> list[str]:
    """Names the row whose error is furthest above the baseline's."""
    worst = render.worst_accuracy(results.values())
    return [f"{render.accuracy(worst)} on {task.case(worst.id).label}"] if worst else []


def _failures(task: Task, results: Mapping[str, CaseResult]) -> list[str]:
    """The first case of the task that failed, with its result, and how many others failed."""
    failed = [row for case in task.cases if (row := results.get(case.id)) and row.failed]
    if not failed:
        return []
    first, others = failed[0], len(failed) - 1
    words = f"{task.case(first.id).label}: {render.place(first.where, first.detail or first.status)}"
    more = f"{fmt.plural(others, 'other case')} {'fails' if others == 1 else 'fail'}"
    return [words, more] if others else [words]


def speeds(task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> list[str]:
    parts: list[str] = []
    if summary.ratio is not None:
        timed = len([case for case in task.timed if case.headline])
        rows = summary.counts.get("headline", 0)
        part = "" if rows == timed else f" of {timed}"
        clock = next((row.clock for row in results.values() if row.clock), "wall")
        over = f"{rows}{part} cases" if part else fmt.plural(rows, "case")
        comma = "," if summary.weighted is not None else ""
        parts.append(f"geomean {render.geomean(summary)}{comma} over {over} ({clock})")
    if summary.wall is not None and any(row.clock != "wall" for row in results.values() if row.clock):
        parts.append(f"wall {render.wall(summary)}")
    for name, row in (("worst", summary.worst), ("fastest", summary.fastest)):
        if row is not None:
            parts.append(f"{name} {row.label} {fmt.times(row.speedup)}")
    return parts


def table(task: Task, results: Mapping[str, CaseResult]) -> list[str]:
    rows = [results[case.id] for case in task.cases if case.id in results]
    shown = [row for row in rows if task.case(row.id).kind != "check" or row.failed]
    walls = any(row.wall is not None and row.clock != "wall" for row in shown)
    titles = ["case", "baseline us", "solution us", "speedup", *(["wall"] if walls else []), "verdict", "error"]
    lines = [cells(titles), cells(["---" if name in ("case", "verdict") else "---:" for name in titles])]
    for row in shown:
        wall = [fmt.times(row.wall.speedup if row.wall else None)] if walls else []
        lines.append(
            cells(
                [
                    task.case(row.id).label,
                    fmt.microseconds(row.baseline_us),
                    fmt.microseconds(row.solution_us),
                    fmt.speedup(row.ratio),
                    *wall,
                    render.verdict(row),
                    fmt.error(row.error.max if row.error else None),
                ]
            )
        )
    checks = [row for row in rows if task.case(row.id).kind == "check"]
    if checks:
        lines += ["", f"{render.checks(checks)}."]
    return lines


def cells(values: list[str]) -> str:
    """One row of a markdown table; a name with a bar or a line break in it stays one cell."""
    return "| " + " | ".join(map(_cell, values)) + " |"


def _cell(value: str) -> str:
    return re.sub(r"(?<!\\)<", r"\\<", markdown(one_line(value))).replace("|", "\\|")
