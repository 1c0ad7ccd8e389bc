"""`kernbench suite --ray`: the same problems on the GPUs of a Ray cluster, with the same files as results.

This process makes the tasks, takes a snapshot of each and writes what comes back: first the run's lines to the task's
own runs.jsonl, then a line to suite.jsonl, the moment the result arrives. A problem counts once, whatever the cluster
does; those that it did not come to are left for `--resume`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared import taskfile
from harness.shared.errors import UserError
from kernbench.engine.jobs import Options
from kernbench.fleet import job as jobs
from kernbench.fleet.driver_process import DriverProcess, given_up
from kernbench.log.runs.runs_file import RunsFile
from kernbench.suites.suite_run import LOST, Outcome, SuiteFile, outcome_of
from kernbench.task import lookup, snapshot

Tasks = Mapping[str, Callable[[], Path]]


class RaySuite:
    def __init__(self, file: SuiteFile, options: Options, budget_s: float | None, address: str) -> None:
        self._file, self._options, self._budget_s, self._address = file, options, budget_s, address
        self._open: dict[str, Path] = {}
        """Folders of the problems that have no result yet."""
        self._threads = 1

    async def run(
        self, tasks_for: Callable[[str], Tasks], tell: Callable[[Outcome], None], warn: Callable[[str], None]
    ) -> None:
        """Runs every task; `tasks_for` returns them for a device, which depends on what the cluster has."""
        async with DriverProcess.started("serve", self._address) as driver:
            about = await driver.connected()
            device = self._options.device or ("cuda" if any(node["gpus"] for node in about["nodes"]) else "cpu")
            found = [item for name, make in tasks_for(device).items() if (item := self._job(name, make, tell))]
            if not found:
                return
            driver.order(
                kind="CPU" if device == "cpu" else "GPU",
                per_slot=self._threads if device == "cpu" else 1,
                settings=jobs.settings_of(self._options),
                jobs=found,
            )
            stopping = asyncio.create_task(self._stop_later(driver))
            try:
                await self._listen(driver, tell, warn)
            finally:
                stopping.cancel()

    def _job(self, name: str, make: Callable[[], Path], tell: Callable[[Outcome], None]) -> dict[str, Any] | None:
        """What the driver needs to know of a problem; None for one that is refused here."""
        try:
            folder = make()
            task = taskfile.load(folder)
            source = snapshot.take(folder, lookup.state_dir(folder), task)
        except (UserError, OSError) as problem:
            self._keep(Outcome(name, "refused", str(problem)), tell)
            return None
        jobs.refuse_baseline(self._options.baseline, task, lookup.state_dir(folder))
        self._open[name] = folder
        self._threads = max(self._threads, task.threads)
        return jobs.item_of(name, source, folder)

    async def _listen(
        self, driver: DriverProcess, tell: Callable[[Outcome], None], warn: Callable[[str], None]
    ) -> None:
        is_done = False
        async for event in driver.events():
            is_done = event["event"] == "done"
            if event["event"] == "result":
                self._take(outcome_of(event["outcome"]), event["lines"], tell)
            elif event["event"] == "lost":
                self._take(Outcome(event["name"], LOST, given_up(event)), [], tell)
            elif event["event"] == "notice":
                warn(event["text"])
            elif event["event"] == "failed":
                raise UserError(event["message"])
        if not is_done:
            left = f"{fmt.plural(len(self._open), 'problem')} left"
            raise UserError(f"{driver.ended}; {left}: go on with `--resume` once there is a cluster")

    def _take(self, outcome: Outcome, lines: Sequence[str], tell: Callable[[Outcome], None]) -> None:
        folder = self._open.pop(outcome.name, None)
        if folder is None:  # it has its result
            return
        runs = RunsFile(lookup.state_dir(folder) / "runs.jsonl")
        for line in lines:
            runs.append(line)
        self._keep(outcome, tell)

    def _keep(self, outcome: Outcome, tell: Callable[[Outcome], None]) -> None:
        self._file.keep(outcome)
        tell(outcome)

    async def _stop_later(self, driver: DriverProcess) -> None:
        """When the budget is spent, no further problem begins."""
        if self._budget_s is not None:
            await asyncio.sleep(self._budget_s)
            driver.order(do="stop")
