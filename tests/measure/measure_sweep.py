"""How well `kernbench sweep` agrees with full runs of all its variants, and how long it takes.

Copies a task, sweeps it, then runs every variant in full against the source as it is, in turns, like `kernbench run
--baseline FILE`. Says how far the sweep's winner is from the best of the full runs, which pairs that those tell apart
by more than 2 % (and beyond their intervals) the sweep has in another order, and both times. softmax_host gets a
constants first: the number of partial sums (LANES), which is a matter of percents, and how often the maximum is looked
for (PASSES), which is one of tens of percents and can be told apart on a busy machine.

    python -m tests.measure.measure_sweep [--set LANES=1,2,4,8,16,32] [--set PASSES=1,3,9] [--budget 100]
    python -m tests.measure.measure_sweep --task rms_norm --device cuda:0 \
        --set OF_A_WARP=256,512,1024,2048 --set num_warps=1,2,4,8
"""

from __future__ import annotations

import argparse
import itertools
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import taskfile
from kernbench.sweep import variants
from kernbench.sweep.variants import Setting, Variant
from kernbench.task import snapshot
from tests import ROOT

APART = 0.02
PLAIN = """        double sum = 0.0;
        for (int64_t i = 0; i < cols; ++i) sum += to[i];
"""
LANES = """        float lanes[LANES] = {};
        int64_t i = 0;
        for (; i + LANES <= cols; i += LANES)
            for (int lane = 0; lane < LANES; ++lane) lanes[lane] += to[i + lane];
        double sum = 0.0;
        for (; i < cols; ++i) sum += to[i];
        for (int lane = 0; lane < LANES; ++lane) sum += lanes[lane];
"""


ONCE = "        for (int64_t i = 1; i < cols; ++i) largest ="
PASSES = "        for (volatile int pass = 0; pass < PASSES; pass = pass + 1)\n    "


def copied(task: str, place: Path) -> Path:
    folder = place / task
    ignored = shutil.ignore_patterns(".kernbench", "ITERATIONS.md", "exports", "__pycache__")
    shutil.copytree(ROOT / "kernels" / task, folder, ignore=ignored)
    if task == "softmax_host":
        source = (folder / "solution.cpp").read_text()
        if PLAIN not in source or ONCE not in source:
            raise SystemExit("solution.cpp of softmax_host has changed; adapt PLAIN and ONCE")
        head, source = "constexpr int LANES = 4;\n#define PASSES 3\n", source.replace(PLAIN, LANES)
        (folder / "solution.cpp").write_text(head + source.replace(ONCE, PASSES + ONCE))
    return folder


def kernbench(folder: Path, *words: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kernbench", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Full:
    """The speedup of a variant over the source as it is, from a run of its own."""

    speedup: float
    low: float
    high: float

    def is_apart(self, other: Full) -> bool:
        """By more than 2 %, and beyond both intervals."""
        apart = abs(self.speedup / other.speedup - 1) > APART
        return apart and (self.low > other.high or other.low > self.high)


def in_full(folder: Path, variant: Variant, now: Path, extra: list[str]) -> Full | None:
    """None if it is not right; in a copy of the task."""
    folder = Path(shutil.copytree(now, folder.parent / secrets.token_hex(4) / folder.name))
    for name, data in variant.contents.items():
        if (folder / name).read_bytes() != data:
            (folder / name).write_bytes(data)
    words = ["run", ".", "--baseline", str(now / "solution.py"), "--no-confirm", "--allow-slower", *extra]
    last = kernbench(folder, *words)[-1]
    return Full(last["geomean"], last["low"], last["high"]) if last.get("right") else None


def compare(swept: list[dict[str, Any]], full: dict[str, Full | None], winner: str) -> None:
    scores = {item["variant"]: item["ratio"]["speedup"] for item in swept if item["status"] == "ok"}
    right = {name: item for name, item in full.items() if item is not None}
    print(f"{'variant':32} {'sweep':>8} {'full':>8}")
    for name, item in sorted(right.items(), key=lambda pair: -pair[1].speedup):
        mark = "  winner" if name == winner else ""
        interval = f"[{item.low:.3f}, {item.high:.3f}]"
        print(f"{name:32} {scores.get(name, float('nan')):8.3f} {item.speedup:8.3f} {interval}{mark}")
    best = max(item.speedup for item in right.values())
    print(f"winner within {(best / right[winner].speedup - 1) * 100:.2f} % of the best of the full runs")
    pairs = [(one, two) for one, two in itertools.combinations(right, 2) if one in scores and two in scores]
    apart = [(one, two) for one, two in pairs if right[one].is_apart(right[two])]
    wrong = [(a, b) for a, b in apart if (right[a].speedup > right[b].speedup) != (scores[a] > scores[b])]
    print(
        f"{len(apart)} of {len(pairs)} pairs are told apart by more than 2 %; not so ordered by the sweep: {len(wrong)}"
    )
    for one, two in wrong:
        there = right[one].speedup / right[two].speedup
        print(f"    {one} / {two}: sweep {scores[one] / scores[two]:.3f}, full {there:.3f}")
    print(f"right or not differs: {sorted(scores.keys() ^ right.keys()) or 'never'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="softmax_host")
    parser.add_argument("--set", dest="sets", action="append", metavar="NAME=A,B,C")
    parser.add_argument("--device")
    parser.add_argument("--budget", default="100")
    parser.add_argument("--jobs", type=int, default=1, help="full runs at once; they take turns on the GPU, row by row")
    asked = parser.parse_args()
    sets = asked.sets or ["LANES=1,2,4,8,16,32"]
    extra = ["--budget", asked.budget, *(["--device", asked.device] if asked.device else [])]
    with tempfile.TemporaryDirectory(prefix="kernbench-sweep-") as scratch:
        folder = copied(asked.task, Path(scratch))
        task = taskfile.load(folder)
        tried = variants.of_constants(snapshot.read(folder), task, [Setting.parse(text) for text in sets])
        now = Path(scratch) / "now"
        shutil.copytree(folder, now)
        kernbench(folder, "run", ".", "--no-confirm", "--allow-slower", *extra)  # compiles the baseline
        began = time.monotonic()
        words = [word for text in sets for word in ("--set", text)]
        swept = kernbench(folder, "sweep", ".", *words, "--no-confirm", *extra)[-1]
        print(f"{swept['sentence']}; with start and end {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        others = [item for item in tried if not item.is_now]
        with ThreadPoolExecutor(asked.jobs) as pool:
            found = pool.map(lambda item: in_full(folder, item, now, extra), others)
            full = {item.name: result for item, result in zip(others, found, strict=True)}
        print(f"{len(full)} full runs, {asked.jobs} at once: {time.monotonic() - began:.0f} s, each with its worker\n")
        compare(swept["variants"], {**full, tried[0].name: Full(1.0, 1.0, 1.0)}, swept["winner"])


if __name__ == "__main__":
    main()
