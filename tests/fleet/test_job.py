"""What is sent to a node, and what an actor does with it: all of it without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.shared.taskfile import load
from kernbench.engine.jobs import Options, SharedWorker
from kernbench.fleet import job as jobs
from kernbench.fleet.bench_actor import BenchActor
from kernbench.fleet.job import Job
from kernbench.log.runs.journal import Journal
from kernbench.suites import suite_run
from kernbench.task import snapshot
from kernbench.worker.deadlines import Deadlines
from tests import FAKE, ROOT
from tests.sessions import HASTY, PATIENT, write


def job_of(folder: Path, name: str = "toy") -> Job:
    return jobs.packed(jobs.item_of(name, snapshot.take(folder, folder / ".kernbench", load(folder)), folder))


@contextlib.asynccontextmanager
async def actor(cache: Path, deadlines: Deadlines = PATIENT) -> AsyncIterator[BenchActor]:
    settings = jobs.settings_of(Options(harness=FAKE, deadlines=deadlines))
    bench = BenchActor("here", json.loads(json.dumps(settings)), has_gpu=False, cache=str(cache))
    try:
        yield bench
    finally:
        await bench.close()


def test_a_job_is_the_folders_content_with_links_resolved(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/table.py").write_text("TABLE = 1\n")
    (folder / "linked.py").symlink_to(tmp_path / "elsewhere/table.py")
    (folder / "parts").symlink_to(tmp_path / "elsewhere")
    (folder / "NOTES.md").write_text("mine")
    job = job_of(folder)
    assert {"task.toml", "solution.py", "linked.py", "parts/table.py"} <= set(job.files)
    assert "NOTES.md" not in job.files
    there = jobs.unpacked(job, tmp_path / "cache")
    assert (there / "linked.py").read_text() == "TABLE = 1\n"
    assert not (there / "linked.py").is_symlink()
    assert load(there).hash == load(folder).hash
    assert job_of(there).sha == job.sha
    write(folder, "TIME_US = 1.0")
    assert job_of(folder).sha != job.sha


def test_a_node_writes_a_source_once_and_again_only_if_something_changed_it(folder: Path, tmp_path: Path) -> None:
    job, cache = job_of(folder), tmp_path / "cache"
    solution = jobs.unpacked(job, cache) / "solution.py"
    before = solution.stat().st_ino
    assert jobs.unpacked(job, cache) / "solution.py" == solution
    assert solution.stat().st_ino == before
    with solution.open("a") as file:
        file.write("# a kernel wrote this\n")
    assert (jobs.unpacked(job, cache) / "solution.py").read_bytes() == job.files["solution.py"]
    os.utime(cache / job.sha, (0, 0))
    jobs.remove_old(cache)
    assert list(cache.iterdir()) == []


def test_options_survive_the_way_as_plain_data() -> None:
    options = Options(baseline="compile", case="*16*", quick=True, deadlines=HASTY, harness=FAKE, budget_ms=20.0)
    assert jobs.options_of(json.loads(json.dumps(jobs.settings_of(options)))) == options


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["TIME_US = 50.0", 'DO = "wrong"', 'DO = "crash"', 'DO = "syntax"', 'DO = "hang"'])
async def test_an_actor_finds_what_a_run_at_home_finds(folder: Path, tmp_path: Path, text: str) -> None:
    write(folder, text)
    limits = HASTY if "hang" in text else PATIENT
    async with actor(tmp_path / "cache", limits) as bench:
        found = await bench.run(job_of(folder))
    worker = SharedWorker()
    here = suite_run.unattended(Options(harness=FAKE, deadlines=limits), worker)
    expected = await suite_run.run_problem("toy", load(folder), here, tmp_path / "state")
    await worker.close()
    outcome = suite_run.outcome_of(found["outcome"])
    assert (outcome.status, outcome.detail, outcome.speedup) == (expected.status, expected.detail, expected.speedup)
    assert (outcome.node, outcome.device) == ("here", "Fake 9000")
    assert not any(str(tmp_path / "cache") in line for line in found["lines"])
    (folder / ".kernbench/runs.jsonl").write_text("".join(f"{line}\n" for line in found["lines"]))
    journals = [Journal(place) for place in (folder / ".kernbench", tmp_path / "state")]
    counted = [[(run.source, run.right, run.geomean, run.task_hash) for run in item.summaries] for item in journals]
    assert counted[0] == counted[1]
    assert [place.name for place in (tmp_path / "cache").iterdir()] == [snapshot.sha_of(folder, folder / ".kernbench")]


@pytest.mark.anyio
async def test_a_worker_stays_warm_from_job_to_job_and_its_actor_says_what_it_does(
    folder: Path, tmp_path: Path
) -> None:
    async with actor(tmp_path / "cache") as bench:
        await bench.run(job_of(folder))
        assert (bench.now()["job"], bench.now()["done"]) == ("", 1)
        supervisor: Any = bench._worker._supervisor
        pids = supervisor.pids
        write(folder, 'DO = "slow"')
        running = asyncio.ensure_future(bench.run(job_of(folder, "slow one")))
        while not bench.now()["job"]:
            await asyncio.sleep(0.005)
        assert bench.now()["job"] == "slow one"
        await running
        assert supervisor.pids == pids


HANGS = """
import asyncio, pickle, sys
from kernbench.fleet.bench_actor import BenchActor
node, settings, cache, job = pickle.load(sys.stdin.buffer)
bench = BenchActor(node, settings, False, cache)
async def main():
    running = asyncio.ensure_future(bench.run(job))
    while not (bench._worker._supervisor and bench._worker._supervisor.pids):
        await asyncio.sleep(0.01)
    print(*bench._worker._supervisor.pids, flush=True)
    await running
asyncio.run(main())
"""


def test_a_workers_tree_dies_with_its_actor_even_by_kill_9(folder: Path, tmp_path: Path) -> None:
    import pickle

    write(folder, 'DO = "hang"')
    settings = jobs.settings_of(Options(harness=FAKE, deadlines=PATIENT))
    command = [sys.executable, "-c", HANGS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pickle.dump(("here", settings, str(tmp_path / "cache"), job_of(folder)), process.stdin)
        process.stdin.close()
        (worker,) = map(int, process.stdout.readline().split())
        assert Path(f"/proc/{worker}").exists()
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < until, "the worker outlived its actor"
        time.sleep(0.02)
