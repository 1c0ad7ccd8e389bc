"""A small model and two tasks in a folder: products of matrices, and a scaling that is next to nothing of the step."""

from __future__ import annotations

import textwrap
from pathlib import Path

from harness.shared import taskfile
from harness.shared.model_step import ModelFile, Patch
from kernbench.transfer import model_file
from tests.harness.child import write_task

MODEL = """
title = "a toy"
program = "program.py"
dtype = "float32"
[configs.only]
size = 128
[limits]
relative_l2 = 0.01
[[site]]
call = "layers:scaled"
task = "scale"
adapter = "adapters:scaled"
"""
PROGRAM = """
import torch
from layers import scaled

class Toy(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size) / size**0.5, requires_grad=False)

    def forward(self, x):
        y = x @ self.weight @ self.weight @ self.weight @ self.weight
        return torch.cat([scaled(y[:1]), y[1:]])

class Unused(torch.nn.Module):
    def forward(self, x):
        return scaled(x)

def build(device, dtype, seed, size):
    torch.manual_seed(seed)
    model = Toy(size).to(device=device, dtype=dtype)
    return model, {"x": torch.randn(size, size, device=device, dtype=dtype)}
"""
GOING_ON = """
def advance(inputs, output):
    return inputs | {"x": inputs["x"] - output / 10}

def image(output):
    return output[None, :8, :8] / 2 + 0.5
"""
"""What a program may have besides."""
LAYERS = """
def scaled(x):
    return x * 2.0
"""
ADAPTERS = """
import sys

def scaled(entry):
    return lambda x: entry(x, 2.0)

def without(entry):
    return lambda x: x * 2.0

def telling(entry):
    def call(x):
        print("WARNING: Using diffusers backend for toy", file=sys.stderr)
        return entry(x, 2.0)
    return call

def forward(entry):
    return lambda self, x: entry(x, 2.0)
"""


def write(root: Path, model: str = MODEL, **files: str) -> Path:
    """The model's folder, under `models` next to the task; keywords are files of the model."""
    write_task(root / "scale")
    folder = root / "models" / "toy"
    folder.mkdir(parents=True)
    texts = {"program.py": PROGRAM, "layers.py": LAYERS, "adapters.py": ADAPTERS, "model.toml": model}
    texts |= {f"{name}.py": text for name, text in files.items()}
    for name, text in texts.items():
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def loaded(folder: Path) -> ModelFile:
    return model_file.load(folder, None, on_cpu=True)


def patch(folder: Path) -> Patch:
    task = taskfile.load(folder.parents[1] / "scale")
    return Patch("scale", task.entry, task.folder, task.folder)
