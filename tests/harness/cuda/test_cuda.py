"""cuda.load: what can be said without a GPU, then kernels compiled by NVRTC and launched."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from harness import cuda
from harness.cuda import arguments, compiling, launching, library
from kernbench.task import scaffold
from tests.harness.child import Child, results, write_task
from tests.harness.test_gpu_worker import GPU_TASK

SCALE = """
#include "width.h"
extern "C" __global__ void scale(const float* x, float* out, int n, float factor) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * factor;
}
template <class T, int N> __global__ void add(T* out, long long n) {
    if (threadIdx.x < n) out[threadIdx.x] += (T)(N * WIDTH);
}
__global__ void plain(double* out, double value) { *out = value; }
__global__ void much(float* out, int n) {
    extern __shared__ float kept[];
    __shared__ float own[256];
    own[threadIdx.x % 256] = n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *out = kept[n - 1];
}
"""
ERRORS = """
/home/me/solution.cu(3): warning #177-D: variable "x" was declared but never referenced
  int x;
      ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

/home/me/solution.cu(4): error: expected a ";"
  }
  ^
1 error detected in the compilation of "/home/me/solution.cu".
"""
NO_NAME = """
__nv_name_map(2): error: identifier "gg" is undefined
  #pragma nv_mangled_name gg<1>
                          ^
"""
Load = Callable[..., Any]


def source(folder: Path, text: str = SCALE, **headers: str) -> compiling.Source:
    """A file in a snapshot whose user folder is elsewhere."""
    snapshot = folder / "snapshot"
    snapshot.mkdir(exist_ok=True)
    (snapshot / "solution.cu").write_text(text)
    for name, content in {"width": "#define WIDTH 10", **headers}.items():
        (snapshot / f"{name}.h").write_text(content)
    options = (*compiling.FLAGS, "-arch=sm_90a")
    user_path = str(folder / "user" / "solution.cu")
    return compiling.Source(str(snapshot / "solution.cu"), user_path, options, (str(snapshot),), str(folder / "build"))


def sent(*values: Any, declared: list[tuple[int, int]] | None) -> bytes:
    packed = arguments.Packed(tuple(map(type, values)), declared)
    try:
        packed.fill(*values)
    except struct.error:
        packed.fill_unsigned(values)
    return bytes(packed.buffer)


@pytest.mark.parametrize(
    ("value", "size", "expected"),
    [
        (True, 1, b"\1"),
        (-3, 4, struct.pack("<i", -3)),
        (2**32 - 1, 4, b"\xff" * 4),
        (2**64 - 1, 8, b"\xff" * 8),
        (None, 8, bytes(8)),
        (0.1, 8, struct.pack("<d", 0.1)),
        (0.1, 4, struct.pack("<f", 0.1)),
        (numpy.int16(3), 2, b"\3\0"),
        (numpy.uint8(200), 1, b"\xc8"),
        (numpy.bool_(True), 1, b"\1"),
        (numpy.float16(1), 2, struct.pack("<e", 1)),
    ],
)
def test_values_take_the_width_that_the_kernel_declares(value: Any, size: int, expected: bytes) -> None:
    assert sent(value, declared=[(0, size)]) == expected


def test_parameters_lie_where_the_kernel_declares_them() -> None:
    expected = struct.pack("<i4xq2xh", 1, 2, 3)
    assert sent(1, 2, 3, declared=[(0, 4), (8, 8), (18, 2)]) == expected
    assert sent(declared=[]) == b"\0"


def test_a_driver_that_tells_no_widths_gets_the_documented_ones() -> None:
    assert sent(0.5, 7, None, declared=None) == struct.pack("<f4xqQ", 0.5, 7, 0)


@pytest.mark.parametrize(
    ("value", "size", "words"),
    [
        (torch.ones(1), 4, "argument 0 is a pointer, but the kernel declares a parameter of 4 bytes"),
        (1.0, 2, "is a float, but the kernel declares a parameter of 2 bytes"),
        (3, 16, "is an int, but the kernel declares a parameter of 16 bytes"),
        (numpy.float64(1), 4, r"is of type float64 \(8 bytes\), but the kernel declares a parameter of 4"),
        (numpy.complex64(1), 8, "is of type complex64; pass tensors"),
        ("x", 8, "is of type str; pass tensors, int, float"),
    ],
)
def test_what_does_not_fit_is_said(value: Any, size: int, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        sent(value, declared=[(0, size)])


def test_the_number_of_arguments_is_compared() -> None:
    with pytest.raises(TypeError, match="the kernel takes 1 argument, not 2"):
        sent(1, 2, declared=[(0, 4)])


@pytest.mark.parametrize("value", [2**32, -(2**31) - 1])
def test_a_number_too_large_for_its_parameter_is_refused(value: int) -> None:
    with pytest.raises(OverflowError, match=f"{value} does not fit in the 4 bytes"):
        sent(value, declared=[(0, 4)])


def test_a_tensor_in_host_memory_is_refused() -> None:
    with pytest.raises(TypeError, match="pass one on the GPU"):
        sent(torch.ones(1), declared=[(0, 8)])


class Driver:
    """Takes launches as libcuda would, and reads the parameters where they lie."""

    CUfunction = CUstream = staticmethod(int)

    def __init__(self) -> None:
        self.launches: list[tuple[list[int], int, bytes]] = []
        self.status = 0

    def cuLaunchKernel(self, kernel: int, *rest: int) -> tuple[int]:
        *where, stream, _params, extra = rest
        first, buffer, second, size, end = (ctypes.c_void_p * 5).from_address(extra)
        assert (kernel, first, second, end) == (99, 1, 2, None)
        data = ctypes.string_at(buffer, ctypes.c_size_t.from_address(size).value)
        self.launches.append((where, stream, data))
        return (self.status,)


def test_a_launch_hands_over_grid_stream_and_packed_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, streams, device = Driver(), iter([0, 5, 5, 6, 6]), [0]
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(launching, "_driver", lambda: driver)
    monkeypatch.setattr(launching, "_streams", launching._Streams())
    monkeypatch.setattr(launching, "_allow_shared", lambda kernel, name, shared, device: asked.append((shared, device)))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: next(streams), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: device[0], raising=False)
    declared = [SimpleNamespace(offset=0, size=8), SimpleNamespace(offset=8, size=4)]
    kernel = launching.Kernel(SimpleNamespace(handle=99, arguments_info=declared), "k")
    kernel[7, (32, 2)](None, 3)
    kernel[(1, 2, 3), 64, 1024](None, 2**32 - 1)
    kernel.prepared(7, 32, (int, int))(2**40, 3)
    assert driver.launches == [
        ([7, 1, 1, 32, 2, 1, 0], 0, struct.pack("<Qi", 0, 3)),
        ([1, 2, 3, 64, 1, 1, 1024], 5, struct.pack("<QI", 0, 2**32 - 1)),
        ([7, 1, 1, 32, 1, 1, 0], 5, struct.pack("<Qi", 2**40, 3)),
    ]
    assert kernel[7, (32, 2)] is kernel[7, (32, 2)]
    device[0] = 1
    for _ in range(2):
        kernel[(1, 2, 3), 64, 1024](None, 1)
    assert asked == [(1024, 0), (1024, 1)]  # once for each GPU
    with pytest.raises(TypeError, match="k: argument 1 is of type str"):
        kernel[1, 1](None, "x")


@pytest.mark.parametrize("extent", [0, (1, 2, 3, 4), (1, -1)])
def test_what_is_no_grid_is_refused(extent: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid grid or block"):
        launching._three(extent)


def test_the_first_error_has_its_place_and_the_log_is_kept() -> None:
    problem = compiling.compile_error(ERRORS, "/home/me/solution.cu")
    assert (str(problem), problem.file, problem.line) == ('expected a ";"', "/home/me/solution.cu", 4)
    assert "#177-D" in problem.output


def test_a_name_that_is_not_there_is_no_line_of_the_file() -> None:
    problem = compiling.compile_error(NO_NAME, "/home/me/solution.cu")
    assert str(problem) == 'solution.cu has no kernel gg<1>: identifier "gg" is undefined'
    assert (problem.file, problem.line) == ("/home/me/solution.cu", None)
    bare = compiling.compile_error(
        "nvrtc: error: invalid value for --gpu-architecture (-arch)\n", "/home/me/solution.cu"
    )
    assert str(bare) == "NVRTC failed: nvrtc: error: invalid value for --gpu-architecture (-arch)"


@pytest.mark.parametrize("inside", ["include", "targets/x86_64-linux/include"])
def test_headers_are_looked_for_in_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    include = tmp_path / inside
    (include / "cccl").mkdir(parents=True)
    (include / "cuda_fp16.h").write_text("")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    compiling.header_folders.cache_clear()
    try:
        assert compiling.header_folders() == (str(include), str(include / "cccl"))
    finally:
        compiling.header_folders.cache_clear()


def test_headers_of_the_users_count_as_source(tmp_path: Path) -> None:
    text = '#include <outer.h>\n#include "missing.h"\n'
    made = source(tmp_path, text, outer='#include "inner.h"\n', inner="int x;\n")
    texts = {text.decode() for text in compiling.texts(made).values()}
    assert "int x;\n" in texts
    assert len(texts) == 3


def test_what_load_needs_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "solution.cu").write_text(SCALE)
    scope = {"__file__": str(tmp_path / "solution.py"), "load": cuda.load}
    with pytest.raises(cuda.CompileError, match=r"no file other\.cu next to the file that loads it"):
        exec("load('other.cu')", scope)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(cuda.CompileError, match=r"solution\.cu needs an NVIDIA GPU, but torch finds none"):
        exec("load('solution.cu')", scope)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(cuda.CompileError, match=r"needs cuda-core and cuda-bindings.*pip install 'kernbench\[cuda"):
        exec("load('solution.cu')", scope)


@pytest.mark.parametrize("home", ["", "elsewhere"])
def test_images_are_kept_in_the_users_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    (tmp_path / "solution.cu").write_text(SCALE)
    for name, stands_in in (("_require", lambda path: None), ("_architecture", lambda: "sm_90a")):
        monkeypatch.setattr(library, name, stands_in)
    monkeypatch.setattr(library, "Library", lambda source, names: source)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home) if home else "")
    scope: dict[str, Any] = {"__file__": str(tmp_path / "solution.py"), "load": cuda.load}
    exec("made = load('solution.cu')", scope)
    root = tmp_path / home if home else tmp_path / "home" / ".cache"
    assert scope["made"].cache == str(root / "kernbench" / "cuda")


@pytest.fixture
def nvrtc() -> None:
    module = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        module.nvrtcVersion()
    except Exception as problem:
        pytest.skip(f"no NVRTC: {problem}")


@pytest.mark.usefixtures("nvrtc")
class TestCompiler:
    """NVRTC itself needs no GPU."""

    def test_templates_get_a_name(self, tmp_path: Path) -> None:
        code, lowered, ptx = compiling.compiled(source(tmp_path), ("add<float, 4>", "plain"))
        assert b".visible .entry scale(" in ptx
        assert code.startswith(b"\x7fELF")
        assert lowered == {"add<float, 4>": "_Z3addIfLi4EEvPT_x", "plain": "_Z5plainPdd"}

    def test_an_error_names_the_users_file(self, tmp_path: Path) -> None:
        with pytest.raises(cuda.CompileError) as caught:
            compiling.compiled(source(tmp_path, "__global__ void f() {\n  nothing;\n}\n"), ())
        assert (caught.value.file, caught.value.line) == (str(tmp_path / "user" / "solution.cu"), 2)
        assert str(caught.value) == 'identifier "nothing" is undefined'

    def test_an_error_in_a_header_names_the_users_header(self, tmp_path: Path) -> None:
        with pytest.raises(cuda.CompileError) as caught:
            compiling.compiled(source(tmp_path, '#include "bad.h"\n', bad="\nint x = ;\n"), ())
        assert (caught.value.file, caught.value.line) == (str(tmp_path / "user" / "bad.h"), 2)
        assert "snapshot" not in caught.value.output

    def test_headers_come_from_the_snapshot_not_from_what_is_being_edited(self, tmp_path: Path) -> None:
        (tmp_path / "user").mkdir()
        (tmp_path / "user" / "width.h").write_text("#error the file being edited\n")
        assert compiling.compiled(source(tmp_path), ())[0]

    def test_text_and_headers_and_options_change_the_hash(self, tmp_path: Path) -> None:
        first = compiling.digest(source(tmp_path), ())
        assert compiling.digest(source(tmp_path), ()) == first
        assert compiling.digest(source(tmp_path), ("plain",)) != first
        assert compiling.digest(source(tmp_path, width="#define WIDTH 2"), ()) != first
        assert compiling.digest(source(tmp_path, SCALE + "\n"), ()) != first

    @pytest.mark.gpu
    def test_toolkit_headers_are_found(self, tmp_path: Path) -> None:
        text = "#include <cuda_bf16.h>\n#include <cuda/std/array>\n__global__ void f(__nv_bfloat16* x) {}\n"
        assert compiling.compiled(source(tmp_path, text), ())[0]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(text: str = SCALE, **options: Any) -> Any:
        made = source(tmp_path, text)
        scope = {
            "__file__": os.path.join(os.path.dirname(made.path), "solution.py"),
            "__kernbench_folder__": str(tmp_path / "user"),
            "__kernbench_build__": made.cache,
            "load": cuda.load,
            "options": options,
        }
        exec("library = load('solution.cu', **options)", scope)
        return scope["library"]

    return loaded


@pytest.mark.gpu
class TestLaunch:
    def test_tensors_and_numbers_arrive(self, load: Load) -> None:
        library, x = load(), torch.arange(1000.0, device="cuda")
        out = torch.empty_like(x)
        library.scale[4, 256](x, out, 1000, 0.5)
        assert torch.equal(out, x * 0.5)
        value = torch.zeros(1, dtype=torch.float64, device="cuda")
        library.plain[1, 1](value, 0.1)
        assert value.item() == 0.1

    def test_templates_are_found_by_name_at_load_or_later(self, load: Load, tmp_path: Path) -> None:
        library = load(names=["add<int, 2>"])
        out = torch.zeros(4, dtype=torch.int32, device="cuda")
        library.get("add<int, 2>")[1, 32](out, 3)
        library.get("add<int, 1>")[1, 32](out, 4)
        assert out.tolist() == [30, 30, 30, 10]
        images = [(path.name, path.stat().st_mtime_ns) for path in sorted((tmp_path / "build").iterdir())]
        assert len(images) == 6  # of each: machine code, names, PTX
        load(names=["add<int, 2>"]).get("add<int, 1>")
        assert [(path.name, path.stat().st_mtime_ns) for path in sorted((tmp_path / "build").iterdir())] == images

    def test_much_shared_memory_is_allowed(self, load: Load) -> None:
        kernel, out = load().much, torch.zeros(1, device="cuda")
        kernel[1, 256, 48 * 1024](out, 12 * 1024)  # with what the kernel declares itself this is more
        kernel[1, 256, 160 * 1024](out, 40 * 1024)
        assert out.item() == 40 * 1024 - 1
        with pytest.raises(ValueError, match="shared memory is too much; a block on this GPU may use at most"):
            kernel[1, 256, 1 << 20](out, 4)

    def test_launches_follow_torchs_current_stream(self, load: Load) -> None:
        library, x, side = load(), torch.ones(1 << 20, device="cuda"), torch.cuda.Stream()
        out = torch.zeros_like(x)
        library.scale[1, 1](x, out, 0, 3.0)  # the first launch takes its time
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
            library.scale[4096, 256](x, out, x.numel(), 3.0)
        assert not side.query()
        side.synchronize()
        assert out.sum().item() == 3 * x.numel()

    def test_graphs_capture_them(self, load: Load) -> None:
        library, x, graph = load(), torch.ones(64, device="cuda"), torch.cuda.CUDAGraph()
        out = torch.zeros_like(x)
        library.scale[1, 64](x, out, 64, 1.0)
        with torch.cuda.graph(graph):
            library.scale[1, 64](x, out, 64, 5.0)
        graph.replay()
        assert out.sum().item() == 320

    def test_wrong_arguments_are_said_before_the_launch(self, load: Load) -> None:
        library, x = load(), torch.ones(4, device="cuda")
        with pytest.raises(TypeError, match="scale: the kernel takes 4 arguments, not 3"):
            library.scale[1, 4](x, x, 4)
        with pytest.raises(TypeError, match="scale: argument 2 is a pointer, but the kernel declares a "):
            library.scale[1, 4](x, x, x, 1.0)
        with pytest.raises(AttributeError, match=r"solution\.cu has no kernel nothing"):
            library.nothing  # noqa: B018
        with pytest.raises(RuntimeError, match=r"scale cannot be launched: CUDA_ERROR_INVALID_VALUE \(grid"):
            library.scale[1, 4096](x, x, 4, 1.0)

    def test_defines_and_options_count(self, load: Load) -> None:
        text = 'extern "C" __global__ void put(int* out) { *out = VALUE; }\n'
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        load(text, defines={"VALUE": 3}, options=["--use_fast_math"]).put[1, 1](out)
        assert out.item() == 3


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child("cuda:0") as started:
        yield started


CUDA_SOLUTION = """
import torch
from harness.cuda import load
_cu = load("solution.cu")

def scale(x, factor):
    out = torch.empty_like(x)
    _cu.scale[(x.numel() + 255) // 256, 256](x, out, x.numel(), factor)
    return out
"""
CUDA_FILE = SCALE.replace('#include "width.h"', "#define WIDTH 1")


@pytest.mark.gpu
class TestTask:
    def test_a_cuda_solution_is_checked_and_timed(self, child: Child, tmp_path: Path) -> None:
        folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=CUDA_SOLUTION, solution_cu=CUDA_FILE)
        for result in results(child.run(folder, controls=True, budget_ms=100.0)).values():
            assert (result["status"], result["checked"]) == ("ok", 2), result["detail"]
            assert result["findings"] == []
            assert [kernel["name"] for kernel in result["ledger"]] == ["scale"]

    def test_what_new_writes_runs_at_once(self, child: Child, tmp_path: Path) -> None:
        folder = scaffold.create("silu", tmp_path, template="cuda")
        found = results(child.run(folder, cases=("128x4096_bf16", "smoke_4x128_fp32")))
        assert [(result["status"], result["detail"]) for result in found.values()] == [("ok", None)] * 2

    def test_an_element_outside_is_found(self, child: Child, tmp_path: Path) -> None:
        bad = CUDA_FILE.replace("i < n)", "i < n + 1)")
        folder = write_task(tmp_path, task_toml=GPU_TASK, solution_py=CUDA_SOLUTION, solution_cu=bad)
        result = results(child.run(folder, cases=("small",)))["small"]
        assert (result["status"], result["detail"]) == ("wrong", "the call wrote 1 element past the end of output 0")

    def test_a_compile_error_has_a_place(self, child: Child, tmp_path: Path) -> None:
        bad = CUDA_FILE.replace("int i = ", "int j = ")
        snapshot = write_task(tmp_path / "snapshot", task_toml=GPU_TASK, solution_py=CUDA_SOLUTION, solution_cu=bad)
        user = write_task(tmp_path / "user", task_toml=GPU_TASK, solution_py=CUDA_SOLUTION, solution_cu=bad)
        last = child.run(user, snapshot)[-1]
        assert (last["event"], last["status"]) == ("failed", "build_error")
        assert last["message"] == 'identifier "i" is undefined'
        assert (last["where"]["file"], last["where"]["line"]) == ("solution.cu", 4)
        assert "snapshot" not in last["traceback"]
