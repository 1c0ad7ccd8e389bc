"""What a user's mistake becomes in a real worker: one line that says what happened, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.shared.taskfile import load
from tests.harness.child import SOLUTION, Child, results, write_task


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def row(child: Child, folder: Path, source: str) -> dict[str, Any]:
    return results(child.run(write_task(folder, solution_py=source), cases=("small",)))["small"]


def failed(child: Child, folder: Path, **files: str) -> dict[str, Any]:
    (*_, last) = child.run(write_task(folder, **files), cases=("small",))
    assert last["event"] == "failed", last
    return last


EVIL = "class Evil(Exception):\n    def __str__(self): raise ValueError\n    __repr__ = __str__\n"


@pytest.mark.parametrize(
    ("before", "statement", "detail"),
    [
        ("", r'raise RuntimeError("a\ud800b\x1b[0m")', r"RuntimeError: a\ud800b"),
        ("", r'raise type("Two\nLines", (Exception,), {})("no\nmore")', r"Two\nLines: no"),
        (EVIL, "raise Evil()", "Evil, and its message cannot be read: __str__ raises"),
        (EVIL, "raise SystemExit(Evil())", "it called sys.exit(...)"),
        ("", 'raise RuntimeError("x" * 40_000_000)', "RuntimeError: " + "x" * 383 + "..."),
    ],
)
def test_whatever_is_raised_is_one_line_with_its_place(
    child: Child, tmp_path: Path, before: str, statement: str, detail: str
) -> None:
    result = row(child, tmp_path, f"{before}def scale(x, factor):\n    {statement}\n")
    assert (result["status"], result["detail"]) == ("runtime_error", detail)
    assert result["where"]["line"] == before.count("\n") + 2
    assert row(child, tmp_path, SOLUTION)["status"] == "ok"


def test_what_is_raised_while_loading_is_one_line_too(child: Child, tmp_path: Path) -> None:
    last = failed(child, tmp_path, solution_py=EVIL + "raise SystemExit(Evil())\n")
    assert last["status"] == "build_error"
    assert last["message"] == "it called sys.exit(...)"
    assert (last["where"]["file"], last["where"]["line"]) == ("solution.py", 4)


def test_a_nul_byte_has_a_line(child: Child, tmp_path: Path) -> None:
    last = failed(child, tmp_path, solution_py="import torch\nx = 1\0\n")
    assert last["message"].startswith("the file contains a NUL byte")
    assert (last["where"]["file"], last["where"]["line"]) == ("solution.py", 2)


def test_an_expression_nested_too_deeply_names_the_file(child: Child, tmp_path: Path) -> None:
    last = failed(child, tmp_path, solution_py=f"x = {'-' * 300_000}1\n")
    assert last["message"].startswith("Python cannot compile it (")
    assert last["where"]["file"] == "solution.py"


def test_a_nul_byte_in_a_file_that_it_imports_has_a_line(child: Child, tmp_path: Path) -> None:
    last = failed(child, tmp_path, solution_py="import shapes\n", shapes_py="\n\nx = 1\0\n")
    assert (last["where"]["file"], last["where"]["line"]) == ("shapes.py", 1)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import torch\n\ndef scale(y, factor):\n    return y * factor\n", 3),
        ("import torch\nscale = torch.softmax\n", None),
    ],
)
def test_a_wrong_signature_names_the_definition(child: Child, tmp_path: Path, source: str, line: int | None) -> None:
    result = row(child, tmp_path, source)
    assert result["status"] == "runtime_error"
    assert "argument" in result["detail"]
    assert (result["where"]["file"], result["where"]["line"]) == ("solution.py", line)


def test_a_resized_input_is_said_in_a_timed_row(child: Child, tmp_path: Path) -> None:
    source = "def scale(x, factor):\n    out = x * factor\n    x.resize_(0)\n    return out\n"
    result = row(child, tmp_path, source)
    assert result["status"] == "wrong"
    assert result["detail"] == "the call wrote to its input 'x', which is not listed in mutates"


def test_names_that_a_source_returns_are_printable(child: Child, tmp_path: Path) -> None:
    result = row(child, tmp_path, 'def scale(x, factor):\n    return {"a\\ud800\\n": "text"}\n')
    assert (result["status"], result["detail"]) == ("wrong", r"a\ud800\n is of type str, not torch.Tensor")


@pytest.mark.parametrize("threads", [10**20 - 1, 1_000_000])
def test_far_too_many_threads_are_a_sentence(child: Child, tmp_path: Path, threads: int) -> None:
    task = load(write_task(tmp_path))
    child.request(replace(task, threads=threads), tmp_path)
    (*_, last) = child.events()
    assert last["status"] == "bad_task"
    assert last["message"].startswith("task.toml: threads: at most 1024 ")


KERNEL = "\n".join(["__global__ void scale(float* x) {", "    x[0] = rsqqrtf(x[1]);", "}", ""])
HERE = "import os, subprocess\nHERE = os.path.dirname(__file__)\n"
LOG = 'kernel.cu(2): error: identifier "rsqqrtf" is undefined\\n      x[0] = rsqqrtf(x[1]);\\n1 error detected'
CUTE = "class E(Exception):\n    def __init__(self, text, **facts): super().__init__(text); vars(self).update(facts)\n"
UNDEFINED = 'identifier "rsqqrtf" is undefined'


@pytest.mark.parametrize(
    ("before", "statement", "place", "detail"),
    [
        (HERE, f"raise RuntimeError('6: NVRTC_ERROR_COMPILATION, log:\\n' + HERE + '/{LOG}')", "kernel.cu:2",
         UNDEFINED),
        (HERE, f"raise RuntimeError('6: NVRTC_ERROR_COMPILATION, log:\\n{LOG}')", "kernel.cu:2", UNDEFINED),
        (HERE, f"raise subprocess.CalledProcessError(2, ['nvcc'], None, (HERE + '/{LOG}').encode())", "kernel.cu:2",
         UNDEFINED),
        (HERE, f"raise subprocess.CalledProcessError(2, ['nvcc'], HERE + '/{LOG}')", "kernel.cu:2", UNDEFINED),
        ("", f"raise RuntimeError('ninja exited with status 1\\nstdout:\\n[1/3] nvcc\\n/root/.cache/x_1/{LOG}')",
         "solution.py:2", f"kernel.cu:2: {UNDEFINED}"),
        ("", "raise RuntimeError('gelu.cu(10): error: identifier \"tanqhf\" is undefined\\n\\n1 error')",
         "solution.py:2",
         'gelu.cu:10: identifier "tanqhf" is undefined'),
        (HERE, "raise RuntimeError('no name\\nWhile processing:\\n  File \"' + HERE + '/part.py\", line 3, in k\\n')",
         "part.py:3", "RuntimeError: no name"),
        (HERE + CUTE, "raise E('\\n\\x1b[91m\\x1b[1merror:\\x1b[0m NameError in `launch`: whol\\n  --> x', "
         "filename=HERE + '/part.py', line=3)", "part.py:3", "NameError in `launch`: whol"),
        (CUTE, "raise E('\\x1b[91mOperation creation failed:\\x1b[0m\\nunable to compute', filename=None, line=None)",
         "solution.py:4", "E: Operation creation failed: unable to compute"),
    ],
)  # fmt: skip
def test_a_compilers_error_is_found_where_it_is(
    child: Child, tmp_path: Path, before: str, statement: str, place: str, detail: str
) -> None:
    source = f"{before}def scale(x, factor):\n    {statement}\n"
    folder = write_task(tmp_path, solution_py=source, part_py="\n\ndef k(): pass\n", kernel_cu=KERNEL)
    result = results(child.run(folder, cases=("small",)))["small"]
    assert result["detail"] == detail
    assert f"{result['where']['file']}:{result['where']['line']}" == place
