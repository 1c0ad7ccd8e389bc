"""What the logs found from here know: entries by their words, each with what it changed against the best before it.

Everything is read from ITERATIONS.md, which travels with the kernel: own and pulled entries alike, the shipped kernels'
too. An entry is compared with the last one before it that became best over the same baseline, on the same device and in
the same state of the L2.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.regular_file import NotRegular
from kernbench.diagnosis.techniques import TECHNIQUES, Technique
from kernbench.events import PulledEntry
from kernbench.log.entries import entry_text, iterations_file, old_entries, pulled_entries, trailer
from kernbench.log.runs.comparison import axis_of
from kernbench.task import lookup

MOST_LOGS = 512
"""Logs kept in memory, by file and signature."""
UNSEARCHED = re.compile(r"[-*+] +(?:when|with|command|written|said)\b|\|")
"""Lines without words about what was tried: circumstances, hashes, the table."""


@dataclass(frozen=True)
class Change:
    """One row before and after, in microseconds."""

    label: str
    before: float
    after: float


@dataclass(frozen=True)
class Tried:
    """One entry, and what it changed."""

    task: str
    folder: Path
    number: int
    source: str
    title: str
    hypothesis: str
    outcome: str
    device: str
    text: str
    geomean: float | None = None
    direct: float | None = None
    """Speedup over the best, timed in the same run."""
    best: Tried | None = None
    """The entry it is compared with; None if it is the first."""

    @functools.cached_property
    def words(self) -> str:
        """All that is searched."""
        return "\n".join(line for line in trailer.without(self.text).split("\n") if not UNSEARCHED.match(line))

    @functools.cached_property
    def row(self) -> Change | None:
        """The row that changed most in the direction of the geomean."""
        if self.best is None or self.gain is None:
            return None
        before, after = old_entries.times(self.best.text), old_entries.times(self.text)
        changes = [Change(label, before[label], time) for label, time in after.items() if before.get(label) and time]
        direction = 1 if self.gain >= 1 else -1
        return max(changes, key=lambda change: direction * math.log(change.before / change.after), default=None)

    @property
    def gain(self) -> float | None:
        """How much faster than the best before it; None if that is not known."""
        if self.best is None or not (self.geomean and self.best.geomean):
            return None
        return self.direct or self.geomean / self.best.geomean

    @property
    def speedups(self) -> str:
        """`1.07x -> 1.09x`; one figure for the first entry, none for one that failed."""
        values = (self.best.geomean if self.best else None, self.geomean) if self.geomean else ()
        return " -> ".join(fmt.times(value) for value in values if value)

    @property
    def times(self) -> str:
        """`3.16 -> 3.00 us`; empty if the row is not known."""
        row = self.row
        return f"{fmt.microseconds(row.before)} -> {fmt.microseconds(row.after)} us" if row else ""


def logs(cwd: Path | None = None) -> list[Path]:
    """The folders of all tasks found from here and of the shipped ones; of two with the same name, the nearer."""
    found = {folder.name: folder for folder in lookup.list_tasks(cwd)}
    return list({**lookup.shipped_tasks(), **found}.values())


def entries(folders: Iterable[Path]) -> list[Tried]:
    """All entries of these logs; a log that is missing or cannot be read has none."""
    found: list[Tried] = []
    for folder in folders:
        try:
            found += _read(folder, iterations_file.signature_of(folder / "ITERATIONS.md"))
        except (OSError, NotRegular):
            continue
    return found


def search(known: Iterable[Tried], words: Sequence[str]) -> list[Tried]:
    """The entries that mention every word, the largest gain first; those without one last."""
    found = [item for item in known if all(mentions(item.words, word) for word in words)]
    return sorted(found, key=lambda item: -(item.gain or 0.0))


def mentions(text: str, words: str) -> bool:
    """Whether these words are in the text one after the other; endings do not matter: `spills` finds `spilled`."""
    return _pattern(words).search(text) is not None


def by_technique(known: Sequence[Tried]) -> dict[str, tuple[str, ...]]:
    """Lines for the techniques of a diagnosis, by name: the entry that gained most with it, and the one that lost most.
    Only the hypothesis counts, and only entries that have a best to be compared with."""
    compared = [item for item in known if item.gain is not None]
    return {each.name: found for each in TECHNIQUES.values() if (found := tuple(_lines(each, compared)))}


def _lines(technique: Technique, known: Sequence[Tried]) -> Iterator[str]:
    found = [item for item in known if any(mentions(item.hypothesis, name) for name in technique.known_as)]
    by_gain = sorted(found, key=lambda item: item.gain or 0.0)
    for item in (*by_gain[-1:], *(by_gain[:1] if len(by_gain) > 1 and (by_gain[0].gain or 0.0) < 1 else ())):
        yield f"tried in {item.task} #{item.number}: {item.times or item.speedups}, {item.outcome}"


@functools.lru_cache(maxsize=256)
def _pattern(words: str) -> re.Pattern[str]:
    stems = [_stem(word) for word in re.findall(r"\w+", words)]
    return re.compile(r"(?<!\w)" + r"\w*\W+".join(map(re.escape, stems)) if stems else r"(?!)", re.IGNORECASE)


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@functools.lru_cache(maxsize=MOST_LOGS)
def _read(folder: Path, _signature: tuple[int, int, int]) -> tuple[Tried, ...]:
    bests: dict[tuple[str, str, str], Tried] = {}
    found = []
    for entry, text in sorted(
        pulled_entries.read_with_text(folder / "ITERATIONS.md"), key=lambda pair: _number(pair[0])
    ):
        tried = _tried(folder, entry, text, bests.get(axis_of(entry)))
        found.append(tried)
        if entry.took_over and entry.holds:
            bests[axis_of(entry)] = replace(tried, best=None)  # not the whole chain
    return tuple(found)


def _number(entry: PulledEntry) -> int:
    return entry.iteration or 0


def _tried(folder: Path, entry: PulledEntry, text: str, best: Tried | None) -> Tried:
    return Tried(
        task=folder.name,
        folder=folder,
        number=_number(entry),
        source=entry.source[: entry_text.HASH],
        title=entry_text.title(entry),
        hypothesis=entry.hypothesis,
        outcome=entry.outcome,
        device=entry.environment.device_name,
        text=text,
        geomean=entry.geomean if entry.right else None,
        direct=entry.vs_best.speedup if entry.vs_best else None,
        best=best,
    )
