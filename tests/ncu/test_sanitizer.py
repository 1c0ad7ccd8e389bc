"""`run --sanitize`: one call under compute-sanitizer, its errors as sentences; with a stand-in, then the real one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.ncu import sanitizer
from tests.gates.test_gpu_gates import PRELUDE
from tests.harness.child import TASK, write_task
from tests.harness.cuda.test_cuda import CUDA_FILE, CUDA_SOLUTION

FAKE = Path(__file__).parent / "fake"
GPU_TASK = TASK.replace('device = "cpu"\n', "")
OUTSIDE = """
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, int, float)+0x1a0 in {folder}/solution.cu:6
=========     by thread ({thread},0,0) in block (1,0,0)
=========     Address 0x7f2a1fa00420 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a1fa00000 of size 1,056 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x37e6c6]
=========                in libcuda.so.1
"""
OLD = """
========= Invalid __shared__ read of size 2 bytes
=========     at 0x150 in {folder}/solution.cu:9:void norm<float>(float *)
=========     by thread (0,0,0) in block (0,0,0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_task(tmp_path / "scale", task_toml=GPU_TASK)


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["run", str(folder), "--sanitize", "--python", sys.executable, *options])


def test_errors_are_counted_and_placed_in_the_users_file(tmp_path: Path) -> None:
    snapshot, user = tmp_path / "snapshot", tmp_path / "user"
    text = "".join(OUTSIDE.format(folder=snapshot, thread=thread) for thread in (32, 33)) + OLD.format(folder=user)
    assert [str(error) for error in sanitizer.parse(text, snapshot, user)] == [
        "solution.cu:6: invalid __global__ write of size 4 bytes in scale, by 2 threads: "
        "1 bytes after an allocation of 1,056 bytes",
        "solution.cu:9: invalid __shared__ read of size 2 bytes in norm, by 1 thread",
    ]


def test_the_smallest_case_that_matches_is_taken(folder: Path) -> None:
    task = load(folder)
    assert sanitizer.smallest(task, None).id == "small"
    assert sanitizer.smallest(task, "l*").id == "large"


def test_what_is_found_is_exit_code_1(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    said.write_text(OUTSIDE.format(folder=folder, thread=0))
    monkeypatch.setenv("PATH", str(FAKE), prepend=":")
    monkeypatch.setenv("FAKE_SANITIZER", str(said))
    done = run(folder)
    assert done.exit_code == 1, done.output
    assert done.stdout.startswith("solution.cu:6: invalid __global__ write of size 4 bytes in scale, by 1 thread")
    [line] = run(folder, "--json").stdout.splitlines()
    assert json.loads(line)["line"] == 6


def test_nothing_found_is_exit_code_0(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(FAKE), prepend=":")
    done = run(folder, "--case", "large")
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    assert "large: no memory errors" in done.stderr


def test_a_call_that_fails_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "solution.py").write_text("def scale(x, factor):\n    return x.nothing\n")
    monkeypatch.setenv("PATH", str(FAKE), prepend=":")
    done = run(folder)
    assert done.exit_code == 1
    assert "solution.py:2: AttributeError: 'Tensor' object has no attribute 'nothing'" in done.stderr


def test_without_the_tool_there_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    done = run(folder)
    assert isinstance(done.exception, sanitizer.UserError)  # the program's main prints it and leaves with 2
    assert str(done.exception) == sanitizer.MISSING


def test_a_task_for_the_cpu_is_a_mistake(tmp_path: Path) -> None:
    done = run(write_task(tmp_path))
    assert done.exit_code == 2
    assert "runs on the CPU here" in done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("past", ["", " + 1"])
def test_the_real_one_finds_an_element_outside_in_cuda(tmp_path: Path, past: str) -> None:
    source = CUDA_FILE.replace("i < n)", f"i < n{past})")
    done = run(write_task(tmp_path, task_toml=GPU_TASK, solution_py=CUDA_SOLUTION, solution_cu=source))
    assert done.exit_code == (1 if past else 0), done.output
    if past:
        assert "solution.cu:4: invalid __global__ write of size 4 bytes" in done.stdout
        assert "in scale, by 1 thread" in done.stdout


@pytest.mark.gpu
def test_the_real_one_finds_an_element_outside_in_triton(tmp_path: Path) -> None:
    source = PRELUDE.replace("offsets < n", "offsets < n + 1") + "def scale(x, factor): return launch(x, factor)\n"
    done = run(write_task(tmp_path, task_toml=GPU_TASK, solution_py=source))
    assert done.exit_code == 1, done.output
    assert done.stdout.startswith("solution.py:9: invalid __global__")
