"""What a confirmation takes next to its run, and what finds a kernel that is wrong in one of twenty calls.

    python -m tests.measure.measure_confirmation [--task softmax_host] [--runs 5] [--tries 10] [--device cuda]

Each run opens a copy of the task without a log, so that its source would be best. The tries are saved in
the last of these workbenches, before its run.
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
import tomllib
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.measure.bench import figure

SOMETIMES = """
import random as _random
_right_entry = ENTRY
def ENTRY(*values, **named):
    out = _right_entry(*values, **named)
    if _random.random() < 0.05:
        (out[0] if isinstance(out, tuple) else out).mul_(1.25)
    return out
"""


def opened(task: str, sources: list[str], device: str | None) -> list[dict[str, Any]]:
    """What was said about each source until its run was settled, by event: the first is there when the task opens, and
    each of the others is saved when the one before is settled."""
    root = Path(tempfile.mkdtemp(prefix="kernbench-confirmation-"))
    folder = root / task
    shutil.copytree(ROOT / "kernels" / task, folder, ignore=shutil.ignore_patterns(".kernbench", "exports", "*.md"))
    entry, file = tomllib.loads((folder / "task.toml").read_text())["entry"], folder / "solution.py"
    texts = [
        f"{file.read_text()}{more.replace('ENTRY', entry)}\n_TRY = {number}\n" for number, more in enumerate(sources)
    ]
    file.write_text(texts[0])
    words = [sys.executable, "-m", "kernbench", "watch", str(folder), "--json"]
    paths = f"{ROOT / 'src'}:{ROOT}:{os.environ.get('PYTHONPATH', '')}"
    settled: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    with subprocess.Popen(
        [*words, *(["--device", device] if device else [])], env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as bench:  # fmt: skip
        assert bench.stdout is not None
        for line in bench.stdout:
            event = json.loads(line)
            found[event["event"]] = event
            if event["event"] == "case":
                found.setdefault("rows", {})[event["id"]] = event
            is_over = event["event"] == "finished" and not event.get("awaits")
            if not is_over and event["event"] not in ("confirmed", "failed"):
                continue
            settled, found = [*settled, found], {}
            if len(settled) == len(texts):
                break
            file.write_text(texts[len(settled)])
        bench.terminate()
    shutil.rmtree(root, ignore_errors=True)
    return settled


def why_not(run: dict[str, Any]) -> str:
    """Why a run is not a confirmed best; empty if it is."""
    if "confirmed" in run:
        return "" if run["confirmed"]["confirmed"] else str(run["confirmed"]["why"])
    rows = run.get("rows", {}).values()
    found = {item["name"] for row in rows for item in row.get("findings") or ()}
    words = {str(row.get("detail") or row.get("status")) for row in rows}
    return f"not best ({', '.join(sorted({*found, *words}))}): {run.get('finished') or run.get('failed')}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default="softmax_host")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--device")
    given = parser.parse_args()
    runs = [opened(given.task, [""], given.device)[0] for _ in range(given.runs - 1)]
    *tries, last = opened(given.task, [*[SOMETIMES] * given.tries, ""], given.device)
    runs.append(last)
    settled = [run for run in runs if run.get("confirmed", {}).get("confirmed")]
    figure("confirmed", f"{len(settled)} of {len(runs)}", "; ".join(map(why_not, runs)))
    if settled:
        took, own = (statistics.median(run[name]["seconds"] for run in settled) for name in ("confirmed", "finished"))
        figure("a confirmation takes", f"{took:.2f} s", f"its run {own:.2f} s: {took / own:.2f} times as long")
    by_run = by_confirmation = 0
    judged = []
    for found in tries:
        by_run += not found["finished"]["right"]
        if "confirmed" in found and not found["confirmed"]["confirmed"]:
            by_confirmation, judged = by_confirmation + 1, [*judged, found["confirmed"]["judged"]]
    figure(
        "wrong in one of twenty calls", f"{by_run} + {by_confirmation} of {given.tries}", "found by run, confirmation"
    )
    figure("calls judged where the confirmation found it", str(judged), "")


if __name__ == "__main__":
    main()
