"""Models that are commands: turns, wiring in other processes, signals, deadlines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.errors import UserError
from harness.shared.model_step import ModelFile, Patch, Site
from harness.shared.taskfile.values import TaskError
from kernbench.cli import cli
from kernbench.programs.searched_log import Log
from kernbench.transfer import model_file, perf_dump
from kernbench.transfer.injection import Injection, Ran
from kernbench.transfer.model_row import ModelRow
from kernbench.transfer.model_run import ModelRun, TransferOptions
from tests.transfer import command_toy, toy

SITE = "served.layers:step_ms"


def row_of(folder: Path, told: list[str] | None = None, **given: Any) -> ModelRow:
    options = TransferOptions(tasks=("scale",), what="now", config="other", **given)
    os.chdir(folder.parents[1])
    (row,) = asyncio.run(ModelRun(folder, options, (told if told is not None else []).append).rows())
    return row


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # and back


def test_a_command_is_timed_in_turns_with_the_kernels_in_the_processes_that_it_spawns(tmp_path: Path) -> None:
    told: list[str] = []
    row = row_of(command_toy.write(tmp_path, "spawn"), told)
    sides = [text.rpartition(" ")[2] for text in told]
    assert sides == ["eager", "ours", *["eager", "ours", "ours", "eager"] * 3]
    assert (row.word, row.kept, row.rounds, row.side, row.over) == ("faster", True, 6, "ours", "eager")
    assert row.speedup == pytest.approx(1.25, abs=0.002)  # the slow first step is left out
    assert (row.expected, row.exact, row.gaps, row.shares) == (None, None, (), ())
    assert [(item.name, len(item.samples), item.peak_mb) for item in row.times] == [
        ("eager", 6, 2048.0),
        ("ours", 6, 2048.0),
    ]
    assert row.floor is not None
    assert row.floor < 0.001
    state = tmp_path / "scale" / ".kernbench"
    line = json.loads((state / "runs.jsonl").read_text())
    assert (line["word"], line["dumps"]) == ("faster", ["toy-original.json", "toy-ours.json"])
    own, ours = (perf_dump.read(state / name) for name in line["dumps"])
    assert own.steps_ms[1] / ours.steps_ms[1] == pytest.approx(1.25, abs=0.002)


def test_a_command_that_falls_back_is_forbidden_at_once_and_has_no_number(tmp_path: Path) -> None:
    told: list[str] = []
    row = row_of(command_toy.write(tmp_path, "fallback"), told)
    assert (row.word, row.kept, row.speedup, row.times, row.dumps) == ("forbidden", False, None, (), ())
    assert row.why == '"[WARN] Using diffusers backend for it" (line 2 of its log)'
    assert told == ["run 1 of 14, eager"]


def test_kernels_that_never_run_in_it_are_not_wired(tmp_path: Path) -> None:
    row = row_of(command_toy.write(tmp_path, "unused"), device="cuda:0")  # as `M` asks for every model
    assert (row.word, row.kept, row.speedup, row.times) == ("not wired", False, None, ())
    assert row.why == f"{SITE} was never called"


def test_what_ran_is_told_by_site_and_by_entry() -> None:
    model = ModelFile("m", "", "", "", "", "", {}, (Site("a:b", "one", "x:y"), Site("c:d", "two", "x:y")))
    one, two = (Patch(task, "f", "", "") for task in ("one", "two"))
    ran = Ran(frozenset(["a:b"]), frozenset())
    assert ran.missing(model, [one, two]) == "c:d was never called"
    assert ran.missing(model, [one]) == "the entry of one never ran"
    assert Ran(ran.sites, frozenset(["one"])).missing(model, [one]) == ""


@pytest.mark.parametrize(
    ("mode", "solution", "said"),
    [
        ("fail", "", r"toy: its command \(eager\) exited with code 1: no such checkpoint$"),
        ("nothing", "", r"toy: its command \(eager\) wrote no perf dump to \{dump\}: loading weights$"),
        ("plain", "def scale(x, factor:\n", r"toy: the kernels could not be put in: scale/solution.py:1: "),
    ],
)
def test_a_command_that_cannot_run_says_why(tmp_path: Path, mode: str, solution: str, said: str) -> None:
    folder = command_toy.write(tmp_path, mode, **({"solution": solution} if solution else {}))
    with pytest.raises(UserError, match=said):
        row_of(folder)


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = command_toy.write(tmp_path, "hang", limit_s=5)
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    with pytest.raises(UserError, match=r"ran for over 5 s and was stopped; see `limit_s`"):
        row_of(folder)
    assert living(tmp_path / "pids") == []


def test_ctrl_c_ends_a_command_with_what_it_started(tmp_path: Path) -> None:
    command_toy.write(tmp_path, "hang")
    command = [sys.executable, "-m", "kernbench", "transfer", "toy", "--config", "other", "--source", "now"]
    environment = os.environ | {"PIDS": str(tmp_path / "pids")}
    program = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while not _has_two(tmp_path / "pids") and program.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 130
    finally:
        program.kill()
        program.communicate()
    assert living(tmp_path / "pids") == []


def _has_two(pids: Path) -> bool:
    return pids.exists() and len(pids.read_text().split()) == 2


def living(pids: Path) -> list[str]:
    found = pids.read_text().split()
    assert len(found) == 2
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('the own one')\n")
    model = model_file.load(command_toy.write(tmp_path), None, on_cpu=False)
    inside = Injection(tmp_path / "inside", model, [], is_watched=False)
    command = [sys.executable, "-c", "import sys; print('harness' in sys.modules)"]
    environment = os.environ | {"PYTHONPATH": f"{inside.folder}{os.pathsep}{own}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "the own one\nFalse\n"


REWRITTEN = (
    command_toy.MODEL.replace(SITE, "pieces:step_ms")
    + """
[[rewrite]]
call = "served.run:one"
by = "rewrites:one"
"""
)


def test_a_rewrite_calls_the_kernels_through_the_models_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_toy, "MODEL", REWRITTEN)
    folder = command_toy.write(tmp_path)
    (folder / "pieces.py").write_text("def step_ms(ms):\n    return ms\n")
    (folder / "rewrites.py").write_text("import pieces\n\ndef one(number, mode):\n    return pieces.step_ms(10.0)\n")
    model = model_file.load(folder, None, on_cpu=False)
    inside = Injection(tmp_path / "inside", model, [toy.patch(folder)], is_watched=True)
    command = [sys.executable, str(folder / "generate.py"), str(tmp_path / "dump.json"), "plain"]
    environment = os.environ | {"PYTHONPATH": f"{inside.folder}{os.pathsep}{tmp_path / 'stubs'}"}
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert inside.ran() == Ran(frozenset(["pieces:step_ms"]), frozenset(["scale"]))
    assert perf_dump.read(tmp_path / "dump.json").steps_ms == (8.0,) * 6


def test_a_signal_is_found_across_pieces_and_in_a_progress_line() -> None:
    log = Log(["using diffusers backend"])
    for piece in (b"loading\n 10%\r 20%\rUsing Diff", b"users back", b"end\x1b[0m\nlater\n"):
        log.feed(piece)
    log.end()
    assert log.forbidden == '"Using Diffusers backend" (line 4 of its log)'
    assert log.last == "later"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"{dump}", ', ""), r"command: has no \{dump\}"),
        (("limit_s = 20", "limit_s = 0"), "limit_s: must be a number from"),
        (("limit_s = 20", "[limits]\npsnr_db = 3"), "limits: unknown key; the known keys are command, configs"),
        (('environment = { PYTHONPATH = "STUBS" }', "environment = 3"), "environment: must be a table of variables"),
    ],
)
def test_a_mistake_in_a_commands_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], said: str
) -> None:
    monkeypatch.setattr(command_toy, "MODEL", command_toy.MODEL.replace(*change))
    with pytest.raises(TaskError, match=said):
        model_file.load(command_toy.write(tmp_path), None, on_cpu=True)


def test_options_that_do_not_fit_the_kind_of_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"toy is a command; change `command` in its model.toml"):
        row_of(command_toy.write(tmp_path / "a"), steps=3)
    with pytest.raises(UserError, match="--rounds: an interval needs 6 at least"):
        row_of(tmp_path / "a" / "models" / "toy", rounds=5)
    words = ["transfer", str(tmp_path / "a" / "models" / "toy"), "--device", "cuda:1"]
    assert "--device: " in CliRunner().invoke(cli, words).output
    folder = toy.write(tmp_path / "b")
    os.chdir(tmp_path / "b")
    with pytest.raises(UserError, match="--rounds: an interval needs 18 at least"):
        asyncio.run(ModelRun(folder, TransferOptions(rounds=6), lambda text: None).rows())
