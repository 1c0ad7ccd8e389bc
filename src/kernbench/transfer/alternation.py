"""A model that is a command, as it is and with the kernels, in processes that take turns: A B, B A, A B, ...

Every run writes a perf dump, and its value is the mean of its steps. Each pair of runs is a block with one ratio. Runs
of the command as it is that follow each other are compared as well: how far they are apart is the A/A floor.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.codes import PLAIN_PAIR
from harness.shared.errors import UserError
from harness.shared.model_step import ModelFile, Patch, SideRatio, SideTime, StepResult
from harness.shared.run_request import Environment
from kernbench.programs import injected
from kernbench.transfer import command_process, perf_dump
from kernbench.transfer.injection import Injection
from kernbench.transfer.perf_dump import PerfDump
from kernbench.worker.process import exit_text

OWN, OURS = PLAIN_PAIR


class Forbidden(Exception):
    """The log has a line which says that the model fell back to other code."""


@dataclass(frozen=True)
class Alternated:
    result: StepResult
    forbidden: str = ""
    environment: Environment = field(default_factory=Environment)
    dumps: tuple[Path, ...] = ()
    """Of the middle run of each side: as it is, with the kernels."""


@dataclass(frozen=True)
class _Run:
    dump: PerfDump
    path: Path

    @property
    def step_ms(self) -> float:
        """Of the steps one by one, if the dump has them: the first is often slow, and the mean leaves out the ends."""
        steps = self.dump.steps_ms
        return stats.interquartile_mean(steps) if steps else self.dump.denoise_ms or self.dump.total_ms


class Alternation:
    def __init__(
        self, model: ModelFile, patches: Sequence[Patch], python: str | None, scratch: Path, tell: Callable[[str], None]
    ) -> None:
        self._model, self._patches, self._tell = model, patches, tell
        self._python, self._scratch = python or sys.executable, scratch
        self._count = itertools.count(1)
        self._run = 0
        self._environment = Environment()

    async def measured(self, run: str, pairs: int) -> Alternated:
        """The first run of each side is not timed: it fills caches and, with the kernels, shows that they are wired."""
        whole = 2 * pairs + 2
        runs: dict[str, list[_Run]] = {OWN: [], OURS: []}
        try:
            await self._one(OWN, whole)
            if missing := await self._wiring(whole):
                return Alternated(StepResult(run, not_wired=missing), environment=self._environment)
            for number in range(pairs):
                for side in PLAIN_PAIR if number % 2 == 0 else reversed(PLAIN_PAIR):
                    runs[side].append(await self._one(side, whole))
        except Forbidden as signal:
            return Alternated(StepResult(run), forbidden=str(signal), environment=self._environment)
        return Alternated(self._result(run, runs), "", self._environment, tuple(map(_middle, runs.values())))

    async def _wiring(self, whole: int) -> str:
        """Which site or entry never ran, in words."""
        inside = self._injection(is_watched=True)
        await self._one(OURS, whole, inside)
        ran = inside.ran()
        device = "cuda:0" if ran.device_name else "cpu"
        self._environment = Environment(device=device, device_name=ran.device_name, torch=ran.torch)
        return ran.missing(self._model, self._patches)

    def _injection(self, is_watched: bool = False) -> Injection:
        return Injection(self._scratch / f"inside-{next(self._count)}", self._model, self._patches, is_watched)

    async def _one(self, side: str, whole: int, inside: Injection | None = None) -> _Run:
        model, number = self._model, next(self._count)
        if side == OURS and inside is None:
            inside = self._injection()
        dump = self._scratch / f"dump-{number}.json"
        self._run += 1
        self._tell(f"run {self._run} of {whole}, {side}")
        words = [self._filled(word, dump) for word in model.command]
        try:
            ended = await command_process.run(words, _variables(model, inside), model.limit_s, model.forbid)
        except OSError as problem:
            raise UserError(f"{model.name}: cannot start {words[0]}: {problem.strerror}; see `command`") from None
        if ended.forbidden:
            raise Forbidden(ended.forbidden)
        if inside is not None and (why := inside.ran().problem):
            raise UserError(f"{model.name}: the kernels could not be put in: {why}")
        name = f"{model.name}: its command ({side})"
        if ended.returncode is None:
            raise UserError(f"{name} ran for over {fmt.seconds(model.limit_s)} and was stopped; see `limit_s`")
        last = f": {ended.last}" if ended.last else ", and it printed nothing"
        if ended.returncode != 0:
            raise UserError(f"{name} {exit_text(ended.returncode)}{last}")
        if not dump.is_file():
            raise UserError(f"{name} wrote no perf dump to {{dump}}{last}")
        found = _Run(perf_dump.read(dump), dump)
        if not found.step_ms > 0:
            raise UserError(f"{name} wrote a perf dump without any time")
        return found

    def _filled(self, word: str, dump: Path) -> str:
        values = {"dump": str(dump), "folder": self._model.folder, "python": self._python}
        for name, value in (values | self._model.config).items():
            word = word.replace(f"{{{name}}}", str(value))
        return word

    def _result(self, run: str, runs: dict[str, list[_Run]]) -> StepResult:
        own, ours = ([one.step_ms for one in runs[side]] for side in PLAIN_PAIR)
        floor = stats.floor_of([before / after for before, after in itertools.pairwise(own)])
        margin = stats.margin(1000 * stats.median(own), floor)
        ratio = stats.ratio(stats.of_blocks([math.log(a / b) for a, b in zip(own, ours, strict=True)]), margin)
        assert ratio is not None  # there are enough pairs
        return StepResult(
            run=run,
            times=tuple(_time(side, runs[side]) for side in PLAIN_PAIR),
            ratios=(SideRatio(OURS, OWN, ratio.speedup, ratio.low, ratio.high, ratio.verdict),),
            floor=floor,
            margin=margin,
            notes=("a command's outputs are not compared, and its shares are not known",),
        )


def _time(side: str, runs: Sequence[_Run]) -> SideTime:
    samples = tuple(round(one.step_ms, 6) for one in runs)
    peaks = [one.dump.peak_mb for one in runs if one.dump.peak_mb is not None]
    total = stats.median([one.dump.total_ms for one in runs])
    return SideTime(side, stats.median(samples), samples, total_ms=total, peak_mb=max(peaks, default=None))


def _middle(runs: Sequence[_Run]) -> Path:
    return sorted(runs, key=lambda one: one.step_ms)[len(runs) // 2].path


def _variables(model: ModelFile, inside: Injection | None) -> dict[str, str]:
    """The user's environment with the model's variables; for the kernels, their folder is first on PYTHONPATH."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", **model.environment}
    return found if inside is None else injected.variables(inside.folder, found)
