"""What a source was compiled to is kept once, within limits, and the real compilers give what the page needs."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.load import machine_code
from harness.load.side import Side
from harness.private import triton_private
from harness.shared import taskfile
from kernbench.diagnosis import machine_code as read_code
from kernbench.engine.archive import Archive
from kernbench.log.logbook import Logbook
from kernbench.machine import disassembler
from tests.harness.child import Child, results, write_task
from tests.harness.cuda.test_cuda import CUDA_SOLUTION, SCALE
from tests.harness.test_gpu_worker import GPU_TASK, KERNEL


def fact(number: int, ptx: str = "ptx", code: bytes = b"code") -> dict[str, Any]:
    figures = {"registers": number, "local_bytes": 0, "shared_bytes": 0}
    return {"name": f"k{number}", "entry": "k", "variant": "", **figures, "ptx": ptx, "code": code}


def side_of(folder: Path) -> Side:
    folder.mkdir(exist_ok=True)
    return Side("solution", str(folder), str(folder))


def test_each_piece_of_code_is_kept_once_and_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "MOST_BYTES", 100)
    told = machine_code.packed([fact(1), fact(2), fact(3, ptx=str(list(range(300))))])
    assert [kernel.get("image") == told["kernels"][0]["image"] for kernel in told["kernels"]] == [True, True, False]
    assert len(told["images"]) == 1
    assert "image" not in told["kernels"][2]  # its figures stay
    assert [kernel.registers for kernel in read_code.read(told, lambda image: image.decode())] == [1, 2, 3]


def test_a_file_is_written_once_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_code, "MOST_FILES", 2)
    monkeypatch.setattr(machine_code, "_of_triton", lambda side: iter([fact(7)]))
    side = side_of(tmp_path / "source")
    for name in ("a", "b", "c"):
        machine_code.write(side, str(tmp_path), name)
    kept = sorted(path.name for path in (tmp_path / machine_code.FOLDER).iterdir())
    assert kept == ["b.json", "c.json"]
    monkeypatch.setattr(machine_code, "_of_triton", lambda side: iter([fact(8)]))
    machine_code.write(side, str(tmp_path), "c")
    assert json.loads((tmp_path / machine_code.FOLDER / "c.json").read_text())["kernels"][0]["registers"] == 7


def test_a_source_without_kernels_leaves_no_file(tmp_path: Path) -> None:
    machine_code.write(side_of(tmp_path / "source"), str(tmp_path), "a")
    assert not (tmp_path / machine_code.FOLDER).exists()


def test_only_the_sources_own_libraries_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    side = side_of(tmp_path / "source")
    own = SimpleNamespace(is_below=lambda folder: folder == side.folder, compiled=lambda: iter([fact(1)]))
    other = SimpleNamespace(is_below=lambda folder: False, compiled=lambda: iter([fact(2)]))
    monkeypatch.setitem(sys.modules, "harness.cuda.library", SimpleNamespace(LOADED=[own, other]))  # type: ignore[arg-type]
    assert [item["name"] for item in machine_code._of_libraries(side)] == ["k1"]


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Triton function and what it was compiled to, for an H200, without one."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernel_file.py"
    path.write_text(KERNEL.format(past="", factor="factor").partition("def scale")[0].replace("@triton.jit\n", ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    function = JITFunction(importlib.import_module("kernel_file").kernel)
    sys.modules.pop("kernel_file")
    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(function, types, {"BLOCK": 256})
    try:
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    except Exception as problem:
        pytest.skip(f"Triton cannot compile here: {problem}")
    made.module, made.n_regs, made.n_spills = object(), 16, 2  # as a launch would leave it
    function.device_caches[0] = ({"key": made}, {}, None, None, None)
    return function


def test_what_triton_compiled_is_found_and_read_back(compiled: Any) -> None:
    [found] = triton_private.compiled_kernels([compiled, 3, compiled])
    assert (found["name"], found["registers"], found["local_bytes"]) == ("kernel", 16, 8)
    assert found["variant"] == "fp32, BLOCK=256, 4 warps, 3 stages"
    told = machine_code.packed([found])
    program = disassembler.find(told["nvdisasm"])
    [kernel] = read_code.read(told, lambda image: disassembler.sass(program, image))
    assert kernel.ptx.kinds["global loads"] == kernel.ptx.kinds["global stores"] > 0
    if program:
        assert kernel.sass.kinds["global loads"] == kernel.ptx.kinds["global loads"]
        assert kernel.sass.instructions > 10


def test_of_an_autotuner_only_the_choice_counts(compiled: Any) -> None:
    import triton

    tuner = triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])(compiled)
    tuner.cache["n"] = tuner.configs[1]
    assert list(triton_private.compiled_kernels([tuner])) == []
    tuner.cache["n"] = tuner.configs[0]
    assert [found["name"] for found in triton_private.compiled_kernels([tuner])] == ["kernel"]


def test_no_nvdisasm_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert disassembler.find(str(tmp_path / "gone")) == ""
    assert disassembler.sass("", b"image") == ""
    assert disassembler.sass("/bin/false", b"image") == ""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child("cuda:0") as started:
        yield started


@pytest.mark.gpu
@pytest.mark.parametrize("language", ["triton", "nvrtc"])
def test_a_run_leaves_its_machine_code(child: Child, tmp_path: Path, language: str) -> None:
    files = {"solution_py": KERNEL.format(past="", factor="factor")}
    if language == "nvrtc":
        pytest.importorskip("cuda.bindings.nvrtc")
        files = {"solution_py": CUDA_SOLUTION, "solution_cu": SCALE, "width_h": "#define WIDTH 10"}
    folder = write_task(tmp_path, task_toml=GPU_TASK, **files)
    task, state = taskfile.load(folder), folder / ".kernbench"
    book = Logbook(folder, state, task)
    source = book.take_source()
    assert results(child.run(folder, source=source.folder, cases=("small",)))["small"]["status"] == "ok"
    child.run(folder, source=source.folder, cases=("small",))  # the first has written its file by now
    assert (state / machine_code.FOLDER / f"{source.sha}.json").stat().st_size < machine_code.MOST_BYTES
    [kernel] = Archive(task, book).machine_code("now")
    assert kernel.name == ("kernel" if language == "triton" else "scale")
    assert kernel.registers
    assert kernel.local_bytes == 0
    assert kernel.ptx.kinds["global loads"]
    assert kernel.sass.kinds["global loads"]  # Triton brings nvdisasm along
