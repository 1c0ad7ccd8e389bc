"""How often `kernbench gate` catches a slowdown of one row, and how often it lets an equal rewrite pass.

Copies a task into a scratch git repository, commits it, changes it in the work tree and runs the gate again and again.
softmax_host computes a share of one row's rows twice; a GPU task gets a kernel that waits, behind its own. An equal
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
WAITS = """

_timed = {entry}
def {entry}(*args, **kwargs):
    result = _timed(*args, **kwargs)
    tensors = [item for item in (*args, *kwargs.values()) if hasattr(item, "shape")]
    if tensors and tuple(tensors[0].shape) == {shape}:
        import torch
        torch.cuda._sleep({cycles})
    return result
"""


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


def slow_gpu(folder: Path, percent: float, device: list[str], mhz: float) -> str:
    """The longest row with a first tensor of a shape that other rows do not have."""
    _, lines = kernbench(folder, "run", str(folder), "--no-confirm", *device)
    rows = {line["id"]: line for line in lines if line["event"] == "case" and line.get("solution_us")}
    shapes = {name: next(tuple(item["shape"]) for item in row["inputs"] if item["shape"]) for name, row in rows.items()}
    count = Counter(shapes.values())
    name = max((name for name in rows if count[shapes[name]] == 1), key=lambda name: rows[name]["solution_us"])
    cycles = round(rows[name]["solution_us"] * percent / 100 * mhz)
    entry = re.search(r'^entry = "(\w+)"', (folder / "task.toml").read_text(), re.MULTILINE)
    assert entry is not None
    with (folder / "solution.py").open("a") as file:
        file.write(WAITS.format(entry=entry[1], shape=shapes[name], cycles=cycles))
    return name


def rewrite(folder: Path) -> None:
    if (path := folder / "solution.cpp").exists():
        path.write_text(re.sub(r"\blargest\b", "peak", path.read_text()))
    with (folder / "solution.py").open("a") as file:
        file.write("\n_REWRITTEN = True\n")


def tried(folder: Path, row: str, words: list[str], tries: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in range(tries):
        began = time.monotonic()
        code, lines = kernbench(folder, "gate", str(folder), "--against", "git:HEAD", *words)
        found[WORDS[code]] += 1
        rows = {line["case"]: line for line in lines if line["event"] == "row"}
        bad = [f"{name} {item['word']}" for name, item in rows.items() if item["word"] != "pass"]
        ratio = rows[row]["ratio"]
        about = f"{ratio['speedup']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else "-"
        took = f"{time.monotonic() - began:.1f} s"
        print(f"  {number + 1:2}  {WORDS[code]:11}  {row} {about}  {took}  {', '.join(bad)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="softmax_host")
    parser.add_argument("--slowdown", type=int, default=10, help="percent")
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--device", help="for a GPU task")
    parser.add_argument("--mhz", type=float, default=1980.0, help="the GPU's SM clock")
    parser.add_argument("--tolerance", help="as of `kernbench gate`")
    given = parser.parse_args()
    device = ["--device", given.device] if given.device else []
    words = [*device, *(["--tolerance", given.tolerance] if given.tolerance else [])]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.pop("GITHUB_STEP_SUMMARY", None)
        folder = repository(given.task, Path(scratch))
        is_host = (folder / "solution.cpp").exists()
        slow = slow_host(folder, given.slowdown) if is_host else slow_gpu(folder, given.slowdown, device, given.mhz)
        print(f"{given.slowdown}% slower on {slow}")
        caught = tried(folder, slow, words, given.tries)
        subprocess.run(["git", "-C", scratch, "checkout", "-q", "--", "."], check=True)
        rewrite(folder)
        print("an equal rewrite")
        passed = tried(folder, slow, words, given.tries)
    print(f"slower by {given.slowdown}%: {dict(caught)}; equal: {dict(passed)}; of {given.tries} each")


if __name__ == "__main__":
    main()
