"""Session.profile over the fakes: the run rests and goes on, answers are kept, failures are sentences."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.shared import taskfile
from harness.shared.results import CaseResult
from kernbench.cli import main as kernbench
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import CaseLanded, LogLine, ProfileFailed, ProfileReady, ProfileStarted, RunCancelled, RunFinished
from kernbench.ncu import refusals, standby
from kernbench.ncu.profile_store import Profiles
from tests.ncu.kept_csv import DATA, NCU
from tests.ncu.test_standby import gone
from tests.sessions import TASK, Watched


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_DEVICE", "cuda:0")
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "task.toml").write_text(TASK.replace('device = "cpu"', 'baseline = "eager"'))
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef toy(): ...\n")
    (folder / "solution.py").write_text("def toy(): ...\nTIME_US = 50.0\n")
    return folder


@pytest.fixture
async def watched(task: Path, harness: Path) -> AsyncIterator[Callable[..., Watched]]:
    opened: list[Session] = []

    def make(**options: object) -> Watched:
        settings = {"harness": harness, "ncu": str(NCU), "spares": False, "floors": False, **options}
        session = Session(taskfile.load(task), task / ".kernbench", Options(**settings))  # type: ignore[arg-type]
        opened.append(session)
        return Watched(session)

    yield make
    for session in opened:
        await session.close()


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_a_case_is_explained_without_a_run(watched: Callable[..., Watched]) -> None:
    it = watched()
    answer = await it.session.profile("a")
    assert isinstance(answer, ProfileReady)
    assert answer.profile.kernels[0].name == "_rms_norm"
    assert (answer.profile.case, answer.profile.label, answer.profile.gpu) == ("a", "a 16x16", "Fake 9000")
    assert answer.profile.facts[0].occupancy_pct == 75.0
    assert answer.diagnosis.bound == "latency"
    tried = await it.session.archive.tried()  # at the least from the shipped logs
    assert {technique.name for technique in answer.diagnosis.tries} & set(tried)
    assert it.of(ProfileStarted) == [ProfileStarted("a", False, warm=False)]
    assert it.of(ProfileReady) == [answer]
    assert LogLine('"0","1","printed by the kernel"') in it.events


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_what_bounds_a_row_is_part_of_its_profile(watched: Callable[..., Watched], task: Path) -> None:
    it = watched()
    row = CaseResult("a", "ok", clock="device", solution_us=50.0, roofline=0.4, bound="compute")
    it.session.logbook.journal.last_cases["a"] = row
    answer = await it.session.profile("a")
    assert isinstance(answer, ProfileReady)
    assert answer.profile.bound == "compute"
    (kept,) = Profiles(task / ".kernbench").newest()
    assert kept.bound == "compute"


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_a_run_rests_between_two_rows_and_goes_on(
    watched: Callable[..., Watched], task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task / "solution.py").write_text('def toy(): ...\nTIME_US = 50.0\nDO = "slow"\n')
    it = watched(standby=False)
    lend, lent_at = it.session.supervisor.lend_gpu, list[int]()

    async def lend_and_note() -> None:
        await lend()
        lent_at.append(len(it.events))

    monkeypatch.setattr(it.session.supervisor, "lend_gpu", lend_and_note)
    await it.session.start()
    await it.until(lambda: len(it.of(CaseLanded)) >= 2)
    answer = await it.session.profile("b")
    assert isinstance(answer, ProfileReady)
    at = it.events.index(answer)
    landed = sum(isinstance(event, CaseLanded) for event in it.events[:at])
    assert landed < 12
    await it.until(lambda: bool(it.of(RunFinished)))
    assert not it.of(RunCancelled)
    assert len(it.of(CaseLanded)) == 12
    assert ProfileStarted("b", False, False) in it.events
    assert not any(isinstance(event, CaseLanded) for event in it.events[lent_at[0] : at])


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_a_save_while_a_case_is_explained_waits_for_it(watched: Callable[..., Watched], task: Path) -> None:
    it = watched(standby=False)
    await it.session.start()
    await it.ended(1)
    asking = asyncio.create_task(it.session.profile("a"))
    await it.until(lambda: bool(it.of(ProfileStarted)))
    it.session.rerun()
    answer = await asking
    assert isinstance(answer, ProfileReady)
    await it.ended(2)
    second = next(event for event in reversed(it.events) if isinstance(event, RunFinished))
    assert it.events.index(answer) < it.events.index(second)


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
@pytest.mark.parametrize("starts", ["at once", "slow"])
async def test_a_profile_that_is_being_taken_goes_with_its_task(
    watched: Callable[..., Watched], task: Path, monkeypatch: pytest.MonkeyPatch, starts: str
) -> None:
    """Opening another task leaves no ncu of the last one beside it, and a key that waited for its turn starts none."""
    text = (task / "task.toml").read_text()
    (task / "task.toml").write_text(text.replace('id = "a"', 'id = "hang"', 1))
    started: list[standby.Standby] = []
    start = standby.Standby.start

    async def noted(*words: Any, **named: Any) -> standby.Standby:
        started.append(await start(*words, **named))
        return started[-1]

    monkeypatch.setattr(standby.Standby, "start", noted)
    monkeypatch.setenv("FAKE_TARGET", starts)
    it = watched(standby=False)
    taken, waiting = (asyncio.create_task(it.session.profile("hang")) for _ in range(2))
    async with asyncio.timeout(60):
        while not (started if starts == "slow" else LogLine('"0","1","printed by the kernel"') in it.events):
            await asyncio.sleep(0.05)
    await it.session.close()
    assert taken.cancelled()
    answer = await waiting
    assert isinstance(answer, ProfileFailed)
    assert answer.code == "task_left"
    (only,) = started
    assert not only.folder.exists()
    assert await gone(only)


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_the_standby_comes_up_while_nothing_runs(watched: Callable[..., Watched]) -> None:
    it = watched()
    await it.session.start()
    await it.ended(1)
    profiler = it.session.explainer.profiler
    async with asyncio.timeout(60):
        while not profiler.is_warm():
            await asyncio.sleep(0.02)
    answer = await it.session.profile("a")
    assert isinstance(answer, ProfileReady)
    assert it.of(ProfileStarted) == [ProfileStarted("a", False, warm=True)]
    async with asyncio.timeout(60):
        while not (profiler.is_warm() and profiler.is_warm(full=True)):
            await asyncio.sleep(0.02)


@pytest.mark.anyio
async def test_before_and_after_come_from_one_call_and_then_from_what_was_kept(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = (DATA / "three.csv").read_text().splitlines()
    row = next(index for index, line in enumerate(lines) if line.startswith('"1"'))
    names = lines[row].split('","')
    names[4] = "at::cuda::<unnamed>::spin_kernel(long)"
    lines[row] = '","'.join(names)
    (tmp_path / "two.csv").write_text("\n".join(lines))
    monkeypatch.setenv("FAKE_NCU_CSV", str(tmp_path / "two.csv"))
    it = watched()
    both = await it.session.profile("a", "baseline")
    assert isinstance(both, ProfileReady)
    assert both.other is not None
    assert (both.profile.side, both.other.side) == ("solution", "baseline")
    assert both.other.source.startswith("eager@")
    monkeypatch.setenv("FAKE_NCU_CSV", str(DATA / "copy.csv"))
    again = await it.session.profile("a", "baseline")
    assert isinstance(again, ProfileReady)
    assert again.profile.kernels[0].name == "copy"
    assert again.other == both.other


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_the_full_set_keeps_its_report_and_reads_it_back(watched: Callable[..., Watched]) -> None:
    it = watched()
    answer = await it.session.profile("a", full=True)
    assert isinstance(answer, ProfileReady)
    assert Path(answer.profile.report).read_bytes() == b"a report"
    found = await it.session.explainer.profiler.drilldown(answer.profile)
    assert "Section: GPU Speed Of Light Throughput" in found.details
    assert found.lines[0].line == 15


@pytest.mark.anyio
async def test_without_permission_the_compilers_facts_are_shown(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU", "permission")
    it = watched()
    answer = await it.session.profile("a")
    assert isinstance(answer, ProfileFailed)
    assert answer.code == "permission"
    assert "ERR_NVGPUCTRPERM" in answer.message
    assert answer.known is not None
    assert answer.known.facts[0].registers == 40
    assert it.session.explainer.profiler.refused == refusals.refuse("permission")


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_a_gpu_for_one_process_is_had_by_sending_the_idle_worker_away(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TARGET", str(os.getpid()))
    it = watched()
    await it.session.start()
    await it.ended(1)
    assert isinstance(await it.session.profile("a"), ProfileReady)
    profiler = it.session.explainer.profiler
    for _ in range(25):  # a standby would keep the GPU, and the next save find it taken
        assert not profiler.starting
        assert not profiler.is_warm()
        await asyncio.sleep(0.02)
    it.session.rerun()
    await it.ended(2)


@pytest.mark.anyio
@pytest.mark.usefixtures("rms_csv")
async def test_a_standby_that_starts_beside_a_profile_does_not_meet_the_worker_it_sends_away(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that saw the worker would be handed to the second try, which then found the GPU taken again."""
    monkeypatch.setenv("FAKE_TARGET", str(os.getpid()))
    explainer = (it := watched(standby=False)).session.explainer
    await it.session.run_once(iteration=False)
    _, answer = await asyncio.gather(explainer.prepare("cuda:0", asyncio.Event()), it.session.profile("a"))
    assert isinstance(answer, ProfileReady)
    assert not explainer.profiler.starting


async def asleep(pid: int) -> None:
    """Until many looks in a row find the process waiting, with no processor time used in between."""
    seen: list[str] = []
    async with asyncio.timeout(60):
        while len(seen) < 20 or len(set(seen[-20:])) > 1 or not seen[-1].startswith("S"):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            seen.append(" ".join([fields[0], *fields[11:13]]))  # its state, and ticks in user code and in the kernel
            await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_a_real_worker_rests_between_two_rows(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    cases = "".join(f'[[case]]\nid = "{name}"\naxes = {{ rows = 8 }}\n' for name in "abcdef")
    (folder / "task.toml").write_text(f'name = "rows"\nentry = "rows"\ndevice = "cpu"\nbaseline = "eager"\n{cases}')
    inputs = "import torch\ndef make_inputs(case, seed, device):\n    return {'x': torch.ones(case['rows'])}\n"
    (folder / "reference.py").write_text(inputs + "def rows(x):\n    return x * 2\n")
    (folder / "solution.py").write_text("def rows(x):\n    return x + x\n")
    session = Session(taskfile.load(folder), folder / ".kernbench", Options(spares=False, floors=False))
    it = Watched(session)
    try:
        await session.start()
        await it.until(lambda: bool(it.of(CaseLanded)), seconds=60)
        await session.supervisor.lend_gpu()
        assert session.running is not None
        before = len(it.of(CaseLanded))
        await asleep(session.supervisor.pids[0])
        assert len(it.of(CaseLanded)) == before
        session.supervisor.take_back_gpu()
        await it.until(lambda: bool(it.of(RunFinished)), seconds=60)
        assert not it.of(RunCancelled)
    finally:
        await session.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("case", "against", "code", "part"),
    [
        ("raise", None, "no_case", "has no case 'raise'"),
        ("a", "best", None, "no best yet: nothing has been run on this machine"),
        ("a", "7", None, "no iteration '7'"),
        ("a", "now", "same_source", "is the source being profiled"),
    ],
)
async def test_what_cannot_be_is_said(
    watched: Callable[..., Watched], case: str, against: str | None, code: str | None, part: str
) -> None:
    answer = await watched().session.profile(case, against)
    assert isinstance(answer, ProfileFailed)
    assert answer.code == code
    assert part in answer.message


def test_the_command_prints_and_exits(
    task: Path, harness: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_NCU_CSV", str(DATA / "rms_4096x3072.csv"))
    monkeypatch.setenv("KERNBENCH_HARNESS", str(harness))
    monkeypatch.chdir(task)
    words = ["profile", "--case", "a 16x16", "--ncu", str(NCU)]
    with pytest.raises(SystemExit) as end:
        kernbench(words)
    assert end.value.code == 0
    assert "=> memory latency" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        kernbench([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["diagnosis"]["bound"] == "latency"
    with pytest.raises(SystemExit) as end:
        kernbench([*words, "--full"])
    assert "solution.py:15" in capsys.readouterr().out
    for wrong in (
        ["--case", "*"],
        ["--case", "none"],
        ["--case", "a", "--markdown"],
        ["--case", "a", "--device", "gpu"],
    ):
        with pytest.raises(SystemExit) as end:
            kernbench(["profile", *wrong])
        assert end.value.code == 2
    monkeypatch.setenv("FAKE_NCU", "permission")
    with pytest.raises(SystemExit) as end:
        kernbench(words)
    assert end.value.code == 1
    said = capsys.readouterr()
    assert "ERR_NVGPUCTRPERM" in said.err
    assert "40 registers" in said.out


@pytest.mark.parametrize(
    ("refusal", "codes", "said"),
    [
        ("ordinal", (3, 3), "torch does not see this CUDA device"),
        ("full", (3, 3), "no GPU memory for another process"),
        ("new", (1, 2), "cannot start: RuntimeError: something new\n"),
    ],
)
def test_a_gpu_that_cannot_be_had_is_one_sentence_and_an_exit_code(
    task: Path,
    harness: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusal: str,
    codes: tuple[int, int],
    said: str,
) -> None:
    monkeypatch.setenv("KERNBENCH_HARNESS", str(harness))
    monkeypatch.setenv("FAKE_TARGET", refusal)
    monkeypatch.chdir(task)
    for command, code in zip((["profile", "--ncu", str(NCU)], ["trace"]), codes, strict=True):
        with pytest.raises(SystemExit) as end:
            kernbench([*command, "--case", "a", "--device", "cuda:3"])
        assert end.value.code == code
        assert said in capsys.readouterr().err
