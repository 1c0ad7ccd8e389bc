"""A crash in host C++ names the line of the C++, in the words of Python's fault handler and with its exit."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.shared import taskfile
from harness.shared.errors import Where
from kernbench.engine.conversation.run_progress import RunProgress
from kernbench.events import CaseLanded, RunStarted
from kernbench.machine import native_stack
from kernbench.worker.process import WorkerLost
from tests.harness.child import Child, write_task

SYMBOLIZERS = [words[0] for words in native_stack.TOOLS]
HAS_TOOLS = any(map(shutil.which, ("c++", "g++", "clang++"))) and any(map(shutil.which, SYMBOLIZERS))
needs_tools = pytest.mark.skipif(not HAS_TOOLS, reason="no C++ compiler, or no addr2line")
SOLUTION = """
from harness import host
_cpp = host.load("solution.cpp")
def scale(x, factor):
    out = x * 0
    _cpp.scale(x, out, x.numel(), factor)
    return out
"""
BODIES = {
    "a store": "out[n << 40] = factor;",
    "a call of the C library": "std::memcpy(out + (n << 40), x, n * 4);",
    "an endless recursion": "out[0] = deep(out);",
    "an assertion": "std::abort();",
}
CPP = """
#include <cstdint>
#include <cstdlib>
#include <cstring>
static float deep(volatile float* x) { volatile float next[200]; next[0] = *x; return deep(next) + next[0]; }
extern "C" void scale(const float* x, float* out, int64_t n, double factor) {
    BODY
    out[0] += x[0];  // no call above is the last thing it does
    (void)deep;
}
"""


CRASHES_WHEN_COUNTED = """
#include <cstdint>
#include <cstring>
#include <unistd.h>
extern "C" void scale(const float* x, float* out, int64_t n, double factor) {
    char place[64] = {};
    bool is_memory = readlink("/proc/self/fd/2", place, 63) > 0 && strstr(place, "memfd");
    if (is_memory) *reinterpret_cast<volatile float*>(64) = 0;
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * float(factor);
}
"""


@needs_tools
def test_a_crash_in_the_call_whose_output_is_counted_names_its_line_too(tmp_path: Path) -> None:
    source = "import faulthandler\nfaulthandler.enable()  # as the environment of a worker does\n" + SOLUTION
    folder = write_task(tmp_path, solution_py=source, solution_cpp=CRASHES_WHEN_COUNTED)
    with Child() as child:
        assert child.run(folder, cases=("small",))[-1]["event"] == "gone"
        assert child.process.stderr is not None
        log = child.process.stderr.read().splitlines()
    lines = asyncio.run(native_stack.resolved(log))
    assert any(re.search(r'solution\.cpp", line [78] in scale', line) for line in lines), lines


@needs_tools
@pytest.mark.parametrize("name", BODIES)
def test_a_crash_names_its_line(tmp_path: Path, name: str) -> None:
    folder = write_task(tmp_path, solution_py=SOLUTION, solution_cpp=CPP.replace("BODY", BODIES[name]))
    with Child() as child:
        assert child.run(folder, cases=("small",))[-1]["event"] == "gone"
        assert child.process.stderr is not None
        log = child.process.stderr.read().splitlines()
    assert child.process.returncode == -(signal.SIGABRT if name == "an assertion" else signal.SIGSEGV)
    frames = [line for line in asyncio.run(native_stack.resolved(log)) if f'  File "{folder}/solution.cpp"' in line]
    expected = "line 4 in deep(float volatile*)" if name == "an endless recursion" else "line 6 in scale"
    assert [line.partition(", ")[2] for line in frames] == [expected]


TAKES_OVER = """
#include <csignal>
static void handle(int number) { signal(number, SIG_DFL); }
__attribute__((constructor)) static void start() { signal(SIGSEGV, handle); }
"""
IMPORTS = """
import ctypes
ctypes.CDLL(LIBRARY)
def scale(x, factor):
    if FAILS:
        ctypes.string_at(8)
    return x * factor
"""


def _installed(folder: Path) -> Path:
    """A library that takes the handler of faults over when it is loaded, as tvm_ffi's does."""
    folder.mkdir()
    library = folder / "library.so"
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))))
    command = [compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", library]
    subprocess.run(command, input=TAKES_OVER.encode(), check=True)
    return library


@needs_tools
@pytest.mark.parametrize("place", ["packages", "task/packages"])
def test_a_package_may_handle_faults_and_a_source_may_not(tmp_path: Path, place: str) -> None:
    folder = write_task(tmp_path / "task")
    library = _installed(tmp_path / place)
    (folder / "solution.py").write_text(IMPORTS.replace("LIBRARY", repr(str(library))).replace("FAILS", "False"))
    before = f"import faulthandler; faulthandler.enable(); sys.path.append({str(tmp_path / place)!r})"
    with Child(before=before) as child:
        changed = [event for event in child.run(folder, cases=("small",)) if event["event"] == "changed"]
    names = [event["replaced"] for event in changed]
    assert names == ([["a signal handler"]] if place.startswith("task") else [])


@needs_tools
def test_a_crash_names_its_line_whoever_handles_faults(tmp_path: Path) -> None:
    """Python's, and that of the C++ which was loaded before the package."""
    library = _installed(tmp_path / "packages")
    source = IMPORTS.replace("LIBRARY", repr(str(library))).replace("FAILS", "True")
    python = write_task(tmp_path / "python", solution_py=source)
    loads = f"import ctypes\n{SOLUTION}ctypes.CDLL({str(library)!r})\n"
    body = CPP.replace("BODY", BODIES["a store"])
    cpp = write_task(tmp_path / "cpp", solution_py=loads, solution_cpp=body)
    places = {python: "solution.py, line 5 in scale", cpp: "solution.cpp, line 6 in scale"}
    for folder, place in places.items():
        with Child() as child:
            assert child.run(folder, cases=("small",))[-1]["event"] == "gone"
            assert child.process.stderr is not None
            log = child.process.stderr.read().splitlines()
        frames = [line.replace('"', "") for line in asyncio.run(native_stack.resolved(log))]
        assert any(place in line for line in frames), log


CRASHED = ["Fatal Python error: Segmentation fault", "", "Current thread 0x1 (most recent call first):", "  File"]


def test_frames_come_before_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_stack, "_frames", lambda marked: [f"  File of {line}" for line in marked])
    log = ["printed", f"{native_stack.MARK}1f /b/a.so", *CRASHED]
    told = asyncio.run(native_stack.resolved(log))
    assert told == ("printed", *CRASHED[:3], "  File of 1f /b/a.so", "  File")
    assert asyncio.run(native_stack.resolved(CRASHED)) == tuple(CRASHED)


def test_without_a_tool_the_log_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert asyncio.run(native_stack.resolved([f"{native_stack.MARK}1f /b/a.so", *CRASHED])) == tuple(CRASHED)


def test_the_row_is_at_the_line_of_the_cpp(tmp_path: Path) -> None:
    task = taskfile.load(write_task(tmp_path))
    started = RunStarted("r", "ab" * 32, "save", ("small",), "2026-11-14T21:03:00+00:00", "eager")
    places = [("/usr/include/c++/12/vector", 9), (f"{task.folder}/solution.cpp", 6), ("/snapshot/solution.py", 5)]
    frames = [f'  File "{file}", line {line} in f' for file, line in places]
    lost = WorkerLost("crashed", "check", "small", "segfaulted", (*CRASHED[:3], *frames))
    [landed] = RunProgress(task, started, "/snapshot", 0).on_worker_lost(lost)
    assert isinstance(landed, CaseLanded)
    row = landed.result
    assert row.where == Where("solution.cpp", 6)
    assert 'File "solution.cpp", line 6 in f' in row.traceback
