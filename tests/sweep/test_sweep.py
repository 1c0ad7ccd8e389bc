"""`kernbench sweep` over the fake harness: who wins, what is written and logged; and once for real."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.shared import taskfile
from kernbench.cli import cli
from kernbench.engine.jobs import Options
from kernbench.events import Summary
from kernbench.sweep.sweep_job import SweepJob, order_of
from kernbench.sweep.sweep_run import Sweep
from tests import FAKE, ROOT
from tests.sessions import PATIENT, write


@pytest.fixture
def task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy task, whose solution takes as long as it says."""
    write(folder, "TIME_US = 50.0")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KERNBENCH_HARNESS", str(FAKE))
    return folder


def sweep(*words: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *words])


def ended(result: Result) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert last["event"] == "sweep", result.output
    return last


def test_the_fastest_wins_and_the_log_has_the_table(task: Path) -> None:
    result = sweep("--set", "TIME_US=40.0,30.0,60.0,45.0,20.0,80.0", "--no-confirm")
    assert result.exit_code == 0, result.output
    first, *rows = result.stdout.splitlines()[:8]
    assert first.split() == ["#", "TIME_US", "us", "speedup", "verdict", "timed"]
    assert [row.split()[1] for row in rows] == ["20.0", "30.0", "40.0", "45.0", "50.0", "60.0", "80.0"]
    assert rows[0].split()[3:] == ["2.500x", "±0.1%", "faster", "in", "full", "the", "winner"]
    assert "TIME_US=20.0 is the fastest: 2.500x" in result.stdout
    text = (task / "ITERATIONS.md").read_text()
    assert text.count("\n## ") == 1
    assert "Tried by `kernbench sweep toy --set TIME_US=40.0,30.0,60.0,45.0,20.0,80.0`" in text
    assert "| 1 | 20.0 |" in text
    assert "TIME_US = 50.0" in (task / "solution.py").read_text()
    assert "round 1 of 1, 6/6" in result.stderr
    assert "the winner's own run: geomean 5.00x" in result.stderr
    shown = CliRunner().invoke(cli, ["show", "1", "--source"])
    assert "TIME_US = 20.0" in shown.stdout


def test_a_variant_that_is_wrong_crashes_or_hangs_costs_itself(task: Path) -> None:
    write(task, 'TIME_US = 50.0\nDO = "nothing"')
    values = '"wrong","syntax","crash","hang","exit","slow"'
    result = sweep("--set", f"DO={values}", "--set", "TIME_US=40.0", "--deadline", "check=1", "--json")
    found = {item["variant"].split('"')[1]: item for item in ended(result)["variants"] if not item["full"]}
    assert {name: item["status"] for name, item in found.items()} == {
        "wrong": "wrong",
        "syntax": "build_error",
        "crash": "crashed",
        "exit": "crashed",
        "hang": "timeout",
    }
    assert found["syntax"]["detail"] == "solution.py:3: invalid syntax"
    assert ended(result)["winner"] == 'DO="slow" TIME_US=40.0'
    assert result.exit_code == 0


def test_write_puts_the_winner_there_and_says_how_to_undo_it(task: Path) -> None:
    before = (task / "solution.py").read_text()
    result = sweep("--set", "TIME_US=40.0,30.0", "--write", "--no-confirm", "-m", "shorter")
    assert result.exit_code == 0, result.output
    assert (task / "solution.py").read_text() == before.replace("50.0", "30.0")
    assert "## 1 · shorter · " in (task / "ITERATIONS.md").read_text()
    undo = result.stderr.split("wrote TIME_US=30.0: solution.py; `kernbench restore ")[1].split("`")[0]
    assert CliRunner().invoke(cli, ["restore", undo]).exit_code == 0
    assert (task / "solution.py").read_text() == before


def test_nothing_is_written_over_a_save_or_without_a_gain(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = sweep("--set", "TIME_US=60.0,70.0", "--write", "--no-confirm")
    assert "nothing is faster than the source as it is" in result.stdout
    assert "nothing was written: no variant is faster" in result.stderr

    logged = Sweep.log

    async def save_meanwhile(self: Sweep, *words: Any) -> Any:
        (task / "solution.py").write_text("def toy(): ...\nTIME_US = 50.0\n# a save\n")
        return await logged(self, *words)

    monkeypatch.setattr(Sweep, "log", save_meanwhile)
    result = sweep("--set", "TIME_US=30.0", "--write", "--no-confirm")
    assert "has changed since the sweep began; `kernbench restore 2` puts the winner there" in result.stderr
    assert "# a save" in (task / "solution.py").read_text()


@pytest.mark.parametrize(
    ("is_right", "said"),
    [(False, "the winner failed in its own run"), (None, "the winner's own run did not finish")],
)
def test_a_winner_that_fails_in_its_own_run_is_not_written(
    task: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool | None, said: str
) -> None:
    entry = Summary("r", "s", "now", is_right) if is_right is not None else None

    async def log(*_given: Any) -> Summary | None:
        return entry

    monkeypatch.setattr(Sweep, "log", log)
    order = order_of(taskfile.load(task), task / ".kernbench", ["TIME_US=40.0"])

    async def swept() -> str:
        job = SweepJob(order, Options(harness=FAKE, deadlines=PATIENT))
        try:
            await job.run(lambda stage, item: None)
            await job.log("", lambda event: None)
        finally:
            await job.close()
        return job.write()

    assert asyncio.run(swept()) == f"nothing was written: {said}"
    assert "TIME_US = 50.0" in (task / "solution.py").read_text()


def test_whole_runs_are_bounded(task: Path) -> None:
    order = order_of(taskfile.load(task), task / ".kernbench", ["TIME_US=40.0,30.0,20.0"])

    async def swept() -> int:
        job = SweepJob(order, Options(harness=FAKE, deadlines=PATIENT, confirm=False), most_full=3)
        try:
            await job.run(lambda stage, item: None)
            await job.log("", lambda event: None)
        finally:
            await job.close()
        return job.sweep.full_runs

    assert asyncio.run(swept()) == 3  # two of the three variants, and the winner's own


def test_a_source_that_is_wrong_now_can_be_swept_too(task: Path) -> None:
    write(task, 'TIME_US = 50.0\nDO = "wrong"')
    result = sweep("--set", 'DO="wrong","nothing"', "--set", "TIME_US=25.0,50.0", "--no-confirm", "--json", "--write")
    last = ended(result)
    assert (last["over"], last["winner"]) == ("eager", 'DO="nothing" TIME_US=25.0')
    assert last["variants"][0]["ratio"]["speedup"] == pytest.approx(4.0)
    assert 'DO = "nothing"' in (task / "solution.py").read_text()
    write(task, 'DO = "raise"')
    result = sweep("--set", 'DO="wrong","crash"')
    assert result.exit_code == 1
    assert "no variant is right and timed" in result.stdout
    assert (task / "ITERATIONS.md").read_text().count("\n## ") == 1


def test_variants_in_a_folder_and_reports(task: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tries"
    folder.mkdir()
    for name, us in (("a", 40.0), ("b", 20.0)):
        (folder / f"{name}.py").write_text(f"def toy(): ...\nTIME_US = {us}\n")
    result = sweep("--variants", str(folder), "--to", str(tmp_path / "out"), "--no-confirm")
    assert "b.py is the fastest: 2.500x" in result.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.md", "report.json", "report.html"}
    assert "| 1 | b.py |" in (tmp_path / "out" / "report.md").read_text()


def test_two_constants_have_a_heat_map(task: Path) -> None:
    write(task, 'TIME_US = 50.0\nDO = "nothing"')
    result = sweep("--set", "TIME_US=20.0,40.0", "--set", 'DO="nothing","wrong"', "--no-confirm", "--ascii")
    lines = result.stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if "TIME_US \\ DO" in line)
    assert lines[start + 1].split() == ["20.0", "*2.500x", "#", "wrong"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --set NAME=A,B,C"),
        (("--set", "NOTHING=1"), "nothing sets NOTHING"),
        (("--set", "TIME_US=1", "--set", "TIME_US=2"), "--set TIME_US is given twice"),
        (("--set", "TIME_US=1", "--case", "nothing*"), "no timed case that matches 'nothing*'"),
    ],
)
def test_mistakes_are_one_sentence(task: Path, words: tuple[str, ...], said: str) -> None:
    result = sweep(*words)
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_ctrl_c_keeps_what_was_measured(task: Path) -> None:
    write(task, 'TIME_US = 50.0\nDO = "nothing"')
    command = [sys.executable, "-m", "kernbench", "sweep", "--set", 'DO="fine","hang"', "--json"]
    command += ["--deadline", "check=60", "--deadline", "time=60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=task, env={**os.environ}) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        lines += process.stdout.read().splitlines()
    assert process.returncode == 130
    last = json.loads(lines[-1])
    assert (last["complete"], last["sentence"].split(":")[0]) == (False, "stopped before its end")
    assert {item["variant"]: item["status"] for item in last["variants"]} == {
        "as it is": "ok",
        'DO="fine"': "ok",
        'DO="hang"': "waiting",
    }
    assert not (task / "ITERATIONS.md").exists()


def test_builders_are_told_of_every_variant_ahead_and_never_missed(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernbench.sweep.variant_bench import VariantBench

    measure, told = VariantBench.measure, tmp_path / "told"

    async def after_the_builder(self: VariantBench, *words: Any) -> Any:
        import asyncio

        while not self._ahead._ready and not all(builder.done() for builder in self._ahead._builders):
            await asyncio.sleep(0.01)
        return await measure(self, *words)

    monkeypatch.setattr(VariantBench, "measure", after_the_builder)
    monkeypatch.setenv("FAKE_BUILDER", str(told))
    result = sweep("--set", "TIME_US=40.0,30.0,60.0,45.0,20.0", "--no-confirm", "--json")
    assert ended(result)["winner"] == "TIME_US=20.0"
    requests = [json.loads(line) for line in told.read_text().splitlines()]
    assert len(requests) == 5 + 4
    assert requests[0]["cases"] == ["a", "b", "c"]
    assert all(request["whole"] and request["compiler"] for request in requests)
    monkeypatch.setenv("FAKE_BUILDER", "leaves")
    assert ended(sweep("--set", "TIME_US=40.0,30.0", "--no-confirm", "--json"))["winner"] == "TIME_US=30.0"


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_constant_of_softmax_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "softmax_host"
    ignored = shutil.ignore_patterns(".kernbench", "ITERATIONS.md")
    shutil.copytree(ROOT / "kernels" / "softmax_host", copy, ignore=ignored)
    source = (copy / "solution.cpp").read_text()
    slow = "#define REPEATS 1\n" + source.replace("double sum = 0.0;", "double sum = 0.0;\n" + REPEATED)
    (copy / "solution.cpp").write_text(slow)
    monkeypatch.chdir(copy)
    result = sweep("--set", "REPEATS=40,0", "--case", "softmax_19x3072", "--budget", "20", "--no-confirm", "--json")
    assert result.exit_code == 0, result.output
    last = ended(result)
    assert [item["status"] for item in last["variants"]] == ["ok"] * 3
    assert last["winner"] in ("as it is", "REPEATS=0")  # 40 passes more take many times as long, on any machine
    assert (copy / "solution.cpp").read_text() == slow


REPEATED = "        for (volatile int again = 0; again < REPEATS * cols; again = again + 1) {}"
