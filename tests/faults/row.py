"""The rows of the table: a save, a command, or anything done to an open workbench; each knows how it is played."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests import FAKE
from tests.faults import processes
from tests.faults.workbench import GOOD, Silent, Workbench, settings, torn, write_task

Group = Literal["source", "leaks", "files", "surroundings", "attacks"]
GOOD_TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def copy(out, x, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

def softmax(x):
    y = torch.softmax(x, dim=-1)
    out = torch.empty_like(y)
    copy[(triton.cdiv(y.numel(), 256),)](out, y, y.numel(), N=256)
    return out
"""
UNTRUE = r"itself failed|internal error|^Traceback|Traceback \(most recent call last\)[^\n]*\n[^\n]*/harness/worker\.py|Exception ignored"
"""Never the answer to anything that a user, a kernel or a machine does."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SLOWEST_RECOVERY = 20.0
WITHIN = 30.0
"""Seconds that a command may take: it takes 1 to 2, on a busy machine over 10."""
WORDS_WITHIN = 1.0
ENDED_WITHIN = 5.0
"""Seconds for a tree to end (2 s by the book) and for its descriptors to be closed, on a busy machine."""


@dataclass
class Outcome:
    saw: str = ""
    wrong: list[str] = field(default_factory=list)
    """What is not as specified."""
    recovery: float | None = None
    seconds: float = 0.0

    def check(self, holds: object, sentence: str) -> None:
        if not holds:
            self.wrong.append(sentence)

    def check_words(self, words: str, says: str, never: str) -> None:
        self.check(not says or re.search(says, words), f"does not say /{says}/: {_short(words)}")
        found = re.search(UNTRUE, words) or (re.search(never, words) if never else None)
        self.check(not found, f"says {found[0] if found else ''!r}: {_short(words)}")
        control = CONTROL.search(words)
        self.check(not control, f"has the control character {control[0] if control else ''!r}")


def _short(words: str, most: int = 240) -> str:
    line = " / ".join(part.strip() for part in words.splitlines() if part.strip())
    return line if len(line) <= most else f"{line[:most]}..."


class Stage:
    """One open workbench over many faults, opened again only after a fault that broke it."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.root = Path(tempfile.mkdtemp(prefix="kernbench-faults-"))
        self._open: Workbench | None = None
        self._numbers = 0
        self._at_rest: tuple[int, int] = (0, 0)
        """Processes and descriptors."""
        self._known: set[int] = set()
        self.opened = 0
        """How many workbenches the faults so far have used up."""

    def folder(self) -> Path:
        """A new folder of this name everywhere: the task's name is its folder's."""
        self._numbers += 1
        return self.root / str(self._numbers) / "softmax"

    @property
    def workbench(self) -> Workbench:
        if self._open is None:
            task = {} if self.device == "cpu" else {"task_toml": for_gpu()}
            self._open = bench = Workbench(write_task(self.folder(), **task))
            self.opened += 1
            bench.answer((0, 0, time.monotonic()), 120)
            bench.recovered(60)
            if self.device != "cpu":
                bench.recovered(90, GOOD_TRITON)  # from now on a process compiles ahead
            bench.settle(60, quiet=1.5)
            self._known = processes.marked(bench.mark)
            self._at_rest = len(self._known), processes.descriptors(bench.pid)
        return self._open

    def rest(self) -> None:
        """Gives a spare the time that a person gives it between two saves."""
        bench = self.workbench
        if processes.marked(bench.mark) != self._known:
            bench.settle()
            self._known = processes.marked(bench.mark)

    def afterwards(self, outcome: Outcome, recovers: bool = True) -> None:
        """Alive, right again, its log whole, no process and no descriptor more than before."""
        bench = self.workbench
        try:
            outcome.check(bench.process.poll() is None, "the workbench is gone")
            if recovers:
                outcome.recovery = bench.recovered(SLOWEST_RECOVERY)
            pids, files = self._at_rest
            processes.until(lambda: not bench.strays() and len(processes.marked(bench.mark)) <= pids, ENDED_WITHIN)
            outcome.check(not bench.strays(), f"left running: {[processes.name(pid) for pid in bench.strays()]}")
            more = len(processes.marked(bench.mark)) - pids
            outcome.check(more <= 0, f"{more} more processes than before")
            processes.until(lambda: processes.descriptors(bench.pid) <= files, SLOWEST_RECOVERY)  # a spare may start
            opened = processes.descriptors(bench.pid) - files
            outcome.check(opened <= 0, f"{opened} more descriptors than before")
            if more > 0 or opened > 0 or bench.strays():
                self.give_up()  # they would be counted again in every later row
            outcome.wrong += torn(bench.folder)
        except (AssertionError, OSError) as problem:
            outcome.wrong.append(str(problem))
            self.give_up()

    def give_up(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def close(self) -> None:
        self.give_up()
        shutil.rmtree(self.root, ignore_errors=True)


def for_gpu() -> str:
    from tests.faults.workbench import TASK

    return TASK.replace('device = "cpu"\nthreads = 1\n', "")


@dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    """Begins with F and a number where the findings have one."""
    group: Group
    done: str
    quick: bool = False
    """Part of the minute in `make test`."""
    gpu: bool = False

    def play(self, stage: Stage) -> Outcome:
        outcome, began = Outcome(), time.monotonic()
        try:
            self.act(stage, outcome)
        except (AssertionError, OSError, subprocess.TimeoutExpired, SystemExit, TimeoutError) as problem:
            outcome.wrong.append(_short(f"{problem}" or type(problem).__name__))
            if isinstance(problem, Silent):
                stage.give_up()
        outcome.saw, outcome.seconds = _short(outcome.saw), time.monotonic() - began
        return outcome

    def act(self, stage: Stage, outcome: Outcome) -> None:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Save(Fault):
    """A source that is saved in the open workbench; FOLDER in it means the task's."""

    texts: Mapping[str, str]
    statuses: str
    """Every row has one of these; a row that was never reached is `skipped`."""
    says: str = ""
    never: str = ""
    within: float = 12.0
    also: Callable[[Workbench, Outcome], None] | None = None
    """What else must hold once the save is answered."""

    def act(self, stage: Stage, outcome: Outcome) -> None:
        bench = stage.workbench
        stage.rest()
        texts = {name: text.replace("FOLDER", str(bench.folder)) for name, text in self.texts.items()}
        at = bench.save(**texts)
        answer = bench.answer(at, self.within)
        words, end = answer.words, time.monotonic() + WORDS_WITHIN
        while self.says and not re.search(self.says, words) and time.monotonic() < end:  # stderr is another pipe
            time.sleep(0.05)
            words = f"{answer.words}\n{''.join(bench.said[at[1] :])}"
        outcome.saw = f"{'/'.join(sorted(answer.statuses))}: {words}"
        wanted = self.statuses.split()
        known = answer.statuses <= {*wanted, "skipped"} and answer.statuses & set(wanted)
        outcome.check(known, f"rows are {sorted(answer.statuses)}, not {wanted}")
        outcome.check_words(words, self.says, self.never)
        if self.also is not None:
            self.also(bench, outcome)
        stage.afterwards(outcome)
        for name in set(self.texts) - {"solution_py"}:
            stem, _, suffix = name.rpartition("_")
            (bench.folder / f"{stem}.{suffix}").unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Act(Fault):
    """Anything done to the open workbench; returns what the user saw."""

    do: Callable[[Workbench], str]
    says: str = ""
    never: str = ""

    def act(self, stage: Stage, outcome: Outcome) -> None:
        stage.rest()
        outcome.saw = self.do(stage.workbench)
        outcome.check_words(outcome.saw, self.says, self.never)
        stage.afterwards(outcome)


@dataclass(frozen=True, kw_only=True)
class Apart(Fault):
    """Anything in a folder of its own, with a workbench of its own or none; returns what the user saw."""

    do: Callable[[Path], str]
    says: str = ""
    never: str = ""

    def act(self, stage: Stage, outcome: Outcome) -> None:
        outcome.saw = self.do(stage.folder())
        outcome.check_words(outcome.saw, self.says, self.never)


@dataclass(frozen=True, kw_only=True)
class Command(Fault):
    """A command over the fake harness in a prepared folder, under a limit of memory and time."""

    words: str
    prepare: Callable[[Path], None]
    code: int | None = 0
    """None for any but a breakdown."""
    says: str = ""
    never: str = ""
    within: float = WITHIN
    megabytes: int = 700
    real: bool = False
    """With torch; then memory is not limited."""
    also: Callable[[Path], str | None] | None = None
    """What is not as specified afterwards, if anything."""

    def act(self, stage: Stage, outcome: Outcome) -> None:
        folder = write_task(stage.folder())
        self.prepare(folder)
        most = 0 if self.real else self.megabytes
        result = command(folder, *self.words.split(), within=self.within, megabytes=most, fake=not self.real)
        outcome.saw = f"exit {result.returncode}: {result.stderr} {result.stdout}"
        as_specified = result.returncode in (0, 1, 2) if self.code is None else result.returncode == self.code
        outcome.check(as_specified, f"exits with {result.returncode}, not {self.code}")
        outcome.check_words(result.stdout + result.stderr, self.says, self.never)
        if self.also is not None and (wrong := self.also(folder)):
            outcome.wrong.append(wrong)
        outcome.wrong += [f"left {path.name} behind" for path in (folder.parent / "tmp").glob("kernbench-*.txt")]


def command(
    folder: Path, *words: str, within: float = WITHIN, megabytes: int = 700, fake: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`kernbench` in a folder, with a home and a temporary folder that belong to it."""
    for name in ("home", "tmp"):
        (folder.parent / name).mkdir(exist_ok=True)
    given = {"HOME": str(folder.parent / "home"), "TMPDIR": str(folder.parent / "tmp"), **environment}
    if fake:
        given["KERNBENCH_HARNESS"] = str(FAKE)

    def limit() -> None:
        if megabytes:
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    return subprocess.run(
        [sys.executable, "-m", "kernbench", *words], cwd=folder, env=settings("command", **given),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=within, check=False,
        preexec_fn=limit,
    )  # fmt: skip


__all__ = ["GOOD", "Act", "Apart", "Command", "Fault", "Outcome", "Save", "Stage", "command"]
