"""Every gate that can be tried without a GPU has a kernel here that trips it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gates.judged import Judged, judged
from tests.harness.child import REFERENCE, TASK, Child

WRONG = {
    "stale memory": (
        "import torch\ndef scale(x, factor): return torch.empty_like(x)",
        "output 0 was never written",
    ),
    "half of it stale": (
        "import torch\ndef scale(x, factor):\n    out = torch.empty_like(x)\n    out[:32] = x[:32] * 2\n    return out",
        "output 0 was not written at [32, 0]",
    ),
    "returned input": ("def scale(x, factor): return x", "output 0 differs at ["),
    "mutated input": (
        "def scale(x, factor): return x.mul_(2)",
        "the call wrote to its input 'x', which is not listed in mutates",
    ),
    "zero output": ("import torch\ndef scale(x, factor): return torch.zeros_like(x)", "got 0, expected"),
    "constant output": ("import torch\ndef scale(x, factor): return torch.full_like(x, 0.5)", "got 0.5, expected"),
    "NaN": ("def scale(x, factor):\n    y = x * 2\n    y[3, 5] = float('nan')\n    return y", "is nan at [3, 5]"),
    "lower precision": ("def scale(x, factor): return (x.half() * 2).float()", "output 0 differs at ["),
    "wrong on one seed only": (
        "def scale(x, factor): return x * 2 if abs(x[0, 0].item() - (-0.8201)) > 1e-3 else x * 2.1",
        "output 0 differs",
    ),
    "wrong on a few wide values": (
        "def scale(x, factor):\n    is_wide = bool((x.view(-1)[::97].abs() > 8).any())\n"
        "    return x * 2 if is_wide else (x * 2).clamp(-16, 16)",
        "8 values 64 times as wide",
    ),
    "wrong on wide values": ("def scale(x, factor): return (x * 2).clamp(-16, 16)", "spread 64"),
    "wrong after timing": (
        "n = []\ndef scale(x, factor):\n    n.append(1)\n    return x * 2 if len(n) < 4 else x",
        "(in a timed call)",
    ),
    "lazy tensor": (
        "import torch\nclass Lazy(torch.Tensor): pass\ndef scale(x, factor): return (x * 2).as_subclass(Lazy)",
        "output 0 is of type Lazy, not a plain torch.Tensor",
    ),
    "out of bounds": (
        "import ctypes\ndef scale(x, factor):\n    out = x.new_empty(x.shape)\n    out.copy_(x * 2)\n"
        "    ctypes.memset(out.data_ptr() + out.numel() * 4, 0, 4)\n    return out",
        "the call wrote 1 element past the end of output 0",
    ),
    "remembered by address": (
        "known, n = {}, []\ndef scale(x, factor):\n    n.append(1)\n    if len(n) < 4:\n        return x * 2\n"
        "    return known.setdefault(x.data_ptr(), x * 2)",
        "(in a timed call)",
    ),
    "remembered by call count": (
        "last = []\ndef scale(x, factor):\n    last.append(x * 2)\n    return last[-1 if len(last) % 2 else -2]",
        "output 0 differs",
    ),
    "a thread computes later": (
        "import threading, time\ndef later(out, x):\n    time.sleep(0.05)\n    out.copy_(x * 2)\n"
        "def scale(x, factor):\n    out = x.new_empty(x.shape)\n"
        "    threading.Thread(target=later, args=(out, x)).start()\n    return out",
        "output 0 was never written",
    ),
}
FOUND = {
    "remembered by value": (
        "import time\nknown = {}\ndef scale(x, factor):\n    key = x.sum().item()\n    if key not in known:\n"
        "        time.sleep(0.002)\n        known[key] = x * 2\n    return known[key].clone()",
        "result kept between calls",
    ),
    "the same memory every time": (
        "import torch\nout = {}\ndef scale(x, factor):\n"
        "    return torch.mul(x, factor, out=out.setdefault(x.shape, torch.empty_like(x)))",
        "output kept between calls",
    ),
    "a value's own tensor": (
        "known = {}\ndef scale(x, factor):\n    return known.setdefault((x.sum().item(), x[0, 0].item()), x * 2)",
        "output kept between calls",
    ),
    "a thread goes on": (
        "import threading, time\ndef scale(x, factor):\n"
        "    threading.Thread(target=time.sleep, args=(0.05,)).start()\n    return x * factor",
        "left threads running",
    ),
    "a pool goes on": (
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "def scale(x, factor):\n    pool.submit(time.sleep, 0.02)\n    return x * factor",
        "left threads running",
    ),
    "a clock replaced at load": (
        "import time\nreal = time.perf_counter_ns\ntime.perf_counter_ns = lambda: real() // 100\n"
        "def scale(x, factor): return x * factor",
        "clock replaced",
    ),
    "a wait replaced at load": (
        "import torch\ntorch.cuda.synchronize = lambda device=None: None\ndef scale(x, factor): return x * factor",
        "clock replaced",
    ),
    "an event replaced at load": (
        "import torch\ntorch.cuda.Event.elapsed_time = lambda self, other: 1e-3\n"
        "def scale(x, factor): return x * factor",
        "clock replaced",
    ),
    "a clock replaced in a call": (
        "import time\nreal = time.time\ndef scale(x, factor):\n    time.time = lambda: real() / 100\n"
        "    return x * factor",
        "clock replaced",
    ),
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


def trying(child: Child, folder: Path, solution: str, **files: str) -> Judged:
    return judged(child, folder, "large", {"solution_py": solution, **files})


@pytest.mark.parametrize("name", WRONG)
def test_wrong_is_named(child: Child, tmp_path: Path, name: str) -> None:
    source, words = WRONG[name]
    answer = trying(child, tmp_path, source)
    assert answer.status == "wrong"
    assert words in answer.detail


def test_an_output_inside_an_input_is_named(child: Child, tmp_path: Path) -> None:
    answer = trying(
        child,
        tmp_path,
        "def scale(x, factor): return x[:4]",
        reference_py=REFERENCE.replace("return x * factor", "return x[:4].clone()"),
    )
    assert (answer.status, answer.checked) == ("wrong", 2)
    assert answer.detail == "output 0 shares memory with input 'x'; return a new tensor"


@pytest.mark.parametrize("name", FOUND)
def test_right_but_untrue_is_a_red_finding(child: Child, tmp_path: Path, name: str) -> None:
    source, finding = FOUND[name]
    answer = trying(child, tmp_path, source)
    assert answer.status == "ok", answer.detail
    assert answer.findings.get(finding) is True, answer.findings


def test_what_was_replaced_is_named_and_put_back(child: Child, tmp_path: Path) -> None:
    answer = trying(child, tmp_path / "bad", FOUND["an event replaced at load"][0])
    assert "torch.cuda.Event.elapsed_time" in answer.said
    assert trying(child, tmp_path / "good", "def scale(x, factor): return x * factor").findings == {}


def test_less_accurate_within_the_tolerance_is_no_finding(child: Child, tmp_path: Path) -> None:
    loose = TASK.replace("atol = 1e-5, rtol = 1e-5", "atol = 1e-2, rtol = 1e-2")
    answer = trying(child, tmp_path, WRONG["lower precision"][0], task_toml=loose)
    assert (answer.status, answer.findings) == ("ok", {})
