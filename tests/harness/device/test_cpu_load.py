"""How busy other programs keep the CPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.device import cpu_load, own_processes
from harness.device.cpu_load import CpuLoad, Load
from tests.harness.device.test_own_processes import grandchild

SPINS = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass"


class Machine:
    """A machine of two CPUs with clocks that a test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.spent, self.own = 100.0, 50.0, {1: 5.0, 2: 7.0}
        self.known = [1, 2]
        monkeypatch.setattr(cpu_load, "now", lambda: self.now)
        monkeypatch.setattr(cpu_load, "machine_seconds", lambda cpus: self.spent)
        monkeypatch.setattr(own_processes, "find", lambda: list(self.known))
        monkeypatch.setattr(own_processes, "cpu_seconds", lambda pid: self.own.get(pid, 0.0))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3})

    def passes(self, seconds: float, others: float, **own: float) -> None:
        """`others` and `p1=...` are the CPU seconds spent meanwhile."""
        self.now += seconds
        for name, spent in own.items():
            self.own[int(name[1:])] = self.own.get(int(name[1:]), 0.0) + spent
        self.spent += others + sum(own.values())


def test_what_others_spent_is_what_we_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    load = CpuLoad()
    machine.passes(10.0, others=20.0)
    load.begin()
    machine.passes(0.1, others=0.02, p1=0.1, p2=0.03)
    assert load.end() == (pytest.approx(0.2), 2)
    load.begin()
    machine.passes(0.1, others=0.1, p1=0.1)
    assert load.end() == (pytest.approx(1.0), 2)


def test_a_compiler_that_we_have_just_started_is_not_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    load = CpuLoad()
    load.begin()
    machine.known.append(3)
    machine.passes(0.1, others=0.0, p1=0.1, p3=0.1)
    assert load.end() == (pytest.approx(0.0, abs=1e-9), 2)
    load.begin()
    machine.passes(0.1, others=0.1, p1=0.05, p3=0.05)
    found = load.end()
    assert found == (pytest.approx(1.0), 2)


def test_nothing_is_said_of_a_moment_or_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    load = CpuLoad()
    load.begin()
    machine.passes(0.04, others=0.08)
    assert load.end() is None
    machine.spent = 0.0
    load.begin()
    machine.now += 1.0
    assert load.end() is None


@pytest.mark.parametrize(
    ("busy", "cpus", "is_high"), [(0.4, 2, False), (0.5, 2, True), (1.0, 8, True), (1.0, 16, False), (6.5, 64, True)]
)
def test_how_much_is_busy(busy: float, cpus: int, is_high: bool) -> None:
    assert Load(busy, cpus).is_high is is_high


def test_only_the_cpus_that_we_may_use_count() -> None:
    every = len([line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]) - 1
    each = [cpu_load.machine_seconds(frozenset({cpu})) for cpu in range(every)]
    assert all(spent > 0 for spent in each)
    assert cpu_load.machine_seconds(frozenset(range(every))) > sum(each) - 0.005
    assert cpu_load.machine_seconds(frozenset()) == 0.0


def test_a_busy_loop_of_somebody_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNBENCH_PID", str(os.getpid()))
    mine = set(os.sched_getaffinity(0))
    with grandchild(SPINS, outlives=True) as pid:
        os.sched_setaffinity(0, {min(mine)})
        os.sched_setaffinity(pid, {min(mine)})
        try:
            load = CpuLoad()
            load.begin()
            time.sleep(0.5)
            found = load.end()
        finally:
            os.sched_setaffinity(0, mine)
    assert found is not None
    assert found.cpus == 1
    assert found.is_high
