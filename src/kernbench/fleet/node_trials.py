"""What an actor does with a variant of a sweep: it measures it against an opponent, in turns, on its own GPU.

Times of two GPUs are never compared: where a variant and its opponent cannot take turns, its times are compared with
those of the source as it is, which this actor then times itself.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.shared import taskfile
from harness.shared.lines import decode, to_dict
from kernbench.engine.jobs import Options
from kernbench.fleet import job as jobs
from kernbench.fleet.job import Job
from kernbench.sweep.trial import Measured, Trial, screening_rows
from kernbench.sweep.variant_bench import VariantBench
from kernbench.sweep.variants import NOW, Variant
from kernbench.worker.process import Unusable


@dataclass(frozen=True)
class TrialOrder:
    """A trial as plain data. The job's own source is the source as it is."""

    variant: str
    """Hash of its source."""
    opponent: str | None
    opponent_name: str
    budget_ms: float
    rows: tuple[str, ...] | None
    is_now_right: bool
    """Only then are times compared with those of the source as it is."""
    folder: str
    """The sweep's own, at home."""


class NodeTrials:
    def __init__(self, cache: Path, options: Options) -> None:
        self._cache, self._options = cache, options
        self._bench: VariantBench | None = None
        self._folder = Path()
        self._read = 0
        """Lines of runs.jsonl that went home."""

    async def measure(self, job: Job, folder: Path) -> dict[str, Any]:
        """What came of it, and the new lines of runs.jsonl; or why nothing can be timed here."""
        order = decode(TrialOrder, dict(job.order))
        sources = {job.sha: job.files, **job.others}
        other = Variant(order.opponent_name, (), sources[order.opponent]) if order.opponent is not None else None
        trial = Trial(other, order.budget_ms, order.rows)
        try:
            bench = self._bench = self._bench or self._made(folder)
            measured = await bench.measure(Variant(job.name, (), sources[order.variant]), trial)
            if measured.is_apart and order.is_now_right:
                measured = await self._over_usual(bench, job.files, measured, order.budget_ms)
        except Unusable as problem:
            return {"unusable": str(problem)}
        home = Path(order.folder)
        lines = [jobs.at_home(line, job, folder, self._folder, home) for line in self._new_lines()]
        detail = jobs.at_home(measured.detail, job, folder, self._folder, home)
        return {"measured": to_dict(replace(measured, detail=detail)), "lines": lines, "device": bench.device}

    async def close(self) -> None:
        if self._bench is not None:
            await self._bench.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _made(self, folder: Path) -> VariantBench:
        """An actor works for one sweep, so it needs one bench. All on this node share what is compiled."""
        self._cache.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="trials-", dir=self._cache))
        return VariantBench(taskfile.load(folder), self._cache, self._folder, self._options, builds_ahead=False)

    async def _over_usual(
        self, bench: VariantBench, now: Mapping[str, bytes], measured: Measured, budget_ms: float
    ) -> Measured:
        if not bench.usual:
            itself = Variant(NOW, (), now, is_now=True)
            rows = screening_rows(bench.task, self._options.case)
            bench.usual = dict((await bench.measure(itself, Trial(itself, budget_ms, rows))).times)
        return replace(measured, ratio=bench.apart(dict(measured.times)))

    def _new_lines(self) -> list[str]:
        runs = self._folder / "runs.jsonl"
        lines = runs.read_text(encoding="utf-8").split("\n")[:-1] if runs.is_file() else []
        new, self._read = lines[self._read :], len(lines)
        return new
