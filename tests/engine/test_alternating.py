"""Good and crashing saves in turn: no process left behind, no line of runs.jsonl lost. KERNBENCH_LONG=400 for more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernbench.events import Summary
from tests.sessions import Watched, gone, write

ROUNDS = int(os.environ.get("KERNBENCH_LONG", "24"))
BAD = ['DO = "crash"\nON = "b"', 'DO = "exit"\nON = "a"', 'DO = "crash_load"', 'DO = "cuda"\nON = "c"', 'DO = "wrong"']


@pytest.mark.anyio
@pytest.mark.timeout(600)
async def test_a_day_of_alternating_saves(watched: Callable[..., Watched], folder: Path) -> None:
    it = watched()
    pids: set[int] = set()
    for number in range(ROUNDS):
        write(folder, BAD[number % len(BAD)] + f"\nNUMBER = {number}")
        await it.session.run_once(iteration=True)
        pids.update(it.session.supervisor.pids)
        await it.session.supervisor.prepare_spare()
        pids.update(it.session.supervisor.pids)
        write(folder, f"TIME_US = 50.0\nNUMBER = {number}")
        outcome = await it.session.run_once(iteration=True)
        assert isinstance(outcome, Summary)
        assert outcome.right
    await it.session.close()
    assert [pid for pid in pids if not gone(pid)] == []
    lines = [json.loads(line) for line in it.session.logbook.journal.path.read_text().splitlines()]
    runs = {line["run"] for line in lines if line["event"] == "start"}
    ended = [line["run"] for line in lines if line["event"] in ("finished", "failed")]
    assert len(runs) == 2 * ROUNDS
    assert sorted(ended) == sorted(runs)
    numbers = [line["iteration"] for line in lines if line["event"] == "finished"]
    assert numbers == list(range(1, len(numbers) + 1))
