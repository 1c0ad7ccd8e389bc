"""Honest sources that use much of torch, each saved twice in one worker: no change is reported, no worker replaced.

    python -m tests.measure.honest [--gpu] [NAME...]
    python -m tests.measure.honest [--gpu] --twenty

The second plays twenty saves, 2 s apart, with and without a package that patches torch, and prints their seconds.
Prints a line per save, how long a look at the process takes, and the workers that were there at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.row import GOOD_TRITON, for_gpu
from tests.faults.workbench import GOOD, Workbench, write_task
from tests.measure.bench import figure

BODY = "    return torch.softmax(x, dim=-1)\n"
HEAD = "import torch\n"
CUSTOM = """
import torch
@torch.library.custom_op("{name}::softmax", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
@op.register_fake
def _(x):
    return torch.empty_like(x)
def softmax(x):
    return op(x)
"""
CPP = """
import torch
from torch.utils.cpp_extension import load_inline
ext = load_inline("honest_ext", cpp_sources="torch::Tensor f(torch::Tensor x) {{ return torch::softmax(x, -1); }}",
                  functions=["f"])
def softmax(x):
    return ext.f(x)
"""
AUTOTUNED = GOOD_TRITON.replace(
    "@triton.jit", "@triton.autotune([triton.Config({'N': 128}), triton.Config({'N': 256})], key=['n'])\n@triton.jit", 1
).replace("copy[(triton.cdiv(y.numel(), 256),)](out, y, y.numel(), N=256)",
          "copy[lambda m: (triton.cdiv(y.numel(), m['N']),)](out, y, y.numel())")  # fmt: skip
BACKWARD = """
import torch
def softmax(x):
    y = x.clone().requires_grad_()
    torch.softmax(y, dim=-1).sum().backward()
    return torch.softmax(x, dim=-1)
"""
GRAPH = """
import torch
graphs = {}
def softmax(x):
    if x.shape not in graphs:
        held = x.clone()
        torch.softmax(held, dim=-1); torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.softmax(held, dim=-1)
        graphs[x.shape] = held, graph, out
    held, graph, out = graphs[x.shape]
    held.copy_(x); graph.replay()
    return out.clone()
"""
PATCHER = """
import torch
_old = torch.nn.functional.gelu
def gelu(*words, **named):
    return _old(*words, **named)
torch.nn.functional.gelu = gelu
"""
PROFILED = (
    HEAD + "import torch.profiler\nwith torch.profiler.profile():\n    torch.ones(3) + 1\ndef softmax(x):\n" + BODY
)
HONEST = {
    "plain": GOOD,
    "another plain": GOOD + "\nX = 1\n",
    "in place": HEAD

    + "def softmax(x):\n    e = (x - x.amax(-1, keepdim=True)).exp_()\n    return e.div_(e.sum(-1, keepdim=True))\n",
    "a module": HEAD + "m = torch.nn.Softmax(dim=-1)\ndef softmax(x):\n    return m(x)\n",
    "functional": HEAD + "import torch.nn.functional as F\ndef softmax(x):\n    return F.softmax(x, dim=-1)\n",
    "custom_op": CUSTOM.format(name="honest_a"),
    "another custom_op": CUSTOM.format(name="honest_b"),
    "compiled": HEAD + "@torch.compile\ndef softmax(x):\n" + BODY,
    "compiled, eager backend": HEAD + "@torch.compile(backend='eager')\ndef softmax(x):\n" + BODY,
    "inference_mode": HEAD + "@torch.inference_mode()\ndef softmax(x):\n" + BODY,
    "no_grad": HEAD + "@torch.no_grad()\ndef softmax(x):\n" + BODY,
    "backward": BACKWARD,
    "vmap": HEAD + "def softmax(x):\n    return torch.func.vmap(lambda r: torch.softmax(r, -1))(x)\n",
    "profiler": PROFILED,
    "logging": HEAD + "import logging\nlogging.basicConfig()\nlog = logging.getLogger(__name__)\ndef softmax(x):\n"
    "    log.info('x')\n" + BODY,
    "printing": HEAD + "print('loaded')\ndef softmax(x):\n" + BODY,
    "numpy": HEAD + "import numpy\ndef softmax(x):\n" + BODY,
    "threads": HEAD + "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as p:\n"
    "    list(p.map(len, ['a', 'b']))\ndef softmax(x):\n" + BODY,
    "a subprocess": HEAD + "import subprocess\nsubprocess.run(['true'])\ndef softmax(x):\n" + BODY,
    "seeds": HEAD + "torch.manual_seed(1)\nimport random; random.seed(2)\ndef softmax(x):\n" + BODY,
    "warnings caught": HEAD + "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n"
    "def softmax(x):\n" + BODY,
    "autocast": HEAD + "def softmax(x):\n    with torch.autocast(x.device.type, enabled=False):\n    " + BODY,
    "dataclasses and enum": HEAD + "import dataclasses, enum, functools\n@functools.cache\ndef f():\n    return 1\n"
    "def softmax(x):\n    f()\n" + BODY,
    "C++": CPP,
    "triton": GOOD_TRITON,
    "a package that patches torch": HEAD + "import honest_patcher\ndef softmax(x):\n" + BODY,
}  # fmt: skip
GPU_ONLY = {
    "autotuned": AUTOTUNED,
    "graph": GRAPH,
    "cupy": HEAD + "import cupy\ndef softmax(x):\n    cupy.from_dlpack(x)\n" + BODY,
    "a side stream": HEAD + "side = torch.cuda.Stream()\ndef softmax(x):\n    here = torch.cuda.current_stream()\n"
    "    side.wait_stream(here)\n    with torch.cuda.stream(side):\n        y = torch.softmax(x, -1)\n"
    "    here.wait_stream(side)\n    y.record_stream(here)\n    return y\n",
    "compiled, max-autotune": HEAD + "f = torch.compile(lambda x: torch.softmax(x, -1),\n"
    "                  mode='max-autotune-no-cudagraphs')\ndef softmax(x):\n    return f(x)\n",
}  # fmt: skip
WRONG_WORDS = ("changed process", "restored", "opponent changed", "clock replaced")


def twenty(bench: Workbench) -> int:
    medians, workers = {}, set(bench.workers())
    for name in ("plain", "a package that patches torch"):
        taken = []
        for _ in range(20):
            time.sleep(2.0)
            taken.append(bench.answer(bench.save(solution_py=HONEST[name]), 60).seconds)
        medians[name] = statistics.median(taken[2:])
        print(f"{name}:", *(f"{seconds:.2f}" for seconds in taken), flush=True)
        figure(f"{name}, from the third save on", f"{medians[name]:.2f} s")
    figure("workers replaced", str(len(workers - set(bench.workers()))))
    return 0


def main() -> int:
    gpu = "--gpu" in sys.argv
    wanted = [word for word in sys.argv[1:] if not word.startswith("--")]
    known = {**HONEST, **(GPU_ONLY if gpu else {})}
    sources = {name: text for name, text in known.items() if not wanted or any(word in name for word in wanted)}
    root, failed = Path(tempfile.mkdtemp(prefix="kernbench-honest-")), 0
    task = {"task_toml": for_gpu()} if gpu else {}
    (root / "packages").mkdir()
    (root / "packages" / "honest_patcher.py").write_text(PATCHER)
    found = os.pathsep.join(filter(None, [str(root / "packages"), os.environ.get("KERNBENCH_PYTHONPATH")]))
    limits = {"build": 240, "check": 240, "time": 240}
    bench = Workbench(write_task(root / "softmax", **task), deadlines=limits, KERNBENCH_PYTHONPATH=found)
    try:
        bench.answer((0, 0, 0.0), 180)
        bench.settle(60, quiet=1.5)
        if "--twenty" in sys.argv:
            return twenty(bench)
        before = set(bench.workers())
        for _ in range(2):
            for name, text in sources.items():
                answer = bench.answer(bench.save(solution_py=text), 240)
                worker_kept = before <= set(bench.workers())
                noted = [word for word in WRONG_WORDS if word in answer.words]
                good = answer.statuses <= {"ok", "interpreted"} and worker_kept and not noted
                failed += not good
                said = [line for line in answer.words.splitlines() if any(word in line for word in noted)]
                word = (
                    "ok" if good else f"FAIL {sorted(answer.statuses)} kept={worker_kept} {said or answer.words[:300]}"
                )
                print(f"{name:<28}{answer.seconds:6.2f} s  {word}", flush=True)
                before = set(bench.workers())
        print(json.dumps({"sources": len(sources), "saves": 2 * len(sources), "not quiet": failed}))
    finally:
        bench.close()
        shutil.rmtree(root, ignore_errors=True)
    figure("honest saves with a difference or a new worker", str(failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
