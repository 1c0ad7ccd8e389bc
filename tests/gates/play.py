"""Plays the cheats, or the honest oddities, against `kernbench watch --json`: a line each, then a summary by class.

    python -m tests.gates [--device cuda] [--honest] [--code FOLDER] [--output FILE] [NAME...]

A NAME is part of a cheat's name or its class. The honest kernel is saved before and after every source: it must be
right, and neither faster nor slower than itself. A source that would be best is waited for until it is confirmed or
refused. `harmless` is a cheat that was not noticed and gained nothing: right, and no faster than the honest kernel.
`--code` plays against another checkout.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from tests import ROOT
from tests.faults.workbench import GOOD, REFERENCE, Answer, Silent, Workbench, write_task
from tests.gates.cheats import CHEATS
from tests.gates.oddities import ODDITIES
from tests.gates.record import CLASSES, GPU_TASK, TASK, Cheat, Oddity
from tests.harness.child import OF_THE_MACHINE

CAUGHT = ("wrong", "disqualified", "refused")
VERDICTS = (*CAUGHT, "harmless", "note", "passed")
RIGHT = {"ok", "interpreted"}
SOURCES_PER_WORKBENCH = 12
WITHIN = 90.0
"""Seconds for an answer."""
DEADLINES = {"build": 60, "check": 20, "time": 20}
BUDGET_MS = {"cpu": 30, "cuda": 100}
"""On a GPU the usual one: with a smaller one a block has a single call, and inputs kept in the L2 cannot be told."""
NUMBERED = re.compile(r"^## (\d+) ·(?:.* ·)? (\d[\d.]*x)\b", re.MULTILINE)
NO_GAIN = 1.02
"""A speedup that the noise of this machine may have."""


@dataclass(frozen=True)
class Played:
    source: Cheat | Oddity
    verdict: str
    """One of VERDICTS."""
    became_best: bool
    speedup: float | None
    words: str
    """What was said about it."""
    after: str
    """What is wrong with the honest save that followed; empty if nothing."""
    seconds: float = 0.0

    @property
    def group(self) -> str:
        return getattr(self.source, "group", "honest")

    @property
    def is_harmed(self) -> bool:
        """Of an honest source."""
        return self.verdict in CAUGHT


def judge(answer: Answer) -> tuple[str, str]:
    """The verdict on a save, and what was said."""
    found = [item for row in answer.rows.values() for item in row.get("findings") or ()]
    found += answer.finished.get("findings") or ()
    found = [item for item in found if item["code"] not in OF_THE_MACHINE]
    names = ", ".join(sorted({item["name"] for item in found}))
    details = sorted({row["detail"] for row in answer.rows.values() if row.get("detail")})
    if answer.statuses - RIGHT - {"wrong"}:
        return "refused", f"{', '.join(sorted(answer.statuses))}: {'; '.join(details) or names}"
    if "wrong" in answer.statuses or not answer.finished.get("right", True):
        return "wrong", f"{'; '.join(details)} {names}"
    if any(is_red(item) for item in found):
        return "disqualified", names
    return ("note" if found else "passed"), names


def gains_nothing(answer: Answer) -> bool:
    """Whether a source is right but not faster than the honest kernel, which is its baseline."""
    mean, low = answer.finished.get("geomean"), answer.finished.get("low")
    is_even = mean is not None and (mean < NO_GAIN or (low is not None and low <= 1.0))
    return is_even and not any(row.get("verdict") == "faster" for row in answer.rows.values())


def is_red(finding: dict[str, Any]) -> bool:
    return bool(finding.get("red") or finding.get("disqualifying"))


def uneven(answer: Answer) -> str:
    """What is wrong with a save of the honest kernel; empty if nothing. It is its own baseline."""
    if not answer.statuses <= RIGHT:
        return f"{', '.join(sorted(answer.statuses))}: {answer.words}"
    verdict, words = judge(answer)
    if verdict == "disqualified":
        return words
    far = [
        f"{row['id']} {row['verdict']} {row['speedup']:.2f}x"
        for row in answer.rows.values()
        if row.get("verdict") in ("faster", "slower") and not row["low"] <= 1.0 <= row["high"]
    ]
    return ", ".join(far)


def forged(bench: Workbench) -> str:
    """The entries of ITERATIONS.md with a number that the workbench did not report; empty if there is none."""
    ends = [event for _at, event in bench.lines if event["event"] == "finished"]
    said = {(str(event["iteration"]), fmt.times(event["geomean"])) for event in ends if event["geomean"] is not None}
    entries = NUMBERED.finditer((bench.folder / "ITERATIONS.md").read_text())
    return ", ".join(f"entry {found[0]}" for found in entries if found.groups() not in said)


class Stage:
    """An open workbench, opened again after some sources, after a new best, and after one that broke it."""

    def __init__(self, device: str, code: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kernbench-gates-"))
        self._task, self._budget_ms = TASK if device == "cpu" else GPU_TASK, BUDGET_MS[device]
        self._code, self._numbers, self._played = code, 0, 0
        self._bench: Workbench | None = None

    def bench(self) -> Workbench:
        if self._bench is not None and self._played >= SOURCES_PER_WORKBENCH:
            self.close()
        if self._bench is None:
            self._numbers, self._played = self._numbers + 1, 0
            folder = write_task(self.root / str(self._numbers) / "softmax", task_toml=self._task)
            paths = os.pathsep.join([str(self._code / "src"), str(self._code)])
            os.chdir(self.root)  # `-m` would import the code of the folder it is started in
            self._bench = Workbench(folder, "--budget", str(self._budget_ms), deadlines=DEADLINES, PYTHONPATH=paths)
            opened = self._bench.answer((0, 0, 0.0), WITHIN)
            self._promoted(self._bench, opened)  # the honest kernel is best before any cheat is saved
            self._bench.answer(self._bench.save(solution_py=GOOD), WITHIN)
        return self._bench

    def play(self, source: Cheat | Oddity) -> Played:
        began = time.monotonic()
        bench = self.bench()
        self._played += 1
        text = source.source.replace("FOLDER", str(bench.folder))
        try:
            answer = bench.answer(bench.save(solution_py=text), WITHIN)
        except Silent as problem:
            self.close()
            return Played(source, "refused", False, None, str(problem), "", time.monotonic() - began)
        verdict, words = judge(answer)
        became_best, why = self._promoted(bench, answer)
        if verdict in ("note", "passed") and why:
            verdict, words = "refused", why
        elif isinstance(source, Cheat) and verdict in ("note", "passed") and gains_nothing(answer) and not became_best:
            verdict = "harmless"
        after = self._honest(bench) or forged(bench)
        if after or became_best:
            self.close()  # it would be loaded next to every later source
        speedup = answer.finished.get("geomean")
        return Played(source, verdict, became_best, speedup, words.strip(), after, time.monotonic() - began)

    def _promoted(self, bench: Workbench, answer: Answer) -> tuple[bool, str]:
        """Whether the source is best, once that is decided, and why it was refused."""
        finished = answer.finished
        if not finished.get("best") or not finished.get("awaits"):
            return bool(finished.get("best")), ""

        def settled() -> dict[str, Any] | None:
            events = (event for _at, event in bench.lines if event["event"] == "confirmed")
            return next((event for event in events if event["run"] == finished["run"]), None)

        found = bench.wait(settled, WITHIN, "confirmation")
        return bool(found["confirmed"]), "" if found["confirmed"] else str(found["why"])

    def _honest(self, bench: Workbench) -> str:
        """Saves the honest kernel, twice if it seems uneven: a busy machine may disturb one save."""
        wrong = ""
        texts = {"task_toml": self._task, "reference_py": REFERENCE}
        changed = {name: text for name, text in texts.items() if _file(bench.folder, name).read_text() != text}
        try:
            for _ in range(3):
                wrong = uneven(bench.answer(bench.save(**changed, solution_py=GOOD), WITHIN))
                changed = {}
                if not wrong:
                    break
        except (Silent, OSError) as problem:
            return f"no answer: {problem}"
        return wrong

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()
            self._bench = None


def _file(folder: Path, name: str) -> Path:
    stem, _, suffix = name.rpartition("_")
    return folder / f"{stem}.{suffix}"


def line(played: Played) -> str:
    speed = "" if played.speedup is None else f" {played.speedup:.2f}x"
    best = ", best" if played.became_best else ""
    after = f"; AFTERWARDS {_short(played.after)}" if played.after else ""
    said = f": {_short(played.words)}" if played.words else ""
    return (
        f"{played.verdict:<13}{played.group}: {played.source.name}{speed}{best}{said}{after} ({played.seconds:.1f} s)"
    )


def _short(words: str, most: int = 160) -> str:
    one = " ".join(words.split())
    return one if len(one) <= most else f"{one[:most]}..."


def summary(played: Sequence[Played]) -> list[str]:
    """A line per class, and one for all."""
    text = []
    for name in (*CLASSES, "honest", "all"):
        some = [item for item in played if name in ("all", item.group)]
        if some:
            counts = Counter(item.verdict for item in some)
            spelled = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
            best, after = sum(item.became_best for item in some), sum(bool(item.after) for item in some)
            text.append(f"{name}: {len(some)} played, {spelled}; {best} became best, {after} harmed the next save")
    return text


def markdown(played: Sequence[Played], others: Sequence[Cheat | Oddity]) -> str:
    text = ["| class | name | how | verdict | best | speedup | said | next honest save |"]
    text += ["| --- | --- | --- | --- | --- | ---: | --- | --- |"]
    for item in played:
        speed = "-" if item.speedup is None else f"{item.speedup:.2f}x"
        best = "yes" if item.became_best else "no"
        said, after = _short(item.words, 120) or "nothing", _short(item.after, 120) or "right and even"
        cells = (item.group, item.source.name, item.source.how, item.verdict, best, speed, said, after)
        text.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    for source in others:
        group = getattr(source, "group", "honest")
        text.append(f"| {group} | {source.name} | {source.how} | not played yet | - | - | - | - |")
    return "\n".join([*text, "", *(f"- {said}" for said in summary(played)), ""])


def chosen(sources: Sequence[Cheat | Oddity], device: str, names: Sequence[str]) -> list[Cheat | Oddity]:
    here = [source for source in sources if device in source.devices]
    return [
        source
        for source in here
        if not names or any(name in source.name or name == getattr(source, "group", "") for name in names)
    ]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--honest", action="store_true", help="the honest oddities instead of the cheats")
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout to play against")
    parser.add_argument("-o", "--output", type=Path, help="write the results as markdown")
    given = parser.parse_args(words)
    known: Sequence[Cheat | Oddity] = ODDITIES if given.honest else CHEATS
    sources = chosen(known, given.device, given.names)
    output = given.output.resolve() if given.output else None
    stage, played = Stage(given.device, given.code.resolve()), list[Played]()
    try:
        for source in sources:
            played.append(stage.play(source))
            print(line(played[-1]), flush=True)
            if output:  # as it goes: an abort loses nothing
                output.write_text(markdown(played, [other for other in known if other not in sources]))
    finally:
        stage.close()
        os.chdir("/")
        shutil.rmtree(stage.root, ignore_errors=True)
    print("\n".join(summary(played)))
    caught = (*CAUGHT, "harmless")
    missed = [item for item in played if (item.is_harmed if given.honest else item.verdict not in caught) or item.after]
    return 1 if missed or not played else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
