"""The iterations as people count them: those that runs here made, and those that ITERATIONS.md brought along.

The log travels with the kernel, its runs do not. An entry that no run here has made is an Elsewhere: what its own lines
say. A run whose source is that of such an entry is the entry, timed again on this machine: it carries the entry's
number and words wherever iterations are listed, compared, exported or drawn.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from harness.records.run import Environment
from kernbench import compare, entry, iterations, render
from kernbench.briefs import Brief
from kernbench.events import Elsewhere, Summary
from kernbench.journal import Journal
from kernbench.listing import Listing

TIMES = re.compile(r"(\d+(?:\.\d+)?)x")
BASELINE = "baseline "
FAILED = frozenset(render.STATUS_WORDS[name].lower() for name in render.FAILURES)


class Entries:
    """The entries of one log that were made elsewhere; the file is read again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._signature: tuple[int, int, int] | None = None
        self._found: list[Elsewhere] = []

    def current(self) -> bool:
        """Whether the file is as it was read."""
        try:
            return iterations.signature_of(self.path) == self._signature
        except OSError:
            return False

    def adopt(self) -> None:
        """The file has grown by an entry made here: nothing in it has to be read for that, however long it is."""
        self._signature = iterations.signature_of(self.path)

    def of(self, journal: Journal) -> list[Elsewhere]:
        """As the file has them, less those that runs here have made."""
        try:
            signature = iterations.signature_of(self.path)
            if signature != self._signature:
                self._found, self._signature = read(self.path, _made(journal)), signature
        except OSError:
            return []
        made = _made(journal) if self._found else set()
        return [item for item in self._found if (item.iteration, item.source) not in made]

    def number_of(self, journal: Journal, source: str) -> int | None:
        """Number of the newest entry about this very source, whichever machine made it."""
        written = (item.iteration for item in reversed(self.of(journal)) if _is_about(item, source))
        return journal.iteration_of(source) or next(written, None)

    def runs(self, journal: Journal, series: compare.Series | None = None) -> Listing:
        """Every finished run, oldest first; of each entry made elsewhere one is its re-timing and has its number.

        That is the first whole one that came out right, where there is one in the series that is asked for.
        """
        return Listing(journal.summaries, range(len(journal.briefs)), _retimed(journal, self.of(journal), series))

    def iterations(self, journal: Journal, series: compare.Series | None = None) -> Listing:
        """By number: what was made here, what was timed again here, and what is only written down."""
        written = self.of(journal)
        retimed = _retimed(journal, written, series)
        known = {(item.iteration, item.source) for item in retimed.values()}
        only = [item for item in written if (item.iteration, item.source) not in known]
        places = [*sorted([*journal.briefs.numbered().indices, *retimed]), *(~place for place in range(len(only)))]
        return Listing(journal.summaries, places, retimed, only).by_number()


def read(path: Path, made: Container[tuple[int | None, str]] = ()) -> list[Elsewhere]:
    """The entries of the file, less those that are known to be made here: a long log of one's own costs little."""
    text = path.read_text(encoding="utf-8", errors="replace")
    headings = list(iterations.HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    found: list[Elsewhere] = []
    for heading, end in zip(headings, ends, strict=False):  # a file without headings has an end all the same
        when = iterations.WHEN.search(text, heading.end(), end)
        source = when[1] if when else ""
        if (int(heading[1]), source) not in made:
            found.append(parse(int(heading[1]), text[heading.end() : end], source))
    return found


def parse(number: int, text: str, source: str) -> Elsewhere:
    """An entry as far as its lines still say what kernbench wrote; `text` begins behind the number of the heading."""
    heading, *lines = text.split("\n")
    title, *score = heading.strip().split(" · ")
    while len(score) > 2 or (len(score) == 2 and not TIMES.fullmatch(score[0])):
        title, score = f"{title} · {score[0]}", score[1:]
    times = TIMES.fullmatch(score[0]) if score else None
    outcome = "".join(score[1:] if times else score).partition(" (")[0]
    said = {name: _said(lines, name) for name in ("hypothesis", "next", "command", "when")}
    at, *circumstances = said["when"].split(" · ")
    baselines = [part.removeprefix(BASELINE) for part in circumstances if part.startswith(BASELINE)]
    machine = [part for part in circumstances if not part.startswith(("source ", BASELINE, "same source", "after "))]
    return Elsewhere(
        run="",
        source=source,
        at=re.sub(r"^(\S+) (\S+) UTC$", r"\1T\2:00+00:00", at),
        right=outcome not in FAILED,
        geomean=float(times[1]) if times and outcome not in FAILED else None,
        best=outcome in ("first", "improved", "best"),
        stalled=bool(_said(lines, "stalled")),
        iteration=number,
        hypothesis=said["hypothesis"] or title,
        next=said["next"],
        baseline=baselines[0] if baselines else "",
        command=said["command"].strip("`"),
        environment=Environment(device_name=machine[0] if machine else "", condition=", ".join(machine[1:])),
        outcome=outcome,
    )


def by_number(items: Iterable[Summary]) -> list[Summary]:
    """Those of one number (two machines took it) stay in their order."""
    return sorted(items, key=lambda item: item.iteration or 0)


def _said(lines: Sequence[str], name: str) -> str:
    marks = (f"- {name}: ", f"- {name} ")
    found = next((line.removeprefix(mark) for line in lines for mark in marks if line.startswith(mark)), "").strip()
    return "" if found == "-" else found


def _made(journal: Journal) -> set[tuple[int | None, str]]:
    """Number and short hash of the entries that runs here have made."""
    table = journal.briefs
    return {(table.iteration(index), table.source(index)[: entry.HASH]) for index in table.numbered().indices}


def _retimed(journal: Journal, written: Sequence[Elsewhere], series: compare.Series | None) -> dict[int, Elsewhere]:
    """Entries made elsewhere by the place of the run that timed them again."""
    about = {item.source: item for item in written if item.source}
    chosen: dict[str, Brief] = {}
    table = journal.briefs
    for index in range(len(table)) if about else ():
        short = table.source(index)[: entry.HASH]
        if short in about and _can_stand_for_an_entry(run := table[index]):
            chosen[short] = max(chosen.get(short, run), run, key=lambda item: _fitness(item, series))
    return {run.position: about[short] for short, run in chosen.items()}


def _is_about(item: Summary, source: str) -> bool:
    return bool(item.source) and source.startswith(item.source)


def _can_stand_for_an_entry(run: Brief) -> bool:
    """A part of the cases, an interpreter, or the best as the opponent: such runs time something else."""
    is_other = run.about.interpreted or run.about.series.baseline == "best"
    return run.iteration is None and run.complete and not is_other


def _fitness(run: Brief, series: compare.Series | None) -> tuple[bool, bool]:
    """Of several runs of one source the fittest is taken, and of equals the first."""
    return run.about.series == series, run.right
