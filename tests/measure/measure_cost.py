"""What a save costs in several checkouts, in turns on one machine: a good one, a wrong one, one that does not compile.

All workbenches are open; each gets five saves, then the next one, in an order that reverses every time. Before its turn
comes, the others have ended what they do when idle, such as trying a wrong row again in a spare.

python -m tests.measure.measure_cost OLD... NEW [--task rms_norm] [--saves 20] [--kind wrong]    (folders of checkouts)
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.measure.bench import figure

PAUSE_S = 0.3
CALM_S = 20.0
"""For spares, and for the confirmation of what was there."""
TURN, REST_S = 5, 3.0
"""Saves in a row, after one that does not count, and the seconds before them."""
WRONG = """
_right_entry = ENTRY
def ENTRY(*values, **named):
    out = _right_entry(*values, **named)
    (out[0] if isinstance(out, tuple) else out).mul_(1.25)
    return out
"""
KINDS = {"good": "", "wrong": WRONG, "syntax error": "def broken(:\n"}


class Bench:
    """A workbench of a checkout, on its own copy of the task."""

    def __init__(self, checkout: Path, task: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kernbench-cost-"))
        folder = self.root / task
        shutil.copytree(ROOT / "kernels" / task, folder, ignore=shutil.ignore_patterns(".kernbench", "exports"))
        self.source = folder / "solution.py"
        self.good, self.entry = self.source.read_text(), tomllib.loads((folder / "task.toml").read_text())["entry"]
        path = f"{checkout / 'src'}:{checkout}:{os.environ.get('PYTHONPATH', '')}"
        words = [sys.executable, "-m", "kernbench", "watch", str(folder), "--json", "--baseline", "eager"]
        self.process = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put((time.perf_counter(), json.loads(line)))

    def answered(self, saved: float, kind: str) -> tuple[float, float]:
        """Seconds to the first answer, a row with its verdict if the source is good, and to the last of them."""
        firsts: dict[str, float] = {}
        while True:
            moment, event = self.lines.get(timeout=300)
            if event["event"] == "case" and (event.get("verdict") or kind != "good"):
                firsts.setdefault(event["id"], moment - saved)
            if event["event"] in ("finished", "failed"):
                return (min(firsts.values()), max(firsts.values())) if firsts else (moment - saved, moment - saved)

    def save(self, kind: str, number: int) -> None:
        text = self.good + KINDS[kind].replace("ENTRY", self.entry) + f"\n_EDIT = {number}  # {kind}\n"
        self.source.write_text(text)
        seconds = self.answered(time.perf_counter(), kind)
        if number % (TURN + 1):
            self.found[kind].append(seconds)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkouts", type=Path, nargs="+", help="the last one is the new one")
    parser.add_argument("--task", default="rms_norm")
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--kind", action="append", choices=KINDS)
    given = parser.parse_args()
    benches = [Bench(checkout.resolve(), given.task) for checkout in given.checkouts]
    for bench in benches:
        bench.answered(0.0, "good")
    time.sleep(CALM_S)
    for kind in given.kind or KINDS:
        for turn in range(-(-given.saves // TURN)):
            for bench in benches[:: 1 if turn % 2 else -1]:
                time.sleep(REST_S)
                for number in range(TURN + 1):
                    time.sleep(PAUSE_S)
                    bench.save(kind, turn * (TURN + 1) + number)
        for place, what in enumerate(("first row", "all rows")):
            *olds, new = (statistics.median(pair[place] for pair in bench.found[kind]) for bench in benches)
            for checkout, old in zip(given.checkouts, olds, strict=False):
                figure(f"{kind}: {what}, {checkout.name} and new", f"{old:.3f} and {new:.3f} s", more(old, new))
    for bench in benches:
        bench.close()


def more(old: float, new: float) -> str:
    return f"{1000 * (new - old):+.0f} ms, {100 * (new / old - 1):+.1f} %"


if __name__ == "__main__":
    main()
