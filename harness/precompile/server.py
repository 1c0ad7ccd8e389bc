"""Kernels compiled ahead: what the worker will call next is in Triton's cache on disk by the time it calls it.

A process beside the worker, niced and on half of the cores, without a GPU: devices are hidden from it, and what it
needs to know of them comes from the worker (`facts`). For every request it forks a child that finds out what the cases
will compile (dryrun.py) and compiles it in processes of its own. A newer request ends the child, as does overtime; a
kernel that was begun is finished.

Nothing here is ever heard of: what the source prints goes nowhere, what it raises is a case that is not compiled ahead,
and a key that does not match is a file that nobody looks up. Whatever decides the key is therefore the worker's: the
target, the name of its backend (ptxas as it was first seen), and the settings TRITON_*, which torch.compile may
change in the middle of a worker's life.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from harness.precompile import SETTINGS
from harness.shared.lines import PROTOCOL, decode, encode
from harness.shared.run_request import RunRequest

NICE = 5
LONGEST_S = 30


def facts(device: str) -> dict[str, Any] | None:
    """For the worker: what this process compiles for and with; None where Triton is too old or absent."""
    try:
        import torch

        from harness.private import triton_private

        if not triton_private.compiles_ahead():
            return None
        target, about = triton_private.target(), torch.cuda.get_device_properties(device)
        properties = {name: getattr(about, name) for name in dir(about) if not name.startswith("_")}
        return {
            "device": device,
            "target": [target.backend, target.arch, target.warp_size],
            "backend": triton_private.backend_key(),
            "settings": {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)},
            "device_properties": {name: v for name, v in properties.items() if isinstance(v, (int, float, str))},
            "driver_properties": triton_private.driver_properties(torch.device(device).index or 0),
        }
    except Exception:
        return None


def main(longest_s: str = f"{LONGEST_S}") -> None:
    _die_with_parent()
    _adopt()
    requests, events = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.nice(NICE)
    _say(events, "hello", protocol=PROTOCOL, pid=os.getpid())
    _preload()
    gc.freeze()
    _say(events, "ready", environment={})
    _serve(requests, events, float(longest_s))


def _preload() -> None:
    """What every child would begin with: torch imports Dynamo when it is first used, and Triton is as slow to start."""
    with contextlib.suppress(Exception):  # what a child needs, it imports itself
        from harness.private import torch_private, triton_private

        triton_private.preload()
        with contextlib.suppress(Exception):
            importlib.import_module(torch_private.DYNAMO)
        importlib.import_module("harness.precompile.dryrun")


def _serve(requests: int, events: int, longest_s: float) -> None:
    """Until the pipe closes: of the lines that have come the last counts."""
    child, text = 0, b""
    while True:
        readable, _, _ = select.select([requests], [], [], longest_s if child else None)
        chunk = os.read(requests, 1 << 20) if readable else None
        if chunk == b"":
            break
        *lines, text = (text + (chunk or b"")).split(b"\n")
        if chunk is None or lines:
            child = _stop(child)
        if lines:
            child = os.fork() or _work(lines[-1], events)
    _stop(child)


def _stop(child: int) -> int:
    """Ends a child, done or not; the compiling processes that it started see it and begin nothing new."""
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # those of earlier children that have come to their end
                pass
    return 0


def _work(line: bytes, events: int) -> NoReturn:
    """The child's whole life."""
    with contextlib.suppress(BaseException):
        from harness.precompile import dryrun

        _die_with_parent()
        began = time.perf_counter()
        message = json.loads(line)
        request = decode(RunRequest, message)
        jobs = dryrun.jobs(request, message["compiler"])
        collected = time.perf_counter()
        _compile(jobs, min(len(jobs), max(1, len(os.sched_getaffinity(0)) // 2)))
        milliseconds = [round((end - began) * 1000) for end in (collected, time.perf_counter())]
        _say(events, "built", run=request.run, kernels=len(jobs), collected_ms=milliseconds[0], ms=milliseconds[1])
    os._exit(0)


def _compile(jobs: Sequence[Callable[[], Any]], processes: int) -> None:
    """In processes, not threads: the front half of Triton's compiler is Python."""
    parent, started = os.getpid(), []
    for index in range(processes):
        child = os.fork()
        if child:
            started.append(child)
            continue
        signal.alarm(LONGEST_S)
        for job in jobs[index::processes]:
            with contextlib.suppress(BaseException):
                if os.getppid() == parent:  # killed in the middle of a job, ptxas would leave its files behind
                    job()
        os._exit(0)
    for child in started:
        os.waitpid(child, 0)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _adopt() -> None:
    """Compiling processes whose parent was ended become ours: a container's first process may never wait for them."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _say(events: int, event: str, **fields: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(events, (encode(event, **fields) + "\n").encode())
