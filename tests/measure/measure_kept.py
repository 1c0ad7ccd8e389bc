"""What a model keeps, with real runs: a kernel that wins its row and is next to nothing of the step, one wired to a
class that never runs, a command that falls back to other code, and a slower one; and what `port` says to each.

    python -m tests.measure.measure_kept [--device cuda:0]     (on a CPU the same in torch)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.harness.child import write_task
from tests.measure.bench import figure

TASK = """
name = "scale"
entry = "scale"
summary = "a scaling in several operations"
device = "DEVICE"
baseline = "eager"
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-4 }
[[case]]
id = "part"
axes = { rows = ROWS, cols = COLS }
"""
REFERENCE = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    lot = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(case["rows"], case["cols"], generator=lot, device=device) * spread + offset}

def scale(x):
    return x * 0.5 + x * 0.25 + x * 1.25
"""
IN_TORCH = """
def scale(x):
    return x * 2.0
"""
IN_TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def _scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)

def scale(x):
    out = torch.empty_like(x)
    _scale[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
SLOWER = """
def scale(x):
    for _ in range(TIMES):
        y = x * 2.0
    return y
"""
MODEL = """
title = "products of matrices, and a scaling"
program = "program.py"
dtype = "float32"
[configs.only]
size = SIZE
rows = ROWS
[configs.tiny]
size = SIZE
rows = ROWS
[limits]
relative_l2 = 0.01
[[site]]
call = "SITE"
task = "scale"
adapter = "adapters:ADAPTER"
"""
COMMAND = """
title = "a command"
command = ["{python}", "-c", "print('Using diffusers backend', flush=True); import time; time.sleep(20)", "{dump}"]
limit_s = 60
[configs.only]
[[site]]
call = "layers:scaled"
task = "scale"
adapter = "adapters:scaled"
"""
FILES = {
    "program.py": """
import torch
from layers import Unused, scaled

class Model(torch.nn.Module):
    def __init__(self, size, rows):
        super().__init__()
        self.rows, self.unused = rows, Unused()
        self.weight = torch.nn.Parameter(torch.randn(size, size) / size**0.5, requires_grad=False)

    def forward(self, x):
        y = x @ self.weight @ self.weight @ self.weight @ self.weight
        return torch.cat([scaled(y[: self.rows]), y[self.rows :]])

def build(device, dtype, seed, size, rows):
    torch.manual_seed(seed)
    return Model(size, rows).to(device=device, dtype=dtype), {"x": torch.randn(size, size, device=device, dtype=dtype)}
""",
    "layers.py": """
import torch

def scaled(x):
    return x * 0.5 + x * 0.25 + x * 1.25

class Unused(torch.nn.Module):
    def forward(self, x):
        return scaled(x)
""",
    "adapters.py": """
def scaled(entry):
    return entry

def forward(entry):
    return lambda self, x: entry(x)
""",
}


class Project:
    """A task, its models, and a repository to port to."""

    def __init__(self, root: Path, device: str) -> None:
        on_gpu = device != "cpu"
        self.root, self.device, self.numbers = root, device, (6144, 256) if on_gpu else (640, 16)
        self.times = 800 if on_gpu else 200
        texts = {"task_toml": self._filled(TASK).replace("DEVICE", device.partition(":")[0]), "reference_py": REFERENCE}
        self.task = write_task(root / "scale", **texts, solution_py=IN_TRITON if on_gpu else IN_TORCH)
        self.models = {
            "useless": self._filled(MODEL, "layers:scaled", "scaled"),
            "unwired": self._filled(MODEL, "layers:Unused.forward", "forward"),
            "falling_back": COMMAND,
        }
        for name, text in self.models.items():
            folder = root / "models" / name
            folder.mkdir(parents=True)
            for file, source in {**FILES, "model.toml": text}.items():
                (folder / file).write_text(source)
        self.target = root / "theirs" / "scale.py"
        self.target.parent.mkdir()

    def _filled(self, text: str, site: str = "", adapter: str = "") -> str:
        size, rows = self.numbers
        text = text.replace("SITE", site).replace("ADAPTER", adapter)
        return text.replace("SIZE", str(size)).replace("COLS", str(size)).replace("ROWS", str(rows))

    def kernbench(self, *words: str) -> tuple[int, str]:
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "kernbench", *words], cwd=self.root, env={**os.environ, "PYTHONPATH": paths},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout if done.returncode == 0 or words[0] == "transfer" else done.stderr

    def show(self, about: str, model: str, source: str = "best") -> None:
        sides = () if model == "falling_back" else ("--sides", "eager,ours", "--rounds", "36")
        words = ("transfer", model, "--task", "scale", "--source", "now", "--json", *sides)
        _code, said = self.kernbench(*words, *(() if model == "falling_back" else ("--device", self.device)))
        if not said.startswith("{"):
            raise SystemExit(said)
        row: dict[str, Any] = json.loads(said.splitlines()[-1])
        step = "no number" if row["speedup"] is None else f"{row['speedup']:.3f}x"
        share = f", {row['shares'][0]['share']:.2%} of the step" if row["shares"] else ""
        self.target.write_text("theirs = True\n")
        code, answer = self.kernbench("port", "scale", "--from", source, "--to", str(self.target), "--force")
        ported = "port wrote it" if code == 0 else f"port: {answer.strip().splitlines()[-1]}"
        figure(about, row["word"], f"{step}{share}, {'kept' if row['kept'] else 'not kept'}; {ported}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    with tempfile.TemporaryDirectory(prefix="kernbench-kept-") as folder:
        project = Project(Path(folder), parser.parse_args().device)
        _code, said = project.kernbench("run", "scale", "--device", project.device)
        figure("its row", "", " | ".join(said.splitlines()[-3:]))
        project.show("wins its row, next to nothing of the step", "useless")
        project.show("wired to a class that never runs", "unwired")
        project.show("a command that falls back", "falling_back")
        (project.task / "solution.py").write_text(SLOWER.replace("TIMES", str(project.times)))
        project.kernbench("run", "scale", "--device", project.device)
        project.show("slower", "useless", "last")


if __name__ == "__main__":
    main()
