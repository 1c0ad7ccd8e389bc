"""The eight doors of "best": after every story they give the same answer, or the same reason."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.shared import format as fmt
from harness.shared import taskfile
from kernbench import export
from kernbench.cli import cli
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.events import Summary
from kernbench.log import overview
from kernbench.tui.text import headline
from tests import FAKE
from tests.sessions import TASK, run_and_confirm, write

pytestmark = pytest.mark.anyio
Answers = dict[str, str]
NONE = "no best"


class Place:
    """A task's folder, with the fake harness as its machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / ".kernbench"

    async def run(
        self,
        time_us: float | None = None,
        state: str = ".kernbench",
        more: str = "",
        iteration: bool = True,
        **options: str,
    ) -> Summary:
        """A source that takes so long (the baseline takes 100), as an iteration."""
        if time_us is not None:
            write(self.folder, f"TIME_US = {time_us}\n{more}")
        given = Options(harness=FAKE, **options)  # type: ignore[arg-type]
        session = Session(taskfile.load(self.folder), self.folder / state, given)
        session.notes.hypothesis = "a try"
        try:
            outcome = await run_and_confirm(session, iteration)
        finally:
            await session.close()
        assert isinstance(outcome, Summary)
        return outcome

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def reformat(self) -> None:
        """Comments and layout of the solution."""
        time_us = re.search(r"TIME_US = (\S+)", (self.folder / "solution.py").read_text())[1]  # type: ignore[index]
        text = f"# faster\n\n\ndef toy():\n    ...\n\n\nTIME_US = {time_us}  # us\n"
        (self.folder / "solution.py").write_text(text)

    def turn_wrong(self) -> None:
        """A later run of the newest source comes out wrong."""
        runs = self.state / "runs.jsonl"
        ended = [json.loads(line) for line in runs.read_text().splitlines()]
        newest = [line for line in ended if line["event"] == "finished"][-1]
        wrong = {**newest, "run": "later", "right": False, "best": False, "counts": {"wrong": 1}, "iteration": None}
        wrong.pop("unwritten")
        runs.write_text(runs.read_text() + json.dumps(wrong, separators=(",", ":")) + "\n")

    def says(self, *words: str) -> str:
        """What a command prints, or the sentence it fails with."""
        result = CliRunner().invoke(cli, [*words, "--state", str(self.state)])
        return result.output if result.exception is None else str(result.exception)

    # -- the doors; each answers with a speedup such as 2.00x, or with the reason why there is none

    def answers(self, tmp_path: Path) -> Answers:
        return {
            "status": self._status(),
            "log": self._log(),
            "show": self._show(),
            "header": self._header(),
            "pane": self._pane(),
            "export": self._export(),
            "pr": self._pr(),
            "restore": self._restore(tmp_path),
            "port": self._port(tmp_path),
        }

    def _status(self) -> str:
        best = overview.of(self.folder, self.state).best
        return NONE if best == fmt.DASH else best

    def _log(self) -> str:
        lines = [line for line in self.says("log", str(self.folder), "--json").splitlines() if line.startswith("{")]
        best = [item for item in map(json.loads, lines) if item["best_now"]]
        assert len(best) <= 1
        return fmt.times(best[0]["geomean"]) if best else NONE

    def _show(self) -> str:
        text = self.says("show", str(self.folder), "best")
        found = re.match(r"## \d+ · .* · (\d\.\d\dx) · ", text)
        return found[1] if found else text

    def _session(self) -> Session:
        return Session(taskfile.load(self.folder), self.state, Options(harness=FAKE))

    def _header(self) -> str:
        session = self._session()
        best = session.logbook.best_now()
        last = session.last_summary()
        words = headline.against_best(last, best)[0][0]
        if re.search(r"best\)?$", words):
            return fmt.times(last.geomean if last else None)
        found = re.search(r"^best (\d\.\d\dx)", words)
        if found or best is None:
            return found[1] if found else NONE
        assert words.startswith("vs best ")  # of another source; its number is elsewhere
        return fmt.times(best.geomean)

    def _pane(self) -> str:
        listed = self._session().logbook.iterations()
        best = [item for item in listed if listed.is_best_now(item)]
        return fmt.times(best[0].geomean) if best else NONE

    def _export(self) -> str:
        try:
            text = export.text(taskfile.load(self.folder), self.state, "md")
        except export.ExportError as problem:
            return str(problem)
        found = re.search(r"^Best: .*, geomean (\d\.\d\dx) ", text, re.M)
        return found[1] if found else NONE

    def _pr(self) -> str:
        try:
            text = export.text(taskfile.load(self.folder), self.state, "pr")
        except export.ExportError as problem:
            return str(problem)
        return re.match(r"# toy: (\d\.\d\dx) over ", text)[1]  # type: ignore[index]

    def _restore(self, tmp_path: Path) -> str:
        """In a copy of the folder, with the same state: what solution.py then says it takes."""
        copy = tmp_path / "copy"
        shutil.copytree(self.folder, copy, symlinks=True)
        result = CliRunner().invoke(cli, ["restore", str(copy), "best", "--state", str(copy / self.state.name)])
        if result.exception is not None:
            return str(result.exception).replace(str(copy), str(self.folder))
        return _speed((copy / "solution.py").read_text())

    def _port(self, tmp_path: Path) -> str:
        target = tmp_path / "tree" / "norm.py"
        target.parent.mkdir()
        subprocess.run(["git", "init", "-q", str(target.parent)], check=True)
        text = self.says("port", str(self.folder), "--to", str(target))
        return _speed(target.read_text()) if target.exists() else text


def _speed(source: str) -> str:
    return fmt.times(100.0 / float(re.search(r"TIME_US = (\S+)", source)[1]))  # type: ignore[index]


Story = Callable[[Place], Awaitable[None]]
STORIES: dict[str, tuple[Story, str]] = {}


def story(answer: str) -> Callable[[Story], Story]:
    """What the doors say after it: a speedup, or the start of a reason."""

    def keep(function: Story) -> Story:
        STORIES[function.__name__] = function, answer
        return function

    return keep


@story("2.00x")
async def runs_here(place: Place) -> None:
    await place.run(80.0)
    await place.run(50.0)
    await place.run(60.0)


@story("1.25x")
async def runs_here_and_elsewhere(place: Place) -> None:
    await place.run(25.0, state=".far")
    await place.run(80.0)


@story("1.25x")
async def another_baseline(place: Place) -> None:
    """It informs: the faster source is not taken, and is still timed against the best."""
    await place.run(80.0)
    other = await place.run(50.0, baseline="compile")
    assert (other.best, other.not_best) == (False, "timed against compile; a new best needs a run against eager")
    assert other.vs_best is not None
    assert other.vs_best.speedup == pytest.approx(1.6, rel=0.01)


@story("no best yet: no source that passed every case was timed against eager")
async def another_baseline_alone(place: Place) -> None:
    other = await place.run(50.0, baseline="compile")
    assert not other.best


@story("1.25x")
async def a_part_of_the_cases(place: Place) -> None:
    await place.run(80.0)
    await place.run(50.0, case="a")


@story("1.25x")
async def a_warm_l2(place: Place) -> None:
    await place.run(80.0)
    await place.run(50.0, condition="warm")


@story("1.25x")
async def a_best_turned_wrong(place: Place) -> None:
    await place.run(80.0)
    await place.run(50.0)
    place.turn_wrong()
    await place.run(90.0)


@story("2.00x")
async def a_comment_in_task_files(place: Place) -> None:
    await place.run(50.0)
    place.edit("task.toml", 'device = "cpu"', 'device = "cpu"  # where it runs')
    place.edit("reference.py", "def toy", "# what is computed\ndef toy")
    await place.run(60.0)


@story("no best yet: the task changed; nothing has been timed against eager since")
async def a_changed_tolerance(place: Place) -> None:
    await place.run(50.0)
    place.edit("task.toml", "[grid]", "[tolerance]\nfloat32 = { atol = 1e-2, rtol = 1e-2 }\n[grid]")


@story("1.25x")
async def a_changed_helper_of_the_task(place: Place) -> None:
    place.edit("reference.py", "def make_inputs", "import helper\ndef make_inputs")
    (place.folder / "helper.py").write_text("SCALE = 1\n")
    await place.run(50.0)
    (place.folder / "helper.py").write_text("SCALE = 2\n")
    await place.run(80.0)


@story("2.00x")
async def an_unrelated_file(place: Place) -> None:
    """The same kernel with notes and a scratch file next to it is neither its own opponent nor another try."""
    await place.run(50.0)
    (place.folder / "README.md").write_text("about\n")
    (place.folder / "scratch.py").write_text("x = 1\n")
    again = await place.run()
    assert (again.vs_best, again.repeats, again.took_over, again.counted) == (None, 1, False, False)
    await place.run(60.0)


@story("2.00x")
async def a_reformatted_solution(place: Place) -> None:
    first = await place.run(50.0)
    place.reformat()
    again = await place.run()
    assert (again.source != first.source, again.code == first.code) == (True, True)
    assert (again.vs_best, again.repeats, again.took_over) == (None, 1, False)


@story("2.00x")
async def a_plain_run_of_a_reformatted_solution(place: Place) -> None:
    await place.run(50.0)
    place.reformat()
    await place.run(iteration=False)


@story("1.25x")
async def a_reformatted_best_turned_wrong(place: Place) -> None:
    await place.run(80.0)
    await place.run(50.0)
    place.reformat()
    await place.run()
    place.turn_wrong()
    await place.run(90.0)


@story("1.25x")
async def a_changed_task_and_the_same_solution(place: Place) -> None:
    """Its first run in the new series is no repeat of an entry in the old one."""
    await place.run(80.0)
    place.edit("task.toml", "[grid]", "[tolerance]\nfloat32 = { atol = 1e-2, rtol = 1e-2 }\n[grid]")
    again = await place.run()
    assert (again.repeats, again.best) == (None, True)


@story("2.00x")
async def an_older_log_and_then_a_comment(place: Place) -> None:
    """Runs under the old hash are of the task, and stay so once a run has noted that."""
    await place.run(50.0)
    task, runs = taskfile.load(place.folder), place.state / "runs.jsonl"
    runs.write_text(re.sub(r',"code":"[0-9a-f]+"', "", runs.read_text().replace(task.hash, task.old_hash)))
    place.reformat()
    again = await place.run()
    assert (again.repeats, again.vs_best) == (1, None)
    place.edit("task.toml", 'device = "cpu"', 'device = "cpu"  # where it runs')
    assert taskfile.load(place.folder).old_hash != task.old_hash
    other = await place.run(60.0)
    assert other.vs_best is not None


@story("2.00x")
async def a_reference_that_names_the_solution(place: Place) -> None:
    place.edit("reference.py", "def toy", "# what 'solution.py' is compared with: \"solution.py\"\ndef toy")
    for time_us in (80.0, 50.0, 60.0):
        await place.run(time_us)


@pytest.mark.parametrize("name", STORIES)
async def test_every_door_gives_the_same_answer(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "a_warm_l2":
        monkeypatch.setenv("FAKE_DEVICE", "cuda:0")
        (folder / "task.toml").write_text(TASK.replace('device = "cpu"\n', ""))
    place = Place(folder)
    tell, answer = STORIES[name]
    await tell(place)
    said = place.answers(tmp_path)
    if re.match(r"\d\.\d\dx", answer):
        assert said == dict.fromkeys(said, answer)
        return
    silent = {"status", "log", "header", "pane", "export"}
    assert {door: said[door] for door in silent} == dict.fromkeys(silent, NONE)
    for door in ("show", "restore", "port", "pr"):
        assert said[door].startswith(answer), door


async def test_a_fresh_clone_has_the_best_of_its_log(folder: Path, tmp_path: Path) -> None:
    """Every door names it; where the source itself is wanted, the reason is that it did not come along."""
    place = Place(folder)
    await place.run(50.0)
    await place.run(80.0)
    shutil.rmtree(place.state)
    said = place.answers(tmp_path)
    asked = ("status", "log", "show", "header", "pane", "export")
    assert {door: said[door] for door in asked} == dict.fromkeys(asked, "2.00x")
    assert said["restore"] == said["port"]
    assert said["restore"].startswith("entry 1 was not recorded here: its source (")
    assert said["pr"].startswith("toy has not been run on this machine yet")


async def test_the_best_of_another_task_is_not_that_of_a_pulled_log(folder: Path, tmp_path: Path) -> None:
    place = Place(folder)
    await place.run(50.0)
    shutil.rmtree(place.state)
    place.edit("task.toml", "[grid]", "[tolerance]\nfloat32 = { atol = 1e-2, rtol = 1e-2 }\n[grid]")
    said = place.answers(tmp_path)
    assert {said[door] for door in ("status", "log", "header", "pane")} == {NONE}


async def test_a_warm_entry_of_a_pulled_log_is_not_the_best_of_the_cold_series(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DEVICE", "cuda:0")
    (folder / "task.toml").write_text(TASK.replace('device = "cpu"\n', ""))
    place = Place(folder)
    await place.run(80.0)
    await place.run(25.0, condition="warm")
    shutil.rmtree(place.state)
    said = place.answers(tmp_path)
    assert {said[door] for door in ("status", "log", "show", "header", "pane")} == {"1.25x"}
