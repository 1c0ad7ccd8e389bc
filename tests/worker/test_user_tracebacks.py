"""A traceback shows the user's frames alone, whichever way a real worker was left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import RunStarted
from tests import ROOT
from tests.harness.child import Child, write_task

CALLS_A_PART = "import part\n\ndef scale(x, factor):\n    return part.f(x)\n"
IN_CPP = "from harness import host\n\nlibrary = host.load('part.cpp')\n\ndef scale(x, factor):\n    return {}\n"
ADDS = 'extern "C" void add(int) {}\n'
SOURCES: dict[str, tuple[dict[str, str], list[str]]] = {
    "while it loads": (
        {"solution_py": "def check():\n    raise ValueError('x')\n\ncheck()\n\ndef scale(x, factor): ...\n"},
        ["solution.py:4", "solution.py:2", "ValueError: x"],
    ),
    "in a call": (
        {"solution_py": "def scale(x, factor):\n    raise ValueError('x')\n"},
        ["solution.py:2", "ValueError: x"],
    ),
    "in a helper": (
        {"solution_py": CALLS_A_PART, "part_py": "def f(x):\n    return x / {}\n"},
        ["solution.py:4", "part.py:2", "TypeError: unsupported operand type(s) for /: 'Tensor' and 'dict'"],
    ),
    "in a helper while it loads": (
        {"solution_py": CALLS_A_PART, "part_py": "import torch\n\nf = [][0]\n"},
        ["solution.py:1", "part.py:3", "IndexError: list index out of range"],
    ),
    "from another one": (
        {
            "solution_py": CALLS_A_PART,
            "part_py": "def f(x):\n    try:\n        {}[1]\n    except KeyError:\n        1 / 0\n",
        },
        ["part.py:3", "KeyError: 1", "solution.py:4", "part.py:5", "ZeroDivisionError: division by zero"],
    ),
    "in an operator": (
        {
            "solution_py": "import torch\n\n@torch.library.custom_op('toy::scale', mutates_args=())\n"
            "def op(x: torch.Tensor, factor: float) -> torch.Tensor:\n    raise ValueError('x')\n\n"
            "def scale(x, factor):\n    return op(x, factor)\n"
        },
        ["solution.py:8", "solution.py:5", "ValueError: x"],
    ),
    "a file that host.load does not find": (
        {"solution_py": IN_CPP.format("x")},
        ["solution.py:3", "harness.host.CompileError: no file part.cpp next to the file that loads it"],
    ),
    "a C++ function called wrongly": (
        {"solution_py": IN_CPP.format("library.add({})"), "part_cpp": ADDS},
        ["solution.py:6", "TypeError: add: argument 0 is of type dict; pass tensors, int, float, bool or None"],
    ),
    "a C++ function that is not there": (
        {"solution_py": IN_CPP.format("library.sub(1)"), "part_cpp": ADDS},
        ["solution.py:6", "AttributeError: part.cpp has no function 'sub'; is it extern \"C\"?"],
    ),
    "a file that cuda.load does not find": (
        {"solution_py": "from harness import cuda\n\ncuda.load('part.cu')\n\ndef scale(x, factor): ...\n"},
        ["solution.py:3", "harness.cuda.compiling.CompileError: no file part.cu next to the file that loads it"],
    ),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Child]:
    with Child() as child:
        yield child


def traceback_of(worker: Child, folder: Path) -> str:
    """As a run of the task in the folder shows it."""
    task = taskfile.load(folder)
    snapshot = folder / ".kernbench" / "sources" / "ab"
    shutil.copytree(folder, snapshot)
    progress = RunProgress(task, RunStarted("run", "ab", "save", ("small",), "", "eager", ""), str(snapshot), 0)
    for message in worker.run(folder, snapshot, cases=("small",)):
        progress.on_message(message)
    return progress.failure.traceback if progress.failure else progress.results["small"].traceback


def brief(traceback: str) -> list[str]:
    """Frames as file:line, and what was raised; the lines of code are left out."""
    found = []
    for line in traceback.splitlines():
        if line.startswith("  File "):
            _, file, rest = line.split('"')
            found.append(f"{file}:{rest.split()[2].rstrip(',')}")
        elif line and not line.startswith((" ", "Traceback", "During", "The above")):
            found.append(line)
    return found


@pytest.mark.parametrize(("files", "shown"), SOURCES.values(), ids=SOURCES)
def test_no_frame_of_ours_is_shown(worker: Child, tmp_path: Path, files: dict[str, str], shown: list[str]) -> None:
    if "part_cpp" in files and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    traceback = traceback_of(worker, write_task(tmp_path / "task", **files))
    assert str(ROOT / "harness") not in traceback
    assert "importlib" not in traceback
    assert brief(traceback) == shown
