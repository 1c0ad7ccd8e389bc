"""Runs a model in a separate worker, and records what came of it.

All tasks go in together; `each` adds a row per task. A row about one task is a `model` line in the task's runs.jsonl
and a line in its source's entry, one about several a line in the model's runs.jsonl.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.codes import AS_IT_IS, FEWEST_PAIRS, FEWEST_ROUNDS, PLAIN_PAIR, SIDES
from harness.shared.errors import UserError
from harness.shared.lines import UNREADABLE, decode_checked, encode, to_dict
from harness.shared.model_step import ModelFile, Patch, StepRequest, StepResult
from harness.shared.run_request import Environment
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import RunsFile
from kernbench.programs.searched_log import forbidden
from kernbench.transfer import model_entry, model_file, model_sources, perf_dump
from kernbench.transfer.alternation import Alternation
from kernbench.transfer.model_row import ModelRow, decided
from kernbench.transfer.model_sources import What
from kernbench.version import __version__
from kernbench.worker import tracebacks
from kernbench.worker.process import ChildProcess, exit_text, harness_folder

WORKER = "transfer.step_worker"
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
ROUNDS, PAIRS = 72, 6
"""Of a program's sides, and of a command's runs."""
SILENT_S = 900.0
"""Longest without a word from the worker: a large model compiles for minutes."""


@dataclass(frozen=True)
class TransferOptions:
    tasks: tuple[str, ...] = ()
    what: What | None = None
    each: bool = False
    sides: tuple[str, ...] = ()
    """Empty for all that the device has by default."""
    rounds: int | None = None
    """None for the usual number."""
    steps: int = 0
    """Steps in a row for the drift."""
    config: str | None = None
    device: str | None = None
    python: str | None = None
    state: Path | None = None
    command: str = ""
    harness: Path | None = None
    """Replaces the measuring half in tests."""


class ModelRun:
    def __init__(self, folder: Path, options: TransferOptions, tell: Callable[[str], None]) -> None:
        self._folder, self._options, self._tell = folder, options, tell
        self._log: list[str] = []

    async def rows(self) -> list[ModelRow]:
        """Measures everything, then decides and records: only when the worker has ended is its log complete."""
        model = self._refuse_early()
        rows = await (self._command_rows(model) if model.command else self._program_rows())
        for row in rows:
            await asyncio.to_thread(self._record, row)
        return rows

    async def _program_rows(self) -> list[ModelRow]:
        options = self._options
        python = options.python or sys.executable
        self._tell("starting the worker (importing torch)")
        place = options.harness or harness_folder()
        child = await ChildProcess.start(
            python, place, options.device or "auto", self._log.append, threads=1, module=WORKER
        )
        measured: list[tuple[Sequence[Patch], StepResult]] = []
        try:
            environment = await child.wait_ready()
            on_cpu = environment.device == "cpu"
            model = model_file.load(self._folder, options.config, on_cpu)
            chosen = (model, options.tasks, options.what, on_cpu, options.state)
            patches, notes = await asyncio.to_thread(model_sources.choose, *chosen)
            sides = _sides(options.sides, on_cpu)
            rounds = options.rounds or ROUNDS
            for part in self._sets(patches):
                request = StepRequest(_name(), model, tuple(part), PLAIN_PAIR, rounds)
                if part is patches:
                    images = str(self._state(patches))
                    request = replace(request, sides=sides, steps=options.steps, images=images)
                measured.append((part, await self._step(child, request)))
        finally:
            await child.close()
        signal = forbidden(self._log, model.forbid)
        return [self._row(model, part, result, environment, notes, signal) for part, result in measured]

    async def _command_rows(self, model: ModelFile) -> list[ModelRow]:
        options, rows = self._options, []
        given = (model, options.tasks, options.what, False, options.state)
        patches, notes = await asyncio.to_thread(model_sources.choose, *given)
        for chosen in self._sets(patches):
            with tempfile.TemporaryDirectory(prefix="kernbench-") as scratch:
                turns = Alternation(model, chosen, options.python, Path(scratch), self._tell)
                found = await turns.measured(_name(), options.rounds or PAIRS)
                row = self._row(model, chosen, found.result, found.environment, notes, found.forbidden)
                names = [f"{model.name}-{side}.json" for side in ("original", "ours")]
                places = [self._state(chosen) / name for name in names]
                for dump, place in zip(found.dumps, places, strict=False):
                    perf_dump.write(place, perf_dump.read(dump))
                rows.append(replace(row, dumps=tuple(map(str, places)) if found.dumps else ()))
        return rows

    def _refuse_early(self) -> ModelFile:
        """Mistakes in the command or the model's file are said before a worker starts."""
        options = self._options
        model = model_file.load(self._folder, options.config, on_cpu=True)
        model_sources.tasks(model, options.tasks)
        _sides(options.sides, on_cpu=False)
        if model.command and (options.sides or options.steps):
            raise UserError(f"--sides and --steps: {model.name} is a command; change `command` in its model.toml")
        fewest = FEWEST_PAIRS if model.command else FEWEST_ROUNDS
        if options.rounds is not None and options.rounds < fewest:
            raise UserError(f"--rounds: an interval needs {fewest} at least")
        return model

    def _sets(self, patches: list[Patch]) -> list[Sequence[Patch]]:
        alone: list[Sequence[Patch]] = [[patch] for patch in patches]
        return [patches, *alone] if self._options.each and len(patches) > 1 else [patches]

    async def _step(self, child: ChildProcess, request: StepRequest) -> StepResult:
        child.send({"request": "step", **to_dict(request)})
        names = fmt.joined([patch.task for patch in request.patches]) if len(request.patches) < 3 else "all tasks"
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    message = await child.messages.get()
            except TimeoutError:
                raise UserError(
                    f"{request.model.name} was silent for {fmt.seconds(SILENT_S)} and was stopped"
                ) from None
            if message is None:
                raise UserError(crash(request, self._log, child.returncode))
            if message.get("run") != request.run:
                continue
            if message["event"] == "progress":
                self._tell(f"{names}: {message.get('text')}")
            elif message["event"] == "failed":
                raise UserError(_failure(request.model, message))
            elif message["event"] == "step":
                return _decoded(request.model, message)

    def _row(
        self,
        model: ModelFile,
        patches: Sequence[Patch],
        result: StepResult,
        environment: Environment,
        notes: Sequence[str],
        signal: str,
    ) -> ModelRow:
        about = ModelRow(
            run=result.run,
            model=model.name,
            config=model.config_name,
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            word="unclear",
            kept=False,
            sources=tuple(patches),
            rounds=len(result.times[0].samples) if result.times else 0,
            model_hash=model.hash,
            notes=tuple(notes),
            command=self._options.command,
            version=__version__,
            environment=environment,
        )
        is_stand_in = self._options.what is None and all(patch.what == "reference" for patch in patches)
        return decided(model, result, signal, is_stand_in, about)

    def _record(self, row: ModelRow) -> None:
        state = self._state(row.sources)
        RunsFile(state / "runs.jsonl").append(line_of(row))
        if len(row.sources) == 1:
            with contextlib.suppress(UserError, OSError):  # an entry edited by hand; runs.jsonl has the row
                model_entry.add(taskfile.load(Path(row.sources[0].user_folder)), Journal(state), row)

    def _state(self, sources: Sequence[Patch]) -> Path:
        if self._options.state is not None:
            return self._options.state
        if len(sources) == 1:
            return model_sources.state_of(Path(sources[0].user_folder), self._folder)
        return model_sources.model_state(self._folder)


def line_of(row: ModelRow) -> str:
    """Without the paths of this machine."""
    sources = tuple(replace(patch, folder="", user_folder="", build="") for patch in row.sources)
    images, dumps = (tuple(Path(name).name for name in names) for names in (row.images, row.dumps))
    return encode("model", replace(row, sources=sources, images=images, dumps=dumps))


def _sides(wanted: Sequence[str], on_cpu: bool) -> tuple[str, ...]:
    """In the order of SIDES. Eager is always timed: the others are compared with it."""
    if not wanted:
        return PLAIN_PAIR if on_cpu else SIDES
    if on_cpu and any("graph" in side for side in wanted):
        raise UserError("--sides: CUDA graphs need a GPU")
    if not set(wanted) - set(AS_IT_IS):
        raise UserError("--sides: none has the kernels in it; add ours, or compile+ours")
    return tuple(side for side in SIDES if side in wanted or side == "eager")


def _decoded(model: ModelFile, message: dict[str, Any]) -> StepResult:
    try:
        return decode_checked(StepResult, message["result"])
    except UNREADABLE:
        raise UserError(f"the worker of {model.name} sent a result that cannot be read; run it again") from None


def _failure(model: ModelFile, message: dict[str, Any]) -> str:
    place = f"{message['place']}: " if message.get("place") else ""
    return f"{model.name}: {place}{message.get('message')}"


def crash(request: StepRequest, log: Sequence[str], returncode: int | None) -> str:
    """How the worker ended, and in which line of the user's, if Python could still say."""
    frame = FRAME.search(tracebacks.own(tracebacks.last_stack(log)))
    place = f" in {frame['file']}:{frame['line']}" if frame else ""
    for patch in request.patches:
        place = place.replace(f" {patch.folder}/", f" {patch.task}/")
    return f"the worker of {request.model.name} {exit_text(returncode)}{place}"


def _name() -> str:
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
