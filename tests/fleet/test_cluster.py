"""`suite --ray` on a real cluster of several nodes on this machine, over the fake harness."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import FAKE
from tests.fleet.cluster import Cluster
from tests.suites.test_kernelbench import PROBLEMS

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
GOOD, WRONG, CRASHES, HANGS, SLOW = "TIME_US = 50.0", 'DO = "wrong"', 'DO = "crash"', 'DO = "hang"', 'DO = "slow"'


class Bench:
    """A folder with problems and solutions, and the command that runs them."""

    def __init__(self, folder: Path, solutions: list[str]) -> None:
        self.folder = folder
        for place in ("level1", "solutions"):
            (folder / place).mkdir()
        for number, text in enumerate(solutions):
            (folder / f"level1/{number}_problem.py").write_text(PROBLEMS["1_activation"])
            (folder / f"solutions/{number}_problem.py").write_text(f"{text}\n# {number}\n")

    def start(self, *words: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "kernbench", "suite", "level1", "--solutions", "solutions", "--json"]
        return subprocess.Popen(
            [*command, "--deadline", "check=5", *words],
            cwd=self.folder,
            env={**(environment or os.environ), "KERNBENCH_HARNESS": str(FAKE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
        with self.start(*words, environment=environment) as process:
            _out, said = process.communicate(timeout=300)
            return process.returncode, said

    def outcomes(self, to: str) -> list[dict[str, Any]]:
        path = self.folder / to / "suite.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def ends(self, to: str) -> Counter[str]:
        """How many runs of each task have ended."""
        found: Counter[str] = Counter()
        for runs in (self.folder / to).glob("*/.kernbench/runs.jsonl"):
            events = [json.loads(line)["event"] for line in runs.read_text().splitlines()]
            found[runs.parent.parent.name] = sum(event in ("finished", "failed") for event in events)
        return found


def said(outcomes: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {item["name"]: (item["status"], item["detail"]) for item in outcomes}


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def slots(cluster: Cluster) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "kernbench", "fleet", "--json", "--ray", cluster.address]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, timeout=120, check=True)
    return [item for line in done.stdout.splitlines() if (item := json.loads(line))["event"] == "slot"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster(2, FAKE_SLOW="1.0")
    yield found
    found.close()


def test_a_cluster_finds_what_this_machine_finds(tmp_path: Path, cluster: Cluster) -> None:
    bench = Bench(tmp_path, [GOOD, WRONG, CRASHES, HANGS, "def (", GOOD])
    code, told = bench.run("--to", "there", "--ray", "auto", environment=cluster.environment)
    assert code == 1, told
    assert bench.run("--to", "here")[0] == 1
    assert said(bench.outcomes("there")) == said(bench.outcomes("here"))
    assert Counter(item["status"] for item in bench.outcomes("there"))["ok"] == 3
    assert set(bench.ends("there").values()) == {1}
    assert all("/" in item["node"] and item["device"] == "Fake 9000" for item in bench.outcomes("there"))


def test_a_killed_actor_costs_a_try_and_takes_its_worker_along(tmp_path: Path, cluster: Cluster) -> None:
    bench = Bench(tmp_path, [SLOW] * 6)
    with bench.start("--to", "there", "--ray", cluster.address, environment=cluster.environment) as process:
        actor, below = until(lambda: working(cluster)).popitem()
        os.kill(actor, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
        _out, told = process.communicate(timeout=200)
    assert process.returncode == 0, told
    assert "lost a slot on" in told
    assert set(bench.ends("there").values()) == {1}
    assert len(bench.outcomes("there")) == 6


def test_actors_end_with_the_command_however_it_ends(tmp_path: Path, cluster: Cluster) -> None:
    bench = Bench(tmp_path, [SLOW] * 20)
    for how in (signal.SIGKILL, signal.SIGTERM):
        words = ("--to", "there", "--ray", cluster.address, *(["--resume"] if how == signal.SIGTERM else []))
        with bench.start(*words, environment=cluster.environment) as process:
            before = len(bench.outcomes("there"))
            until(lambda before=before: len(bench.outcomes("there")) > before)  # type: ignore[misc]
            process.send_signal(how)
        until(lambda: not slots(cluster))


@pytest.mark.long
def test_each_worker_sees_the_gpu_that_ray_gave_its_actor_and_no_other(tmp_path: Path) -> None:
    bench, cluster = Bench(tmp_path, [SLOW] * 6), Cluster(0, FAKE_SLOW="1.0", FAKE_DEVICE="cuda:0")
    try:
        cluster.tell("gpus 2")
        with bench.start("--to", "there", "--ray", cluster.address, environment=cluster.environment) as process:
            found = until(lambda: len(found := working(cluster)) == 2 and found)
            seen = [{setting(pid, "CUDA_VISIBLE_DEVICES") for pid in below} for below in found.values()]
            _out, told = process.communicate(timeout=200)
    finally:
        cluster.close()
    assert process.returncode == 0, told
    assert sorted(map(sorted, seen)) == [["0"], ["1"]]
    assert len(bench.outcomes("there")) == 6


def working(cluster: Cluster) -> dict[int, list[int]]:
    """The cluster's actors that have a worker: their pids, each with those of all processes below it."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = setting(int(place.name), "RAY_TMPDIR") == str(cluster.folder)
            if is_ours and b"ray::BenchActor" in (place / "cmdline").read_bytes():
                found[int(place.name)] = descendants(int(place.name))
    return {pid: below for pid, below in found.items() if below}


def setting(pid: int, name: str) -> str:
    """A variable of a process's environment."""
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), "")


def descendants(pid: int) -> list[int]:
    children: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (thread / "children").read_text().split())
    return children + [other for child in children for other in descendants(child)]


@pytest.mark.long
def test_two_hundred_jobs_end_once_while_a_node_dies_and_another_comes(tmp_path: Path) -> None:
    kinds = [GOOD] * 120 + [WRONG] * 40 + [CRASHES] * 34 + [HANGS] * 6
    bench = Bench(tmp_path, [kinds[number * 67 % 200] for number in range(200)])
    cluster = Cluster(3)
    try:
        with bench.start("--to", "there", "--ray", cluster.address, environment=cluster.environment) as process:
            until(lambda: len(bench.outcomes("there")) >= 40)
            cluster.tell("kill 0")
            until(lambda: len(bench.outcomes("there")) >= 80)
            cluster.tell("add")
            _out, told = process.communicate(timeout=400)
        assert process.returncode == 1, told
    finally:
        cluster.close()
    assert len(bench.outcomes("there")) == 200
    assert len({item["node"] for item in bench.outcomes("there")}) >= 3, told
    bench.run("--to", "here")
    assert said(bench.outcomes("there")) == said(bench.outcomes("here"))
    assert bench.ends("there") == bench.ends("here")


@pytest.mark.long
def test_after_the_head_is_gone_resume_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [SLOW] * 60)
    cluster = Cluster(2, FAKE_SLOW="0.5")
    try:
        with bench.start("--to", "there", "--ray", cluster.address, environment=cluster.environment) as process:
            until(lambda: len(bench.outcomes("there")) >= 3)
            cluster.tell("head")
            before = len(bench.outcomes("there"))
            _out, told = process.communicate(timeout=200)
    finally:
        cluster.close()
    kept = bench.outcomes("there")
    assert process.returncode == 2
    assert "go on with `--resume`" in told, told
    assert before < len(kept) < 60  # results still come until Ray ends the driver
    cluster = Cluster(1, FAKE_SLOW="0.01")
    try:
        code, told = bench.run("--to", "there", "--resume", "--ray", cluster.address, environment=cluster.environment)
    finally:
        cluster.close()
    assert code == 0, told
    assert bench.outcomes("there")[: len(kept)] == kept
    assert sorted(said(bench.outcomes("there"))) == sorted(f"{number}_problem" for number in range(60))
    assert len(bench.outcomes("there")) == 60
    assert set(bench.ends("there").values()) == {1}
