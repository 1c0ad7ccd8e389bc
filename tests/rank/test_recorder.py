"""`kernbench rank -- COMMAND`: the recorder in real Python processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.injection import stack_recorder
from harness.injection.stack_recorder import Recorder, Settings
from harness.shared.errors import UserError
from kernbench.rank import recorded_command
from tests import ROOT

RUN = """
import multiprocessing, sys
import sitecustomize

def main():
    import net
    assert sitecustomize.WAS_THERE
    net.step()
    print("done", flush=True)

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=main)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
NET = """
import torch

def gated(x):
    return x.sigmoid() * x

class Net(torch.nn.Module):
    def forward(self, x):
        return gated(x @ x)

def step():
    Net()(torch.ones(64, 64))
"""
MINI = """
import sys
sys.path.insert(0, sys.argv[1])
import program
import torch

torch.set_num_threads(1)
model, inputs = program.build("cpu", torch.float32, 0, dim=256, heads=4, edge=6, text=16, blocks=1, channels=32)
for _ in range(20):
    model(**inputs)
"""


def rank(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernbench", "rank", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_spawned_process_is_recorded(tmp_path: Path) -> None:
    """And the sitecustomize.py that ours hides runs, too."""
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("WAS_THERE = True\n")
    done = rank(tmp_path, "--json", "--", sys.executable, "run.py", PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    whole, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (whole["source"], whole["on_gpu"]) == ("1 recorded process", False)
    by_name = {row["function"]: row for row in rows}
    assert set(by_name["net:gated"]["kernels"]) == {"aten::sigmoid", "aten::mul"}
    assert by_name["net:gated"]["dims"] == [64, 64]
    assert "aten::mm" in by_name["net:Net.forward"]["kernels"]
    assert by_name["net:gated"]["caller"] == "net:Net.forward"
    assert "done" in done.stderr


def test_the_script_is_known_when_the_process_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes `__file__` from `__main__` before it runs what was registered for the exit."""
    script = ModuleType("__main__")
    script.__file__ = "/x/run.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    recorder = Recorder(Settings(str(tmp_path), 1.0, 0.0, False))
    recorder._say("recording")
    del script.__file__
    recorder._say("written")
    (state,) = recorded_command.states(tmp_path)
    assert (state["state"], state["main"]) == ("written", "/x/run.py")


PLAIN = """
import sys, time
import torch
torch.set_num_threads(1)
from gates import gated

until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    gated(torch.ones(64))
"""
GATES = "def gated(x):\n    return x.sigmoid() * x\n"


def test_a_program_without_modules_runs_again_and_its_recording_ends_in_time(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "gates.py").write_text(GATES)
    done = rank(tmp_path, "--json", "--for", "300ms", "--", sys.executable, "plain.py", "0.1")
    assert done.returncode == 0, done.stderr
    assert "gates:gated" in {json.loads(line).get("function") for line in done.stdout.splitlines()}
    again = "kernbench: the command called no torch.nn.Module; running it again with --whole"
    assert done.stderr.splitlines().count(again) == 1
    endless = ("--whole", "--for", "300ms", "--stop", "--", sys.executable, "plain.py", "600")
    assert rank(tmp_path, *endless).returncode == 0


def test_after_a_wait_that_no_module_ended_there_is_nothing_to_run_again(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "gates.py").write_text(GATES)
    done = rank(tmp_path, "--skip", "1s", "--", sys.executable, "plain.py", "0")
    assert (done.returncode, done.stderr) == (2, f"kernbench: {recorded_command.NO_MODULE}\n")


@pytest.mark.parametrize(("step_mb", "note"), [(15, "stopped early: its recording took 200 MB"), (400, "")])
def test_a_recording_that_takes_too_much_memory_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_mb: int, note: str
) -> None:
    """What comes at once is the program's own."""
    looks = iter(range(0, step_mb * 40, step_mb))
    monkeypatch.setattr(stack_recorder, "POLL_S", 0.0)
    monkeypatch.setattr(stack_recorder, "resident_bytes", lambda: next(looks) << 20)
    recorder = Recorder(Settings(str(tmp_path), 60.0, 0.0, True))
    monkeypatch.setattr(recorder, "_listen", lambda hook: None)
    with contextlib.suppress(StopIteration):
        recorder._watch()
    assert recorder._note == note


def states(folder: Path, *said: dict[str, Any]) -> Path:
    for number, one in enumerate(said):
        state = {"state": "imported", "problem": "", "note": "", "main": "", "path": [], **one}
        (folder / f"{number}.json").write_text(json.dumps(state))
    return folder


@pytest.mark.parametrize(
    ("said", "code", "says"),
    [
        ([], 0, recorded_command.NOT_LOADED),
        ([], 3, "the command exited with code 3 before anything was recorded"),
        ([], -11, "the command segfaulted before anything was recorded"),
        ([{}], 0, recorded_command.NO_MODULE),
        ([{}, {"state": "recording"}], 0, recorded_command.KILLED),
        ([{"state": "failed", "problem": "OSError: full"}], 0, "torch.profiler failed in it: OSError: full"),
    ],
)
def test_nothing_recorded_is_one_sentence(tmp_path: Path, said: list[dict[str, Any]], code: int, says: str) -> None:
    with pytest.raises(UserError) as caught:
        recorded_command.collected(states(tmp_path, *said), ["python"], code)
    assert str(caught.value) == says


def test_a_command_that_cannot_start_or_fails_says_so(tmp_path: Path) -> None:
    done = rank(tmp_path, "--", "no-such-program")
    assert (done.returncode, done.stderr) == (2, "kernbench: cannot start no-such-program: No such file or directory\n")
    done = rank(tmp_path, "--", sys.executable, "-c", "import sys; print('why'); sys.exit(3)")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["why", "kernbench: the command exited with code 3 before anything was recorded"]


def test_ctrl_c_ends_the_commands_whole_tree(tmp_path: Path) -> None:
    script = "sh -c 'echo $$ >child; exec sleep 60' & echo $$ >parent; wait"
    words = [sys.executable, "-m", "kernbench", "rank", "--", "sh", "-c", script]
    program = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        names = [tmp_path / name for name in ("child", "parent")]
        while not all(name.exists() and name.read_text().strip() for name in names) and time.monotonic() < until:
            time.sleep(0.02)
        pids = [int((tmp_path / name).read_text()) for name in ("child", "parent")]
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 130
    finally:
        program.kill()
        program.wait()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.long
def test_the_mini_models_norms_and_rope_are_named(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(MINI)
    mini = ROOT / "kernels" / "models" / "mini"
    done = rank(tmp_path, "--json", "--", sys.executable, "step.py", str(mini))
    assert done.returncode == 0, done.stderr
    _, *rows = [json.loads(line) for line in done.stdout.splitlines()]
    named = {row["site"]: row for row in rows}
    ours = {"layers:_turned", "layers:normed_and_turned", "layers:modulated_norm", "layers:rms_rows"}
    assert ours <= set(named)
    offered = {site: named[site] for site in ours if named[site]["candidate"]}
    assert set(offered) == {site for site in ours if named[site]["share"] >= 0.01}  # load moves small ones
    command = f"kernbench capture --site layers:_turned --new turned -- {sys.executable} step.py {mini}"
    assert offered["layers:_turned"]["command"] == command
    assert "GEMM" not in offered["layers:normed_and_turned"]["categories"]
