"""Honest, unusual kernels on a GPU: right, timed, and not a word against them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gates.judged import judged
from tests.gates.test_gpu_gates import GRAPH, PRELUDE
from tests.gates.test_honest import INTEGERS
from tests.harness.child import REFERENCE, Child
from tests.harness.cuda.test_cuda import CUDA_FILE, CUDA_SOLUTION
from tests.harness.test_gpu_worker import GPU_TASK

pytestmark = pytest.mark.gpu

AUTOTUNED = PRELUDE.replace(
    "@triton.jit\n",
    "@triton.autotune([triton.Config({'BLOCK': 512}), triton.Config({'BLOCK': 2048})], key=['n'])\n@triton.jit\n",
).replace(
    "scaled[(triton.cdiv(x.numel(), 1024) + 1,)](x, out, x.numel(), factor, BLOCK=1024)",
    "scaled[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, out, x.numel(), factor)",
)
ROUNDED = (
    PRELUDE.replace("import torch, triton\n", "import torch, triton\nfrom triton.language.extra import libdevice\n")
    .replace("tl.load(x", "libdevice.rint(tl.load(x")
    .replace("* factor, mask)", "* factor).to(tl.int32), mask)")
)
INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

cuda = """
__global__ void scaled(const float* x, float* out, long n, float factor) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * factor;
}
torch::Tensor scale(torch::Tensor x, double factor) {
    auto out = torch::empty_like(x);
    long n = x.numel();
    scaled<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n, (float)factor);
    return out;
}
"""
module = load_inline("honest_scale", cpp_sources="torch::Tensor scale(torch::Tensor x, double factor);",
                     cuda_sources="#include <ATen/cuda/CUDAContext.h>\\n" + cuda, functions=["scale"])

def scale(x, factor):
    return module.scale(x, factor)
'''
PLAIN = "def scale(x, factor): return launch(x, factor)\n"
HONEST: dict[str, dict[str, str]] = {
    "several launches": {
        "solution_py": PRELUDE + "def scale(x, factor): return launch(launch(launch(x, 2.0), 0.5), factor)\n"
    },
    "a copy and a fill beside the kernel": {  # recorded as such, in every batch: equal calls must look equal
        "solution_py": PRELUDE
        + "def scale(x, factor): return launch(torch.empty_like(x).copy_(x), factor, torch.empty_like(x).zero_())\n"
    },
    "autotuned": {"solution_py": AUTOTUNED + PLAIN},
    "another stream that is waited for": {
        "solution_py": PRELUDE + "side = torch.cuda.Stream()\ndef scale(x, factor):\n    out = torch.empty_like(x)\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side):\n        launch(x, factor, out)\n"
        "    torch.cuda.current_stream().wait_stream(side)\n    return out\n"
    },
    "streams that are forked and joined by events": {
        "solution_py": PRELUDE + "sides = [torch.cuda.Stream() for _ in range(3)]\nforked = torch.cuda.Event()\n"
        "joined = [torch.cuda.Event() for _ in sides]\ndef scale(x, factor):\n    out = torch.empty_like(x)\n"
        "    here = torch.cuda.current_stream()\n    forked.record(here)\n"
        "    for side, done, part, place in zip(sides, joined, x.chunk(3), out.chunk(3)):\n"
        "        side.wait_event(forked)\n"
        "        with torch.cuda.stream(side):\n            launch(part, factor, place)\n        done.record(side)\n"
        "    for done in joined:\n        here.wait_event(done)\n    return out\n"
    },
    "a library, where the task is about one": {
        "task_toml": GPU_TASK.replace('entry = "scale"', 'entry = "scale"\nlibraries = true'),
        "solution_py": "def scale(x, factor): return x * factor\n",
    },
    "a graph on both sides": {"solution_py": GRAPH, "baseline_py": GRAPH},
    "in place": {
        "task_toml": GPU_TASK.replace('entry = "scale"', 'entry = "scale"\nmutates = ["x"]'),
        "reference_py": REFERENCE.replace("return x * factor", "x.mul_(factor)"),
        "solution_py": PRELUDE + "def scale(x, factor): launch(x, factor, x)\n",
    },
    "integers": {
        **INTEGERS,
        "solution_py": ROUNDED
        + "def scale(x, factor): return launch(x, factor, torch.empty_like(x, dtype=torch.int32))\n",
    },
    "a workspace kept between calls": {
        "solution_py": PRELUDE + "space = {}\ndef scale(x, factor):\n    work = space.get(x.shape)\n"
        "    if work is None:\n        work = space[x.shape] = torch.empty_like(x)\n"
        "    return launch(launch(x, factor, work), 1.0)\n",
    },
    "another layout": {
        "task_toml": GPU_TASK.replace('entry = "scale"', 'entry = "scale"\nlayout = "any"'),
        "solution_py": PRELUDE + "def scale(x, factor):\n"
        "    return launch(x, factor, torch.empty(x.shape[0] * 2, x.shape[1], device=x.device)[: x.shape[0]])\n",
    },
    "an operator of its own": {
        "solution_py": PRELUDE + "@torch.library.custom_op('honest::gpu_scale', mutates_args=())\n"
        "def op(x: torch.Tensor, factor: float) -> torch.Tensor:\n    return launch(x, factor)\n\n"
        "def scale(x, factor): return op(x, factor)\n",
    },
    "CUDA C++, a template": {
        "solution_py": CUDA_SOLUTION.replace("_cu.scale[", "_cu.get('scaled<4>')[").replace(
            "x.numel() + 255", "x.numel() // 4 + 255"
        ),
        "solution_cu": """
            template <int N> __global__ void scaled(const float* x, float* out, int n, float factor) {
                int i = N * (blockIdx.x * blockDim.x + threadIdx.x);
                #pragma unroll
                for (int j = 0; j < N; ++j) if (i + j < n) out[i + j] = x[i + j] * factor;
            }
        """,
    },
    "CUDA C++ beside Triton": {
        "solution_py": PRELUDE + CUDA_SOLUTION.replace("return out", "return launch(out, 1.0)"),
        "solution_cu": CUDA_FILE,
    },
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child("cuda:0") as started:
        yield started


def honest(child: Child, folder: Path, files: dict[str, str]) -> None:
    baseline = "baseline.py" if "baseline_py" in files else "eager"
    answer = judged(child, folder, "large", {"task_toml": GPU_TASK, **files}, budget_ms=40.0, baseline=baseline)
    assert (answer.status, answer.checked, answer.detail) == ("ok", 2, "")
    assert answer.findings == {}


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_said_against_it(child: Child, tmp_path: Path, name: str) -> None:
    honest(child, tmp_path, HONEST[name])


def test_nothing_is_said_against_a_compiled_function(child: Child, tmp_path: Path) -> None:
    source = "import torch\n@torch.compile\ndef scale(x, factor): return x * factor\n"
    honest(child, tmp_path, {"solution_py": source})


@pytest.mark.timeout(300)
def test_nothing_is_said_against_load_inline(child: Child, tmp_path: Path) -> None:
    honest(child, tmp_path, {"solution_py": INLINE})
