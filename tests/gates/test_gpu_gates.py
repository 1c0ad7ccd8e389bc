"""The gates that need a GPU: streams, graphs, libraries, kernels that do not run, and the rest once more on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gates.judged import Judged, judged
from tests.harness.child import Child
from tests.harness.test_gpu_worker import GPU_TASK

pytestmark = pytest.mark.gpu

PRELUDE = """
import threading, time
import torch, triton
import triton.language as tl

@triton.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) * factor, mask)

def launch(x, factor, out=None):
    out = torch.empty_like(x) if out is None else out
    scaled[(triton.cdiv(x.numel(), 1024) + 1,)](x, out, x.numel(), factor, BLOCK=1024)
    return out

"""
GRAPH = (
    PRELUDE
    + """
graphs = {}

def scale(x, factor):
    if x.shape not in graphs:
        static, out, graph = torch.empty_like(x), torch.empty_like(x), torch.cuda.CUDAGraph()
        launch(static.zero_(), factor, out)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            launch(static, factor, out)
        graphs[x.shape] = graph, static, out
    graph, static, out = graphs[x.shape]
    static.copy_(x)
    graph.replay()
    return out.clone()
"""
)
WRONG = {
    "stale memory": ("def scale(x, factor): return torch.empty_like(x)", "output 0 was never written"),
    "a kernel that writes nothing": (
        "def scale(x, factor):\n    out = torch.empty_like(x)\n"
        "    scaled[(1,)](x, out, 0, factor, BLOCK=1024)\n    return out",
        "output 0 was never written",
    ),
    "remembered by address": (
        "known, n = {}, []\ndef scale(x, factor):\n    n.append(1)\n"
        "    if len(n) < 4:\n        return launch(x, factor)\n"
        "    if x.data_ptr() not in known:\n        known[x.data_ptr()] = launch(x, factor)\n"
        "    return known[x.data_ptr()]",
        "(in a timed call)",
    ),
    "remembered by call count": (
        "last = []\ndef scale(x, factor):\n    last.append(launch(x, factor))\n    del last[:-2]\n    return last[0]",
        "output 0 differs",
    ),
    "out of bounds": ("def scale(x, factor): return launch(x, factor)", "the call wrote 1 element past the end"),
    "a thread launches later": (
        "def later(x, factor, out):\n    time.sleep(0.05)\n    launch(x, factor, out)\n"
        "def scale(x, factor):\n    out = torch.empty_like(x)\n"
        "    threading.Thread(target=later, args=(x, factor, out)).start()\n    return out",
        "output 0 was never written",
    ),
}
FOUND = {
    "other stream": (
        "side = torch.cuda.Stream()\ndef scale(x, factor):\n    out = launch(x, factor)\n"
        "    side.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(side):\n        torch.cuda._sleep(200_000)\n    return out",
        "other stream",
    ),
    "library fallback": ("def scale(x, factor): return x * factor", "library kernels"),
    "graph on one side": (GRAPH.replace(PRELUDE, ""), "graph on one side"),
    "different work on the first call": (
        "seen = set()\ndef scale(x, factor):\n    if x.data_ptr() not in seen:\n        seen.add(x.data_ptr())\n"
        "        launch(x, factor)\n    return launch(x, factor)",
        "uneven calls",
    ),
    "no kernel in some calls": (
        "n, last = [], {}\ndef scale(x, factor):\n    n.append(1)\n    if len(n) % 3 == 0 and len(n) > 6:\n"
        "        key = x.data_ptr()\n        if key in last:\n            return last[key]\n"
        "    last[x.data_ptr()] = launch(x, factor)\n    return last[x.data_ptr()]",
        "no kernel ran",
    ),
    "remembered by value": (
        "known = {}\ndef scale(x, factor):\n    key = x.sum().item()\n    if key not in known:\n"
        "        known[key] = launch(x, factor)\n    return known[key].clone()",
        "result kept between calls",
    ),
    "the same memory every time": (
        "kept = {}\ndef scale(x, factor):\n    return launch(x, factor, kept.setdefault(x.shape, torch.empty_like(x)))",
        "output kept between calls",
    ),
    "an event replaced at load": (
        "class Event(torch.cuda.Event):\n    def elapsed_time(self, other): return 1e-3\ntorch.cuda.Event = Event\n"
        "def scale(x, factor): return launch(x, factor)",
        "clock replaced",
    ),
    "a wait replaced in a call": (
        "def scale(x, factor):\n    torch.cuda.synchronize = lambda device=None: None\n    return launch(x, factor)",
        "clock replaced",
    ),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child("cuda:0") as started:
        yield started


def trying(child: Child, folder: Path, solution: str, **files: str) -> Judged:
    source = {"task_toml": GPU_TASK, "solution_py": PRELUDE + solution, **files}
    return judged(child, folder, "large", source, budget_ms=40.0)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_is_named(child: Child, tmp_path: Path, name: str) -> None:
    source, words = WRONG[name]
    prelude = PRELUDE.replace("offsets < n", "offsets < n + 1") if name == "out of bounds" else PRELUDE
    answer = trying(child, tmp_path, "", solution_py=prelude + source)
    assert answer.status == "wrong"
    assert words in answer.detail


@pytest.mark.parametrize("name", FOUND)
def test_right_but_untrue_is_a_finding(child: Child, tmp_path: Path, name: str) -> None:
    source, finding = FOUND[name]
    answer = trying(child, tmp_path, source)
    assert finding in answer.findings or answer.status == "wrong", (answer.detail, answer.findings)
    assert finding in answer.findings


def test_less_accurate_within_the_tolerance_is_no_finding(child: Child, tmp_path: Path) -> None:
    loose = GPU_TASK.replace("atol = 1e-5, rtol = 1e-5", "atol = 5e-2, rtol = 5e-2")
    lower = PRELUDE.replace(
        "tl.load(x + offsets, mask) *", "tl.load(x + offsets, mask).to(tl.bfloat16).to(tl.float32) *"
    )
    source = lower + "def scale(x, factor): return launch(x, factor)"
    answer = trying(child, tmp_path, "", solution_py=source, task_toml=loose)
    assert (answer.status, answer.findings) == ("ok", {})
