"""The program that ncu profiles: waits with torch imported and a CUDA context ready, then calls each side once.

Started by `python -c BOOT HARNESS_DIR REQUESTS EVENTS DEVICE MODE`. REQUESTS and EVENTS are named pipes: one JSON line
comes in, a few go out, so that nothing depends on what ncu does with the standard streams. When the workbench exits,
its end of REQUESTS closes and this process exits at once, even during a call; an alarm ends a call that hangs. While it
waits, it holds a context and does nothing.

For each side: load, make inputs, make one warm-up call (which compiles), then one call between cudaProfilerStart and
Stop. A launch of a torch kernel that only spins separates the kernels of two sides. MODE `facts` skips the profiled
call. A request with `trace` uses torch's profiler instead, which needs neither ncu nor a GPU.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NoReturn

from harness.shared.lines import decode, encode
from harness.shared.task import Task

NO_DEVICE = 3


class Lines:
    """One request in, events out."""

    def __init__(self, requests: str, events: str) -> None:
        self._requests = os.open(requests, os.O_RDONLY | os.O_NONBLOCK)  # never waits for a workbench that has exited
        self._events = os.open(events, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(self._events, True)

    def request(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\n"):
            select.select([self._requests], [], [])
            chunk = os.read(self._requests, 65536)
            if not chunk:
                os._exit(0)
            line += chunk
        threading.Thread(target=self._leave_with_the_workbench, daemon=True).start()
        message: dict[str, Any] = json.loads(line)
        return message

    def emit(self, event: str, **fields: Any) -> None:
        os.write(self._events, (encode(event, **fields) + "\n").encode())

    def _leave_with_the_workbench(self) -> None:
        select.select([self._requests], [], [])
        if not os.read(self._requests, 1):
            os._exit(0)


def main(requests: str, events: str, device: str, mode: str) -> None:
    lines = Lines(requests, events)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool of processes under the profiler
    tempfile.tempdir = os.environ.get("KERNBENCH_TMPDIR")  # TMPDIR is only for ncu, not for locks and caches
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    try:
        import torch

        if device == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
        elif not torch.cuda.is_available():
            raise RuntimeError("No CUDA GPUs are available")
        else:
            torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()
    except BaseException as problem:
        _leave(lines, f"{type(problem).__name__}: {problem}", code="device")
    for name in ("harness.inputs.cache", "harness.load.compiled"):
        importlib.import_module(name)
    with suppress(Exception):  # a failure shows up again when the source runs
        _everything_once(device)
    lines.emit("ready", pid=os.getpid(), gpu=_gpu(device))
    message = lines.request()
    signal.setitimer(signal.ITIMER_REAL, float(message.get("seconds", 120.0)))  # its default action ends the process
    _serve(lines, message, device, mode)
    os._exit(0)  # run no destructors after the result


def _everything_once(device: str) -> None:
    """Does what is slow the first time in a process, ahead of the request: random numbers, Triton's first launch."""
    import torch

    torch.randn(8, device=device, generator=torch.Generator(device=device)).mul(2).to(torch.bfloat16)
    if importlib.util.find_spec("triton") is None:
        return
    importlib.import_module("triton")
    if device != "cpu":
        importlib.import_module("harness.device.flush").first_launch(device)
        torch.cuda.synchronize()


def _serve(lines: Lines, message: dict[str, Any], device: str, mode: str) -> None:
    from harness.load.failure import Paths, describe

    task = decode(Task, message["task"])
    sides = message["sides"]
    paths = Paths(task.folder, *(side.get("source") for side in sides))
    name = sides[0]["name"]
    try:
        call = _Calls(lines, task, message, device)
        ready = []
        for side in sides:
            name = side["name"]
            ready.append(call.warmed(side))
        if message.get("trace"):
            from harness.device.trace import trace_call

            lines.emit("trace", rows=trace_call(ready[0], device, message["trace"]))
        elif mode != "facts":
            _profiled(lines, ready, device)
        lines.emit("done")
    except BaseException as problem:
        fault = describe(problem, paths)
        lines.emit("failed", side=name, message=fault.message, where=_dict(fault.where), traceback=fault.traceback)


class _Calls:
    """The sides of one case, loaded as the worker loads them."""

    def __init__(self, lines: Lines, task: Task, message: dict[str, Any], device: str) -> None:
        from harness.inputs.cache import RunCache
        from harness.private import triton_private

        self.lines, self.task, self.device = lines, task, device
        self.case, self.build = task.case(message["case"]), str(message.get("build", ""))
        self.cache = RunCache()
        self.compiled = triton_private.watch_kernels()
        lines.emit("step", step="load", side=None)
        self.reference = self.cache.reference(task, message["sides"][0]["source"], self.build)

    def warmed(self, side: dict[str, Any]) -> Callable[[], Any]:
        """Loads a side and calls it once; returns a function that makes the profiled call on copies of the inputs."""
        import torch

        from harness.inputs.cache import CaseInputs
        from harness.inputs.calling import bound
        from harness.inputs.reference import Draw, copies, named_outputs, nbytes

        self._step("load", side)
        function = self._function(side)
        self._step("inputs", side)
        material = CaseInputs(self.reference, self.case, Draw(0), self.device)
        inputs, placed = material.inputs, copies(material.inputs)
        self._step("build", side)
        self.compiled.clear()
        result = material.entry(function)(**placed)
        if self.device != "cpu":
            torch.cuda.synchronize()
        outputs = named_outputs(result, placed, self.task.judged)
        needed = nbytes(inputs) + nbytes(outputs)
        self.lines.emit("facts", side=side["name"], kernels=list(self.compiled.values()), needed_bytes=needed)
        del result, outputs
        return bound(material.timed(function), placed)

    def _function(self, side: dict[str, Any]) -> Callable[..., Any]:
        if side["kind"] == "eager":
            return self.reference.entry
        if side["kind"] == "compile":
            return self.cache.compiled(self.reference.entry, "reference", self.case)
        return self.cache.function(side["name"], side["file"], side["source"], self.task, self.build)

    def _step(self, step: str, side: dict[str, Any]) -> None:
        self.lines.emit("step", step=step, side=side["name"])


def _profiled(lines: Lines, calls: list[Callable[[], Any]], device: str) -> None:
    import torch

    lines.emit("step", step="profile", side=None)
    torch.cuda.synchronize()
    with _turn(device):
        _replayed(calls)


def _turn(device: str) -> AbstractContextManager[None]:
    """Waits for other workbenches timing on this GPU; without a UUID for the lock, profiles without waiting."""
    import torch

    from harness.device import gpu

    try:
        return gpu.locked(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except (AttributeError, RuntimeError):
        return nullcontext()


def _replayed(calls: list[Callable[[], Any]]) -> None:
    import torch

    from harness.private import torch_private

    spin = torch_private.spin()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for index, call in enumerate(calls):
        if index:
            spin(1)
        kept = call()
        torch.cuda.synchronize()
        del kept
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _gpu(device: str) -> dict[str, Any]:
    import torch

    if device == "cpu":
        return {"name": "CPU"}
    about = torch.cuda.get_device_properties(device)
    return {
        "name": about.name,
        "capability": [about.major, about.minor],
        "registers": getattr(about, "regs_per_multiprocessor", 65536),
        "shared_bytes": getattr(about, "shared_memory_per_multiprocessor", 0),
        "threads": about.max_threads_per_multi_processor,
    }


def _dict(where: Any) -> dict[str, Any] | None:
    return None if where is None else {"file": where.file, "line": where.line, "text": where.text}


def _leave(lines: Lines, message: str, code: str) -> NoReturn:
    lines.emit("unusable", message=(message.strip().splitlines() or [code])[0], code=code)
    sys.exit(NO_DEVICE)
