"""A model that is a command: a script without torch, whose steps take as long as its layer says.

The harness asks for torch when it loads an entry; a folder with an empty one saves seven imports of the real one.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.child import write_task

MODEL = """
title = "a command"
command = ["{python}", "{folder}/generate.py", "{dump}", "{mode}"]
environment = { PYTHONPATH = "STUBS" }
limit_s = 20
[configs.plain]
mode = "plain"
[configs.other]
mode = "MODE"
[[site]]
call = "served.layers:step_ms"
task = "scale"
adapter = "adapters:step_ms"
"""
GENERATE = """
import json, os, subprocess, sys, time
from served import run

dump, mode = sys.argv[1:]
print("loading weights", flush=True)
if mode == "fallback":
    print("[WARN] Using diffusers backend for it", flush=True)
    time.sleep(30)
elif mode == "hang":
    child = subprocess.Popen(["sleep", "31"])
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"{os.getpid()} {child.pid} ")
    time.sleep(30)
elif mode == "fail":
    sys.exit("no such checkpoint")
elif mode == "nothing":
    sys.exit()
elif mode == "spawn":
    subprocess.run([sys.executable, __file__, dump, "plain"], check=True)
    sys.exit()
steps = [run.one(number, mode) for number in range(6)]
with open(dump, "w") as file:
    json.dump({
        "total_duration_ms": sum(steps) + 100,
        "steps": [{"name": "DenoisingStage", "duration_ms": sum(steps)}],
        "denoise_steps_ms": [{"step": number, "duration_ms": ms} for number, ms in enumerate(steps)],
        "memory_checkpoints": {"after_DenoisingStage": {"peak_reserved_mb": 2048.0}},
    }, file)
"""
RUN = """
import os
from served.layers import step_ms

def one(number, mode):
    drift = os.getpid() % 10 / 1e4
    return (10.0 if mode == "unused" else step_ms(10.0)) * (1 + drift) + (number == 0) * 40
"""
FILES = {
    "models/toy/generate.py": GENERATE,
    "models/toy/adapters.py": "def step_ms(entry):\n    return lambda ms: entry(ms, 0.8)\n",
    "models/toy/served/__init__.py": "",
    "models/toy/served/layers.py": "def step_ms(ms):\n    return ms\n",
    "models/toy/served/run.py": RUN,
    "stubs/torch/__init__.py": "preserve_format = None\nclass Tensor: ...\n",
    "stubs/torch/library.py": "class Library:\n    def __init__(self, ns, kind): ...\n",
}


SOLUTION = "def scale(x, factor):\n    return x * factor\n"


def write(root: Path, mode: str = "plain", solution: str = SOLUTION, limit_s: int = 20) -> Path:
    """The model's folder."""
    write_task(root / "scale", solution_py=solution)
    model = MODEL.replace("STUBS", str(root / "stubs")).replace("MODE", mode).replace("= 20", f"= {limit_s}")
    for name, text in (FILES | {"models/toy/model.toml": model}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "models" / "toy"
