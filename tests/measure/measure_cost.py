"""What a save costs in two checkouts, in turns on one machine: a good one, a wrong one, one that does not compile.

python -m tests.measure.measure_cost OLD NEW [--task rms_norm] [--saves 20] [--turns 2]    (folders of checkouts)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import IO, Any

from tests import ROOT
from tests.measure.bench import figure

PAUSE_S = 0.3
WRONG = """
_right_entry = ENTRY
def ENTRY(*values, **named):
    out = _right_entry(*values, **named)
    (out[0] if isinstance(out, tuple) else out).mul_(1.25)
    return out
"""
KINDS = {"good": "", "wrong": WRONG, "syntax error": "def broken(:\n"}


def events(lines: IO[str]) -> Any:
    """Each event of a run with the moment it came, until its end."""
    for line in lines:
        event = json.loads(line)
        yield time.perf_counter(), event
        if event["event"] in ("finished", "failed"):
            return


def answered(lines: IO[str], saved: float, kind: str) -> tuple[float, float]:
    """Seconds to the first answer, a row with its verdict if the source is good, and to the last of them."""
    firsts: dict[str, float] = {}
    ended = saved
    for moment, event in events(lines):
        ended = moment
        if event["event"] == "case" and (event.get("verdict") or kind != "good"):
            firsts.setdefault(event["id"], moment - saved)
    return (min(firsts.values()), max(firsts.values())) if firsts else (ended - saved, ended - saved)


def turn(checkout: Path, task: str, saves: int, found: dict[str, list[tuple[float, float]]]) -> None:
    root = Path(tempfile.mkdtemp(prefix="kernbench-cost-"))
    folder = root / task
    shutil.copytree(ROOT / "kernels" / task, folder, ignore=shutil.ignore_patterns(".kernbench", "exports"))
    source = folder / "solution.py"
    good, entry = source.read_text(), tomllib.loads((folder / "task.toml").read_text())["entry"]
    path = f"{checkout / 'src'}:{checkout}:{os.environ.get('PYTHONPATH', '')}"
    words = [sys.executable, "-m", "kernbench", "watch", str(folder), "--json", "--baseline", "eager"]
    with subprocess.Popen(
        words, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as bench:
        assert bench.stdout is not None
        list(events(bench.stdout))
        for kind, more in KINDS.items():
            for number in range(saves + 2):
                time.sleep(PAUSE_S)
                text = good + more.replace("ENTRY", entry) + f"\n_EDIT = {number}  # {kind}\n"
                source.write_text(text)
                seconds = answered(bench.stdout, time.perf_counter(), kind)
                if number >= 2:  # the first ones fill caches
                    found.setdefault(kind, []).append(seconds)
        bench.terminate()
    shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--task", default="rms_norm")
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    found: dict[str, dict[str, list[tuple[float, float]]]] = {"old": {}, "new": {}}
    for _ in range(given.turns):
        for name in found:
            turn(getattr(given, name).resolve(), given.task, given.saves // given.turns, found[name])
    for kind in KINDS:
        for place, what in enumerate(("first row", "all rows")):
            old, new = (statistics.median(pair[place] for pair in found[name][kind]) for name in found)
            figure(f"{kind}: {what}", f"{old:.3f} and {new:.3f} s", f"old and new; {1000 * (new - old):+.0f} ms")


if __name__ == "__main__":
    main()
