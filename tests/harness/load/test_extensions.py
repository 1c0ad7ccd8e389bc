"""torch's C++ extensions: one build per text, whichever source, snapshot or process asks, and nothing half built."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.forked import Forked

pytestmark = pytest.mark.skipif(not (shutil.which("c++") and shutil.which("ninja")), reason="no C++ compiler or ninja")

CHILD = """
import ctypes, os, sys
from harness.load.failure import Paths, describe
from harness.load.side import Side

folder, build = sys.argv[1:]
try:
    said = Side("solution", folder, folder, build).entry("solution.py", "number")()
except BaseException as problem:
    fault = describe(problem, Paths(folder))
    said = [fault.message, str(fault.where), fault.elsewhere]
print(said)
"""
COMPILER = """#!/bin/sh
echo "$TMPDIR" >> {log}
while [ -e {hold} ]; do sleep 0.02; done
exec c++ "$@"
"""
"""A compiler that notes where its temporary files go, and waits while a file exists."""
INLINE = """
import ctypes
from torch.utils.cpp_extension import load_inline
CODE = 'extern "C" int number() {{ return {number}; }}'
path = load_inline("numbers", CODE, is_python_module=False, no_implicit_headers=True)
def number():
    return ctypes.CDLL(path).number()
"""
FILES = """
import os
from torch.utils.cpp_extension import load
here = os.path.dirname(os.path.abspath(__file__))
module = load(name="numbers", sources=[os.path.join(here, "numbers.cpp")])
def number():
    return module.VALUE
"""
MODULE = """
#include <Python.h>
#include "value.h"
static PyModuleDef about = {PyModuleDef_HEAD_INIT, "numbers", nullptr, -1};
PyMODINIT_FUNC PyInit_numbers(void) {
    PyObject* module = PyModule_Create(&about);
    PyModule_AddIntConstant(module, "VALUE", VALUE);
    return module;
}
"""


class Bench:
    """Loads sources in processes of their own, all with one build folder, and counts the compilers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.build = folder, folder / "state" / "build"
        self.log, self.hold = folder / "compilers", folder / "hold"
        self.compiler = folder / "cxx"
        self.compiler.write_text(COMPILER.format(log=self.log, hold=self.hold))
        self.compiler.chmod(0o755)
        self._count = 0

    def start(self, imports: tuple[str, ...] = ("torch", "torch.utils.cpp_extension"), **files: str) -> Forked:
        self._count += 1
        place = self.folder / f"snapshot{self._count}"
        place.mkdir()
        for name, text in files.items():
            (place / name.replace("_", ".")).write_text(text)
        environment = {**os.environ, "CXX": str(self.compiler), "CUDA_VISIBLE_DEVICES": ""}
        words = [str(place), str(self.build)]
        return Forked(CHILD, words, environment=environment, path=[str(ROOT)], imports=imports)

    def load(self, **files: Any) -> str:
        said, complaint = self.start(**files).communicate(60)
        assert said, complaint
        return said.strip()

    @property
    def extensions(self) -> list[str]:
        return sorted(os.listdir(self.build / "extensions"))

    def compilers(self) -> int:
        """Compilers and linkers so far; torch also asks for the compiler's version."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_unchanged_text_is_never_compiled_again(bench: Bench) -> None:
    assert bench.load(solution_py=INLINE.format(number=1)) == "1"
    first = bench.compilers()
    assert first >= 2
    again = "# another save, in a process that has not imported it yet\n" + INLINE.format(number=1)
    assert bench.load(solution_py=again, imports=("torch",)) == "1"
    assert bench.compilers() == first
    assert bench.load(solution_py=INLINE.format(number=2)) == "2"
    second = bench.compilers()
    assert second > first
    assert bench.load(solution_py=INLINE.format(number=1)) == "1"  # torch would build over the other
    assert bench.compilers() == second
    assert len(bench.extensions) == 2


def test_files_are_known_by_their_text_not_by_their_snapshot(bench: Bench) -> None:
    assert bench.load(solution_py=FILES, numbers_cpp=MODULE, value_h="#define VALUE 3\n") == "3"
    first = bench.compilers()
    assert bench.load(solution_py=FILES, numbers_cpp=MODULE, value_h="#define VALUE 3\n") == "3"
    assert bench.compilers() == first
    assert bench.load(solution_py=FILES, numbers_cpp=MODULE, value_h="#define VALUE 4\n") == "4"


def test_the_lock_and_the_scraps_of_a_killed_worker_hold_nobody_up(bench: Bench) -> None:
    bench.hold.touch()
    killed = bench.start(solution_py=INLINE.format(number=5))
    until(lambda: bench.compilers() > 0)
    (work,) = bench.extensions
    until(lambda: (bench.build / "extensions" / work / "lock").exists())
    killed.kill()
    for pid in below(bench.folder):  # the launcher ends them
        os.kill(pid, signal.SIGKILL)
    killed.communicate()
    bench.hold.unlink()
    assert bench.load(solution_py=INLINE.format(number=5)) == "5"
    (whole,) = bench.extensions
    assert work != whole
    assert not (bench.build / "extensions" / whole / "lock").exists()


def test_a_live_builder_is_waited_for_and_its_build_is_used(bench: Bench) -> None:
    bench.hold.touch()
    first = bench.start(solution_py=INLINE.format(number=6))
    until(lambda: bench.compilers() > 0)
    second = bench.start(solution_py=INLINE.format(number=6))
    until(lambda: waits_for_a_lock(second.pid))
    (work,) = bench.extensions
    bench.hold.unlink()
    said = [process.communicate(60)[0].strip() for process in (first, second)]
    assert said == ["6", "6"]
    assert len(bench.extensions) == 1
    assert bench.extensions != [work]


def test_a_mistake_in_the_text_is_a_sentence_with_its_place(bench: Bench) -> None:
    said = eval(bench.load(solution_py=FILES, numbers_cpp='\nextern "C" int number() { return nothing; }\n'))
    assert "nothing" in said[0]
    assert said[1:] == ["numbers.cpp:2", False]
    said = eval(bench.load(solution_py=INLINE.format(number="nothing")))
    assert said[0].startswith("main.cpp:")
    assert said[1:] == ["solution.py:5", False]
    assert bench.extensions == []


def test_compilers_leave_nothing_in_the_temporary_folder(bench: Bench) -> None:
    bench.load(solution_py=INLINE.format(number=7))
    places = set(bench.log.read_text().split())
    assert places
    assert all(place.startswith(str(bench.build / "extensions" / "part-")) for place in places)


def until(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def waits_for_a_lock(pid: int) -> bool:
    return "lock" in Path(f"/proc/{pid}/wchan").read_text()


def below(folder: Path) -> list[int]:
    """Processes of this test's compiler, by their command lines."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if int(path.parent.name) != os.getpid() and str(folder / "cxx").encode() in _read(path)
    ]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
