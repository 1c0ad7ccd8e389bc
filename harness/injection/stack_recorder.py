"""Runs torch.profiler with stacks inside one process of a ranked command, and writes its trace.

Recording starts with the first call of a torch.nn.Module, in the thread that makes it. It ends after `for_s` seconds or
when it takes too much memory, with the next call of a module or, soon after, between two steps of the main thread's
Python; at the latest when the process exits. Nothing that goes wrong here reaches the
program: it is written to the process's JSON file, which says how far the recording came.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .import_hook import after_import

POLL_S = 0.1
MOST_GROWTH = 200 << 20
"""Bytes that a recording may take: in the end torch.profiler makes six times as much of them, and keeps it."""
JUMP = 16 << 20
"""Bytes per POLL_S: no recording grows as fast, so the program's own tensors came or went."""


@dataclass(frozen=True)
class Settings:
    folder: str
    """For traces and states, by process id."""
    for_s: float
    skip_s: float
    whole: bool
    """From the import of torch on, without waiting for a module."""


def start(settings: dict[str, Any]) -> None:
    """Wait for the program to import torch."""
    recorder = Recorder(Settings(**settings))
    after_import({"torch": lambda module: recorder.arm()})


class Recorder:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._profile: Any = None
        self._hook: Any = None
        self._first: float | None = None
        self._thread = 0
        self._ended = threading.Event()
        self._note = ""
        self._main = ""
        """The script; Python has forgotten it when the process exits."""
        self._interruption = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._interrupted)

    def arm(self) -> None:
        self._say("imported")
        os.register_at_fork(after_in_child=self._forget)
        if self._settings.whole:
            self._guarded(self._start)
        else:
            self._listen(self._before_call)

    def _listen(self, hook: Callable[[Any, Any], None]) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(hook)

    def _before_call(self, _module: Any, _inputs: Any) -> None:
        """Of every module, until the recording starts."""
        now = time.monotonic()
        self._first = self._first or now
        if now - self._first >= self._settings.skip_s and self._profile is None:
            self._hook.remove()
            self._guarded(self._start)

    def _start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profile = profile(activities=activities, with_stack=True, record_shapes=True)
        self._thread = threading.get_ident()
        self._say("recording")
        atexit.register(self._guarded, self._stop)
        self._profile.start()  # this alone can take ten seconds, the first time
        threading.Thread(target=self._watch, name="kernbench-rank", daemon=True).start()

    def _watch(self) -> None:
        """Waits for the end of the recording; the profiled thread has to stop it."""
        until, resident, grown = time.monotonic() + self._settings.for_s, resident_bytes(), 0
        while time.monotonic() < until and not self._ended.wait(POLL_S):
            before, resident = resident, resident_bytes()
            grown += resident - before if abs(resident - before) < JUMP else 0
            if grown > MOST_GROWTH:
                self._note = f"stopped early: its recording took {MOST_GROWTH >> 20} MB"
                break
        if not self._ended.is_set():
            self._listen(self._after_time)
        if not self._ended.wait(POLL_S) and self._thread == threading.main_thread().ident:
            ctypes.pythonapi.Py_AddPendingCall(self._interruption, None)

    def _interrupted(self, _argument: Any) -> int:
        self._after_time(None, None)
        return 0

    def _after_time(self, _module: Any, _inputs: Any) -> None:
        if threading.get_ident() == self._thread and not self._ended.is_set():
            self._hook.remove()
            self._guarded(self._stop)

    def _stop(self) -> None:
        if self._ended.is_set() or self._profile is None:
            return
        self._ended.set()
        self._profile.stop()
        path = Path(self._settings.folder, f"{os.getpid()}.trace")
        self._profile.export_chrome_trace(str(path.with_suffix(".part")))
        path.with_suffix(".part").rename(path)
        self._say("written")
        self._profile = None

    def _forget(self) -> None:
        """In a forked child, which shares the parent's profiler and could not write what it saw."""
        if self._hook is not None:
            self._hook.remove()
        self._ended.set()
        self._profile = None
        sys.setprofile(None)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as problem:
            self._ended.set()
            self._say("failed", f"{type(problem).__name__}: {problem}")

    def _say(self, state: str, problem: str = "") -> None:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        self._main = os.path.abspath(main) if main else self._main
        said = {
            "state": state,
            "problem": problem,
            "note": self._note,
            "main": self._main,
            "path": [os.path.abspath(place) for place in sys.path],
        }
        path = Path(self._settings.folder, f"{os.getpid()}.json")
        path.with_suffix(".new").write_text(json.dumps(said), encoding="utf-8")
        path.with_suffix(".new").rename(path)


def resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
