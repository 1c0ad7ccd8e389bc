"""`kernbench capture` with real programs on a CPU: spawned processes, the mini model, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.capture.captured import Captured
from harness.shared import taskfile
from kernbench.capture import candidates
from kernbench.cli import cli
from tests import ROOT

MINI = ROOT / "kernels" / "models" / "mini"
STEP = f"""
import sys
sys.path.insert(0, {str(MINI)!r})
import torch
torch.set_num_threads(1)
import program
model, inputs = program.build("cpu", torch.float32, 0, dim=64, heads=2, edge=16, text=8, blocks=2, channels=32)
for _ in range(2):
    model(**inputs)
"""
SITES = {
    "modulated_norm": 4,
    "residual_norm": 4,
    "normed_and_turned": 4,
    "rms_rows": 4,
    "turned": 4,
    "gated_norm": 4,
    "normed_silu": 6,
}
"""The calls of two steps; a gated sum may be below any share."""
SPAWNING = """
import multiprocessing
import chained
def work(method, count):
    import torch
    from parts import gate
    for _ in range(count):
        gate.apply(torch.ones(2, 2))
    if method == "spawn":
        start("fork", 3)
def start(method, count):
    process = multiprocessing.get_context(method).Process(target=work, args=(method, count))
    process.start()
    process.join()
if __name__ == "__main__":
    print("the existing sitecustomize ran:", chained.RAN)
    start("spawn", 2)
    print("noise on stdout")
"""


def capture(*words: str) -> Result:
    return CliRunner().invoke(cli, ["capture", *words])


def load(folder: Path) -> tuple[Any, dict[str, Any]]:
    return taskfile.load(folder), json.loads((folder / "capture.json").read_text())


def test_all_of_the_mini_model_becomes_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text(STEP)
    done = capture("--all", "--min-share", "0.1", "--into", "campaign", "--", sys.executable, "step.py")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "campaign" / "CAMPAIGN.md").read_text()
    rows = {name: int(calls) for name, calls in re.findall(r"(?m)^\| (\w+) \| [\d.]+% \| (\d+) \|", text)}
    assert rows.items() >= SITES.items()
    assert "q 1x256x2x32, k 1x256x2x32" in text
    assert f"`kernbench run campaign/{next(iter(rows))}` |" in text
    assert {path.parent.name for path in tmp_path.glob("campaign/*/task.toml")} == rows.keys()
    task, evidence = load(tmp_path / "campaign" / "normed_and_turned")
    assert (task.device, task.judge, task.entry) == ("cpu", "reference", "normed_and_turned")
    assert (evidence["site"], evidence["folder"]) == ("layers:normed_and_turned", str(MINI))
    (case,) = task.cases
    assert case.weight == pytest.approx(case.known["calls"] * case.known["us_per_call"] / 1e3, rel=1e-3)
    assert evidence["forms"]["f0"]["aliases"] == [["q", "k"]]
    again = capture("--all", "--into", "campaign", "--", "false")
    assert (again.exit_code, "already exists" in str(again.exception)) == (1, True)


def test_spawned_processes_count_and_an_existing_sitecustomize_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "main.py": SPAWNING,
        "parts/__init__.py": "",
        "parts/gate.py": "def apply(x):\n    return x * 2\n",
        "customs/sitecustomize.py": "import chained\nchained.RAN = True\n",
        "customs/chained.py": "RAN = False\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "customs"))
    command = [sys.executable, "-m", "kernbench", "capture", "--site", "parts.gate:apply", "--new", "gate"]
    done = subprocess.run(
        [*command, "--", sys.executable, "main.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "the existing sitecustomize ran: True" in done.stderr
    assert "parts.gate:apply: 5 calls in 1 form" in done.stderr
    task, evidence = load(tmp_path / "gate")
    assert (task.cases[0].known["calls"], evidence["folder"]) == (5, str(tmp_path))
    assert len(evidence["python"]) == 1


OPERATORS = """
import torch

def fused_raw(x: torch.Tensor, scale: torch.Tensor, eps: float = 0.5) -> torch.Tensor:
    return x * scale + eps

library = torch.library.Library("kb_captured", "FRAGMENT")
library.define("fused" + torch.library.infer_schema(fused_raw, mutates_args=[]))
library.impl("fused", fused_raw, "CPU")
fused = torch.ops.kb_captured.fused
"""
CALLS = """
import kb_operators, torch
for _ in range(3):
    kb_operators.fused(torch.ones(8, 64), scale=torch.ones(64))
assert kb_operators.fused.default is torch.ops.kb_captured.fused.default
assert kb_operators.fused.overloads() == ["default"]
"""


def test_an_operator_is_captured_by_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And stays an operator for the rest of the program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kb_operators.py").write_text(OPERATORS)
    (tmp_path / "step.py").write_text(CALLS)
    done = capture("--site", "kb_operators:fused", "--new", "made", "--", sys.executable, "step.py")
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    task, evidence = load(tmp_path / "made")
    (form,) = evidence["forms"].values()
    assert [item["name"] for item in form["arguments"]] == ["x", "scale", "eps"]
    assert form["arguments"][2]["value"] == {"kind": "plain", "value": 0.5}
    assert "return captured.original(x=x, scale=scale, eps=eps)" in (tmp_path / "made" / "solution.py").read_text()
    captured = Captured("capture.json", {"__file__": str(tmp_path / "made" / "reference.py")})
    inputs = captured.make_inputs(task.cases[0].axes, 0, "cpu")
    assert captured.original(**inputs).shape == (8, 64)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--site", "layers:x", "--new", "kept", "--", "true"], "already exists; choose another name"),
        (["--site", "layers:x", "--new", "a-b", "--", "true"], "'a-b' is not a valid task name"),
        (["--site", "layers", "--new", "x", "--", "true"], "is not MODULE:NAME"),
        (["--site", "__main__:f", "--new", "x", "--", "true"], "a task cannot import a script"),
        (["--site", "layers:x", "--", "true"], "use --site MODULE:NAME --new TASK, or --all --into DIR"),
        (["--all", "--", "true"], "--all goes with --into DIR"),
        (["--site", "layers:x", "--new", "x", "--", "./nowhere"], "cannot start ./nowhere"),
        (
            ["--site", "layers:x", "--new", "x", "--", "false"],
            "no Python process of `false` was recorded (exit code 1)",
        ),
        (["--site", "nosuch:x", "--new", "x", "--", sys.executable, "-c", ""], "nosuch was not imported in 1 Python"),
        (["--site", "glob:glop", "--new", "x", "--", sys.executable, "-c", "import glob"], "did you mean glob"),
        (["--site", "glob:iglob", "--new", "x", "--", sys.executable, "-c", "import glob"], "was never called"),
        (
            ["--site", "argparse:Action", "--new", "x", "--", sys.executable, "-c", "import argparse"],
            "it is a class; name a method, such as argparse:Action.forward",
        ),
    ],
)
def test_what_cannot_be_captured_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    done = capture(*words)
    assert done.exit_code != 0
    assert says in f"{done.output}{done.exception}"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def function(site: str, ms: float, heavy_ms: float, *callers: str) -> dict[str, Any]:
    return {"site": site, "ms": ms, "heavy_ms": heavy_ms, "callers": list(callers)}


def test_the_outermost_function_without_matrix_products_is_chosen() -> None:
    found = [
        function("m:Block.forward", 90, 60),
        function("m:norm", 20, 0, "m:Block.forward"),
        function("m:inner", 15, 0, "m:norm"),
        function("m:shared", 8, 0, "m:norm", "m:Block.forward"),
        function("m:Ada.forward", 10, 2, "m:Block.forward"),
        function("m:Block.__len__", 9, 0, "m:Block.forward"),
        function("m:small", 0.5, 0, "m:Block.forward"),
    ]
    halves = [{"functions": {"total_ms": 50.0, "functions": found[:4]}}, {"functions": {}}]
    halves.append({"functions": {"total_ms": 50.0, "functions": found[4:]}})
    chosen = candidates.choose(halves, 0.01)
    assert [(item.site, item.share) for item in chosen] == [("m:norm", 0.2), ("m:Ada.forward", 0.1), ("m:shared", 0.08)]
    names = candidates.task_names(["m:RMSNorm.forward", "m:_turned", "n:turned", "m:Ada.__call__"])
    assert list(names.values()) == ["rmsnorm", "turned", "turned_2", "ada"]


@pytest.mark.long
def test_a_captured_task_runs_at_once_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text(STEP)
    done = capture("--site", "layers:normed_silu", "--new", "silu", "--", sys.executable, "step.py")
    assert done.exit_code == 0, done.output
    command = [sys.executable, "-m", "kernbench", "run", "silu", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    finished = [json.loads(line) for line in ran.stdout.splitlines()]
    rows = {(line["id"], line["status"], line["verdict"]) for line in finished if line.get("event") == "case"}
    assert {row[:2] for row in rows} == {("1x32x32x32_fp32", "ok")}, ran.stderr
    assert {row[2] for row in rows} <= {"same", "unclear"}  # a busy machine cannot tell
    assert next(line["weighted"] for line in finished if line.get("event") == "finished") is not None
