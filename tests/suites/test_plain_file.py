"""A plain file with a Triton kernel, its wrapper, a reference and inputs opens as a task if it is named itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.suites import imported_task, problems
from kernbench.suites.formats.foreign_problem import Form
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

HEAD = """
import torch
import triton
import triton.language as tl
"""
SOFTMAX = (
    HEAD
    + """
@triton.jit
def _rows(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)

def softmax(x):
    out = torch.empty_like(x)
    _rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out

def softmax_torch(x):
    return torch.softmax(x, dim=-1)

def make_inputs():
    return (torch.randn(8, 100, device="cuda"),)

if __name__ == "__main__":
    raise SystemExit("this must not run")
"""
)
SCALED_SUM = (
    HEAD
    + """
@triton.jit
def kernel(a, b, out, factor, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, factor * (tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside)), mask=inside)

def scaled_sum(a, b, factor=2.0):
    out = torch.empty_like(a)
    kernel[(_blocks(a),)](a, b, out, factor, a.numel(), BLOCK=256)
    return out

def _blocks(a):
    return triton.cdiv(a.numel(), 256)

def ref_scaled_sum(a, b, factor=2.0):
    return factor * (a + b)

def get_inputs(count=1000):
    return {"b": torch.randn(count).cuda(), "a": torch.randn(count).to("cuda:0"), "factor": 3.0}
"""
)
TWO_OUTPUTS = (
    HEAD
    + """
@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["count"])
@triton.jit
def kernel(x, low, high, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < count)
    tl.store(low + at, tl.minimum(values, 0.0), mask=at < count)
    tl.store(high + at, tl.maximum(values, 0.0), mask=at < count)

def split(x):
    low, high = torch.empty_like(x), torch.empty_like(x)
    kernel[lambda options: (triton.cdiv(x.numel(), options["BLOCK"]),)](x, low, high, x.numel())
    return low, high

def naive(x):
    return x.clamp(max=0), x.clamp(min=0)

def plot(x, path):
    pass

def make_inputs():
    torch.manual_seed(3)
    return [torch.randn(300)]
"""
)
FILES = {"softmax": SOFTMAX, "scaled_sum": SCALED_SUM, "two_outputs": TWO_OUTPUTS}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def written(folder: Path, name: str, text: str | None = None, **options: Any) -> Path:
    path = folder / f"{name}.py"
    path.write_text(FILES[name] if text is None else text)
    found = problems.detect(path)
    assert found is not None
    return imported_task.write(found, folder / name, Form(device="cpu", **options))


def row(child: Child, task: Path) -> dict[str, Any]:
    events = child.run(task, cases=["checked"])
    assert [event for event in events if event["event"] == "failed"] == []
    return results(events)["checked"]


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_right_as_it_is(child: Child, tmp_path: Path, name: str) -> None:
    found = row(child, written(tmp_path, name))
    assert (found["status"], found["detail"]) == ("interpreted", None)


@pytest.mark.parametrize("name", FILES)
def test_zeros_are_wrong(child: Child, tmp_path: Path, name: str) -> None:
    task = written(tmp_path, name)
    solution = task / "solution.py"
    solution.write_text(solution.read_text().replace("tl.store(out + at, ", "tl.store(out + at, 0 * "))
    solution.write_text(solution.read_text().replace("tl.store(out + row * columns + at, ", "0 and tl.store("))
    solution.write_text(solution.read_text().replace("high, x.numel())", "low, x.numel())"))
    assert row(child, task)["status"] == "wrong"


def test_the_file_is_part_of_the_task(tmp_path: Path) -> None:
    task = written(tmp_path, "softmax")
    before = load(task)
    assert before.entry == "softmax"
    assert "problem.py" in before.files
    path = tmp_path / "softmax.py"
    path.write_text(path.read_text().replace("dim=-1", "dim=0"))
    assert load(task).hash != before.hash


def test_import_says_what_was_taken_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two_outputs.py").write_text(TWO_OUTPUTS)
    done = CliRunner().invoke(cli, ["import", "two_outputs.py", "--device", "cpu"])
    assert done.exit_code == 0
    assert "two_outputs.py: wrapper split, reference naive, inputs make_inputs" in done.output


def test_a_folder_is_not_searched_for_such_files(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(SOFTMAX)
    assert list(problems.problems(tmp_path)) == []
    assert problems.detect(tmp_path) is None
    assert [problem.name for problem in problems.problems(tmp_path / "softmax.py")] == ["softmax"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def softmax_torch", "def softmax_plain", "needs one reference, such as ref_softmax .* found none"),
        ("def make_inputs()", "def ref(x): return x\ndef make_inputs()", "found softmax_torch, ref$"),
        ("def softmax(x)", "def softmax(x, dim)", r"the parameters of softmax_torch\(x\); found none"),
        ("def make_inputs()", "def other(x): return x\ndef make_inputs()", "found softmax, other$"),
        ("def make_inputs()", "def make_inputs(count)", r"needs make_inputs\(\) or get_inputs\(\), without arguments"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ProjectError, match=f"softmax.py: .*{said}"):
        written(tmp_path, "softmax", SOFTMAX.replace(old, new))


def test_a_file_without_a_kernel_is_none(tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    for text in (SOFTMAX.replace("@triton.jit", ""), "def f(: pass"):
        path.write_text(text)
        assert problems.detect(path) is None


def test_sizes_cannot_be_divided(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="leave --scale out and change make_inputs"):
        written(tmp_path, "softmax", scale=4)


def test_inputs_that_are_no_arguments_are_the_tasks_mistake(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, "softmax", SOFTMAX.replace('device="cuda"),)', 'device="cuda"))'))
    (failed,) = (event for event in child.run(task, cases=["checked"]) if event["event"] == "failed")
    assert "make_inputs must return a tuple, list or dict of arguments, and returned Tensor" in failed["message"]


def test_a_solution_is_taken_over_and_given_back_unchanged(tmp_path: Path) -> None:
    own, back = tmp_path / "own.py", tmp_path / "back.py"
    own.write_bytes(SOFTMAX.replace("\n", "\r\n").encode())
    task = written(tmp_path, "softmax", solution=own)
    done = CliRunner().invoke(cli, ["export", str(task), "--format", "plain-file", "-o", str(back)])
    assert done.exit_code == 0, done.output
    assert back.read_bytes() == own.read_bytes()
