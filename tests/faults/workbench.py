"""A workbench without a screen, open over many faults: `kernbench watch --json`, its answers, and its state at rest."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests import ROOT
from tests.faults import processes

TASK = """
name = "softmax"
entry = "softmax"
device = "cpu"
threads = 1
[tolerance]
float32 = { atol = 1e-5, rtol = 1e-3 }
[[case]]
id = "a_8x32"
axes = { rows = 8, cols = 32 }
[[case]]
id = "b_3x65"
axes = { rows = 3, cols = 65 }
"""
REFERENCE = """
import torch

def make_inputs(case, seed, device, spread=1.0, offset=0.0):
    generator = torch.Generator(device=device).manual_seed(seed)
    return {"x": torch.randn(case["rows"], case["cols"], generator=generator, device=device) * spread + offset}

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
GOOD = """
import torch

def softmax(x):
    return torch.softmax(x, dim=-1)
"""
DEADLINES = {"build": 6, "check": 3, "time": 3, "compile": 8}
IDLE_TICKS, IDLE_PERCENT = 3, 5
"""Of a CPU: what the meters of a workbench at rest use."""
HEADING = re.compile(r"^## (\d{1,9}) ·", re.MULTILINE)


def write_task(folder: Path, **texts: str) -> Path:
    """The task of the table; keyword names are file names with `_` for the dot."""
    folder.mkdir(parents=True)
    for name, text in {"task_toml": TASK, "reference_py": REFERENCE, "solution_py": GOOD, **texts}.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text)
    return folder


def settings(mark: str, **environment: str) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name != "KERNBENCH_HARNESS"}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**given, "PYTHONPATH": paths, processes.MARK: mark, **environment}


@dataclass(frozen=True)
class Answer:
    """What a save was answered with."""

    rows: Mapping[str, dict[str, Any]]
    finished: Mapping[str, Any]
    said: str
    """Everything on stderr since the save."""
    seconds: float
    """From the save to its end."""

    @property
    def statuses(self) -> set[str]:
        return {row["status"] for row in self.rows.values()}

    @property
    def words(self) -> str:
        """Everything that the user could read about it."""
        details = (f"{row.get('where') or ''} {row.get('detail') or ''}" for row in self.rows.values())
        named = (f"{item['name']}: {item['help']}" for row in self.rows.values() for item in row.get("findings") or ())
        more = (f"{item['name']}: {item['help']}" for item in self.finished.get("findings") or ())
        return "\n".join([*details, *named, *more, self.said])


class Silent(AssertionError):
    """The workbench did not answer."""


class Workbench:
    def __init__(self, folder: Path, *words: str, deadlines: Mapping[str, float] = DEADLINES, **environment: str):
        self.folder, self.mark = folder, secrets.token_hex(8)
        limits = [word for step, limit in deadlines.items() for word in ("--deadline", f"{step}={limit}")]
        command = [sys.executable, "-m", "kernbench", "watch", str(folder), "--json", "--budget", "10", *limits, *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=settings(self.mark, **environment), start_new_session=True,
        )  # fmt: skip
        self.lines: list[tuple[float, dict[str, Any]]] = []
        """Events with the moment at which they came."""
        self.said: list[str] = []
        self._more = threading.Condition()
        self._saves = itertools.count(1)
        for stream, take in ((self.process.stdout, self._take_event), (self.process.stderr, self._take_words)):
            threading.Thread(target=self._read, args=(stream, take), daemon=True).start()

    def _read(self, stream: IO[bytes], take: Callable[[bytes], None]) -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                with self._more:
                    take(line)
                    self._more.notify_all()

    def _take_event(self, line: bytes) -> None:
        self.lines.append((time.monotonic(), json.loads(line)))

    def _take_words(self, line: bytes) -> None:
        self.said.append(line.decode(errors="replace"))

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """What the condition returns, once that is true."""
        end = time.monotonic() + seconds
        with self._more:
            while not (found := condition()):
                if self.process.poll() is not None:
                    raise Silent(f"the workbench exited with {self.process.returncode}: {''.join(self.said[-3:])}")
                if not self._more.wait(min(max(end - time.monotonic(), 0), 0.2)) and time.monotonic() > end:
                    raise Silent(f"no {what} within {seconds:g} s; {''.join(self.said[-2:]).strip()}")
        return found

    # -- saves --------------------------------------------------------------------------------------------------------

    def save(self, **texts: str) -> tuple[int, int, float]:
        """Write files as an editor does, the solution last and never twice the same; where the answer begins."""
        at = len(self.lines), len(self.said), time.monotonic()
        number = next(self._saves)
        for name, text in sorted(texts.items(), key=lambda item: item[0] == "solution_py"):
            stem, _, suffix = name.rpartition("_")
            path = self.folder / f"{stem}.{suffix}"
            aside = self.folder / f".{path.name}.swp"
            data = text.encode("utf-8", "surrogateescape")
            if name == "solution_py":
                data += f"\nSAVE = {number}\n".encode()
            aside.write_bytes(data)
            aside.replace(path)
        return at

    def answer(self, at: tuple[int, int, float], seconds: float) -> Answer:
        """The end of the first run that started after the save and was not cancelled."""

        def ended() -> tuple[float, dict[str, Any]] | None:
            began = {event["run"] for _at, event in self.lines[at[0] :] if event["event"] == "start"}
            ends = (item for item in self.lines[at[0] :] if item[1]["event"] == "finished" and item[1]["run"] in began)
            return next(ends, None)

        moment, finished = self.wait(ended, seconds, "answer to the save")
        rows = {
            event["id"]: event
            for _at, event in self.lines[at[0] :]
            if event["event"] == "case" and event["run"] == finished["run"]
        }
        return Answer(rows, finished, "".join(self.said[at[1] :]), moment - at[2])

    def recovered(self, seconds: float, text: str = GOOD) -> float:
        """Seconds from a good save to its first right row; all of its rows must be right."""
        at = self.save(solution_py=text)

        def right() -> float | None:
            good = (
                moment for moment, event in self.lines[at[0] :] if event["event"] == "case" and event["status"] == "ok"
            )
            return next(good, None)

        first = self.wait(right, seconds, "right row of the good save")
        answer = self.answer(at, seconds)
        assert answer.statuses == {"ok"}, f"the good save was answered {answer.statuses}: {answer.words}"
        return float(first - at[2])

    def until_said(self, pattern: str, seconds: float, since: int = 0) -> str:
        """The first line on stderr with the pattern."""
        return str(
            self.wait(lambda: next((line for line in self.said[since:] if re.search(pattern, line)), None), seconds,
                      f"word of {pattern!r}")
        ).strip()  # fmt: skip

    # -- the state ----------------------------------------------------------------------------------------------------

    def workers(self) -> list[int]:
        """Workers and spares, oldest first, without their launchers."""
        ours = processes.within(self.pid, processes.marked(self.mark)) - {self.pid}
        names = {pid: processes.name(pid) for pid in ours}
        return sorted(pid for pid in ours if re.search(r" worker\b", names[pid]) and "launcher.py" not in names[pid])

    def launchers(self) -> list[int]:
        """The parents of workers and spares, in their order."""
        return [processes.parent(pid) for pid in self.workers()]

    def settle(self, seconds: float = 30.0, quiet: float = 0.6) -> bool:
        """Until none of its processes has computed much for a while, so that a spare is warm; the meters always do a little."""
        end = time.monotonic() + seconds
        looks: list[tuple[float, frozenset[int], int]] = []
        while (now := time.monotonic()) < end:
            pids = frozenset(processes.marked(self.mark))
            looks = [look for look in looks if look[1] == pids] + [(now, pids, processes.cpu_ticks(pids))]
            past = [look for look in looks if now - look[0] >= quiet]
            if past and looks[-1][2] - past[-1][2] <= max(IDLE_TICKS, IDLE_PERCENT * quiet):
                return True
            time.sleep(0.1)
        return False

    def strays(self) -> set[int]:
        """Processes that it, or what it ran, has left outside of its tree."""
        pids = processes.marked(self.mark)
        return pids - processes.within(self.pid, pids)

    def close(self) -> None:
        """Ask it to leave, then make sure that nothing of it is left."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        processes.end(processes.marked(self.mark))
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def torn(folder: Path) -> list[str]:
    """What is not whole in a task's log: lines, numbers, and entries without their run; a few of them, if many."""
    found, ends, numbers = list[str](), set[str](), dict[str, int]()
    runs = folder / ".kernbench" / "runs.jsonl"
    for place, line in enumerate(runs.read_bytes().splitlines(keepends=True) if runs.is_file() else [], 1):
        try:
            data = json.loads(line)
            assert line.endswith(b"\n")
        except (ValueError, AssertionError):
            found.append(f"runs.jsonl:{place} is torn")
            continue
        if data["event"] in ("finished", "failed", "cancelled"):
            if data["run"] in ends:
                found.append(f"run {data['run']} ends twice")
            ends.add(data["run"])
        if data["event"] in ("finished", "entered") and data.get("iteration") is not None:
            numbers[data["run"]] = data["iteration"]
    log = folder / "ITERATIONS.md"
    entries = [int(number) for number in HEADING.findall(log.read_text(errors="replace"))] if log.is_file() else []
    for what, given in (("number", list(numbers.values())), ("entry", entries)):
        found += [f"{what} {number} is given twice" for number, count in Counter(given).items() if count > 1]
    found += [f"entry {number} has no run" for number in sorted(set(entries) - set(numbers.values()))]
    return found[:5]
