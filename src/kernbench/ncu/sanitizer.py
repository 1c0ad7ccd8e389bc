"""Runs compute-sanitizer on one call of one case: memory errors as sentences, with kernel and line if known.

It runs `harness.target` (load, inputs, one call, as for a profile) in a separate process with torch's caching allocator
off: every tensor is then a separate allocation, and an access one element outside is detected. Takes seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from harness.shared.lines import to_dict
from harness.shared.task import Case, Task
from kernbench.task import case_choice
from kernbench.worker import launched
from kernbench.worker.process import BOOT, child_environment

TOOL = "compute-sanitizer"
MISSING = f"{TOOL} is not on PATH or in the CUDA toolkit's bin; install it with the toolkit, or add it to PATH"
NO_MESSAGE = "the program exited without a message"
OPTIONS = "--tool memcheck --report-api-errors no --print-limit 1000 --target-processes application-only".split()
SECONDS = 300.0
_START = re.compile(r"^={9} (?P<what>(?:Invalid|Misaligned|Out-of-range|Out-of-bounds|Malloc|Free|Stack|Illegal).*)$")
_NEW_PLACE = re.compile(
    r"^={9} +at (?:void )?(?P<kernel>[^\s(<+]+).*?\+0x[0-9a-f]+(?: in (?P<file>.+?):(?P<line>\d+))?\s*$"
)
_OLD_PLACE = re.compile(r"^={9} +at 0x[0-9a-f]+ in (?:(?P<file>.+?):(?P<line>\d+):)?(?:void )?(?P<kernel>[^\s(<+]+).*$")
_NEAR = re.compile(r"^={9} +and is (?P<near>.+) the nearest allocation at \S+ of size (?P<size>[\d,]+)")


@dataclass(frozen=True)
class BadAccess:
    """One distinct error, and how many threads hit it."""

    what: str
    kernel: str
    file: str | None
    line: int | None
    near: str
    threads: int = 1

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        times = fmt.plural(self.threads, "thread")
        return f"{place}{self.what[:1].lower()}{self.what[1:]} in {self.kernel}, by {times}{self.near}"


@dataclass(frozen=True)
class Report:
    case: str
    errors: tuple[BadAccess, ...]
    problem: str | None = None
    """Why the call did not finish, if memory errors do not explain it."""


def find() -> Path:
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    places = [os.path.join(home, "bin") for home in [*homes, "/usr/local/cuda"]]
    found = shutil.which(TOOL) or shutil.which(TOOL, path=os.pathsep.join(places))
    if found is None:
        raise UserError(MISSING)
    return Path(found)


def smallest(task: Task, glob: str | None) -> Case:
    """The matching case with the least work, judged by its axes."""
    cases = case_choice.matching(task, glob)
    if not cases:
        raise UserError(f"no case of {task.name} matches {glob!r}; ids look like {task.cases[0].id!r}")
    return min(cases, key=lambda case: case.size)


def check(task: Task, case: Case, source: Path, build: Path, python: str, device: str, harness: Path) -> Report:
    """Run one call of the solution under memcheck."""
    tool = find()
    with tempfile.TemporaryDirectory(prefix="kernbench-sanitizer-") as place:
        folder = Path(place)
        target = [python, "-c", BOOT, str(harness), "target", f"{place}/requests", f"{place}/events", device, "facts"]
        command = [str(tool), *OPTIONS, "--log-file", f"{place}/log", *target]
        side = {"name": "solution", "kind": "file", "source": str(source), "file": "solution.py"}
        request = {"task": to_dict(task), "case": case.id, "build": str(build), "sides": [side], "seconds": SECONDS}
        events = _exchange(folder, command, json.dumps(request) + "\n")
        log = folder / "log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return Report(case.id, parse(text, source, Path(task.folder)), _problem(events))


def _exchange(folder: Path, command: list[str], request: str) -> list[dict[str, Any]]:
    """Start the command, send it one request, and return its events."""
    for name in ("requests", "events"):
        os.mkfifo(folder / name, 0o600)
    requests = os.open(folder / "requests", os.O_RDWR)
    events = os.open(folder / "events", os.O_RDWR | os.O_NONBLOCK)
    environment = child_environment(None) | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        with open(folder / "output", "wb") as output, open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            process = subprocess.Popen(
                launched.command(streams, command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=set(streams),
                env=environment,
                start_new_session=True,
            )
        # A request longer than the pipe's buffer blocks until the program reads.
        threading.Thread(target=_send, args=(requests, request.encode()), daemon=True).start()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return [{"event": "failed", "message": f"did not finish under {TOOL} within {fmt.seconds(SECONDS)}"}]
        finally:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
        return [*_events(events), {"event": "end", "message": _last_line(folder / "output")}]
    finally:
        os.close(requests)
        os.close(events)


def _send(pipe: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(pipe, data) :]


def _events(pipe: int) -> list[dict[str, Any]]:
    text = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(pipe, 65536):
            text += chunk
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), NO_MESSAGE)


def _problem(events: list[dict[str, Any]]) -> str | None:
    by_name = {event["event"]: event for event in events}
    if "done" in by_name:
        return None
    said = by_name.get("failed") or by_name.get("unusable") or by_name.get("end") or {}
    where = said.get("where") or {}
    place = f"{where['file']}:{where['line']}: " if where.get("line") else ""
    return f"{place}{said.get('message', NO_MESSAGE)}"


def parse(text: str, source: Path, folder: Path) -> tuple[BadAccess, ...]:
    """Distinct errors in order of first appearance, with snapshot paths mapped to the user's."""
    found: Counter[tuple[str, str, str | None, int | None]] = Counter()
    near: dict[tuple[str, str, str | None, int | None], str] = {}
    for what, *lines in _blocks(text.splitlines()):
        kernel, file, line = _place(lines)
        key = (what, kernel, _named(file, source, folder) if file else None, line)
        found[key] += 1
        near.setdefault(key, _near(lines))
    return tuple(BadAccess(*key, near[key], threads) for key, threads in found.items())


def _blocks(lines: list[str]) -> list[list[str]]:
    """Each error with its lines."""
    blocks: list[list[str]] = []
    for line in lines:
        start = _START.match(line)
        if start is not None:
            blocks.append([start["what"].strip()])
        elif blocks:
            blocks[-1].append(line)
    return blocks


def _place(lines: list[str]) -> tuple[str, str | None, int | None]:
    for line in lines:
        found = _OLD_PLACE.match(line) or _NEW_PLACE.match(line)
        if found is not None:
            return found["kernel"], found["file"], int(found["line"]) if found["line"] else None
    return "an unknown kernel", None, None


def _near(lines: list[str]) -> str:
    found = next((match for line in lines if (match := _NEAR.match(line))), None)
    return "" if found is None else f": {found['near']} an allocation of {found['size']} bytes"


def _named(file: str, source: Path, folder: Path) -> str:
    """The file's path as the user knows it."""
    for root in (source, folder):
        with contextlib.suppress(ValueError):
            return str(Path(file).relative_to(root))
    return file
