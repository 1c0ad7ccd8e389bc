"""Honest, unusual kernels: right, timed, and not a word against them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gates.judged import judged
from tests.harness.child import REFERENCE, TASK, Child

IN_PLACE = {
    "task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nmutates = ["x"]'),
    "reference_py": REFERENCE.replace("return x * factor", "x.mul_(factor)"),
}
INTEGERS = {
    "reference_py": REFERENCE.replace("return x * factor", "return (x * factor).round().to(torch.int32)").replace(
        "def scale", "def truth(x, factor):\n    return (x * factor).round().to(torch.int32)\n\ndef scale"
    )
}
TWO = {"reference_py": REFERENCE.replace("return x * factor", "return x * factor, None, x.sum(1)")}
ANY = {"task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nlayout = "any"')}
HONEST: dict[str, dict[str, str]] = {
    "several steps and temporaries": {
        "solution_py": "import torch\ndef scale(x, factor):\n    a = torch.empty_like(x).copy_(x)\n"
        "    b = torch.zeros_like(x).add_(a)\n    return b.mul_(factor)",
    },
    "in place": {**IN_PLACE, "solution_py": "def scale(x, factor): x.add_(x)"},
    "in place, and returned": {**IN_PLACE, "solution_py": "def scale(x, factor): return x.mul_(factor)"},
    "in place, with an unasked return value": {
        **IN_PLACE,
        "solution_py": "def scale(x, factor):\n    x.mul_(factor)\n    return 'done'",
    },
    "another layout": {**ANY, "solution_py": "def scale(x, factor): return (x.t().contiguous() * factor).t()"},
    "integers": {**INTEGERS, "solution_py": "import torch\ndef scale(x, factor): return torch.round(x * factor).int()"},
    "several outputs, one absent": {
        **TWO,
        "solution_py": "def scale(x, factor):\n    return [x * factor, None, x.sum(1)]",
    },
    "a workspace kept between calls": {
        "solution_py": "import torch\nspace = {}\ndef scale(x, factor):\n"
        "    work = space.setdefault(x.shape, torch.empty_like(x))\n    torch.mul(x, factor, out=work)\n"
        "    return work + 0",
    },
    "a helper module": {
        "solution_py": "from steps import double\ndef scale(x, factor): return double(x)",
        "steps_py": "def double(x): return x + x",
    },
    "an operator in op.py": {
        "solution_py": "def scale(x, factor): return x * factor",
        "op_py": "import torch\nfrom solution import scale\n\n"
        "@torch.library.custom_op('honest::scale', mutates_args=())\n"
        "def op(x: torch.Tensor, factor: float) -> torch.Tensor:\n    return scale(x, factor)\n",
    },
    "part of a larger allocation": {
        "solution_py": "def scale(x, factor):\n    out = x.new_empty(x.numel() + 64)[: x.numel()].view(x.shape)\n"
        "    return out.copy_(x).mul_(factor)",
    },
    "a pool that is waited for": {
        "task_toml": TASK.replace('device = "cpu"', 'device = "cpu"\nthreads = 2'),
        "solution_py": "import torch\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
        "def scale(x, factor):\n    out = torch.empty_like(x)\n"
        "    pool.submit(torch.mul, x, factor, out=out).result()\n    return out",
    },
    "a first call that prepares": {
        "solution_py": "import time\nready = set()\ndef scale(x, factor):\n    if x.shape not in ready:\n"
        "        time.sleep(0.05)\n        ready.add(x.shape)\n    return x * factor",
    },
    "a branch on the values": {
        "solution_py": "def scale(x, factor):\n    return x + x if x[0, 0] > 0 else x * factor",
    },
}


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as started:
        yield started


@pytest.mark.parametrize("name", HONEST)
def test_nothing_is_said_against_it(child: Child, tmp_path: Path, name: str) -> None:
    answer = judged(child, tmp_path, "large", HONEST[name])
    assert (answer.status, answer.checked, answer.detail) == ("ok", 2, "")
    assert answer.findings == {}
