"""What Ray adds to a problem of a suite: wall time with `--ray` on one slot minus without, per problem.

Starts a cluster of its own with one CPU slot. `--fake` runs the tests' worker, whose problems take no time, so that
nothing but the overhead is left; without it every problem is a real one on the CPU. Both walls are whole commands.

    python -m tests.measure.measure_fleet [--jobs 20] [--tries 3] [--fake]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import FAKE
from tests.fleet.cluster import Cluster

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(64, 96)]

def get_init_inputs():
    return []
"""


def wall(folder: Path, to: str, environment: dict[str, str], *words: str) -> float:
    command = [sys.executable, "-m", "kernbench", "suite", "problems", "--to", to, "--quick", "--budget", "20", *words]
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--fake", action="store_true")
    given = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("no Ray: pip install 'kernbench[ray]'")
        return
    cluster = Cluster(1)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder, added = Path(name), []
            (folder / "problems").mkdir()
            for number in range(given.jobs):
                (folder / f"problems/{number}_relu.py").write_text(f"{PROBLEM}# {number}\n")
            environment = cluster.environment | ({"KERNBENCH_HARNESS": str(FAKE)} if given.fake else {})
            environment["XDG_CACHE_HOME"] = str(folder / "cache")
            for turn in range(given.tries):
                here = wall(folder, f"here{turn}", environment, "--device", "cpu")
                there = wall(folder, f"there{turn}", environment, "--device", "cpu", "--ray", cluster.address)
                added.append((there - here) / given.jobs)
                print(f"here {here:.2f} s, with --ray {there:.2f} s, per problem {added[-1] * 1000:+.0f} ms")
            each, load = statistics.median(added) * 1000, os.getloadavg()[0]
            print(f"overhead per problem: {each:.0f} ms, {given.jobs} problems, load {load:.1f}")
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
