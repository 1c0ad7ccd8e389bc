"""Faults that only a GPU has: `make faults GPU=1` plays these in a workbench on cuda:0, and no others."""

from __future__ import annotations

from tests.faults.python_sources import PLACE, call
from tests.faults.row import Fault, Save

CU = 'extern "C" __global__ void k(float *p, long long n) { BODY }\n'
WRAPPER = """
import torch
from harness.cuda import load

_CU = load("solution.cu", names=["k"])

def softmax(x):
    out = torch.empty_like(x)  # guarded, unlike what an operator returns
    out.copy_(torch.softmax(x, dim=-1))
    _CU.get("k")[GRID](out, out.numel())
    return out
"""
TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(p, n, N: tl.constexpr):
    BODY

def softmax(x):
    out = torch.softmax(x, dim=-1)
    kernel[(8,)](out, out.numel(), N=1024)
    AFTER
    return out
"""
LOST = "runtime_error crashed"
"""A CUDA error breaks the context: the row has the error, or the worker left first."""


def row(name: str, done: str, texts: dict[str, str], statuses: str, says: str, **more: object) -> Save:
    return Save(
        name=f"GPU: {name}", group="source", done=done, texts=texts, statuses=statuses, says=says, gpu=True, **more
    )  # type: ignore[arg-type]


def cuda(name: str, done: str, body: str, statuses: str, says: str, grid: str = "1, 32", **more: object) -> Save:
    texts = {"solution_cu": CU.replace("BODY", body), "solution_py": WRAPPER.replace("GRID", grid)}
    return row(name, done, texts, statuses, says, within=30.0, **more)


def triton(name: str, done: str, body: str, statuses: str, says: str, after: str = "torch.cuda.synchronize()") -> Save:
    return row(
        name, done, {"solution_py": TRITON.replace("BODY", body).replace("AFTER", after)}, statuses, says, within=60.0
    )


def python(name: str, done: str, body: str, statuses: str, says: str = "", before: str = "") -> Save:
    return row(name, done, {"solution_py": call(body, before)}, statuses, says, within=60.0)


GPU: list[Fault] = [
    cuda("illegal access", "a store 4 TB away", "p[1000000000000ll + threadIdx.x] = 1.0f;", LOST, "illegal|CUDA error"),
    cuda("misaligned address", "a double at an odd address", "*(double *)((char *)p + 4) = 1.0;", LOST,
         "misaligned|CUDA error"),
    cuda("trap", "__trap()", "__trap();", LOST, "CUDA error|illegal|launch|instruction"),
    cuda("stack overflow", "recursion without end in a kernel",
         "struct R { static __device__ __noinline__ int deep(volatile int *q) { volatile int a[64]; a[0] = *q; "
         "return deep(a) + a[1]; } }; volatile int z = n; p[0] = R::deep(&z);", LOST, "CUDA error|stack|illegal"),
    cuda("endless loop", "while (1) on the device", "volatile float *q = p; while (q[0] != -7.0f) {}", "timeout",
         "timed out after 3"),
    cuda("block too large", "4096 threads a block", "p[0] = 1.0f;", LOST, "invalid|CUDA|threads", grid="1, 4096"),
    cuda("compile error", "a semicolon missing", "int a = 1 return;", "build_error", r"solution\.cu:\d+"),
    cuda("write past its output", "one element too many", "p[n] = 7.0f;", "wrong", "past the end"),
    cuda("printf without end", "a million lines from the device",
         "for (int i = 0; i < 1000000 / 32; ++i) printf(\"%d words\\n\", i);", "wrong ok timeout build_error", ""),
    triton("Triton wild store", "a store 10**12 elements away", "tl.store(p + 1000000000000, 1.0)", LOST,
           "illegal|CUDA error"),
    triton("Triton endless loop", "while on the device", "while tl.load(p, volatile=True) != -7.0:\n        tl.store(p + 1, 0.0)",
           "timeout", "timed out after"),
    triton("Triton too much shared memory", "a tile of 64 MB", "x = tl.arange(0, 4096)\n    y = tl.dot(tl.zeros((4096, 4096), tl.float16), tl.zeros((4096, 4096), tl.float16))\n    tl.store(p, tl.sum(y))",
           "runtime_error timeout", ""),
    python("device assert", "an index out of range", "torch.zeros(3, device=x.device)[torch.tensor([99], device=x.device)]; torch.cuda.synchronize()",
           LOST, "assert|CUDA error"),
    python("out of memory", "500 GB", "torch.empty(500 << 30, dtype=torch.uint8, device=x.device)", "runtime_error skipped",
           "memory"),
    python("memory kept", "1 GB more at each call", "K.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))",
           "ok runtime_error timeout", "", "K = []"),
    python("returns before the end", "another stream, no wait",
           "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    torch.cuda._sleep(200000000)\n    return torch.softmax(x, -1)",
           "ok wrong", ""),
    python("context destroyed", "cudaDeviceReset", "C.cudaDeviceReset(); torch.cuda.synchronize()",
           f"{LOST} timeout wrong", "", "import ctypes, glob, os\nC = ctypes.CDLL(next((p for p in ('libcudart.so.12', 'libcudart.so.13')"
           " if not os.system('ldconfig -p | grep -q ' + p)), 'libcudart.so'))"),
    python("fork after CUDA", "os.fork() in a call", "global F\nif not F:\n    F = True; os.fork()", "ok", "(?i)fork", "F = False"),
    python("exit in mid-kernel", "_sleep, then os._exit", "torch.cuda._sleep(2000000000); os._exit(1)", "crashed",
           "exited with code 1"),
    python("killed in mid-kernel", "_sleep, then kill -9", "torch.cuda._sleep(2000000000); os.kill(os.getpid(), 9)",
           "crashed", "was killed"),
    python("exception on the device's path", "raise after a launch", "torch.softmax(x, -1); raise ValueError('no')",
           "runtime_error", PLACE),
]  # fmt: skip
