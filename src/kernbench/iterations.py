"""ITERATIONS.md: the human log, committed with the kernel.

Entries are appended in one write, under a lock on the file itself (two workbenches, also with different state folders,
take turns), and numbered on from the highest number in the file or in runs.jsonl. What people write around and inside
them survives byte for byte; only the hypothesis and next-step lines of an entry are ever changed, and only while they
are still as the tool wrote them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.records import CaseResult, Task, UserError
from kernbench import render
from kernbench.events import Summary

HEADING = re.compile(r"^## (\d+) ·", re.MULTILINE)
SHORT = 60


class LogbookError(UserError):
    """ITERATIONS.md could not be written or changed; one sentence."""


def append(path: Path, summary_text: EntryText, at_least: int) -> int:
    """Writes an entry under the next free number and returns that number."""
    with _locked(path) as handle:
        text = _read(handle)
        number = max([at_least, *(int(found) for found in HEADING.findall(text))]) + 1
        entry = summary_text(number)
        lead = (
            f"# Iterations of {path.parent.name}\n\n" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        )
        _write(path, handle, _like(text, lead + entry))
        return number


def entry_of(path: Path, number: int) -> str | None:
    """The text of one entry, up to the next heading of its kind."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    span = _span(text, number)
    return None if span is None else text[span[0] : span[1]].rstrip() + "\n"


def last_source(path: Path) -> str | None:
    """Short hash of the source of the last entry in the file."""
    try:
        found = re.findall(
            r"^- when .* · source ([0-9a-f]{8})\b", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        )
    except OSError:
        return None
    return found[-1] if found else None


def reword(path: Path, old: Summary, new: Summary) -> None:
    """Changes hypothesis and next step of an entry in place; refuses when its lines were changed by hand."""
    number = old.iteration or 0
    with _locked(path) as handle:
        text = _read(handle)
        span = _span(text, number)
        if span is None:
            raise LogbookError(f"{path.name} has no entry {number} any more")
        lines = text[span[0] : span[1]].split("\n")
        changed = _changed(
            path, number, lines, [(_title(old), _title(new)), *zip(_words(old), _words(new), strict=True)]
        )
        _replace(path, text[: span[0]] + "\n".join(changed) + text[span[1] :])


class EntryText:
    """An entry waiting for its number."""

    def __init__(self, task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> None:
        self._task, self._summary, self._results = task, summary, results

    def __call__(self, number: int) -> str:
        summary = self._summary
        lines = [
            f"## {number} · {_title(summary)} · {_score(summary)}",
            f"- when {' · '.join(_circumstances(summary))}",
            *_words(summary)[:1],
            f"- result: {_result(self._task, summary, self._results)}",
            *_words(summary)[1:],
        ]
        if summary.stalled:
            lines.append(
                "- stalled: 3 iterations without a new best; profile again, re-read the log, or change direction"
            )
        return "\n".join([*lines, "", *_table(self._task, self._results)]) + "\n"


def _title(summary: Summary) -> str:
    text = " ".join(summary.hypothesis.split()) or "no hypothesis"
    return text if len(text) <= SHORT else text[: SHORT - 3].rstrip() + "..."


def _score(summary: Summary) -> str:
    word = render.outcome(summary)
    before = f" (best was {render.times(summary.best_geomean)})" if summary.best_geomean and word != "best" else ""
    return f"{render.times(summary.geomean)} · {word}{before}" if summary.geomean else f"{word}{before}"


def _circumstances(summary: Summary) -> list[str]:
    parts = [f"{summary.at[:10]} {summary.at[11:16]} UTC", f"source {summary.source[:8]}"]
    parts += [summary.environment.device_name or summary.environment.device, f"baseline {summary.baseline}"]
    if summary.environment.condition:
        parts.append(summary.environment.condition)
    if summary.failed_builds:
        parts.append(f"after {summary.failed_builds} failed build{'s' if summary.failed_builds > 1 else ''}")
    if summary.repeats is not None:
        parts.append(f"same source as {summary.repeats}")
    return parts


def _words(summary: Summary) -> list[str]:
    return [
        f"- hypothesis: {' '.join(summary.hypothesis.split()) or '-'}",
        f"- next: {' '.join(summary.next.split()) or '-'}",
    ]


def _result(task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> str:
    parts: list[str] = []
    if summary.ratio is not None:
        timed = len([case for case in task.timed if case.headline])
        rows = summary.counts.get("headline", 0)
        part = "" if rows == timed else f" of {timed}"
        clock = next((row.clock for row in results.values() if row.clock), "wall")
        parts.append(f"geomean {render.geomean(summary.ratio)} over {rows}{part} cases ({clock})")
    if summary.wall is not None and any(row.clock != "wall" for row in results.values() if row.clock):
        parts.append(f"wall {render.times(summary.wall)}")
    if summary.worst is not None:
        parts.append(f"worst {summary.worst.label} {render.times(summary.worst.speedup)}")
    if summary.vs_best is not None:
        parts.append(f"against best {render.geomean(summary.vs_best)}")
    parts.append(render.counts(summary))
    first = next((row for row in results.values() if row.failed), None)
    if first is not None:
        parts.append(f"{task.case(first.id).label}: {render.place(first.where, first.detail or first.status)}")
    names = sorted(
        {finding.name for row in results.values() for finding in row.findings} | {f.name for f in summary.findings}
    )
    if names:
        parts.append(f"findings: {', '.join(names)}")
    return "; ".join(parts)


def _table(task: Task, results: Mapping[str, CaseResult]) -> list[str]:
    rows = [results[case.id] for case in task.cases if case.id in results]
    shown = [row for row in rows if task.case(row.id).kind != "check" or row.failed]
    lines = [
        "| case | baseline us | solution us | speedup | verdict | error |",
        "| --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in shown:
        cells = [
            task.case(row.id).label,
            render.microseconds(row.baseline_us),
            render.microseconds(row.solution_us),
            render.speedup(row.ratio),
            render.verdict(row),
            render.error(row.error.max if row.error else None),
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    checks = [row for row in rows if task.case(row.id).kind == "check"]
    if checks:
        right = sum(not row.failed and row.status != "skipped" for row in checks)
        lines += ["", f"{right}/{len(checks)} check cases right."]
    return lines


def _changed(path: Path, number: int, lines: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    """The entry's lines with the old words replaced; the heading holds the title, other lines match whole."""
    result = list(lines)
    for old, new in pairs:
        if old == new:
            continue
        ending = "\r" if result[0].endswith("\r") else ""
        if old.startswith("- "):
            matches = [index for index, line in enumerate(result) if line == old + ending]
            replacement = new + ending
        else:
            matches = [0] if f"## {number} · {old} · " in result[0] else []
            replacement = result[0].replace(f"· {old} ·", f"· {new} ·", 1)
        if not matches:
            raise LogbookError(f"entry {number} of {path.name} was changed by hand meanwhile; edit it there")
        result[matches[0]] = replacement
    return result


def _span(text: str, number: int) -> tuple[int, int] | None:
    starts = [(match.start(), int(match[1])) for match in HEADING.finditer(text)]
    for place, (start, found) in enumerate(starts):
        if found == number and not any(later == number for _start, later in starts[place + 1 :]):
            return start, starts[place + 1][0] if place + 1 < len(starts) else len(text)
    return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The open, locked file; an editor may replace it while we wait, hence the second look."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as problem:
            raise LogbookError(f"{path} cannot be written: {problem.strerror}") from None
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            same = path.exists() and os.path.samestat(os.fstat(handle), path.stat())
            if same:
                yield handle
                return
        finally:
            os.close(handle)


def _read(handle: int) -> str:
    size = os.fstat(handle).st_size
    return os.pread(handle, size, 0).decode("utf-8", "surrogateescape")


def _like(text: str, addition: str) -> str:
    return addition.replace("\n", "\r\n") if "\r\n" in text else addition


def _write(path: Path, handle: int, addition: str) -> None:
    data = addition.encode("utf-8", "surrogateescape")
    before = os.fstat(handle).st_size
    try:
        if os.write(handle, data) != len(data):
            raise OSError(28, "No space left on device")
        os.fsync(handle)
    except OSError as problem:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)  # an entry is whole or not there
        raise LogbookError(f"{path} cannot be written: {problem.strerror}; the entry is only in runs.jsonl") from None


def _replace(path: Path, text: str) -> None:
    try:
        mode = path.stat().st_mode & 0o7777
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".iterations-")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, mode)
        os.replace(scratch, path)
    except OSError as problem:
        raise LogbookError(f"{path} cannot be written: {problem.strerror}") from None
