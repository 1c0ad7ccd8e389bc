"""`sweep --ray` without Ray: real jobs in real actors, behind a driver that the test can make lose them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.shared.lines import decode, to_dict
from harness.shared.run_request import Environment
from harness.shared.taskfile import load
from kernbench.cli import cli
from kernbench.engine.jobs import Options
from kernbench.fleet import driver_process, ray_bench
from kernbench.fleet import job as jobs
from kernbench.fleet.bench_actor import BenchActor
from kernbench.fleet.node_trials import NodeTrials, TrialOrder
from kernbench.sweep.trial import Measured, Trial
from kernbench.sweep.variant_bench import VariantBench
from kernbench.sweep.variants import Variant
from kernbench.task import snapshot
from kernbench.worker.supervisor import Supervisor
from tests import FAKE
from tests.sessions import PATIENT, write


class Actors:
    """A driver with actors in this process, named like their GPUs; a job goes to its own, else to the next."""

    ended = driver_process.DriverProcess.ended

    def __init__(self, cache: Path, names: str = "ab") -> None:
        self._cache, self._names = cache, names
        self.address, self.last_words, self.gpus = "head:6379", "nothing", 0
        self.orders: list[dict[str, Any]] = []
        self.done: list[tuple[str, str]] = []
        """Where each job was done, and its name."""
        self.events_for: Callable[[str, str], dict[str, Any] | None] = lambda where, name: None
        """What is said instead of a result."""
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.actors: dict[str, BenchActor] = {}

    @contextlib.asynccontextmanager
    async def started(self, what: str, given: str) -> AsyncIterator[Actors]:
        try:
            yield self
        finally:
            for actor in self.actors.values():
                await actor.close()

    async def connected(self) -> dict[str, Any]:
        return {"nodes": [{"node": "n", "gpus": self.gpus, "cpus": 2}]}

    def order(self, **order: Any) -> None:
        self.orders.append(json.loads(json.dumps(order)))
        if "settings" in order:
            for name in self._names:
                self.actors[name] = BenchActor(name, order["settings"], False, str(self._cache / name))
        for item in self.orders[-1]["jobs"]:
            self._waiting.put_nowait(item)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            item = await self._waiting.get()
            next_one = self._names[len(self.done) % len(self._names)]
            where = item["where"] if item["where"] in self.actors else next_one
            self.done.append((where, item["name"]))
            if (event := self.events_for(where, item["name"])) is not None:
                yield event
                if event["event"] == "stop":
                    return
                if event["event"] == "lost":
                    continue
                where = next(name for name in self._names if name != where)
            value = await self.actors[where].run(jobs.packed(item))
            result = {"event": "result", "name": item["name"], "where": where, **value}
            yield result
            yield result  # one that comes twice counts once


@pytest.fixture
def driver(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Actors:
    """The toy task is the current folder, and the cluster is this process."""
    write(folder, "TIME_US = 50.0")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KERNBENCH_HARNESS", str(FAKE))
    found = Actors(tmp_path / "cache")
    monkeypatch.setattr(ray_bench, "DriverProcess", found)
    return found


def sweep(*words: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *words, "--no-confirm", "--json", "--ray", "auto"])


def ended(result: Result) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert last["event"] == "sweep", result.output
    return last


def test_variants_go_out_the_final_has_one_gpu_and_the_entry_is_made_here(folder: Path, driver: Actors) -> None:
    result = sweep("--set", "TIME_US=40.0,30.0,60.0,45.0,20.0,80.0", "-m", "shorter")
    assert result.exit_code == 0, result.output
    last = ended(result)
    ranking = [item["values"][0] for item in last["variants"]]
    assert ranking == ["20.0", "30.0", "40.0", "45.0", "50.0", "60.0", "80.0"]
    assert last["variants"][0]["ratio"]["speedup"] == pytest.approx(2.5, rel=0.02)
    assert last["device"] == "Fake 9000"
    now, screened, final = driver.done[:1], driver.done[1:7], driver.done[7:]
    assert [name for _where, name in now] == ["as it is"]
    assert {where for where, _name in screened} == {"a", "b"}
    assert (len(final), len({where for where, _name in final})) == (4, 1)
    assert driver.orders[0]["ahead"] == 6
    runs = folder / ".kernbench/sweeps" / next((folder / ".kernbench/sweeps").iterdir()).name / "runs.jsonl"
    lines = [json.loads(line) for line in runs.read_text().splitlines()]
    assert sum(line["event"] == "finished" for line in lines) == len(driver.done)
    assert str(driver._cache) not in runs.read_text()
    text = (folder / "ITERATIONS.md").read_text()
    assert text.count("\n## ") == 1
    assert "80.0 --ray auto`" in text


def test_a_lost_gpu_begins_the_final_again_so_that_no_verdict_has_two(driver: Actors) -> None:
    fell = list[str]()

    def lose(where: str, name: str) -> dict[str, Any] | None:
        if len(driver.done) == 3:  # the source as it is, the leader, and the first that takes turns with it
            fell.append(where)
            return {"event": "notice", "text": f"lost a slot on {where}"}
        return None

    driver.events_for = lose
    result = sweep("--set", "TIME_US=40.0,30.0,20.0,60.0")
    assert (result.exit_code, len(fell)) == (0, 1), result.output
    assert f"lost a slot on {fell[0]}" in result.stderr
    again = driver.done[3:]
    assert (len(again), len({where for where, _name in again})) == (4, 1)
    assert ended(result)["winner"] == "TIME_US=20.0"


def test_a_final_that_is_lost_again_and_again_ends(folder: Path, driver: Actors) -> None:
    def lose(where: str, name: str) -> dict[str, Any] | None:
        is_leader = len(driver.done) % 2 == 0
        return None if is_leader or name == "as it is" else {"event": "notice", "text": f"lost a slot on {where}"}

    driver.events_for = lose
    result = sweep("--set", "TIME_US=40.0,30.0")
    assert "the final's GPU was lost 4 times; nothing is logged: sweep again" in result.stderr
    assert (result.exit_code, len(driver.done)) == (2, 1 + 2 * 4)
    assert not (folder / "ITERATIONS.md").exists()


def test_a_variant_that_was_given_up_is_lost_and_the_others_go_on(driver: Actors) -> None:
    def give_up(where: str, name: str) -> dict[str, Any] | None:
        lost = {"event": "lost", "name": name, "nodes": ["x", "y", "x"], "why": "node died"}
        return lost if name == "TIME_US=20.0" else None

    driver.events_for = give_up
    last = ended(sweep("--set", "TIME_US=40.0,30.0,60.0,45.0,20.0"))
    assert last["winner"] == "TIME_US=30.0"
    lost = next(item for item in last["variants"] if item["status"] == "lost")
    assert lost["detail"] == "given up after 3 tries, on x, y, x: node died"


def test_when_the_cluster_is_gone_the_table_has_what_was_measured(folder: Path, driver: Actors) -> None:
    driver.events_for = lambda where, name: {"event": "stop"} if name == "TIME_US=60.0" else None
    result = sweep("--set", "TIME_US=40.0,30.0,60.0,45.0,20.0")
    assert result.exit_code == 2
    assert "the Ray cluster at head:6379 is gone, or its driver was ended" in result.stderr
    known = {item["variant"] for item in ended(result)["variants"] if item["status"] == "ok"}
    assert known == {"as it is", "TIME_US=40.0", "TIME_US=30.0"}
    assert not (folder / "ITERATIONS.md").exists()


@pytest.mark.parametrize("is_written", [True, False])
def test_a_machine_that_cannot_time_the_winner_says_how_to_get_it(
    folder: Path, driver: Actors, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    write(folder, 'TIME_US = 50.0\nDO = "nothing"')
    ready, seen = Supervisor.ready, list[Supervisor]()

    async def no_gpu(self: Supervisor) -> Environment:
        from kernbench.worker.process import Unusable

        there = [actor._worker._supervisor for actor in driver.actors.values()]
        if self in there:
            return await ready(self)
        seen.append(self)
        raise Unusable("no_device", "torch sees no GPU")

    monkeypatch.setattr(Supervisor, "ready", no_gpu)
    result = sweep("--set", "TIME_US=30.0", *(["--write"] if is_written else []))
    assert (result.exit_code, len(seen)) == (0, 1), result.output
    assert "no entry: torch sees no GPU" in result.stderr
    assert ("puts the winner there" in result.stderr) != is_written
    assert (ended(result)["entry"], ended(result)["complete"]) == (None, True)
    assert ("TIME_US = 30.0" in (folder / "solution.py").read_text()) == is_written


def test_a_task_for_gpus_needs_some_in_the_cluster(
    folder: Path, driver: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (folder / "task.toml").read_text()
    (folder / "task.toml").write_text(text.replace('device = "cpu"', 'device = "cuda"'))
    result = sweep("--set", "TIME_US=30.0")
    assert result.exit_code == 3
    assert "the Ray cluster at head:6379 has no GPU" in result.stderr
    assert sweep("--set", "TIME_US=30.0", "--device", "cuda:1").exit_code == 2


@pytest.mark.anyio
async def test_what_cannot_take_turns_is_compared_with_the_usual_times_of_its_own_gpu(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    async def apart(self: VariantBench, variant: Variant, trial: Trial) -> Measured:
        asked.append(variant.name)
        us = 60.0 if variant.is_now else 20.0
        return Measured("ok", "timed alone", self.apart({"a": us}), True, (("a", us),))

    monkeypatch.setattr(VariantBench, "measure", apart)
    now = snapshot.take(folder, folder / ".kernbench", load(folder))
    trials = NodeTrials(tmp_path / "cache", Options(harness=FAKE, deadlines=PATIENT))
    for number, is_now_right in enumerate((False, True, True)):
        order = TrialOrder(now.sha, now.sha, "as it is", 10.0, ("a",), is_now_right, str(tmp_path))
        job = jobs.packed(jobs.item_of("one", now, folder, jobs.TRIAL, order=to_dict(order)))
        found = decode(Measured, (await trials.measure(job, jobs.unpacked(job, tmp_path / "cache")))["measured"])
        assert (found.ratio.speedup if found.ratio is not None else None) == (pytest.approx(3.0) if number else None)
    assert asked == ["one", "one", "as it is", "one"]
    await trials.close()
