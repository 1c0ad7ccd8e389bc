"""Precompiles kernels, so that they are in Triton's cache on disk before the worker calls them.

Runs as a separate process next to the worker, niced, on half of the cores and without a GPU: devices are hidden from
it, and the worker sends what it needs to know about them (`facts`). For every request it forks a child that collects
what the cases will compile (dryrun.py) and compiles it in further processes. A newer request or a timeout kills the
child, but a kernel whose compilation has started is finished.

Failures here are silent: output of the source is discarded, an exception means that a case is not precompiled, and a
wrong key means a file that is never read. Everything that decides the key therefore comes from the worker: the target,
the backend's hash (with ptxas as first seen), and the TRITON_* settings, which torch.compile may change at any time.
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
WHOLE = b'"whole"'
"""In a request that includes the first case."""


def facts(device: str) -> dict[str, Any] | None:
    """Called in the worker: what to compile for and with; None if Triton is missing or too old."""
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
    """Imports what every child needs: torch imports Dynamo on first use, and Triton is just as slow to start."""
    with contextlib.suppress(Exception):  # a child imports what is still missing
        from harness.private import torch_private, triton_private

        triton_private.preload()
        with contextlib.suppress(Exception):
            importlib.import_module(torch_private.DYNAMO)
        importlib.import_module("harness.precompile.dryrun")


def _serve(requests: int, events: int, longest_s: float) -> None:
    """Serves until the pipe closes; of several pending lines only the last counts.

    Who asks for the whole of a source waits for it, and hears when the child and its compilers are gone.
    """
    child, text, over = 0, b"", -1
    while True:
        watched = [requests] if over < 0 else [requests, over]
        readable, _, _ = select.select(watched, [], [], longest_s if child else None)
        if over in readable:
            over = _closed(over)
            _say(events, "left")
            continue
        chunk = os.read(requests, 1 << 20) if readable else None
        if chunk == b"":
            break
        *lines, text = (text + (chunk or b"")).split(b"\n")
        if chunk is None or lines:
            child = _stop(child)
        if lines:
            _closed(over)
            over, end = os.pipe()
            child = os.fork() or _work(lines[-1], events)
            os.close(end)
            over = over if WHOLE in lines[-1] else _closed(over)
    _stop(child)


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


def _stop(child: int) -> int:
    """Kills a child, done or not; its compiling processes notice and start nothing new."""
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return 0


def _work(line: bytes, events: int) -> NoReturn:
    """Everything a child does."""
    with contextlib.suppress(BaseException):
        from harness.precompile import dryrun

        _die_with_parent()
        began = time.perf_counter()
        message = json.loads(line)
        request = decode(RunRequest, message)
        jobs = dryrun.jobs(request, message["compiler"], WHOLE in line)
        collected = time.perf_counter()
        _compile(jobs, min(len(jobs), max(1, len(os.sched_getaffinity(0)) // 2)))
        milliseconds = [round((end - began) * 1000) for end in (collected, time.perf_counter())]
        _say(events, "built", run=request.run, kernels=len(jobs), collected_ms=milliseconds[0], ms=milliseconds[1])
    os._exit(0)


def _compile(jobs: Sequence[Callable[[], Any]], processes: int) -> None:
    """Uses processes, not threads: the front end of Triton's compiler is Python."""
    parent, started = os.getpid(), []
    for index in range(processes):
        child = os.fork()
        if child:
            started.append(child)
            continue
        signal.alarm(LONGEST_S)
        for job in jobs[index::processes]:
            with contextlib.suppress(BaseException):
                if os.getppid() == parent:  # killing ptxas in the middle of a job would leave its files behind
                    job()
        os._exit(0)
    for child in started:
        os.waitpid(child, 0)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _say(events: int, event: str, **fields: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(events, (encode(event, **fields) + "\n").encode())
