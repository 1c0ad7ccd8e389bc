"""What is kept of tracebacks and fatal stacks: cut down to the user's own tracebacks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from harness import shared
from harness.inputs.cache import RunCache
from harness.load.failure import Paths
from harness.run.failures import CaseFailures
from harness.shared.lines import decode, to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import RunStarted
from kernbench.worker import tracebacks

CRASH = """printed by the kernel
Fatal Python error: Segmentation fault

Thread 0x0000ffff8b0b (most recent call first):
  File "/task/first.py", line 1 in elsewhere

Current thread 0x0000ffff8c0b (most recent call first):
  File "/usr/lib/python3.12/ctypes/__init__.py", line 526 in string_at
  File "/task/.kernbench/sources/ab/solution.py", line 9 in entry
  File "/checkout/harness/check.py", line 77 in call
  File "<string>", line 9 in <module>

Thread 0x0000ffff8b0a (most recent call first):
  File "/task/other.py", line 1 in elsewhere

Extension modules: numpy (total: 1)"""


def test_only_the_users_frames_of_an_exception(tmp_path: Path) -> None:
    solution = tmp_path / "solution.py"
    solution.write_text("import json\ndef inner():\n    json.loads('{')\ndef entry():\n    inner()\n")
    spec = importlib.util.spec_from_file_location("solution", solution)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    failures = CaseFailures(Environment(), Paths(str(tmp_path)), RunCache())
    try:
        module.entry()
    except ValueError as problem:
        raised = failures.row(Case("a", "a"), problem)
    assert decode(CaseResult, to_dict(raised)) == raised
    lines = landed(raised, str(tmp_path)).traceback.splitlines()
    assert [line for line in lines if line.startswith("  File")][-2:] == [
        '  File "solution.py", line 5, in entry',
        '  File "solution.py", line 3, in inner',
    ]
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def landed(result: CaseResult, folder: str) -> CaseResult:
    """As an attempt takes it from the worker."""
    task = Task("t", "entry", folder, "", "eager", "cpu", 1, (), "any", {}, (Case("a", "a"),), "0")
    progress = RunProgress(task, RunStarted("run", "ab", "save", ("a",), "", "eager", ""), f"{folder}/.kernbench/ab", 0)
    progress.on_message({"event": "case", "result": to_dict(result)})
    return progress.results["a"]


def test_a_row_of_before_has_no_traceback() -> None:
    assert decode(CaseResult, {"id": "a", "status": "runtime_error", "detail": "x"}).traceback == ""


def test_frames_of_libraries_go_and_their_headline_with_them() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "<frozen importlib._bootstrap>", line 995, in exec_module\n'
        f'  File "{shared.__file__}", line 1, in load\n    call()\n    ^^^^^^\n'
        "harness.host.BuildError: solution.cpp:3: error: no such thing\n    int x = y;\n"
    )
    assert tracebacks.own(text) == "harness.host.BuildError: solution.cpp:3: error: no such thing\n    int x = y;"


def test_a_syntax_error_keeps_its_place() -> None:
    text = '  File "/task/solution.py", line 3\n    def broken(:\n               ^\nSyntaxError: invalid syntax'
    assert tracebacks.own("Traceback (most recent call last):\n" + text).endswith(text)


def test_the_stack_of_the_thread_that_crashed() -> None:
    stack = tracebacks.own(tracebacks.last_stack(CRASH.splitlines()))
    assert stack.splitlines()[0] == "Fatal Python error: Segmentation fault"
    assert stack.splitlines()[1:] == [
        '  File "/task/.kernbench/sources/ab/solution.py", line 9 in entry',
        '  File "/checkout/harness/check.py", line 77 in call',  # another checkout's is not known to be ours
    ]
    assert tracebacks.last_stack(["killed"]) == ""


def test_the_stack_of_a_thread_that_hangs_is_the_last_one() -> None:
    waits = '  File "/lib/python3.12/site-packages/torch/cuda/__init__.py", line 1083 in synchronize'
    own = '  File "/task/.kernbench/sources/ab/solution.py", line 9 in entry'
    head = "Current thread 0x00007f (most recent call first):"
    log = [head, '  File "/task/printed_by_the_source.py", line 1 in f', "some output", head, waits, own]
    stack = tracebacks.last_stack(log)
    assert stack.splitlines() == [waits, own]
    assert tracebacks.waits_for_gpu(stack)
    assert not tracebacks.waits_for_gpu(tracebacks.last_stack([head, own, waits]))


def test_a_long_one_keeps_its_two_ends() -> None:
    lines = tracebacks.bounded("\n".join(f"{number} {'x' * 400}" for number in range(100))).splitlines()
    assert len(lines) == tracebacks.FIRST_LINES + 1 + tracebacks.LAST_LINES
    assert lines[0].startswith("0 ")
    assert lines[-1].startswith("99 ")
    assert max(map(len, lines)) == tracebacks.LONGEST_LINE


@pytest.mark.parametrize(
    ("printed", "where", "message"),
    [
        ("{}/part.cu(34): error: undefined\npart.cu(99): error: another", "part.cu:34", "undefined"),
        ("part.cu:3:7: fatal error: x.h: No such file", "part.cu:3", "x.h: No such file"),
        ("/tmp/x.cu(34): error: identifier is undefined", "solution.py:9", "x.cu:34: identifier is undefined"),
        ("nothing that helps", "solution.py:9", "CalledProcessError: Command nvcc"),
    ],
)
def test_an_error_that_a_compiler_printed_is_found_in_the_log(
    tmp_path: Path, printed: str, where: str, message: str
) -> None:
    (tmp_path / "part.cu").write_text("")
    task = Task("t", "entry", "/folder", "", "eager", "cpu", 1, (), "any", {}, (Case("a", "a"),), "0")
    started = RunStarted("run", "ab", "save", ("a",), "", "eager", "")
    log = ["ptxas info: 3", *printed.format(tmp_path).splitlines()]
    raised, place = "CalledProcessError: Command nvcc", {"file": "solution.py", "line": 9}
    progress = RunProgress(task, started, str(tmp_path), 0)
    progress.on_message({"event": "failed", "message": raised, "where": place, "log": log})
    row = {"id": "a", "status": "runtime_error", "detail": raised, "where": place}
    progress.on_message({"event": "case", "result": row, "log": log})
    assert progress.failure is not None
    for told in (progress.failure, progress.results["a"]):
        assert str(told.where) == where
    assert progress.failure.message == progress.results["a"].detail == message
