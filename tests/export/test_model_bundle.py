"""The pull request of a source that models have run: tables, and perf dumps as SGLang's compare_perf.py reads them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from harness.shared.model_step import OutputGap, Patch, SideRatio, SideTime, TaskShare
from harness.shared.task import Task
from kernbench import export
from kernbench.log import stored_sources
from kernbench.log.runs.journal import Journal
from kernbench.log.runs.runs_file import RunsFile
from kernbench.transfer import perf_dump
from kernbench.transfer.model_row import ModelRow
from kernbench.transfer.model_run import line_of
from tests.log.logs import ENVIRONMENT, make_log

STEPS = 20
FLUX = ModelRow(
    run="20261117T100000-abcdef",
    model="flux",
    config="full",
    at="2026-11-17T10:00:00+00:00",
    word="faster",
    kept=True,
    side="ours+graph",
    over="compile",
    speedup=1.25,
    low=1.24,
    high=1.26,
    expected=1.2,
    floor=0.002,
    exact=False,
    times=(
        SideTime("eager", 60.0, (60.0,) * STEPS, peak_mb=2048.0),
        SideTime("compile", 50.0, (50.0,) * STEPS, peak_mb=2000.0),
        SideTime("ours", 45.0, (45.0,) * STEPS, peak_mb=1990.0),
        SideTime("ours+graph", 40.0, (40.0,) * (STEPS - 1) + (40.5,)),
        SideTime("compile+ours", problem="no graph"),
    ),
    ratios=(
        SideRatio("ours+graph", "compile", 1.25, 1.24, 1.26, "faster"),
        SideRatio("ours", "eager", 1.333, 1.32, 1.34, "faster"),
        SideRatio("compile", "eager", 1.2, 1.19, 1.21, "faster"),
    ),
    shares=(TaskShare("rms_norm", 38, 0.3, 3.0), TaskShare("other", 2, 0.1, None)),
    gaps=(OutputGap("ours", 0.0078, 0.004, 67.0, False, True, 0.0048, 0.0047),),
    wide="float32",
    rounds=STEPS,
    command="kernbench transfer flux --task rms_norm",
    version="0.1.0",
    environment=ENVIRONMENT,
)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.chdir(tmp_path)
    return make_log(tmp_path / "rms_norm", 5, cases=2)


def bundle(task: Task, row: ModelRow, place: Path) -> tuple[str, list[Path]]:
    """The text of the pull request, and its perf dumps."""
    journal = Journal(Path(task.folder) / ".kernbench")
    source = stored_sources.summary_of(task, journal, "best").source
    patch = Patch("rms_norm", "rms_norm", "", "", source=source, what="best")
    RunsFile(journal.path).append(line_of(replace(row, sources=(patch,))))
    paths = export.export(task, journal.state, "pr", place)
    return (place / "PULL_REQUEST.md").read_text(), sorted(path for path in paths if path.parent.name == "perf")


def row_of(text: str, *cells: str) -> list[str]:
    """The row of a table that begins with these cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return next(row for row in rows if row[: len(cells)] == list(cells))


def test_a_reviewer_finds_step_total_shares_and_exactness(task: Task, tmp_path: Path) -> None:
    text, _ = bundle(task, FLUX, tmp_path / "pr")
    assert "- flux: ours+graph over compile 1.250x" in text
    assert row_of(text, "flux (full)", "ours")[2:] == ["45.00", "1.333x ±0.8%", "1.333x ±0.8%", "▲ faster"]
    assert row_of(text, "flux (full)", "compile")[2:] == ["50.00", "1.200x ±0.8%", "", ""]
    assert "| compile+ours |" not in text
    total = row_of(text, "flux (full)", "ours+graph over compile")
    assert total[2:] == ["20 steps", "1000.0", "800.5", "1.250x ±0.8%", "faster", "2000", "1990"]
    share = row_of(text, "flux (full)", "rms_norm")
    assert share[2:] == ["38", "30.0%", "12.5%", "3.00x"]  # 0.1 of what is then 0.8 of the step
    assert row_of(text, "flux (full)", "other")[4] == "-"
    assert row_of(text, "flux (full)", "ours", "no")[3:5] == ["7.8e-03", "4.0e-03"]
    assert "Not bit-exact in flux: upstream may want it behind a quality switch." in text
    assert "kernbench transfer flux --task rms_norm" in text
    assert "Model-level timings" not in text
    assert "- [ ] Image or output generated with the change" in text


@pytest.mark.parametrize("is_older", [True, False])
def test_the_pictures_of_a_decoder_are_shown_unless_a_later_step_wrote_them(
    task: Task, tmp_path: Path, is_older: bool
) -> None:
    names = tuple(f"vae-{side}.png" for side in ("original", "ours", "difference"))
    at = datetime.now(timezone.utc) - timedelta(seconds=0 if is_older else 60)
    state = Path(task.folder) / ".kernbench"
    for name in names:
        (state / name).write_bytes(b"\x89PNG" + name.encode())
    row = replace(FLUX, model="vae", at=at.isoformat(timespec="seconds"), images=names)
    text, _ = bundle(task, row, tmp_path / "pr")
    folder = tmp_path / "pr" / "images"
    assert sorted(path.name for path in folder.glob("*")) == (sorted(names) if is_older else [])
    assert ("| ![vae-original](images/vae-original.png) | ![vae-ours]" in text) == is_older
    assert ("- [ ] Image or output" in text) != is_older
    if is_older:
        assert (folder / "vae-ours.png").read_bytes() == b"\x89PNGvae-ours.png"


def test_a_command_has_its_own_totals_and_dumps(task: Task, tmp_path: Path) -> None:
    times = (
        SideTime("eager", 50.0, (50.0,) * 6, total_ms=20_000.0, peak_mb=2048.0),
        SideTime("ours", 40.0, (40.0,) * 6, total_ms=18_000.0, peak_mb=2048.0),
    )
    row = replace(FLUX, model="served", config="", side="ours", over="eager", times=times, shares=(), gaps=())
    row = replace(row, exact=None, rounds=6, dumps=("served-original.json", "served-ours.json"))
    for name in row.dumps:
        (Path(task.folder) / ".kernbench" / name).write_text(f'{{"of": "{name}"}}')
    text, perf = bundle(task, row, tmp_path / "pr")
    assert row_of(text, "served", "ours over eager")[2:5] == ["6 runs", "20000.0", "18000.0"]
    assert [path.read_text() for path in perf] == ['{"of": "served-ours.json"}', '{"of": "served-original.json"}']
    assert "### Share" not in text
    assert "xact" not in text


def test_without_numbers_the_slot_stays(task: Task, tmp_path: Path) -> None:
    journal = Journal(Path(task.folder) / ".kernbench")
    paths = export.export(task, journal.state, "pr", tmp_path / "pr")
    assert "- [ ] Model-level timings" in (tmp_path / "pr" / "PULL_REQUEST.md").read_text()
    assert not [path for path in paths if path.parent.name == "perf"]


def test_a_total_that_one_slow_step_decides_is_marked(task: Task, tmp_path: Path) -> None:
    slow = (40.0,) * (STEPS - 1) + (840.0,)
    times = tuple(replace(time, samples=slow) if time.name == "ours+graph" else time for time in FLUX.times)
    text, _ = bundle(task, replace(FLUX, times=times), tmp_path / "pr")
    assert "The total of flux, ours+graph, says little: its slowest step took 840.0 ms, the median is 40.00." in text
    assert "The total of flux, compile," not in text


def test_memory_that_was_not_measured_has_no_column(task: Task, tmp_path: Path) -> None:
    times = tuple(replace(time, peak_mb=None) for time in FLUX.times)
    text, dumps = bundle(task, replace(FLUX, times=times, exact=True), tmp_path / "pr")
    assert "peak MB" not in text
    assert "The output is the original's, bit for bit." in text
    assert perf_dump.read(dumps[0]).memory_mb == {}


def test_a_row_that_names_its_model_with_a_path_is_not_read(task: Task, tmp_path: Path) -> None:
    _, dumps = bundle(task, replace(FLUX, model="../../flux"), tmp_path / "pr")
    assert dumps == []


# compare_perf.py as it judges two dumps; it reads nothing else of them


def status(before: float, after: float) -> str:
    """Of a stage: more than a tenth and more than 120 ms."""
    if after > max(before * 1.1, before + 120):
        return "slower"
    return "faster" if after < min(before * 0.9, before - 120) else "similar"


def end_to_end(before: float, after: float) -> str:
    """By more than 2 %."""
    percent = (after - before) / before * 100 if before else 0.0
    return "faster" if percent < -2 else "slower" if percent > 2 else "similar"


def stages(dump: dict[str, Any]) -> dict[str, float]:
    """Sums by name; steps of the denoising by themselves are one stage, as in older dumps."""
    found: dict[str, float] = {}
    for step in dump.get("steps", []):
        name = step.get("name", "unknown")
        name = "Denoising Loop" if re.fullmatch(r"denoising_step_\d+", name) else name
        found[name] = found.get(name, 0.0) + step.get("duration_ms", 0.0)
    return found


def compared(before: Path, after: Path) -> tuple[str, dict[str, str]]:
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    old_stages, new_stages = stages(old), stages(new)
    names = [*new_stages, *(name for name in old_stages if name not in new_stages)]
    shown = {
        name: status(old_stages.get(name, 0.0), new_stages.get(name, 0.0))
        for name in names
        if abs(new_stages.get(name, 0.0) - old_stages.get(name, 0.0)) > 0.5
        or max(old_stages.get(name, 0.0), new_stages.get(name, 0.0)) > 100
    }
    return end_to_end(old.get("total_duration_ms", 0), new.get("total_duration_ms", 0)), shown


@pytest.mark.parametrize(
    ("after_ms", "whole", "stage"),
    [(40.0, "faster", "faster"), (49.5, "similar", "similar"), (60.0, "slower", "slower")],
)
def test_compare_perf_reads_the_dumps(task: Task, tmp_path: Path, after_ms: float, whole: str, stage: str) -> None:
    times = tuple(
        replace(time, samples=(after_ms,) * STEPS) if time.name == "ours+graph" else time for time in FLUX.times
    )
    _, (after, before) = bundle(task, replace(FLUX, times=times), tmp_path / "pr")
    assert (before.name, after.name) == ("flux-before.json", "flux-after.json")
    assert compared(before, after) == (whole, {"DenoisingStage": stage})
    assert compared(after, before)[0] == {"faster": "slower", "slower": "faster"}.get(whole, whole)


def test_our_own_reader_takes_them_too(task: Task, tmp_path: Path) -> None:
    _, (after, before) = bundle(task, FLUX, tmp_path / "pr")
    dump = perf_dump.read(after)
    assert (dump.total_ms, dump.denoise_ms, len(dump.steps_ms)) == (800.5, 800.5, STEPS)
    assert dump.memory_mb == {"after_DenoisingStage": {"peak_allocated_mb": 1990.0}}
    assert dump.meta["side"] == "ours+graph"
    assert perf_dump.read(before).meta["side"] == "compile"
