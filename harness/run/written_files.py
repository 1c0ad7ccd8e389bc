"""Files below the task's folder that the kernel writes: the workbench must not take their changes for saves.

An audit hook sees what Python code opens for writing, renames or removes before that happens, so the report is ahead of
the change. The hook may run anywhere, even while an event is being written; it only notes the name. A thread sends it,
or the next event of the run. A process that the kernel starts is not seen into: then only `unseen` is reported. Files
that define the task are also listed as `task_files`, unless only the task's own code writes them, and so are the stored
sources. The log is refused to Python code, by any name: only the workbench writes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterator
from types import FrameType
from typing import Any

from harness.run.progress import Emit

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGED = {
    "open": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.truncate": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
}
"""The arguments of an audit event that are paths of changed files."""
RELATIVE_TO = {"os.remove": {0: 1}, "os.rename": {0: 2, 1: 3}, "os.link": {0: 2, 1: 3}, "os.symlink": {1: 2}}
"""The arguments that are the open folders of these paths, or -1."""
STARTS = frozenset("subprocess.Popen os.system os.posix_spawn os.spawn os.exec os.fork os.forkpty".split())
HOOKED = "sys.addaudithook"
EVENTS = STARTS.union(CHANGED, [HOOKED])
FIELDS = ("files", "task_files")
LOG, RUNS, SOURCES = "ITERATIONS.md", "runs.jsonl", "sources"
DESCRIPTORS = "/proc/self/fd"
REFUSED = "only kernbench writes its log"
STDLIB = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")


class Report:
    """What the kernel of one run writes. `emit` is the run's, and sends first what was noted before."""

    def __init__(self, folder: str, source: str, emit: Emit, task_files: Collection[str] = ()) -> None:
        self._folder, self._sources, self._emit = os.path.realpath(folder), (source, folder), emit
        self._task_files = frozenset(task_files)
        sources = os.path.dirname(os.path.realpath(source))
        self._stored = sources + os.sep if os.path.basename(sources) == SOURCES else None
        self.log = (os.path.join(self._folder, LOG), os.path.join(os.path.dirname(sources), RUNS))
        self._known: dict[Any, str] = {}
        """By path as written: where it is below the folder."""
        self._noted: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        """Each with the field of the event that it belongs to."""
        self._said: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def emit(self, event: str, **fields: Any) -> None:
        self.send()
        self._emit(event, **fields)

    def send(self) -> None:
        with self._lock:
            noted = [self._noted.get_nowait() for _ in range(self._noted.qsize())]
            if noted:
                files, task_files = ([name for field, name in noted if field == which] for which in FIELDS)
                self._emit("wrote", files=files, task_files=task_files, unseen=("unseen", "") in noted)

    def note_path(self, path: Any, caller: FrameType | None) -> None:
        if not isinstance(path, (str, bytes)):
            return
        below = self._known.get(path)
        if below is None:
            whole = _whole(path)
            below = os.path.relpath(whole, self._folder)
            self._known[path] = below
            if self._stored and whole.startswith(self._stored) and os.path.lexists(whole):
                self._note("task_files", below)
            if not any(part.startswith(".") for part in below.split(os.sep)):  # the state folder, or outside
                self._note("files", below)
        if below in self._task_files and not self._is_task_code(caller):
            self._note("task_files", below)

    def note_process(self, caller: FrameType | None) -> None:
        """Only if the kernel's own code starts it: compilers are started by libraries."""
        while caller is not None and caller.f_code.co_filename.startswith(STDLIB):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename.startswith(self._sources):
            self._note("unseen", "")

    def _is_task_code(self, caller: FrameType | None) -> bool:
        """Whether the task's own code is at work and the source is not: a reference may store what it has computed."""
        found = False
        while caller is not None:
            file = caller.f_code.co_filename
            place = next((place for place in self._sources if file.startswith(place + os.sep)), None)
            if place is not None and os.path.relpath(file, place) not in self._task_files:
                return False
            found = found or place is not None
            caller = caller.f_back
        return found

    def _note(self, field: str, name: str) -> None:
        if (field, name) not in self._said:
            self._said.add((field, name))
            self._noted.put((field, name))
            _to_send.put(self)


_current: Report | None = None
_logs: set[str] = set()
"""Of every run so far: what a source leaves behind may write later."""
_to_send: queue.SimpleQueue[Report] = queue.SimpleQueue()


@contextlib.contextmanager
def reported(folder: str, source: str, emit: Emit, task_files: Collection[str] = ()) -> Iterator[Emit]:
    """Yields the `emit` for the run; until the end, what its kernel writes below the folder is reported by `wrote`."""
    global _current
    _install()
    _current = report = Report(folder, source, emit, task_files)
    _logs.update(report.log)
    try:
        yield report.emit
    finally:
        _current = None


def _install() -> None:
    if not any(thread.name == __name__ for thread in threading.enumerate()):
        threading.Thread(target=_send_all, name=__name__, daemon=True).start()
        sys.addaudithook(_hook)


def _send_all() -> None:
    while True:
        _to_send.get().send()


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in EVENTS:  # first, because every `id()` in a timed call comes here
        return
    if event == HOOKED:
        raise RuntimeError("no other audit hook")  # Python leaves it out without a word
    refused = None
    with contextlib.suppress(Exception):  # an error here would become the kernel's
        report, caller = _current, sys._getframe(1)
        if event in STARTS:
            if report is not None:
                report.note_process(caller)
        elif event != "open" or (isinstance(args[2], int) and args[2] & WRITES):
            paths = [args[index] for index in CHANGED[event]]
            places = sorted({0, *CHANGED[event]})  # a link to it is another name for it
            refused = next((args[index] for index in places if _is_log(event, args, index)), None)
            if event == "os.rename":
                refused = next(filter(_holds_log, paths), refused)
            if report is not None and refused is None:
                for path in paths:
                    report.note_path(path, caller)
    if refused is not None:
        raise PermissionError(errno.EACCES, REFUSED, refused)


def _is_log(event: str, args: tuple[Any, ...], index: int) -> bool:
    if not isinstance(args[index], (str, bytes)):
        return False
    name = os.fsdecode(args[index])
    if not _logs.isdisjoint((_whole(name), os.path.realpath(name))):
        return True
    if os.path.isabs(name) or os.path.basename(name) not in (LOG, RUNS):
        return False
    return any(_whole(os.path.join(place, name)) in _logs for place in _places(event, args, index))


def _places(event: str, args: tuple[Any, ...], index: int) -> Iterator[str]:
    """Folders that a name may be relative to. For `open`, Python does not say which, so it may be any open one."""
    if event == "open":
        return _open_folders()
    place = RELATIVE_TO.get(event, {}).get(index)
    descriptor = -1 if place is None else args[place]
    return iter([os.readlink(os.path.join(DESCRIPTORS, str(descriptor)))] if descriptor >= 0 else [])


def _open_folders() -> Iterator[str]:
    for number in os.listdir(DESCRIPTORS):
        with contextlib.suppress(OSError):  # that of the listing is closed by now
            place = os.readlink(os.path.join(DESCRIPTORS, number))
            if os.path.isdir(place):
                yield place


def _holds_log(path: Any) -> bool:
    """Whether the log is inside: once its folder has another name, the log would not be recognized."""
    folder = os.path.realpath(os.fsdecode(path)) + os.sep if isinstance(path, (str, bytes)) else os.devnull
    return any(log.startswith(folder) for log in _logs)


def _whole(path: str | bytes) -> str:
    """With the links of its folder resolved, and not its own: it may be the link that is replaced."""
    place, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(place), name)
