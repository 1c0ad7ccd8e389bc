"""`kernbench sweep --ray`: the variants of a sweep on the GPUs of a Ray cluster.

Every variant takes turns with its opponent on one GPU, so that only speedups leave a GPU, and all slots have the same
type of it. The runs are kept in the sweep's own folder, as those of a sweep on this machine are.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.shared.errors import UserError
from harness.shared.lines import decode, to_dict
from harness.shared.task import Task
from kernbench.engine.jobs import Options
from kernbench.fleet import job as jobs
from kernbench.fleet.driver_process import DriverProcess, given_up
from kernbench.fleet.node_trials import TrialOrder
from kernbench.log.runs.runs_file import RunsFile
from kernbench.sweep.trial import NEEDS_GPU, Measured, Trial
from kernbench.sweep.variants import Variant
from kernbench.worker.process import Unusable

LOST = "lost"
"""The status of a variant whose slots were lost: it says nothing about the variant."""


class RayBench:
    def __init__(
        self,
        address: str,
        task: Task,
        folder: Path,
        options: Options,
        variants: Sequence[Variant],
        warn: Callable[[str], None],
    ) -> None:
        """`folder` is the sweep's own; the first variant is the source as it is."""
        self._address, self._task, self._folder, self._options = address, task, folder, options
        self._now, self._most, self._warn = variants[0], max(1, len(variants) - 1), warn
        self._open = contextlib.AsyncExitStack()
        self._driver: DriverProcess | None = None
        self._events: AsyncIterator[dict[str, Any]] | None = None
        self.device = ""
        self.usual: dict[str, float] = {}

    async def ready(self) -> None:
        """Joins the cluster and starts a slot for each variant, as far as there are GPUs."""
        is_cpu = "cpu" in (self._task.device, self._options.device)
        if is_cpu and self._task.device != "cpu":
            raise Unusable("no_device", NEEDS_GPU.format(self._task.name))
        jobs.refuse_baseline(self._options.baseline, self._task, self._folder)
        self._driver = await self._open.enter_async_context(DriverProcess.started("serve", self._address))
        about = await self._driver.connected()
        if not is_cpu and not any(node["gpus"] for node in about["nodes"]):
            said = NEEDS_GPU.format(self._task.name)
            raise Unusable("no_device", f"the Ray cluster at {self._driver.address} has no GPU: {said}")
        self._driver.order(
            kind="CPU" if is_cpu else "GPU",
            per_slot=self._task.threads if is_cpu else 1,
            settings=jobs.settings_of(self._options),
            jobs=[],
            sweep=True,
            ahead=self._most,
        )
        self._events = self._driver.events()

    async def build_ahead(self, variants: Sequence[Variant], trial: Trial) -> None:
        """Nothing: every slot compiles what it times."""

    async def measure(self, variant: Variant, trial: Trial) -> Measured:
        (measured,) = [measured async for _variant, measured in self.measure_all([variant], trial)]
        if variant.is_now and measured.status == LOST:
            raise UserError(f"the source as it is was {measured.detail}")
        return measured

    async def measure_all(self, variants: Sequence[Variant], trial: Trial) -> AsyncIterator[tuple[Variant, Measured]]:
        """As they arrive; each once, whatever the cluster does."""
        assert self._driver is not None
        missing = {variant.name: variant for variant in variants}
        self._driver.order(do="add", jobs=[self._item(variant, trial) for variant in variants])
        while missing:
            event = await self._next()
            if event["event"] not in ("result", "lost") or event["name"] not in missing:
                continue
            if event["event"] == "lost":
                measured = Measured(LOST, given_up(event))
            else:
                measured = self._taken(event)
            yield missing.pop(event["name"]), measured

    async def close(self) -> None:
        """Gives the cluster's slots back."""
        self._driver = self._events = None
        await self._open.aclose()

    def _item(self, variant: Variant, trial: Trial) -> dict[str, Any]:
        now, source, other = (
            item.stored(self._folder, self._task) if item is not None else None
            for item in (self._now, variant, trial.opponent)
        )
        assert now is not None
        assert source is not None
        order = TrialOrder(
            variant=source.sha,
            opponent=other.sha if other is not None else None,
            opponent_name=trial.opponent.name if trial.opponent is not None else "",
            budget_ms=trial.budget_ms,
            rows=trial.rows,
            is_now_right=bool(self.usual),
            folder=str(self._folder.resolve()),
        )
        return jobs.item_of(
            variant.name,
            now,
            Path(self._task.folder),
            jobs.TRIAL,
            others={item.sha: str(item.folder.resolve()) for item in (source, other) if item is not None},
            order=to_dict(order),
            where=trial.where,
        )

    async def _next(self) -> dict[str, Any]:
        """The next event; raises UserError if there is none."""
        assert self._driver is not None
        assert self._events is not None
        event = await anext(self._events, None)
        if event is None or event["event"] == "done":
            raise UserError(f"{self._driver.ended}; nothing is logged: sweep again once there is a cluster")
        if event["event"] == "failed":
            raise UserError(event["message"])
        if event["event"] == "notice":
            self._warn(event["text"])
        return event

    def _taken(self, event: dict[str, Any]) -> Measured:
        runs = RunsFile(self._folder / "runs.jsonl")
        for line in event["lines"]:
            runs.append(line)
        self.device = event["device"]
        return replace(decode(Measured, event["measured"]), where=event["where"])
