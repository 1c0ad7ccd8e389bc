"""The real ncu on a real GPU: kernels with known faults, a standby that costs nothing, a kernel that never ends."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.lines import to_dict
from kernbench.diagnosis.counters import Profile, read_csv
from kernbench.diagnosis.rules import diagnose
from kernbench.machine.telemetry import MachineReader
from kernbench.ncu import nsight
from kernbench.ncu import standby as ncu
from tests.ncu.test_standby import gone

pytestmark = [pytest.mark.gpu, pytest.mark.anyio, pytest.mark.timeout(300)]
FAULTS = Path(__file__).parent / "faults"
EXPECTED = {
    "copy": "at the limit",
    "strided": "bandwidth",
    "spills": "spills",
    "shared_limit": "occupancy",
    "few_blocks": "launch",
    "conflicts": "shared memory",
    "compute": "instructions",
    "three": "fusion",
}


@pytest.fixture
def setup() -> ncu.Setup:
    try:
        tool = nsight.find()
    except nsight.NoNcu as problem:
        pytest.skip(str(problem))
    return ncu.Setup(os.environ.get("KERNBENCH_TEST_PYTHON", sys.executable), "cuda:0", tool)


def request(case: str, build: Path) -> dict[str, Any]:
    side = {"name": "solution", "kind": "file", "file": "solution.py", "source": str(FAULTS)}
    return {"task": to_dict(taskfile.load(FAULTS)), "case": case, "build": str(build), "sides": [side]}


async def test_known_faults_are_named(setup: ncu.Setup, tmp_path: Path) -> None:
    standbys = await asyncio.gather(*(ncu.Standby.start(setup) for _ in EXPECTED))
    found = {}
    for case, standby in zip(EXPECTED, standbys, strict=True):
        outcome = await standby.profile(request(case, tmp_path))
        assert outcome.problem is None
        needed = outcome.facts["solution"]["needed_bytes"]
        found[case] = diagnose(Profile(read_csv(outcome.text).kernels, needed_bytes=needed)).bound
        await standby.close()
    assert found == EXPECTED


async def test_an_endless_kernel_is_killed_and_leaves_nobody(setup: ncu.Setup, tmp_path: Path) -> None:
    standby = await ncu.Standby.start(setup)
    outcome = await standby.profile(request("endless", tmp_path), seconds=5.0)
    assert outcome.problem is not None
    assert outcome.problem.code == "timed_out"
    await standby.close()
    assert await gone(standby)


async def test_what_waits_under_ncu_is_no_stranger_on_the_gpu(setup: ncu.Setup) -> None:
    reader = MachineReader()
    before = _computing(reader)
    standby = await ncu.Standby.start(setup)
    try:
        assert await standby.wait_ready()
        came = {pid: ours for pid, ours in _computing(reader).items() if pid not in before}
    finally:
        await standby.close()
    if not came:
        pytest.skip("NVML does not list the processes of this container")
    assert set(came.values()) == {True}


def _computing(reader: MachineReader) -> dict[int, bool]:
    return {process.pid: process.ours for gpu in reader.read().gpus for process in gpu.processes or ()}


async def test_a_call_without_kernels_says_so(setup: ncu.Setup, tmp_path: Path) -> None:
    standby = await ncu.Standby.start(setup)
    outcome = await standby.profile(request("silent", tmp_path))
    assert outcome.problem is not None
    assert outcome.problem.code == "no_kernel"
    await standby.close()
