"""kill -9 of the workbench at random moments: what is left of its tree, and whether the log is whole.

`python -m tests.measure.kill9 N [--torch] [--load L]`: with the fake worker or with torch, under L busy loops. Every
third kill comes 0 to 0.2 s after the start of a spare, with a save in between, which freezes it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests import FAKE
from tests.faults import processes
from tests.faults.workbench import GOOD, Silent, Workbench, torn, write_task

SLOW = "import time, torch\ndef softmax(x):\n    time.sleep(0.1)\n    return torch.softmax(x, dim=-1)\n"
PATIENCE_S = 10.0
"""For a tree to be gone; then what is left counts, and is ended here."""


def killed(folder: Path, number: int, with_torch: bool, dice: random.Random) -> tuple[str, float, list[str]]:
    """One workbench, killed: how, the seconds until its tree was gone, and what was left of it."""
    fake = {} if with_torch else {"KERNBENCH_HARNESS": str(FAKE), "FAKE_START": str(round(dice.uniform(0, 0.4), 3))}
    bench = Workbench(folder, **fake)
    how = "after a spare's start" if number % 3 == 0 else "at a random moment"
    try:
        if number % 3 == 0:
            bench.wait(lambda: any(event["event"] == "finished" for _at, event in bench.lines), 120, "first run")
            processes.until(lambda: len(bench.workers()) > 1, 20, 0.003)
            time.sleep(dice.uniform(0.0, 0.2))
            bench.save(solution_py=SLOW)
            time.sleep(dice.uniform(0.02, 0.15))
        else:
            end = time.monotonic() + dice.uniform(0.05, 8.0 if with_torch else 2.0)
            while time.monotonic() < end:
                time.sleep(min(dice.uniform(0.05, 0.5), max(end - time.monotonic(), 0)))
                bench.save(solution_py=dice.choice([GOOD, SLOW, "def softmax(x\n"]))
    except Silent as problem:
        how = f"not as planned ({problem})"
    bench.process.kill()
    bench.process.wait()
    began = time.monotonic()
    processes.until(lambda: not processes.marked(bench.mark), PATIENCE_S, 0.005)
    taken = time.monotonic() - began
    left = [f"{processes.name(pid)} ({processes.state(pid)})" for pid in processes.marked(bench.mark)]
    bench.close()
    return how, taken, left


def settled(folder: Path, with_torch: bool) -> list[str]:
    """What is not whole once a workbench was open again, which writes the entries that waited."""
    bench = Workbench(folder, **({} if with_torch else {"KERNBENCH_HARNESS": str(FAKE)}))
    try:
        bench.recovered(120)
        processes.until(lambda: not torn(folder), 10, 0.2)
    finally:
        bench.close()
    return torn(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--load", type=int, default=0, help="busy loops meanwhile")
    parser.add_argument("--seed", type=int, default=22)
    given = parser.parse_args()
    dice, place = random.Random(given.seed), Path(tempfile.mkdtemp(prefix="kernbench-kill9-"))
    folder, kinds, worst, left = write_task(place / "softmax"), Counter[str](), 0.0, 0
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    try:
        for number in range(given.kills):
            how, taken, remains = killed(folder, number, given.torch, dice)
            kinds[how] += 1
            worst, left = max(worst, taken), left + len(remains)
            for name in remains:
                print(f"kill {number}, {how}: left running: {name}", flush=True)
        wrong = settled(folder, given.torch)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    lines = (folder / ".kernbench" / "runs.jsonl").read_bytes().count(b"\n")
    shutil.rmtree(place, ignore_errors=True)
    print(*(f"{count} kills {how}" for how, count in kinds.items()), sep=", ")
    print(f"{left} processes left, the slowest tree gone after {worst * 1000:.0f} ms; {lines} lines in runs.jsonl")
    print("torn lines, double numbers, entries without a run:", "; ".join(wrong) or "none")
    return 1 if left or wrong or not kinds["after a spare's start"] else 0


if __name__ == "__main__":
    sys.exit(main())
