"""ITERATIONS.md: the human log, committed with the kernel.

Entries are appended in one write, under a lock on the file itself, so that two workbenches take turns even with
different state folders. Without the lock no number is given. Numbers continue from the highest one in the file or in
runs.jsonl. Whatever people write around and inside entries survives byte for byte: kernbench changes only its own
lines, and only if they are unedited. Editors take no lock, so if the file was replaced or rewritten during an append,
the entry is appended again.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.shared import regular_file
from kernbench import render
from kernbench.atomic_write import written_aside
from kernbench.events import Confirmed, Summary
from kernbench.log.entries import entry_text, trailer
from kernbench.log.entries.log_lock import PATIENCE, LogbookError, is_same, locked
from kernbench.machine.plain_text import markdown, one_line

HEADING = re.compile(r"^## (\d{1,9}) ·", re.MULTILINE)
"""A longer number is a date."""
WHEN = re.compile(r"^[-*+] +when .* · source ([0-9a-f]{8})\b", re.MULTILINE)
CONFLICT = re.compile("^<<<<<<< ", re.MULTILINE)
ATTEMPTS = 20
LARGEST = 1 << 29


@dataclass
class KnownFile:
    """The file's state after this process last wrote it, so that an append need not read it again."""

    signature: tuple[int, int, int] | None = None
    highest: int = 0
    crlf: bool = False


def append(
    path: Path,
    text: Callable[[int], str],
    at_least: int,
    seen: KnownFile | None = None,
    *,
    store: Callable[[int], None] = lambda number: None,
    run: str = "",
    patience: float = PATIENCE,
) -> int:
    """Append an entry with the next free number and return the number; `text` makes the entry from its number.

    `store` gets the number before the entry is written, so that a process killed in between leaves no entry without
    its run. With `run`, the file may have that run's entry already: then its number is returned and nothing written.
    Raises LogHeld if another process keeps the lock.
    """
    seen = seen if seen is not None else KnownFile()
    for attempt in range(ATTEMPTS):
        with locked(path, patience) as handle:
            known = _look(handle, seen, run)
            number = known or max(at_least, seen.highest) + 1
            if not attempt:
                store(number)
            if known:
                return known
            addition = _lead(path, handle) + text(number)
            data = (addition.replace("\n", "\r\n") if seen.crlf else addition).encode("utf-8", "surrogateescape")
            _write(path, handle, data)
            if _is_in(path, handle, data):
                seen.signature, seen.highest = signature_of(handle), number
                return number
            seen.signature = None
    raise LogbookError(f"{path} keeps changing")


def entry_of(path: Path, number: int, source: str | None = None, at: str = "") -> str | None:
    """The text of one entry without its trailer. If two share the number, source and time decide."""
    text = _shown(path)
    span = span_of(text, number, source, at)
    return None if span is None else trailer.without(text[span[0] : span[1]]).rstrip() + "\n"


def headings(text: str) -> Iterator[re.Match[str]]:
    """Headings of entries. In a long log, str.find is much faster than a pattern."""
    place = 0
    while True:
        if found := HEADING.match(text, place):
            yield found
        place = text.find("\n## ", place) + 1
        if not place:
            return


def last_entry(path: Path) -> tuple[int, str] | None:
    """Number and short source hash of the last entry in the file, from any machine."""
    text = _shown(path)
    for heading in reversed(list(HEADING.finditer(text))):
        if when := WHEN.search(text, heading.end()):
            return int(heading[1]), when[1]
    return None


def reword(path: Path, old: Summary, new: Summary) -> None:
    """Change kernbench's own lines of an entry in place; refuse if a person edited them."""
    with _own_entry(path, old.iteration or 0, old.source, old.at) as found:
        changed = _retitled(path, old, new, found.lines)
        is_old = any(line.startswith(("- said ", "- after the stall: not said ")) for line in found.lines)
        words = entry_text.OLD_WORDS if is_old else entry_text.WORDS
        for before, after in zip(entry_text.own_lines(old, words), entry_text.own_lines(new, words), strict=True):
            changed = _exchanged(path, old, changed, before, after, found.outcome)
        _replace(path, found, changed)


def set_next(path: Path, number: int, source: str, at: str, step: str) -> None:
    """Change the next step of an entry, even if a person worded it; refuse unless there is exactly one such line."""
    with _own_entry(path, number, source, at) as found:
        places = list(entry_text.fields(found.lines, "next"))
        if len(places) != 1:
            raise _by_hand(path, number)
        place = places[0]
        mark = entry_text.mark_of(found.lines[place.start], "next")
        lines = [line + found.outcome for line in entry_text.field(mark, step)]
        _replace(path, found, [*found.lines[: place.start], *lines, *found.lines[place.stop :]])


def next_of(path: Path, number: int, source: str, at: str) -> str | None:
    """The next step that an entry names now, possibly empty; None if it has no such line."""
    return entry_text.said((entry_of(path, number, source, at) or "").split("\n"), "next")


def add_evidence(path: Path, summary: Summary, evidence: str) -> None:
    """Set the evidence line below an entry's result once there is a profile, replacing an older one."""
    with _own_entry(path, summary.iteration or 0, summary.source, summary.at) as found:
        lines = found.lines
        result = next(entry_text.fields(lines, "result"), None)
        if result is None:
            raise _by_hand(path, summary.iteration)
        after = result.stop
        old = (
            next(entry_text.fields(lines[after:], "evidence"), None)
            if entry_text.mark_of(lines[after], "evidence")
            else None
        )
        kept = lines[after + old.stop :] if old is not None else lines[after:]
        _replace(path, found, [*lines[:after], f"- evidence: {evidence}{found.outcome}", *kept])


def add_second_try(path: Path, summary: Summary, sentence: str, patience: float) -> None:
    """Add what came of trying rows again, below an entry's result and evidence."""
    with _own_entry(path, summary.iteration or 0, summary.source, summary.at, patience) as found:
        line = f"- {entry_text.SECOND_TRY}: {markdown(one_line(sentence))}"
        _replace(path, found, _with_line(path, summary, found, line))


def add_confirmation(path: Path, summary: Summary, event: Confirmed, usual: str, patience: float) -> None:
    """Add what came of a run that would be best, below its entry's result, and bring the entry's word up to date: in
    the heading unless a person edited that, and in the trailer. `usual` is the task's baseline."""
    with _own_entry(path, summary.iteration or 0, summary.source, summary.at, patience) as found:
        head, *lines = _with_line(path, summary, found, entry_text.confirmation(event))
        words = (replace(summary, confirmed=value) for value in (None, event.confirmed))
        before, after = (entry_text.heading(summary.iteration or 0, item, usual) for item in words)
        head = after + found.outcome if head == before + found.outcome else head
        marks = [f"\n{line}".startswith(trailer.BEGIN) for line in lines]
        if marks.count(True) == 1:
            place = marks.index(True)
            lines[place] = trailer.with_confirmation(lines[place].rstrip(), event.confirmed) + found.outcome
        _replace(path, found, [head, *lines])


def add_model(path: Path, summary: Summary, model: str, sentence: str) -> None:
    """Set what a model's step came to, below an entry's result and evidence, replacing the older line of that model and
    config."""
    with _own_entry(path, summary.iteration or 0, summary.source, summary.at) as found:
        name = f"model {re.escape(one_line(model))}"
        gone = {place for field in entry_text.fields(found.lines, name) for place in range(field.start, field.stop)}
        kept = replace(found, lines=[line for place, line in enumerate(found.lines) if place not in gone])
        line = f"- model {one_line(model)}: {markdown(one_line(sentence))}"
        _replace(path, found, _with_line(path, summary, kept, line))


def _with_line(path: Path, summary: Summary, found: LocatedEntry, line: str) -> list[str]:
    """The entry's lines with another one below its result and evidence."""
    result = next(entry_text.fields(found.lines, "result"), None)
    if result is None:
        raise _by_hand(path, summary.iteration)
    after = result.stop
    if entry_text.mark_of(found.lines[after], "evidence"):
        after += next(entry_text.fields(found.lines[after:], "evidence")).stop
    return [*found.lines[:after], line + found.outcome, *found.lines[after:]]


def remove(path: Path, entry: Summary, store: Callable[[str], None]) -> None:
    """Remove an entry and the empty line before it; `store` saves the text first."""
    number = entry.iteration or 0
    if not path.exists():
        raise LogbookError(f"{path} does not exist")
    with locked(path) as handle:
        signature, text = signature_of(handle), _read(handle)
        span = span_of(text, number, entry.source, entry.at)
        if span is None:
            raise LogbookError(f"{path.name} has no entry {number}")
        start, end = span[0] - _lead_before(text, span[0]), span[1]
        end -= _lead_before(text, end) if end < len(text) else 0
        store(text[start:end])
        _rewrite(path, text[:start] + text[end:], signature)


def put_back(path: Path, number: int, entry: str) -> None:
    """Put a removed entry back: before the first entry with a higher number, else at the end."""
    with locked(path) as handle:
        signature, text = signature_of(handle), _read(handle)
        if span_of(text, number, None) is not None:
            raise LogbookError(f"{path.name} already has an entry {number}; remove or renumber it first")
        later = (heading.start() for heading in headings(text) if int(heading[1]) > number)
        place = next(later, len(text))
        place -= _lead_before(text, place) if place < len(text) else 0
        _rewrite(path, text[:place] + entry + text[place:], signature)


def _lead_before(text: str, place: int) -> int:
    """Length of the line end of the empty line before a heading."""
    end = "\r\n" if "\r\n" in text else "\n"
    return len(end) if text.endswith(end + end, 0, place) else 0


# -- an entry's own lines ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocatedEntry:
    """An entry and the text around it."""

    head: str
    lines: list[str]
    tail: str
    signature: tuple[int, int, int]
    """The file's signature from before it was read."""

    @property
    def outcome(self) -> str:
        """What precedes each newline."""
        return "\r" if self.lines[0].endswith("\r") else ""


@contextlib.contextmanager
def _own_entry(
    path: Path, number: int, source: str, at: str = "", patience: float = PATIENCE
) -> Iterator[LocatedEntry]:
    """The entry with this number and source, and time if two match. Holds the file's lock."""
    if not path.exists():
        raise LogbookError(f"{path.name} no longer exists; entry {number} is only in runs.jsonl")
    with locked(path, patience) as handle:
        signature, text = signature_of(handle), _read(handle)
        span = span_of(text, number, source, at)
        if span is None:
            other = " for this source" if span_of(text, number, None) else ""
            raise LogbookError(f"{path.name} no longer has an entry {number}{other}")
        own = text[slice(*span)]
        if not own.endswith("\n"):  # at the end of the file
            own += "\r\n" if "\r\n" in own else "\n"
        yield LocatedEntry(text[: span[0]], own.split("\n"), text[span[1] :], signature)


def _retitled(path: Path, old: Summary, new: Summary, lines: list[str]) -> list[str]:
    before, after = (f"## {old.iteration} · {entry_text.title(item)} · " for item in (old, new))
    if before == after:
        return lines
    if not lines[0].startswith(before):
        raise _by_hand(path, old.iteration)
    return [after + lines[0].removeprefix(before), *lines[1:]]


def _exchanged(
    path: Path, old: Summary, lines: list[str], before: list[str], after: list[str], outcome: str
) -> list[str]:
    """The entry's lines with one block replaced, which must be there unchanged."""
    if before == after:
        return lines
    wanted = [line + outcome for line in before]
    for index in range(len(lines) - len(wanted) + 1):
        if lines[index : index + len(wanted)] == wanted:
            return [*lines[:index], *(line + outcome for line in after), *lines[index + len(wanted) :]]
    raise _by_hand(path, old.iteration)


def _by_hand(path: Path, number: int | None) -> LogbookError:
    return LogbookError(f"entry {number} of {path.name} was edited by hand; change it there")


def span_of(text: str, number: int, source: str | None, at: str = "") -> tuple[int, int] | None:
    """Start and end of the last entry with this number, and with this source if one is given.

    If two machines made one each, the time decides. An entry that no longer names its source also counts if it is the
    only one with the number; an empty source asks for such an entry.
    """
    starts = [(match.start(), int(match[1])) for match in HEADING.finditer(text)]
    ends = [start for start, _number in starts[1:]] + [len(text)]
    spans = [(start, end) for (start, found), end in zip(starts, ends, strict=False) if found == number]
    mark = f" · source {source[: entry_text.HASH]}" if source else ""
    if source is not None:
        unsigned = [span for span in spans if not WHEN.search(text, *span)]
        signed = [span for span in spans if mark and mark in text[slice(*span)]]
        spans = signed or (unsigned if len(spans) == 1 or not source else [])
    then = [span for span in spans if at and f" when {render.minute(at)}{mark}" in text[slice(*span)]]
    return next(reversed(then or spans), None)


# -- the file ----------------------------------------------------------------------------------------------------------


def _shown(path: Path) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        return regular_file.read_bytes(path, LARGEST).decode("utf-8", "replace")
    except (OSError, regular_file.NotRegular):
        return ""


def conflict(text: str) -> int | None:
    """The line of the first conflict marker of git."""
    found = CONFLICT.search(text) if "<<<<<<< " in text else None
    return text.count("\n", 0, found.start()) + 1 if found else None


def signature_of(file: int | Path) -> tuple[int, int, int]:
    """Changes with every change of the file."""
    about = os.stat(file)
    return about.st_ino, about.st_size, about.st_mtime_ns


def _look(handle: int, seen: KnownFile, run: str) -> int | None:
    """Read the file, unless this process wrote it last; returns the number of the run's entry, if it has one."""
    if seen.signature == signature_of(handle):
        return None
    text = _read(handle)
    seen.highest = max((int(found) for found in HEADING.findall(text)), default=0)
    seen.crlf = "\r\n" in text
    place = trailer.find(text, run) if run else -1
    numbers = [int(found[1]) for found in HEADING.finditer(text, 0, place)] if place > 0 else []
    return numbers[-1] if numbers else None


def _lead(path: Path, handle: int) -> str:
    """What separates the entry from the text before it, judging by the file's last bytes."""
    size = os.fstat(handle).st_size
    tail = os.pread(handle, 64, max(size - 64, 0))
    if size <= 64 and not tail.strip():
        return f"# Iterations of {markdown(one_line(path.parent.name))}\n\n"
    return "\n" if tail.endswith(b"\n") else "\n\n"


def _read(handle: int) -> str:
    size = os.fstat(handle).st_size
    if size > LARGEST:
        raise LogbookError(f"ITERATIONS.md is {size >> 20} MB, too large to read; move it elsewhere")
    data = os.pread(handle, size, 0)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LogbookError("ITERATIONS.md is UTF-16, as PowerShell's `>` writes it; save it as UTF-8")
    return data.decode("utf-8", "surrogateescape")


def _write(path: Path, handle: int, data: bytes) -> None:
    before = os.fstat(handle).st_size
    try:
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError as problem:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)  # an entry is written whole or not at all
        raise LogbookError(f"{path} cannot be written: {problem.strerror}") from None


def _is_in(path: Path, handle: int, data: bytes) -> bool:
    """Whether the data just written is in the file that the path names, almost always at its end."""
    size = os.fstat(handle).st_size
    if not is_same(path, handle):
        return False
    return os.pread(handle, len(data), max(size - len(data), 0)) == data or data in os.pread(handle, size, 0)


def _replace(path: Path, found: LocatedEntry, changed: list[str]) -> None:
    _rewrite(path, found.head + "\n".join(changed) + found.tail, found.signature)


def _rewrite(path: Path, text: str, signature: tuple[int, int, int]) -> None:
    """Replace the whole file atomically; refuse if it changed since it was read."""
    try:
        with written_aside(path, text.encode("utf-8", "surrogateescape"), durable=True) as move:
            if signature_of(path) != signature:
                raise LogbookError(f"{path.name} was just saved by another program; try again")
            move()
    except OSError as problem:
        raise LogbookError(f"{path} cannot be written: {problem.strerror}") from None
