"""The standby over a fake ncu: warm, cold, killed, refused; and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import get_args

import pytest

from kernbench.diagnosis.counters import read_csv
from kernbench.events import RefusalCode
from kernbench.ncu import nsight, refusals
from kernbench.ncu import standby as ncu
from tests.ncu.kept_csv import NCU

pytestmark = pytest.mark.anyio
REQUEST = {"task": {}, "sides": [{"name": "solution"}]}


@pytest.fixture
async def start(harness: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., object]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened: list[ncu.Standby] = []

    async def make(tool: Path | None = NCU, full: bool = False) -> ncu.Standby:
        opened.append(await ncu.Standby.start(ncu.Setup(sys.executable, "cuda:0", tool, harness), full))
        return opened[-1]

    yield make
    for standby in opened:
        await standby.close()
        assert not standby.folder.exists()
        assert await gone(standby)


def group_of(standby: ncu.Standby) -> list[str]:
    """State of every process in the standby's group."""
    return [] if standby.group is None else alive_in(standby.group)


def alive_in(group: int) -> list[str]:
    """State of every process in the group; one may be gone between two looks at it."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.getpgid(int(entry)) == group:
                found.append(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0])
    return [state for state in found if state != "Z"]


async def gone(standby: ncu.Standby) -> bool:
    """Whether nobody of the group is left; a killed process may take a moment to go."""
    for _ in range(200):
        if not group_of(standby):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.usefixtures("rms_csv")
async def test_a_key_is_answered_by_the_one_that_waits(start: Callable) -> None:
    standby = await start()
    assert await standby.wait_ready()
    outcome = await standby.profile({**REQUEST, "case": "a"})
    assert outcome.problem is None
    assert [kernel.name for kernel in read_csv(outcome.text).kernels] == ["_rms_norm"]
    assert outcome.facts["solution"]["needed_bytes"] == 1_000_000
    assert outcome.gpu["name"] == "Fake 9000"
    assert not standby.alive


async def test_it_is_stopped_while_it_waits(start: Callable) -> None:
    standby = await start()
    assert await standby.wait_ready()
    for _ in range(200):
        if set(group_of(standby)) == {"T"}:
            break
        await asyncio.sleep(0.01)
    assert set(group_of(standby)) == {"T"}


async def test_a_kernel_that_never_ends_is_killed_with_what_it_started(start: Callable) -> None:
    standby = await start()
    outcome = await standby.profile({**REQUEST, "case": "hang"}, seconds=1.0)
    assert outcome.problem in [refusals.timed_out(step, 1.0) for step in ("load", "profile")]
    assert await gone(standby)


async def test_ncu_killed_from_outside_is_a_sentence(start: Callable) -> None:
    standby = await start()
    await standby.wait_ready()
    asking = asyncio.create_task(standby.profile({**REQUEST, "case": "hang"}, seconds=30))
    while standby._step != "profile":
        await asyncio.sleep(0.01)
    os.killpg(standby.group, signal.SIGKILL)
    outcome = await asking
    assert outcome.problem is not None
    assert outcome.problem.code == "ended"
    assert outcome.problem.text.startswith("ncu was killed")


async def test_the_sources_own_fault_has_its_place(start: Callable) -> None:
    outcome = await (await start()).profile({**REQUEST, "case": "raise"})
    assert outcome.problem == refusals.Refusal("side_failed", "the solution failed: NameError: boom")
    assert str(outcome.where) == "solution.py:7"


async def test_a_crash_is_told(start: Callable) -> None:
    outcome = await (await start()).profile({**REQUEST, "case": "crash"})
    assert outcome.problem is not None
    assert outcome.problem.code == "ncu_failed"
    assert outcome.problem.text == "ncu failed: The application returned an error code (-11)."


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("FAKE_NCU", "permission", "permission"),
        ("FAKE_NCU", "counters", "counters_taken"),
        ("FAKE_NCU_CSV", "none", "no_kernel"),
        ("FAKE_TARGET", "busy", "exclusive"),
    ],
)
async def test_refusals(start: Callable, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, code: str) -> None:
    monkeypatch.setenv(variable, value)
    outcome = await (await start()).profile({**REQUEST, "case": "a"})
    assert outcome.problem is not None
    assert outcome.problem.code == code


@pytest.mark.usefixtures("rms_csv")
async def test_the_full_set_leaves_a_report(start: Callable) -> None:
    standby = await start(full=True)
    outcome = await standby.profile({**REQUEST, "case": "a"})
    assert outcome.report is not None
    assert outcome.report.read_bytes() == b"a report"


async def test_without_ncu_the_compilers_facts_come_all_the_same(start: Callable) -> None:
    outcome = await (await start(tool=None)).profile({**REQUEST, "case": "a"})
    assert outcome.problem is None
    assert outcome.facts["solution"]["kernels"][0]["registers"] == 40


async def test_nothing_outlives_a_workbench_that_is_killed(harness: Path) -> None:
    """The workbench dies without a word while ncu is stopped; the guard takes the group down."""
    code = f"""
import asyncio, sys
from pathlib import Path
from kernbench.ncu import standby as ncu
async def main():
    standby = await ncu.Standby.start(ncu.Setup(sys.executable, "cuda:0", Path({str(NCU)!r}), Path({str(harness)!r})))
    await standby.wait_ready()
    print(standby.group, standby.folder, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    workbench = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert workbench.stdout is not None
    group, folder = workbench.stdout.readline().split()
    workbench.kill()
    workbench.wait()
    workbench.stdout.close()
    for _ in range(300):
        if not alive_in(int(group)):
            break
        time.sleep(0.02)
    else:
        pytest.fail(f"group {group} is still there")
    subprocess.run(["rm", "-rf", folder], check=True)


async def test_the_version_is_asked_of_ncu_itself(tmp_path: Path) -> None:
    assert await nsight.version(NCU) == "2025.3.1"
    with pytest.raises(nsight.NoNcu, match="does not print its version"):
        await nsight.version(Path("/bin/true"))


def test_no_ncu_names_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(nsight, "TOOLKITS", (tmp_path / "toolkit", tmp_path / "nsight"))
    monkeypatch.setattr(nsight, "DRIVERS", (tmp_path / "driver",))
    with pytest.raises(nsight.NoNcu, match="no NVIDIA GPU here"):
        nsight.find()
    (tmp_path / "driver").mkdir()
    with pytest.raises(nsight.NoNcu, match=r"no ncu in PATH, .*/cuda/bin, .*toolkit, .*nsight/\*.*--ncu PATH"):
        nsight.find()
    with pytest.raises(nsight.NoNcu, match="is not an executable file"):
        nsight.find(str(tmp_path / "nothing"))
    (tmp_path / "nsight" / "2024.1.0").mkdir(parents=True)
    (tmp_path / "nsight" / "2025.3.1").mkdir()
    for folder in (tmp_path / "nsight").iterdir():
        (folder / "ncu").touch()
    assert nsight.find().parent.name == "2025.3.1"


def test_permission_is_known_beforehand(tmp_path: Path) -> None:
    params, status = tmp_path / "params", tmp_path / "status"
    params.write_text("RmProfilingAdminOnly: 1\n")
    status.write_text("Name:\tx\nCapEff:\t0000000000000000\n")
    assert not nsight.permitted(params, status)
    status.write_text("CapEff:\t000001ffffffffff\n")
    assert nsight.permitted(params, status)
    status.write_text("CapEff:\t0000004000000000\n")
    assert nsight.permitted(params, status)
    params.write_text("RmProfilingAdminOnly: 0\n")
    status.write_text("CapEff:\t0000000000000000\n")
    assert nsight.permitted(params, status)
    assert nsight.permitted(tmp_path / "none", status)


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("==ERROR== InterprocessLockFailed: /tmp/nsight-compute-lock", "lock", "cannot write its lock file"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "no_counters", "LibraryNotLoaded"),
        ("==ERROR== Cuda driver is not compatible with Nsight Compute", "driver_mismatch", "does not match the driver"),
        ("==ERROR== Profiling is not supported on this device", "unknown_gpu", "newer Nsight Compute"),
        ("==ERROR== Failed to find metric lts__t_x", "unknown_metrics", "does not know some of the metrics"),
        ("==ERROR== AcceleratorError: CUDA error: out of memory", "no_room", "not enough free GPU memory"),
        ("==ERROR== Something new happened", "ncu_failed", "ncu failed: Something new happened"),
        ("AcceleratorError: CUDA error: invalid device ordinal", "no_device", "torch does not see this CUDA device"),
        ("", "ended", "ncu exited with code 9: it printed nothing"),
    ],
)
def test_every_complaint_becomes_one_sentence(text: str, code: str, part: str) -> None:
    said = refusals.explain(text, "exited with code 9")
    assert said.code == code
    assert part in said.text
    assert "\n" not in said.text


def test_every_refusal_has_words_and_all_words_a_code() -> None:
    assert set(refusals.WORDS) == set(get_args(RefusalCode))
    assert len(set(refusals.WORDS.values())) == len(refusals.WORDS)
    assert set(refusals.WORDS) > refusals.LASTING | refusals.NO_DEVICE


@pytest.mark.parametrize("code", get_args(RefusalCode))
def test_a_refusal_fills_its_gaps(code: RefusalCode) -> None:
    gaps = {name for _text, name, _format, _conversion in string.Formatter().parse(refusals.WORDS[code]) if name}
    values = {name: 7.0 if name == "seconds" else f"<{name}>" for name in gaps - {"who"}}
    found = refusals.refuse(code, **values)
    assert found.code == code
    assert all(str(value).removesuffix(".0") in found.text for value in values.values())
    assert ("who" not in gaps) or "ncu" in found.text


def test_a_trace_is_made_without_ncu_and_says_so() -> None:
    """Only who was at work is named: what the kernel itself raised stays as it is, whatever it is about."""
    who = refusals.TRACED_CALL
    assert refusals.timed_out("load", 60.0, who).text.startswith("the traced call was still loading the source")
    assert refusals.explain("", "exited with code 9", who=who).text == (
        "the traced call exited with code 9: it printed nothing"
    )
    failed = refusals.explain("==ERROR== ncu is not here", "exited with code 9", who=who)
    assert failed == refusals.Refusal("ncu_failed", "the traced call failed: ncu is not here")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("start", "was still starting after 60 s and was killed"),
        ("inputs", "was still making the inputs after 60 s and was killed"),
        ("build", "was still in the first call of the kernel after 60 s and was killed; does the kernel ever finish?"),
        ("profile", "was still replaying the kernel after 60 s and was killed; does the kernel ever finish?"),
        ("done", "had not ended after 60 s and was killed"),
    ],
)
def test_only_a_kernel_that_was_called_is_doubted(step: str, said: str) -> None:
    assert refusals.timed_out(step, 60.0).text == f"ncu {said}"


@pytest.mark.parametrize(
    ("side", "named"),
    [("baseline", "the baseline"), ("best", "the best source"), ("7", "iteration 7"), ("ab12cd", "source ab12cd")],
)
def test_the_side_that_failed_is_named(side: str, named: str) -> None:
    assert refusals.side_failed(side, "boom") == refusals.Refusal("side_failed", f"{named} failed: boom")


def test_a_target_that_finished_without_a_kernel_is_no_failure_of_ncu() -> None:
    stopped = "==ERROR== The application returned an error code (18)."
    assert refusals.explain(stopped, "exited with code 9", finished=True).code == "no_kernel"
    assert refusals.explain(stopped, "exited with code 9").code == "ncu_failed"
    full = refusals.explain(f"{stopped}\n==ERROR== Disk full", "exited with code 9", finished=True)
    assert full == refusals.Refusal("ncu_failed", "ncu failed: Disk full")
