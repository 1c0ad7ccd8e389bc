"""The worker process: reads a request, runs it, emits events.

Requests come in on a private copy of fd 0, events go out on a private copy of fd 1; the kernel's output goes to fd 2,
the log, and cannot forge events. A reader thread handles cancel lines during a run and ends the process when the
workbench closes the pipe. Each worker uses one device.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import queue
import sys
import threading
import time
from dataclasses import is_dataclass
from typing import Any, NoReturn

from harness.check import forks
from harness.shared.codes import UnusableCode
from harness.shared.lines import PROTOCOL, STACK_SIGNAL, decode, encode, to_dict
from harness.shared.run_request import RunRequest
from harness.shared.used_files import PARSED

UNUSABLE = 3
"""Exit code if the device or torch is missing."""
IDLE_S = 0.3
"""Idle seconds before the slow imports start."""
MANY_MODULES = 200
"""More modules than a source usually imports."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, HEAP_BYTES = 1 << 30, 32 << 20
"""Memory that malloc keeps for the next call, and its largest block: glibc allows no more."""
_write, _exit, _loads, _now = os.write, os._exit, json.loads, time.perf_counter
"""Bound before any source could replace them."""


class Channel:
    """Lines to and from the workbench. Its slots leave no room for another `emit`."""

    __slots__ = ("_cancelled", "_events", "_free", "_lock", "_opened", "_pid", "_requests", "_sent", "_waiting")

    def __init__(self, requests: int, events: int) -> None:
        self._requests, self._events, self._pid, self._sent = requests, events, os.getpid(), 0
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[dict[str, Any], float]] = queue.SimpleQueue()
        self._cancelled: set[str] = set()
        self._free, self._opened = threading.Event(), threading.Event()
        self._free.set()

    @property
    def pipes(self) -> tuple[int, int]:
        """Their descriptors."""
        return self._requests, self._events

    def start_reading(self) -> None:
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def _read(self) -> None:
        with os.fdopen(self._requests, "rb") as lines:
            for line in lines:
                try:
                    message = _loads(line)
                except ValueError:
                    continue
                if message.get("request") == "cancel":
                    self._cancelled.add(str(message.get("run")))
                    self._free.set()
                elif message.get("request") == "hold":
                    self._free.clear()
                elif message.get("request") == "release":
                    self._free.set()
                elif message.get("request") == "open":
                    self._opened.set()
                else:
                    self._waiting.put((message, _now()))
        _exit(0)  # the workbench has exited; user code may be running

    def next(self) -> tuple[dict[str, Any], float]:
        return self._waiting.get()

    def quiet_for(self, seconds: float) -> bool:
        """Whether no request arrives for this many seconds."""
        end = time.monotonic() + seconds
        while self._waiting.empty():
            if time.monotonic() >= end:
                return True
            time.sleep(0.01)
        return False

    def cancelled(self, run: str, by_any: bool = False) -> bool:
        """Whether this run was cancelled or, if `by_any`, another request came."""
        return run in self._cancelled or (by_any and not self._waiting.empty())

    def await_turn(self) -> None:
        """Waits for the worker to open the GPU first: where only one process may use it, that must be the worker."""
        self._opened.wait()

    def rest(self, run: str, since: float) -> None:
        """Called between rows: launches nothing while another process needs the GPU."""
        if not self._free.is_set() and not self.cancelled(run):
            self.emit("held", since, run=run)
            self._free.wait()

    def forget(self, run: str) -> None:
        self._cancelled.discard(run)

    def emit(self, event: str, since: float | None = None, **fields: Any) -> None:
        """`since` is when the request was read. The line says how long ago that is; two threads send in that order."""
        data = {name: to_dict(value) if is_dataclass(value) else value for name, value in fields.items()}
        if forks.getpid() != self._pid:  # C code forked, and its copy of the worker came back
            forks.leave()
        with self._lock:
            if since is not None:
                data["at_ms"] = round((_now() - since) * 1000, 3)
            text = encode(event, **data, pid=self._pid, seq=self._sent + 1) + "\n"
            self._sent += 1
            line = memoryview(text.encode(errors="backslashreplace"))
            try:
                while line:
                    line = line[_write(self._events, line) :]
            except BrokenPipeError:
                _exit(0)


def main(device: str, waits: str = "") -> None:
    """`waits`, if not empty: the GPU is opened after a request `open`."""
    channel = private_channel()
    channel.emit("hello", protocol=PROTOCOL)
    channel.start_reading()
    faulthandler.register(STACK_SIGNAL, file=os.dup(2))
    forks.install()
    _keep_freed_memory()
    device = prepare(channel, device, waits)
    from harness.device import environment as machine
    from harness.device.gpu import Gpu
    from harness.inputs.cache import RunCache
    from harness.state import settings
    from harness.state.process_watch import ProcessWatch

    gpu = None if device == "cpu" else Gpu(device)
    environment = machine.environment(device, gpu)
    channel.emit("ready", environment=environment)
    _warm_up(channel, gpu)
    settings.PIPES += channel.pipes
    settings.SENDERS.append((channel, channel._lock))
    cache, watch = RunCache(gpu), ProcessWatch()
    importlib.import_module("harness.run.run_cases")  # the fingerprint covers what is loaded
    watch.begin()
    settled = _settle()
    while True:
        message, read_at = channel.next()
        _serve(channel, message, read_at, environment, cache, watch)
        if gpu is not None and message.get("request") == "import":  # a spare's warm-up was interrupted for it
            _load_compiler(channel)
        if len(sys.modules) > settled + MANY_MODULES:
            cache.drop("solution")  # the next run reloads it; frozen, its reference cycles would never be freed
            gc.collect()
            settled = _settle()


def _keep_freed_memory() -> None:
    """By default glibc returns the memory of a result of about 1 MB to the system now and then, depending on what else
    is allocated; a call that gets new pages takes up to three times as long (softmax of 96x3072: 830 us, not 290)."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        allocator = ctypes.CDLL(None)
        allocator.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        allocator.mallopt(M_MMAP_THRESHOLD, HEAP_BYTES)


def _settle() -> int:
    """Exempts everything imported so far from garbage collection; returns the number of modules.

    After a run that imported torch.compile, collections took 120 to 180 ms, which delayed a save made right then.
    """
    gc.freeze()
    return len(sys.modules)


def _serve(channel: Channel, message: dict[str, Any], read_at: float, environment: Any, cache: Any, watch: Any) -> None:
    from harness.run import written_files
    from harness.run.run_cases import Run

    kind = message.get("request")
    if kind == "import":
        watch.import_packages([str(name) for name in message["packages"]])
    if kind not in ("run", "floor", "prepare", "confirm"):
        return
    name = str(message.get("run"))

    def emit(event: str, **fields: Any) -> None:
        channel.emit(event, read_at, run=name, **fields)
        if event == "case":
            channel.rest(name, read_at)

    try:
        request = decode(RunRequest, message)
        task_files = (*PARSED, *request.task.own_files, request.baseline)
        with written_files.reported(request.task.folder, request.source, emit, task_files) as emit_all:
            ahead = kind == "prepare"
            run = Run(request, environment, cache, emit_all, lambda: channel.cancelled(name, ahead), watch)
            {"run": run.go, "floor": run.floors, "prepare": run.prepare, "confirm": run.confirm}[kind]()
    except BaseException as problem:  # an internal error must not end the worker silently
        if not os.path.exists(__file__):
            print("the source changed the root folder of its process (chroot), where nothing is found any more")
            os._exit(1)  # no run could use this worker
        from harness.load.failure import Paths, describe

        fault = describe(problem, Paths(os.sep))
        text = f"internal error in the harness: {fault.message}"
        with contextlib.suppress(Exception):
            watch.look(emit)
            text = f"after the source changed {watch.changed}: {fault.message}" if watch.changed else text
        emit("failed", status="bad_task", message=text, where=None, traceback=fault.traceback, internal=True)
    channel.forget(name)


def private_channel() -> Channel:
    """Makes the pipes private; from now on user code prints to the log and reads from /dev/null."""
    events, requests = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return Channel(requests, events)


def prepare(channel: Channel, device: str, waits: str = "") -> str:
    """Imports torch and triton and chooses the device; on failure reports why and exits."""
    try:
        import torch
    except Exception as problem:
        _unusable(
            channel, "no_torch", f"{sys.executable} cannot import torch ({problem}); choose another with --python"
        )
    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    elif not device.startswith("cuda"):
        _unusable(channel, "no_device", f"unknown device {device!r}; use cpu, cuda:N or auto")
    has_triton = importlib.util.find_spec("triton") is not None
    if has_triton:
        importlib.import_module("triton")
    if device != "cpu":
        if waits:
            channel.await_turn()
        device = _open_gpu(channel, device)
        if has_triton:
            _pin_triton_cache()
    from harness.load import interpreter

    if device == "cpu":
        interpreter.install()
    return device


def _pin_triton_cache() -> None:
    """On its first use torch.compile sets another cache folder, and Triton would rebuild every kernel: 0.6 s of the
    first save after a compile baseline was ready. If the home directory is read-only, torch's folder is better.
    """
    from harness.private import triton_private

    folder = triton_private.cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        os.makedirs(folder, exist_ok=True)
        if os.access(folder, os.W_OK):
            os.environ.setdefault("TRITON_CACHE_DIR", folder)


def _open_gpu(channel: Channel, device: str) -> str:
    import torch

    device = device if ":" in device else f"{device}:0"
    if not torch.cuda.is_available():
        _unusable(channel, "no_device", f"torch {torch.__version__} finds no CUDA device; try --device cpu or --python")
    number = device.partition(":")[2]
    if not number.isdigit() or int(number) >= torch.cuda.device_count():
        _unusable(channel, "no_device", f"no {device} here; CUDA devices that torch finds: {torch.cuda.device_count()}")
    try:
        torch.cuda.set_device(int(number))
        torch.zeros(1, device=device).item()
    except Exception as problem:  # in exclusive use by another process, out of memory, or broken
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0].rstrip(".")
        message = f"{device} cannot be used: {reason}; nvidia-smi shows what is using it, --device selects another"
        _unusable(channel, "no_device", message)
    return device


def _warm_up(channel: Channel, gpu: Any) -> None:
    """Does the slow first-time work while idle; the `warm` event reports that a run need not wait for it."""
    if gpu is None:
        channel.emit("warm")
        return
    from harness.load import compiled

    gpu.warm()
    compiled.on_loaded(lambda: channel.emit("warm", gpu_free=round(gpu.memory_free(), 3)))
    _load_compiler(channel)


def _load_compiler(channel: Channel) -> None:
    """A request that comes meanwhile waits for one piece of it at most."""
    from harness.load import compiled

    if channel.quiet_for(IDLE_S):
        compiled.load(lambda: channel.quiet_for(0))


def _unusable(channel: Channel, code: UnusableCode, message: str) -> NoReturn:
    channel.emit("unusable", code=code, message=message)
    os._exit(UNUSABLE)
