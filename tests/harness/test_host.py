"""host.load: compile beside the caller, call with tensors, name mistakes by file and line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import host
from harness.inputs.cache import RunCache
from harness.shared import taskfile

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler")

ADD = """
#include <cstdint>
extern "C" void add(const float* x, float* out, int64_t n, double value) {
    for (int64_t i = 0; i < n; ++i) out[i] = x ? x[i] + (float)value : -1.0f;
}
"""
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a C++ text as a file of a snapshot whose user folder is elsewhere."""

    def loaded(text: str, name: str = "solution.cpp", **headers: str) -> Any:
        folder = tmp_path / "snapshot"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        for header, content in headers.items():
            (folder / f"{header}.h").write_text(content)
        scope = {
            "__file__": str(folder / "solution.py"),
            "__kernbench_folder__": str(tmp_path / "user"),
            "__kernbench_build__": str(tmp_path / "build"),
            "load": host.load,
            "name": name,
        }
        exec("library = load(name)", scope)
        return scope["library"]

    return loaded


def images(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "build").iterdir())


def test_tensors_numbers_and_none_arrive(load: Load) -> None:
    library, x, out = load(ADD), torch.arange(3.0), torch.empty(3)
    library.add(x, out, 3, 0.5)
    assert out.tolist() == [0.5, 1.5, 2.5]
    library.add(x, out, 2, 1.0)
    library.add(None, out, True, 0.0)
    assert out.tolist() == [-1.0, 2.0, 2.5]


def test_integers_are_64_bits_wide(load: Load) -> None:
    out = torch.zeros(1, dtype=torch.int64)
    load('#include <cstdint>\nextern "C" void put(int64_t* out, int64_t n) { *out = n; }').put(out, 2**40)
    assert out.item() == 2**40


def test_unchanged_files_are_compiled_once_and_headers_count(load: Load, tmp_path: Path) -> None:
    text = '#include "size.h"\nextern "C" void get(double* out) { *out = SIZE; }'
    out = torch.zeros(1, dtype=torch.float64)
    load(text, size="#define SIZE 4").get(out)
    first = [(path.name, path.stat().st_mtime_ns) for path in images(tmp_path)]
    load(text, size="#define SIZE 4").get(out)
    assert [(path.name, path.stat().st_mtime_ns) for path in images(tmp_path)] == first
    load(text, size="#define SIZE 5").get(out)
    assert out.item() == 5
    assert len(images(tmp_path)) == 2


def test_a_compile_error_has_the_users_file_and_line(load: Load, tmp_path: Path) -> None:
    with pytest.raises(host.CompileError) as caught:
        load('extern "C" void f() {\n  int x = 1\n}\n')
    assert caught.value.file == str(tmp_path / "user" / "solution.cpp")
    assert caught.value.line in (2, 3)
    assert "expected" in str(caught.value)
    assert "snapshot" not in caught.value.output
    assert images(tmp_path) == []


def test_an_error_in_a_header_names_the_header(load: Load, tmp_path: Path) -> None:
    with pytest.raises(host.CompileError) as caught:
        load('#include "bad.h"\n', bad="\n\nint f() { return nothing; }\n")
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "user" / "bad.h"), 3)


def test_what_cannot_be_found_is_said(load: Load) -> None:
    with pytest.raises(AttributeError, match=r"solution.cpp has no function 'x'; is it extern \"C\"\?"):
        load("void x() {}").x  # noqa: B018
    with pytest.raises(host.CompileError, match="cannot be loaded: undefined symbol"):
        load('extern "C" void missing();\nextern "C" void f() { missing(); }')


def test_arguments_that_cannot_be_passed_are_named(load: Load) -> None:
    with pytest.raises(TypeError, match="add: argument 1 is of type str"):
        load(ADD).add(None, "x", 1, 1.0)


def test_no_compiler_is_a_sentence_with_the_way_out(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(host.CompileError, match="no C\\+\\+ compiler found; install g\\+\\+"):
        load(ADD)


TASK = """
entry = "number"
device = "cpu"
[[case]]
id = "a"
axes = { rows = 1 }
"""
LOADS = """
from harness import host
import torch
library = host.load("{name}.cpp")
def number(x):
    out = torch.zeros(1)
    library.number(out)
    return out
"""


def snapshot(folder: Path, name: str, text: str, header: str = "") -> str:
    """A source whose Python is the same whatever its C++ says."""
    folder.mkdir()
    (folder / "task.toml").write_text(TASK)
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef number(x): ...\n")
    (folder / f"{name}.py").write_text(LOADS.format(name=name))
    (folder / f"{name}.cpp").write_text(text)
    (folder / "value.h").write_text(header)
    return str(folder)


@pytest.mark.parametrize("role", ["best", "baseline"])
def test_a_side_is_another_when_its_cpp_or_a_header_is(role: str, tmp_path: Path) -> None:
    file = "solution" if role == "best" else "baseline"
    include = '#include "value.h"\nextern "C" void number(float* out) { out[0] = VALUE; }\n'
    sources = [
        snapshot(tmp_path / "one", file, 'extern "C" void number(float* out) { out[0] = 1; }\n'),
        snapshot(tmp_path / "two", file, include, "#define VALUE 2\n"),
        snapshot(tmp_path / "three", file, include, "#define VALUE 3\n"),
    ]
    (tmp_path / "one" / "solution.py").touch()
    task, cache = taskfile.load(tmp_path / "one"), RunCache()
    build = str(tmp_path / "build")
    said = [float(cache.function(role, f"{file}.py", source, task, build)(None)) for source in [*sources, sources[2]]]
    assert said == [1, 2, 3, 3]
