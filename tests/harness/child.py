"""A worker process for tests, started as the workbench starts it, and the smallest tasks to run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from harness.shared.codes import DISTURBANCES
from harness.shared.lines import to_dict
from harness.shared.run_request import RunRequest
from harness.shared.task import Task
from harness.shared.taskfile import load
from kernbench.worker.wire_check import WireCheck
from tests import ROOT
from tests.forked import Forked

BOOT = """
import importlib.util, sys
sys.path[:] = [entry for entry in sys.path if entry]
folder, device = sys.argv[1:3]
spec = importlib.util.spec_from_file_location("harness", folder + "/__init__.py", submodule_search_locations=[folder])
sys.modules["harness"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
BEFORE
from harness.worker import main
main(device)
"""

TASK = """
name = "scale"
entry = "scale"
device = "cpu"
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-5 }
[[case]]
id = "small"
axes = { rows = 8, columns = 33 }
[[case]]
id = "large"
axes = { rows = 64, columns = 257 }
"""
REFERENCE = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(case["rows"], case["columns"], generator=generator, device=device)
    return {"x": x * spread + offset, "factor": 2.0}

def scale(x, factor):
    return x * factor
"""
SOLUTION = """
import torch

def scale(x, factor):
    return torch.mul(x, factor)
"""

OF_THE_MACHINE = DISTURBANCES | {"throttled", "not_recovered"}
"""Codes of findings about this machine at this moment: whatever source is timed may meet them."""


def write_task(folder: Path, **files: str) -> Path:
    """A task folder; keyword names are file names with `_` for the dot (`solution_py`)."""
    contents = {"task_toml": TASK, "reference_py": REFERENCE, "solution_py": SOLUTION, **files}
    for name, text in contents.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return folder


def start(code: str, words: list[str], env: dict[str, str], forked: bool) -> Forked | subprocess.Popen[str]:
    """A process with three pipes; one that needs no GPU is forked, which saves it the import of torch."""
    if forked:
        return Forked(code, words, environment=env)
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True
    )


class Child:
    """One worker; `run` sends a request and returns its events. None of its lines may be refused by the workbench."""

    def __init__(self, device: str = "cpu", before: str = "", **environment: str) -> None:
        """`before` is Python that runs in the worker's process ahead of it, with the harness at hand."""
        env = {**os.environ, **environment}
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
            env.pop(name, None)
        self.process = start(BOOT.replace("BEFORE", before), [str(ROOT / "harness"), device], env, device == "cpu")
        self.warmed = False
        self._wire = WireCheck(self.process.pid)
        self.greeting = [self.read(), self.read()]
        self._runs = 0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait(timeout=20)
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()  # type: ignore[union-attr]

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self._wire.asked(message)
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            return {"event": "gone"}
        event: dict[str, Any] = json.loads(line)
        self._wire.check(event)
        if event["event"] != "warm":
            return event
        self.warmed = True  # comes when it likes, before a run or while one waits
        return self.read()

    def request(self, task: Task, source: Path, **fields: Any) -> str:
        self._runs += 1
        fields.setdefault("cases", tuple(case.id for case in task.cases))
        fields.setdefault("budget_ms", 5.0)
        run = RunRequest(run=f"r{self._runs}", task=task, source=str(source), **{"seed": 7, **fields})
        self.send(request="run", **to_dict(run))
        return run.run

    def events(self) -> list[dict[str, Any]]:
        """Everything up to the end of the run."""
        seen = []
        while True:
            event = self.read()
            seen.append(event)
            if event["event"] in ("finished", "failed", "cancelled", "gone"):
                return seen

    def run(self, folder: Path, source: Path | None = None, **fields: Any) -> list[dict[str, Any]]:
        fields.setdefault("build", str(folder / ".kernbench" / "build"))
        self.request(load(folder), source or folder, **fields)
        return self.events()


def results(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last result of each case, without what its findings say of the machine: other tests keep it busy."""
    return {event["result"]["id"]: _of_the_source(event["result"]) for event in events if event["event"] == "case"}


def _of_the_source(result: dict[str, Any]) -> dict[str, Any]:
    kept = [finding for finding in result["findings"] if finding["code"] not in OF_THE_MACHINE]
    return {**result, "findings": kept}


def findings(events: list[dict[str, Any]]) -> set[str]:
    return {event["finding"]["name"] for event in events if event["event"] == "finding"}
