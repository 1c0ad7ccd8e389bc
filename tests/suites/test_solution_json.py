"""solution.json of SOL-ExecBench and flashinfer-bench: unpacked into a task's files, and given back by an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.shared.used_files import syntax_tree
from kernbench.suites.formats import solution_json
from kernbench.suites.formats.definitions import exported
from kernbench.task.lookup import ProjectError

KERNEL = "def forward(x, y, out):\n    out.copy_(x + y)\n"
ORIGIN = {"format": "definitions", "definition": "add", "inputs": "2"}


def solution(entry: str = "kernel.py::forward", sources: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    texts = {"kernel.py": KERNEL} if sources is None else sources
    listed = [{"path": path, "content": text} for path, text in texts.items()]
    return {"name": "mine", "author": "me", "spec": {"entry_point": entry, **spec}, "sources": listed, "note": "kept"}


def unpacked(folder: Path, data: dict[str, Any]) -> tuple[str, dict[str, str], dict[str, bytes]]:
    """The entry, the files of the solution, and all as an export gets them."""
    path = folder / "any.json"
    path.write_text(json.dumps(data, indent=3))
    entry, files, kept = solution_json.unpacked(path)
    return entry, files, {name: text.encode() for name, text in {**files, **kept}.items()}


@pytest.mark.parametrize(
    "data",
    [
        solution(),
        solution("solution.py::run", {"solution.py": "def run(x, y):\n    return x + y\n"}),
        solution("deep/er/kernel.py::forward", {"deep/er/kernel.py": KERNEL, "deep/table.txt": "1 2\n"}),
        solution("main.cpp::run", {"main.cpp": "// C++", "kernel.cu": "// CUDA", "k.h": ""}, languages=["cuda_cpp"]),
        solution("run", {"main.py": "def run(x, y): ...\n"}, language="Python"),
    ],
)
def test_what_was_not_edited_comes_back_byte_for_byte(tmp_path: Path, data: dict[str, Any]) -> None:
    _entry, files, given = unpacked(tmp_path, data)
    syntax_tree(files["solution.py"])
    back = exported({**given, "task.toml": b"", "definition.json": b"{}"}, ORIGIN)
    assert back == (tmp_path / "any.json").read_bytes()


def test_a_solution_of_a_few_lines_takes_the_entry_from_its_file(tmp_path: Path) -> None:
    entry, files, _given = unpacked(tmp_path, solution("deep/kernel.py::forward", {"deep/kernel.py": KERNEL}))
    assert entry == "forward"
    assert files["solution.py"].endswith("\nfrom deep.kernel import forward\n")


def test_compiled_sources_are_built_with_their_flags(tmp_path: Path) -> None:
    options = {"cuda_cflags": ["-O3"], "ld_flags": ["-lcudnn"]}
    data = solution("main.cpp::run", {"main.cpp": "", "k.h": "", "kernel.cu": ""}, compile_options=options)
    text = unpacked(tmp_path, data)[1]["solution.py"]
    assert 'for name in ["main.cpp", "kernel.cu"]]' in text
    assert 'extra_cuda_cflags=["-O3"],\n    extra_ldflags=["-lcudnn"],\n)\nrun = built.run\n' in text
    assert "CUTLASS" not in text
    text = unpacked(tmp_path, solution("main.cu::run", {"main.cu": ""}, languages=["cutlass"]))[1]["solution.py"]
    syntax_tree(text)
    assert "import os\nfrom pathlib" in text
    assert "CUTLASS_DIR" in text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (solution("a.cu::run", {"a.cu": ""}, language="cuda"), "is bound by tvm-ffi"),
        (solution("a.hip::run", {"a.hip": ""}), "kernbench cannot build"),
        (solution("a.py::run", {"a.py": "", "reference.py": ""}), "a source called reference.py"),
        (solution("a.py::run", {"../a.py": ""}), r"a source called \.\./a\.py"),
        ({"spec": {}}, "is not a solution with spec and sources"),
        ([], "is not a solution with spec and sources"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(tmp_path: Path, data: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProjectError, match=reason):
        unpacked(tmp_path, data)


def test_an_edited_source_is_exported_with_all_else_as_it_was(tmp_path: Path) -> None:
    given = unpacked(tmp_path, solution(languages=["triton"]))[2]
    edited = "def forward(x, y):\n    return y + x\n"
    out = json.loads(exported({**given, "kernel.py": edited.encode()}, ORIGIN))
    assert out["sources"] == [{"path": "kernel.py", "content": edited}]
    assert (out["note"], out["spec"]["languages"]) == ("kept", ["triton"])
    assert out["spec"]["entry_point"] == "kernel.py::forward"
    assert out["spec"]["destination_passing_style"] is False


def test_an_edited_solution_py_becomes_the_entry(tmp_path: Path) -> None:
    given = unpacked(tmp_path, solution("main.cpp::run", {"main.cpp": ""}, languages=["cuda_cpp"]))[2]
    text = "def run(x, y, out):\n    out.copy_(x)\n"
    out = json.loads(exported({**given, "solution.py": text.encode()}, ORIGIN))
    assert [source["path"] for source in out["sources"]] == ["main.cpp", "solution.py"]
    assert out["spec"]["entry_point"] == "solution.py::run"
    assert out["spec"]["languages"] == ["pytorch"]
    assert out["spec"]["destination_passing_style"] is True


def test_a_solution_written_here_is_one_that_both_suites_read() -> None:
    texts = {"solution.py": b"import triton\ndef run(x, y):\n    return x\n", "helper.py": b"", "reference.py": b"no"}
    out = json.loads(exported(texts, ORIGIN))
    assert (out["definition"], out["author"]) == ("add", "kernbench")
    assert (out["spec"]["language"], out["spec"]["languages"]) == ("triton", ["triton"])
    assert out["spec"]["destination_passing_style"] is False
    assert [source["path"] for source in out["sources"]] == ["solution.py", "helper.py"]
