"""`suite --ray` without Ray: a driver that says what the test wants, and the files that come of it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.shared.errors import UserError
from kernbench.cli import cli
from kernbench.commands.unattended import fleet
from kernbench.engine.jobs import Options
from kernbench.fleet import cluster_address, driver_process, ray_suite
from kernbench.fleet.ray_suite import RaySuite
from kernbench.suites.suite_run import Outcome, SuiteFile
from tests.sessions import TASK


class Scripted:
    """Says that it is connected, then the given events."""

    ended = driver_process.DriverProcess.ended

    def __init__(self, events: list[dict[str, Any]], gpus: int = 0) -> None:
        self.given, self.gpus, self.orders = events, gpus, list[dict[str, Any]]()
        self.address, self.last_words = "head:6379", "nothing"

    @contextlib.asynccontextmanager
    async def started(self, what: str, given: str) -> AsyncIterator[Scripted]:
        yield self

    async def connected(self) -> dict[str, Any]:
        return {"nodes": [{"node": "n", "gpus": self.gpus, "cpus": 2}]}

    def order(self, **order: Any) -> None:
        self.orders.append(order)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        for event in self.given:
            yield event


def task(folder: Path, solution: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(TASK)
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (folder / "solution.py").write_text(f"def toy(): ...\n{solution}")
    return folder


def result(name: str, run: str = "1", **values: Any) -> dict[str, Any]:
    outcome = asdict(Outcome(name, **{"status": "ok", **values}))
    return {"event": "result", "outcome": outcome, "lines": [f'{{"event":"failed","run":"{run}","message":""}}']}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    async def play(driver: Scripted, names: str, options: Options | None = None) -> tuple[list[str], list[str]]:
        monkeypatch.setattr(ray_suite, "DriverProcess", driver)
        told, warned = list[str](), list[str]()
        suite = RaySuite(SuiteFile(tmp_path), options or Options(), None, "auto")
        devices = list[str]()

        def tasks_for(device: str) -> dict[str, Callable[[], Path]]:
            devices.append(device)
            return {name: partial(task, tmp_path / name) for name in names}

        try:
            await suite.run(tasks_for, lambda outcome: told.append(f"{outcome.name} {outcome.status}"), warned.append)
        finally:
            assert devices == ["cuda" if driver.gpus else "cpu"]
        return told, warned

    return play


@pytest.mark.anyio
async def test_results_are_on_disk_when_they_arrive_and_none_counts_twice(tmp_path: Path, run: Any) -> None:
    said = [result("b", "1"), result("b", "2", status="wrong"), {"event": "notice", "text": "a node"}, result("a")]
    driver = Scripted([*said, {"event": "done"}])
    told, warned = await run(driver, "ab")
    assert (told, warned) == (["b ok", "a ok"], ["a node"])
    assert [json.loads(line)["name"] for line in (tmp_path / "suite.jsonl").read_text().splitlines()] == ["b", "a"]
    runs = (tmp_path / "b/.kernbench/runs.jsonl").read_text().splitlines()
    assert runs == said[0]["lines"]
    (order,) = driver.orders
    assert (order["kind"], order["per_slot"]) == ("CPU", 1)
    stored = Path(order["jobs"][0]["source"])
    assert stored == tmp_path / "a/.kernbench/sources" / order["jobs"][0]["sha"]
    assert (stored / "solution.py").is_file()


@pytest.mark.anyio
async def test_a_driver_that_ends_without_a_word_leaves_the_rest_to_resume(tmp_path: Path, run: Any) -> None:
    with pytest.raises(UserError, match=r"head:6379 is gone.*2 problems left: go on with `--resume`"):
        await run(Scripted([result("a")]), "abc")
    assert set(SuiteFile(tmp_path).known()) == {"a"}


@pytest.mark.anyio
async def test_a_problem_that_was_given_up_is_told_and_run_again_by_resume(tmp_path: Path, run: Any) -> None:
    lost = {"event": "lost", "name": "a", "nodes": ["x", "y", "x"], "why": "node died"}
    told, _ = await run(Scripted([lost, result("b"), {"event": "done"}]), "ab")
    assert told == ["a lost", "b ok"]
    assert "given up after 3 tries, on x, y, x: node died" in (tmp_path / "suite.jsonl").read_text()
    assert set(SuiteFile(tmp_path).known()) == {"b"}


@pytest.mark.anyio
async def test_a_cluster_with_gpus_gets_tasks_for_them_and_a_baseline_of_this_machine_is_refused(
    tmp_path: Path, run: Any
) -> None:
    driver = Scripted([result("a"), {"event": "done"}], gpus=4)
    await run(driver, "a")
    assert (driver.orders[0]["kind"], driver.orders[0]["per_slot"]) == ("GPU", 1)
    (tmp_path / "mine.py").write_text("def toy(): ...\n")
    with pytest.raises(UserError, match="is only on this machine"):
        await run(Scripted([], gpus=1), "a", Options(baseline=str(tmp_path / "mine.py")))
    with pytest.raises(UserError, match="no node can be used"):
        await run(Scripted([{"event": "failed", "message": "no node can be used: x"}], gpus=1), "a")


def test_a_stale_note_of_a_cluster_misleads_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(UserError, match="no Ray cluster on this machine; `ray start --head`"):
        cluster_address.resolve("auto")
    with socket.socket() as head:
        head.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{head.getsockname()[1]}"
        note = tmp_path / "ray/ray_current_cluster"
        note.parent.mkdir()
        note.write_text(f"{address}\n")
        with pytest.raises(UserError, match=rf"nothing answers at {address} \(.*ray_current_cluster names it\)"):
            cluster_address.resolve("auto")
        head.listen()
        assert cluster_address.resolve("auto") == cluster_address.resolve(address) == address
    for wrong in ("ray://head:10001", "head", "head:99999"):
        with pytest.raises(UserError, match="expected HOST:PORT"):
            cluster_address.resolve(wrong)


def test_of_rays_log_the_sentence_is_left() -> None:
    line = "[2026-11-17 17:31:25,089 E 20850 20873] rpc_client.h:204: Failed to connect within 60 s. See the log."
    assert driver_process.first_sentence(line) == "Failed to connect within 60 s"


@pytest.mark.anyio
async def test_without_ray_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'kernbench\[ray\]'"):
        async with driver_process.DriverProcess.started("look", "auto"):
            pass


def test_the_table_of_the_fleet_has_a_line_per_slot() -> None:
    node = {"node": "a/1", "address": "10.0.0.1", "gpus": 2, "cpus": 8}
    nodes = [node, {"node": "b/2", "address": "", "gpus": 0, "cpus": 1}]
    about = {"node": "a/1", "device": "NVIDIA H200", "uuid": "GPU-5d1c9e02-77"}
    slot = {**about, "job": "19_ReLU", "seconds": 4.0, "done": 12}
    lines = fleet._table({"nodes": nodes, "slots": [slot, {**slot, "job": "", "uuid": "GPU-88b0a1f4-01", "done": 9}]})
    assert [" ".join(line.split()) for line in lines] == [
        "node address has slot runs for done",
        "a/1 10.0.0.1 2 GPUs, 8 CPUs NVIDIA H200 GPU-5d1c9e02 19_ReLU 4 s 12",
        "NVIDIA H200 GPU-88b0a1f4 nothing 9",
        "b/2 1 CPU",
    ]


def test_a_device_of_this_machine_does_not_go_with_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(cli, ["suite", str(tmp_path), "--ray", "auto", "--device", "cuda:1"])
    assert done.exit_code == 2
    assert "only --device cpu goes with it" in done.output
