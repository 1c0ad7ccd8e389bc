"""GPU MODE problems: recognized without running them, written as a task, right as their own solution."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared.taskfile import load
from kernbench.suites import imported_task, problems
from kernbench.suites.formats import gpu_mode
from kernbench.suites.formats.foreign_problem import Form, Problem
from kernbench.suites.formats.gpu_mode_source import Source
from kernbench.task.lookup import ProjectError
from tests.harness.child import Child, results

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
config:
  main: "eval.py"
tests:
  - {"size": 33, "seed": 4242}
  - {"size": 33, "seed": 5236}
benchmarks:
  - {"size": 4096, "seed": 1}
"""
TYPES = "from typing import Any\n\ninput_t = Any\noutput_t = Any\n"
UTILS = """
def make_match_reference(reference, **kwargs):
    return None

def same(received, expected):
    return received.shape == expected.shape and bool((received == expected).all())
"""
HEAD = """
import dataclasses
import torch
from task import input_t, output_t
from utils import make_match_reference, same

SHIFT = 3.0
UNUSED = 4.0

def moved(x):
    return x + SHIFT

def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.empty(size, 8, device="cuda").normal_(generator=gen)
    EXTRA
    return GIVEN

def ref_kernel(data: input_t) -> output_t:
    BODY
"""
MATCH = "check_implementation = make_match_reference(ref_kernel, rtol=1e-4)"
OWN = """
def check_implementation(data, output):
    good = same(output[0], data.abs()) and isinstance(output, tuple)
    return good, "" if good else "not the absolute values"
"""
WORDS = """
def check_implementation(data, output):
    return "" if same(output, ref_kernel(data)) else "not what the reference fills"
"""


def reference(given: str, body: str, extra: str = "pass", check: str = MATCH) -> str:
    text = HEAD.replace("GIVEN", given).replace("BODY", body.replace("\n", "\n    ")).replace("EXTRA", extra)
    return f"{text}\n{check}\n"


CLASSES = """
    @dataclasses.dataclass
    class Sizes:
        rows: int
        bias: torch.Tensor

    class Cache(torch.nn.Module):
        def __init__(self, kept):
            super().__init__()
            self.register_buffer("kept", kept + 1)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.kept * self.calls
"""
OUT = "out = torch.empty_like(x, device='cuda').contiguous()"
PROBLEMS = {
    "plain": reference("x", "return moved(data)"),
    "filled": reference("x, out", "x, out = data\nout[...] = moved(x)\nreturn out", OUT),
    "left_alone": reference("x, out", "x, out = data\nout = moved(x)\nreturn out", OUT),
    "modified": reference("(x, torch.zeros(8).cuda())", "x, sums = data\nsums += x.sum(0)\nreturn sums"),
    "nested": reference("{'x': x, 'more': [x + 1, 2.5]}", "return data['x'] * data['more'][1] + data['more'][0]"),
    "objects": reference(
        "(Sizes(size, x[0]), Cache(x), x)",
        "sizes, cache, x = data\nreturn cache(moved(x)) + sizes.bias * sizes.rows",
        CLASSES,
    ),
    "device_in_the_kernel": reference("x", "return data + torch.ones(8, device=torch.device('cuda'))"),
    "own_check": reference("x", "return data.abs(), data.sign()", check=OWN),
    "own_check_of_a_buffer": reference("x, out", "x, out = data\nout.copy_(moved(x))\nreturn out", OUT, WORDS),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def problem(folder: Path, text: str, task: str = TASK) -> Problem:
    place = folder / "set" / "shift"
    place.mkdir(parents=True, exist_ok=True)
    (folder / "set" / "utils.py").write_text(UTILS)
    for name, content in {"task.yml": task, "reference.py": text, "task.py": TYPES}.items():
        (place / name).write_text(content)
    found = problems.detect(place)
    assert found is not None
    return found


def written(folder: Path, text: str, **options: Any) -> Path:
    found = problem(folder, text)
    return imported_task.write(found, folder / found.name, Form(device="cpu", **{"scale": 4, **options}))


def rows(child: Child, task: Path) -> dict[str, tuple[str, str | None]]:
    events = child.run(task, cases=[case.id for case in load(task).cases])
    assert [event for event in events if event["event"] == "failed"] == []
    return {case: (found["status"], found["detail"]) for case, found in results(events).items()}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_right_as_its_own_solution(child: Child, tmp_path: Path, name: str) -> None:
    task = written(tmp_path, PROBLEMS[name])
    assert rows(child, task) == {"size1024": ("ok", None), "size33": ("ok", None)}


def test_the_first_solution_has_what_the_reference_needs_and_nothing_else() -> None:
    made = Source(PROBLEMS["plain"]).first_solution()
    assert "SHIFT = 3.0" in made
    assert "def custom_kernel(data: input_t) -> output_t:" in made
    assert not any(name in made for name in ("ref_kernel", "generate_input", "UNUSED", "check_implementation"))


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("plain", "return torch.zeros_like(data)", ": got 0, expected "),
        ("filled", "return data[1]", "output 0 was never written"),
        ("left_alone", "data[1].zero_()\n    return data[1]", ": got 0, expected "),
        ("own_check", "return data.abs() * 0, data.sign()", "check 'not the absolute values'"),
        ("own_check_of_a_buffer", "return data[1].zero_()", "check 'not what the reference fills'"),
    ],
)
def test_a_wrong_one_is_wrong(child: Child, tmp_path: Path, name: str, line: str, said: str) -> None:
    task = written(tmp_path, PROBLEMS[name])
    (task / "solution.py").write_text(f"import torch\n\ndef custom_kernel(data):\n    {line}\n")
    status, detail = rows(child, task)["size33"]
    assert status == "wrong"
    assert said in str(detail)


@pytest.mark.parametrize("name", ["filled", "left_alone"])
@pytest.mark.parametrize("line", ["return x + 3.0", "out[...] = x + 3.0\n    return out", "return (x + 3.0).double()"])
def test_what_is_returned_counts_and_no_buffer(child: Child, tmp_path: Path, name: str, line: str) -> None:
    task = written(tmp_path, PROBLEMS[name])
    text = f"from task import input_t\n\ndef custom_kernel(given: input_t):\n    x, out = given\n    {line}\n"
    (task / "solution.py").write_text(text)
    assert {status for status, _detail in rows(child, task).values()} == {"ok"}


def test_cases_come_from_the_arguments(tmp_path: Path) -> None:
    task = load(written(tmp_path, PROBLEMS["filled"], scale=1))
    assert [(case.id, case.kind, case.axes) for case in task.cases] == [
        ("size4096", "case", {"size": 4096}),
        ("size33", "smoke", {"size": 33}),
    ]
    assert (task.judge, task.outputs, task.mutates, task.returned) == ("reference", ("data.1",), (), True)
    assert (task.tolerance["float16"].rtol, task.tolerance["float16"].atol) == (1e-4, 1e-8)


@pytest.mark.parametrize("file", ["shift/reference.py", "shift/task.py", "utils.py"])
def test_a_change_of_its_files_starts_a_new_series(tmp_path: Path, file: str) -> None:
    task = written(tmp_path, PROBLEMS["plain"])
    before = load(task).hash
    path = tmp_path / "set" / file
    path.write_text(path.read_text() + "\nMORE = 1\n")
    assert load(task).hash != before


@pytest.mark.parametrize(
    ("text", "task", "said"),
    [
        (PROBLEMS["plain"], f"{TASK}\nmulti_gpu: true\n", "needs several GPUs"),
        (PROBLEMS["plain"], TASK.replace("{", '{"world_size": 8, ') + "multi_gpu: true\n", "needs 8 GPUs"),
        (f"import no_such_package.ops\n{PROBLEMS['plain']}", TASK, "needs the package no_such_package"),
        (PROBLEMS["plain"].replace("ref_kernel", "forward"), TASK, "does not define ref_kernel and generate_input"),
        (PROBLEMS["plain"], TASK.replace("../utils.py", "../missing.py"), "missing.py is missing"),
        (PROBLEMS["plain"], TASK.partition("tests:")[0], "neither tests nor benchmarks"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path, text: str, task: str, said: str) -> None:
    found = problem(tmp_path, text, task)
    assert said in found.refused
    with pytest.raises(ProjectError, match="set/shift"):
        imported_task.write(found, tmp_path / "made", Form())


def test_other_yaml_files_are_no_problems(tmp_path: Path) -> None:
    for text in ("", "[1, 2]", "files: {", "files: [a, b]", TASK.replace("@SUBMISSION@", "submission.py")):
        (tmp_path / "task.yml").write_text(text)
        assert problems.detect(tmp_path) is None


def test_a_submission_goes_in_and_comes_out_unchanged(child: Child, tmp_path: Path) -> None:
    own = "#!POPCORN leaderboard shift\r\nfrom task import input_t\r\n\r\ndef custom_kernel(d):\r\n    return d + 3.0"
    path = tmp_path / "mine.py"
    path.write_bytes(own.encode())
    task = written(tmp_path, PROBLEMS["plain"], solution=path)
    assert gpu_mode.exported({"solution.py": (task / "solution.py").read_bytes()}, {}) == own.encode()
    assert {status for status, _detail in rows(child, task).values()} == {"ok"}


def test_a_copy_needs_the_suite_no_longer(child: Child, tmp_path: Path) -> None:
    task = written(tmp_path, PROBLEMS["plain"], copy=True)
    shutil.rmtree(tmp_path / "set")
    assert {status for status, _detail in rows(child, task).values()} == {"ok"}


@pytest.mark.parametrize(
    ("body", "filled", "mutated"),
    [
        ("a, b = data\nb[:] = a\nreturn b", ["data.1"], []),
        ("a, b = data\ntorch.add(a, 1, out=b)\nreturn b", ["data.1"], []),
        ("a, b = data\nb[0] = a[0]\nreturn b", [], ["data.1"]),
        ("a, b = data\nb[...] += a\nreturn b", [], ["data.1"]),
        ("a, b = data\nb.add_(a)\nreturn b", [], ["data.1"]),
        ("a, b = data\nb = b.clone()\nb[...] = a\nreturn b", [], []),
        ("data, b = data\nb[...] = data\nreturn b", ["data.1"], []),
        ("a, b = data\nn = b.shape[0]\nb = a * n\nreturn b", [], ["data.1"]),
        ("a, b = data\na = a + b\nreturn a", [], []),
    ],
)
def test_what_the_reference_writes_to(body: str, filled: list[str], mutated: list[str]) -> None:
    assert Source(reference("x, x + 1", body)).written() == (filled, mutated)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("make_match_reference(ref_kernel)", (1e-5, 1e-8)),
        ("make_match_reference(ref_kernel, atol=2e-2, rtol=1)", (1, 2e-2)),
        ("make_match_reference(ref_kernel, rtol=RTOL)", None),
        ("make_match_reference(ref_kernel, share=0.5)", None),
        ("partial(compare, ref_kernel)", None),
    ],
)
def test_tolerances_are_read_as_they_are_written(call: str, found: tuple[float, float] | None) -> None:
    assert Source(f"check_implementation = {call}").tolerance() == found
