"""What `kernbench demo` opens, what it remembers, and what it asks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernbench.cli import cli
from kernbench.commands import run, setup
from kernbench.demo import demo_memory, demo_task, tour_steps
from kernbench.demo.demo_memory import DemoMemory
from kernbench.suites import opening
from kernbench.task import lookup
from tests import ROOT

Opened = list[tuple[str, int]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The folders that were opened, with the number of steps of their tour."""
    found: Opened = []

    def note(task: str, **given: object) -> None:
        import click

        found.append((task, len(click.get_current_context().meta.get(run.TOUR, ()))))

    monkeypatch.setattr(setup, "need_terminal", lambda: None)
    monkeypatch.setattr(setup.open_workbench, "callback", note)
    monkeypatch.setattr(opening, "device_here", lambda: "cpu")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return found


def test_the_tour_comes_once_and_again_when_asked_for(opened: Opened) -> None:
    for words in (["demo"], ["demo"], ["demo", "--tour"]):
        assert CliRunner().invoke(cli, words).exit_code == 0
    folder = str(ROOT / "kernels" / "softmax_host")
    assert opened == [(folder, 6), (folder, 0), (folder, 6)]


def test_a_gpu_gets_a_gpu_task_unless_torch_cannot_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, name in (("2.6.0", "rms_norm"), ("2.7.1+cu128", "rms_norm"), ("2.13.0+cpu", "softmax_host")):
        monkeypatch.setattr("importlib.metadata.version", lambda package, version=version: version)
        assert demo_task.name(has_gpu=True) == name
        assert demo_task.name(has_gpu=False) == "softmax_host"


def test_from_a_wheel_it_asks_for_a_folder_once(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "read_only", lambda folder: folder == lookup.shipped_tasks()["softmax_host"])
    asked = CliRunner().invoke(cli, ["demo"], input="mine\n")
    assert "The demo edits a copy of softmax_host. Folder for it [kernbench-demo]:" in asked.output
    copy = tmp_path / "mine" / "softmax_host"
    assert f"copied softmax_host to {copy}" in asked.output
    assert not (copy / "ITERATIONS.md").exists()  # its history was made elsewhere
    assert CliRunner().invoke(cli, ["demo"]).output == ""
    assert opened == [(str(copy), 6), (str(copy), 0)]
    shutil.rmtree(copy)
    assert "[" + str(tmp_path / "mine") + "]" in CliRunner().invoke(cli, ["demo"], input="\n").output


def test_a_folder_that_is_in_the_way_is_left_alone(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "read_only", lambda folder: True)
    (tmp_path / "kernbench-demo" / "softmax_host").mkdir(parents=True)
    done = CliRunner().invoke(cli, ["demo"], input="\n")
    assert "softmax_host already exists" in str(done.exception)
    assert opened == []


def test_without_a_terminal_nothing_is_asked_or_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 2
    assert "the workbench needs a terminal" in done.output
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["", "[]", '{"tour_shown": 1}', "\x00", '{"tour_shown": true}'])
def test_an_odd_memory_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "demo.json"
    path.write_text(text)
    assert demo_memory.load(path) == DemoMemory()
    demo_memory.save(path, DemoMemory(True, "/x"))
    assert demo_memory.load(path) == DemoMemory(True, "/x")


def test_a_state_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    demo_memory.save(tmp_path / "file" / "demo.json", DemoMemory(True))


@pytest.mark.parametrize(("task", "on_gpu"), [("softmax_host", False), ("rms_norm", True)])
def test_the_proposed_change_is_in_the_shipped_source(task: str, on_gpu: bool) -> None:
    folder = ROOT / "kernels" / task
    (file,) = [name for name in tour_steps.WANTED if (folder / name).exists() and (name == "solution.py") == on_gpu]
    edit = tour_steps.edit_of(file, (folder / file).read_text())
    assert edit is not None
    assert edit.old in (folder / file).read_text().splitlines()[edit.line - 1]
    assert any(str(edit) in step.says for step in tour_steps.of_task(folder, on_gpu))
