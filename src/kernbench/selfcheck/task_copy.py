"""A scratch copy of a task and a session on it, with the time at which each row landed."""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.lines import to_dict
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from kernbench.engine.jobs import Options
from kernbench.engine.runner import RunOutcome
from kernbench.engine.session import Session
from kernbench.events import BuildFailed, CaseLanded, Event, Progress, RunStarted, Summary
from kernbench.task import lookup
from kernbench.worker.process import BOOT, harness_folder


class TaskCopy:
    """`async with TaskCopy("rms_norm", options, tell) as shop`; the copy is deleted afterwards.

    `tell` receives a line about every run: a selfcheck takes minutes.
    """

    def __init__(self, task: str, options: Options, tell: Callable[[str], None], baseline: str | None = None) -> None:
        origin = lookup.find_task(task, to_edit=False)
        self._scratch = Path(tempfile.mkdtemp(prefix="kernbench-selfcheck-"))
        self.folder = self._scratch / origin.name  # `task` may be a path that leads out of the scratch folder
        try:
            self._open(origin, options, baseline)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self.landed: list[tuple[float, CaseResult]] = []
        """Seconds since the run was requested, and the row."""
        self.steps: dict[tuple[str, str | None], float] = {}
        """Seconds spent in each step of each case, in the last run."""
        self._tell, self._runs = tell, 0
        self._asked = 0.0
        self._step: tuple[str, str | None] | None = None
        self._since = 0.0
        self.failure: BuildFailed | None = None

    def _open(self, origin: Path, options: Options, baseline: str | None) -> None:
        """Copies the task without its history and opens a session on it."""
        shutil.copytree(
            origin, self.folder, ignore=shutil.ignore_patterns(".kernbench", "ITERATIONS.md", "__pycache__")
        )
        self.original = (self.folder / "solution.py").read_text(encoding="utf-8")
        self.beside = "".join(path.read_text(encoding="utf-8") for path in self.folder.glob("solution.c*"))
        if baseline is not None:
            (self.folder / "baseline.py").write_text(baseline, encoding="utf-8")
            options = replace(options, baseline="baseline.py")
        self.session = Session(taskfile.load(self.folder), self.folder / ".kernbench", options)
        self.session.listen(self._hear)

    async def __aenter__(self) -> TaskCopy:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        await self.session.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def environment(self) -> Environment:
        return self.session.environment or Environment()

    def contrasted(self) -> dict[str, object]:
        """What harness.other_methods needs to do the same work on the same GPU."""
        return {"task": to_dict(self.session.task), "source": str(self.folder), "device": self.environment.device}

    async def other_methods(self, environment: dict[str, str], *before: str, **asked: object) -> list[dict[str, Any]]:
        """Answers of harness.other_methods, run in a separate process under the command `before`."""
        process = await asyncio.create_subprocess_exec(
            *before,
            *(self.session.supervisor.python, "-c", BOOT, str(harness_folder()), "other_methods"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        out, _ = await process.communicate(json.dumps({**self.contrasted(), **asked}).encode())
        return [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]

    def write(self, text: str) -> None:
        (self.folder / "solution.py").write_text(text, encoding="utf-8")

    def edit(self, number: int) -> None:
        """Makes a change that must be built: in the C++ or CUDA file if there is one, else in the first kernel."""
        beside = next((path for path in self.folder.glob("solution.c*")), None)
        if beside is not None:
            # a type, because NVRTC accepts no host variables
            beside.write_text(self.beside + f"\ntypedef int kernbench_edit_{number};\n", encoding="utf-8")
        self.write(self.original if beside is not None else edited(self.original, number))

    async def run(self) -> RunOutcome | None:
        """Runs the source as it is."""
        self._asked = time.perf_counter()
        self.landed, self.steps, self._step, self.failure = [], {}, None, None
        outcome = await self.session.run_once(iteration=False)
        self._runs += 1
        self._tell(f"run {self._runs}: {self._summary()}")
        return outcome

    def _summary(self) -> str:
        times = {"first row": self.first(), "all timed": self.last(1), "all checked": self.last(2)}
        return (
            ", ".join(f"{what} {fmt.seconds(at)}" for what, at in times.items() if at is not None) or "no row was timed"
        )

    def why_untimed(self, outcome: RunOutcome | None) -> str:
        """Why a run has no timed row, in a sentence."""
        if isinstance(outcome, BuildFailed):
            return outcome.message
        if isinstance(outcome, Summary) and outcome.environment.interpreted:
            return "this task is only timed on a GPU, and none was found; try `kernbench selfcheck softmax_host`"
        failed = next((row.detail for _at, row in self.landed if row.failed and row.detail), None)
        return str(self.session.problem or failed or "the run ended before the first timed row")

    def outcome(self) -> str:
        """Status and message of the last run's failure."""
        if self.failure is not None:
            return f"{self.failure.status}: {self.failure.message}"
        bad = next((row for _at, row in self.landed if row.failed), None)
        return f"{bad.status}: {bad.detail}" if bad is not None else "no failure reported"

    def first(self) -> float | None:
        """Seconds to the first timed row."""
        return next((at for at, row in self.landed if row.solution_us is not None), None)

    def last(self, checked: int) -> float | None:
        times = [at for at, row in self.landed if row.checked == checked and row.solution_us is not None]
        return times[-1] if times else None

    def rows(self) -> dict[str, CaseResult]:
        return {row.id: row for _at, row in self.landed if row.status == "ok" and row.speedup is not None}

    def _hear(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, (Progress, CaseLanded, RunStarted)) and self._step is not None:
            self.steps[self._step] = self.steps.get(self._step, 0.0) + now - self._since
            self._step = None
        if isinstance(event, Progress):
            self._step, self._since = (event.step, event.case), now
        elif isinstance(event, CaseLanded):
            self.landed.append((now - self._asked, event.result))
        elif isinstance(event, BuildFailed):
            self.failure = event


def edited(source: str, number: int) -> str:
    """The same solution with one more statement in its first kernel (or function), so that it must be built again."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    kernel = next((node for node in functions if node.decorator_list), functions[0])
    line = kernel.body[0].lineno - 1
    lines = source.split("\n")
    indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
    return "\n".join([*lines[:line], f"{indent}edit_number = {number}  # noqa", *lines[line:]])
