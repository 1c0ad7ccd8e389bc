"""Plays the table: a line per fault as it goes, then the table as markdown.

`python -m tests.faults [NAME...] [--gpu] [--quick] [-o FILE]`; a NAME is part of a fault's name.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.row import Fault, Outcome, Stage
from tests.faults.table import TABLE

GROUPS = {"source": "Sources", "leaks": "Leaks", "files": "Files", "surroundings": "Surroundings", "attacks": "Attacks"}


def chosen(names: Sequence[str], gpu: bool, quick: bool) -> list[Fault]:
    return [
        fault
        for fault in TABLE
        if fault.gpu == gpu and (fault.quick or not quick) and (not names or any(name in fault.name for name in names))
    ]


def line(fault: Fault, outcome: Outcome) -> str:
    word = "FAIL" if outcome.wrong else "ok"
    after = "" if outcome.recovery is None else f", right again after {outcome.recovery:.2f} s"
    why = "".join(f"\n       {sentence}" for sentence in outcome.wrong)
    return f"{word:<5}{fault.group}: {fault.name} ({outcome.seconds:.1f} s{after}){why}"


def markdown(played: Sequence[tuple[Fault, Outcome]]) -> str:
    right = sum(not outcome.wrong for _fault, outcome in played)
    text = [f"# Faults: {right} of {len(played)} as specified", ""]
    for group, title in GROUPS.items():
        rows = [(fault, outcome) for fault, outcome in played if fault.group == group]
        if rows:
            text += [f"## {title}", "", "| fault | what is done | what the user saw | afterwards | recovery s |"]
            text += ["| --- | --- | --- | --- | ---: |"]
            text += [_cells(fault, outcome) for fault, outcome in rows] + [""]
    return "\n".join(text)


def _cells(fault: Fault, outcome: Outcome) -> str:
    after = "as specified" if not outcome.wrong else "NOT as specified: " + "; ".join(outcome.wrong)
    recovery = "-" if outcome.recovery is None else f"{outcome.recovery:.2f}"
    cells = (fault.name, fault.done, outcome.saw, after, recovery)
    plain = (
        cell.translate({10: " / ", 124: "\\|"} | dict.fromkeys((*range(10), *range(11, 32), *range(127, 160)), "?"))
        for cell in cells
    )
    return f"| {' | '.join(plain)} |"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", action="store_true", help="the faults that need a GPU, and only those")
    parser.add_argument("--device", help="play the faults of any source on this device")
    parser.add_argument("--quick", action="store_true", help="only those of `make test`")
    parser.add_argument("-o", "--output", type=Path, help="write the table as markdown")
    given = parser.parse_args(words)
    faults = chosen(given.names, given.gpu, given.quick)
    stage, played, began = Stage(given.device or ("cuda" if given.gpu else "cpu")), [], time.monotonic()
    try:
        for fault in faults:
            outcome = fault.play(stage)
            played.append((fault, outcome))
            print(line(fault, outcome), flush=True)
            if given.output:
                given.output.write_text(markdown(played) + "\n")  # as it goes: an abort loses nothing
    finally:
        stage.close()
    failed = sum(bool(outcome.wrong) for _fault, outcome in played)
    recoveries = [outcome.recovery for _fault, outcome in played if outcome.recovery is not None]
    print(f"{len(played) - failed} of {len(played)} faults as specified in {time.monotonic() - began:.0f} s, "
          f"{stage.opened} workbenches, slowest recovery {max(recoveries, default=0):.2f} s")  # fmt: skip
    return 1 if failed or not played else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
