"""How often `kernbench gate` catches a slowdown of one row, and how often it lets an equal rewrite pass.

Copies a task into a scratch git repository, commits it, changes it in the work tree and runs the gate again and again.
softmax_host computes a share of one row's rows twice; in rms_norm the last program of one row works longer. An equal
rewrite has other names and the same work.

    python -m tests.measure.measure_gate [--slowdown 10] [--tries 10]
    python -m tests.measure.measure_gate --task rms_norm --slowdown 3 --device cuda:0
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests import ROOT

HOST_ROW = "softmax_256x1000"
WORDS = {0: "passed", 1: "failed", 4: "cannot tell"}
TWICE = """
        if (cols == 1000 && (row + 1) * {percent} / 100 != row * {percent} / 100 && !again) {{
            again = true;
            --row;
            continue;
        }}
        again = false;
    }}
}}
"""
GPU_ROW, GPU_ROWS = "rmsnorm_m8160_d4096_bf16", 8160
FIRST_STEPS, MOST_STEPS = 1 << 10, 1 << 22
TAIL = """
    chain = tl.sum(scale, axis=0) * 0.0 + 1.0
    if tl.program_id(0) == tl.num_programs(0) - 1:
        step = 0
        while step < work:
            chain = tl.sqrt(chain * chain + 1.0)
            step += 1
    scale = scale + chain * 0.0
"""
"""The last program of the grid takes more steps, each of which waits for the one before."""


def kernbench(folder: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "kernbench", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode not in WORDS:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def repository(task: str, place: Path) -> Path:
    """The task in a repository with one commit."""
    folder = place / task
    shutil.copytree(ROOT / "kernels" / task, folder, ignore=shutil.ignore_patterns(".kernbench", "__pycache__"))
    git = ["git", "-C", str(place), "-c", "user.name=measure", "-c", "user.email=measure@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it is"]):
        subprocess.run([*git, *words], check=True)
    return folder


def slow_host(folder: Path, percent: int) -> str:
    """Returns the row that is slower."""
    path = folder / "solution.cpp"
    text = path.read_text()
    start = text.index("extern ")
    body = text[start:].replace("    for (int64_t row", "    bool again = false;\n    for (int64_t row", 1)
    path.write_text(
        text[:start] + body.rstrip().removesuffix("}").rstrip().removesuffix("}") + TWICE.format(percent=percent)
    )
    return HOST_ROW


def slow_triton(folder: Path, percent: float, device: list[str]) -> str:
    """Finds how many more steps of the last program take that share of the row's time."""
    path = folder / "solution.py"
    text = path.read_text()

    def with_steps(steps: int) -> float:
        """The row's time in microseconds."""
        changed = text.replace("rows, vectors, eps,", "rows, vectors, eps, work,")
        changed = changed.replace("// vector, eps,", f"// vector, eps, {steps} if rows == {GPU_ROWS} else 0,")
        assert changed.count("work,") == changed.count(f" {steps} if rows") == 1, "rms_norm has changed"
        place = changed.index("    tl.store(")
        path.write_text(changed[:place] + TAIL.lstrip("\n") + changed[place:])
        words = ["--case", GPU_ROW, "--no-confirm", "--baseline", "eager"]  # nothing to compile
        _, lines = kernbench(folder, "run", str(folder), *words, *device)
        return float(next(line["solution_us"] for line in lines if line["event"] == "case"))

    alone, steps = with_steps(0), FIRST_STEPS
    while (more := with_steps(steps) - alone) < alone / 5 and steps < MOST_STEPS:
        steps *= 4
    aim = alone * percent / 100
    for _ in range(4):
        steps = max(round(steps * aim / max(more, aim / 8)), 1)
        more = with_steps(steps) - alone
        print(f"{GPU_ROW} takes {alone:.2f} us, and {more:.2f} us longer with {steps} more steps", flush=True)
        if abs(more - aim) < aim / 8:
            break
    return GPU_ROW


def rewrite(folder: Path) -> None:
    for name in ("solution.cpp", "solution.py"):
        if (path := folder / name).exists():
            path.write_text(re.sub(r"\b(largest|together|cols)\b", r"\1_", path.read_text()))


def tried(folder: Path, row: str, words: list[str], tries: int, jobs: int) -> Counter[str]:
    def once(number: int) -> str:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            own = Path(shutil.copytree(folder.parent, Path(scratch) / "repository")) / folder.name
            code, lines = kernbench(own, "gate", str(own), "--against", "git:HEAD", *words)
        rows = {line["case"]: line for line in lines if line["event"] == "row"}
        bad = [f"{name} {item['word']}" for name, item in rows.items() if item["word"] != "pass"]
        ratio = rows[row]["ratio"]
        about = f"{ratio['speedup']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else "-"
        took = f"{time.monotonic() - began:.1f} s"
        print(f"  {number + 1:2}  {WORDS[code]:11}  {row} {about}  {took}  {', '.join(bad)}", flush=True)
        return WORDS[code]

    with ThreadPoolExecutor(jobs) as pool:
        return Counter(pool.map(once, range(tries)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="softmax_host", choices=("softmax_host", "rms_norm"))
    parser.add_argument("--slowdown", type=int, default=10, help="percent")
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--device", help="for rms_norm")
    parser.add_argument("--jobs", type=int, default=1, help="gates at once; they take turns on the GPU, row by row")
    parser.add_argument("--tolerance", help="as of `kernbench gate`")
    given = parser.parse_args()
    device = ["--device", given.device] if given.device else []
    words = [*device, *(["--tolerance", given.tolerance] if given.tolerance else [])]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.pop("GITHUB_STEP_SUMMARY", None)
        folder = repository(given.task, Path(scratch))
        is_host = (folder / "solution.cpp").exists()
        slow = slow_host(folder, given.slowdown) if is_host else slow_triton(folder, given.slowdown, device)
        print(f"{given.slowdown}% slower on {slow}")
        caught = tried(folder, slow, words, given.tries, given.jobs)
        subprocess.run(["git", "-C", scratch, "checkout", "-q", "--", "."], check=True)
        rewrite(folder)
        print("an equal rewrite")
        passed = tried(folder, slow, words, given.tries, given.jobs)
    print(f"slower by {given.slowdown}%: {dict(caught)}; equal: {dict(passed)}; of {given.tries} each")


if __name__ == "__main__":
    main()
