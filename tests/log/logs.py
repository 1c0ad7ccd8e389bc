"""Logs made to measure: a task and a runs.jsonl with as many iterations and cases as asked for, from a seed."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.shared import stats, taskfile
from harness.shared.lines import encode, to_dict
from harness.shared.results import CaseResult, Ratio, WallTime
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench.events import RunStarted, Summary
from kernbench.log.entries import iterations_file
from kernbench.log.entries.entry_text import EntryText
from kernbench.log.runs import comparison
from kernbench.log.runs.journal import Journal
from kernbench.task import snapshot

ENVIRONMENT = Environment(
    device="cuda:0",
    device_name="NVIDIA H200",
    condition="cold L2",
    l2="cold",
    python="3.12.3",
    torch="2.11.0",
    triton="3.6.0",
    driver="580.65",
    clocks="SM 1980 MHz",
    host="node",
)
Speeds = dict[str, float]
IDEAS = (
    "as shipped",
    "16-byte loads halve the load instructions",
    "two rows a warp hide the latency of the reduction",
    "keep the weight in registers over rows",
    "eight warps instead of four",
    "direction: a persistent grid, one wave",
    "one pass with Welford instead of two",
    "evict-first on the output keeps the weight in L2",
)


@dataclass(frozen=True)
class Idle:
    """A runner with nothing to run."""

    running: str | None = None


def make_task(folder: Path, cases: int = 12, odd: str = "", weights: Sequence[float] = ()) -> Task:
    """A task whose ids and labels are plain, but for one odd name where it is wanted; `weights` are those of its first
    cases."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [(2 ** (4 + place % 9) * 19, 1024 * (1 + place % 5)) for place in range(cases)]
    text = [
        'name = "rms_norm"',
        'entry = "rms_norm"',
        'summary = "RMSNorm over the last axis, bf16"',
        'device = "cuda"',
        'baseline = "compile"',
    ]
    for place, (rows, columns) in enumerate(sizes):
        name = f"rms_{rows}x{columns}_{len(text)}"
        text += ["[[case]]", f"id = {json.dumps(name)}", f'label = "qwen {rows}x{columns}"', "headline = true"]
        text += [f"axes = {{ rows = {rows} }}", *(f"weight = {weight}" for weight in weights[place : place + 1])]
    if odd:
        text += ["[[case]]", f"id = {json.dumps(odd)}", f"label = {json.dumps(odd)}", "headline = true"]
        text += ["axes = { rows = 3 }"]
    (folder / "task.toml").write_text("\n".join(text) + "\n")
    (folder / "reference.py").write_text("def make_inputs(case, seed, device): ...\ndef rms_norm(): ...\n")
    (folder / "solution.py").write_text(source_text(0))
    return taskfile.load(folder)


def source_text(number: int) -> str:
    lines = [f"BLOCK = {128 * (1 + number % 4)}", f"WARPS = {1 + number % 8}", f"STAGES = {number}"]
    lines += ["", "def rms_norm(x, weight):", f'    """{IDEAS[number % len(IDEAS)]}"""', "    return x"]
    return "\n".join(lines) + "\n"


def source_hash(number: int) -> str:
    """As snapshot.py names a folder with this one file."""
    text = source_text(number).encode()
    return hashlib.sha256(f"solution.py\0{len(text)}\0".encode() + text).hexdigest()


def row(case: str, base_us: float, speed: float, best: float | None, noise: random.Random, blocks: int) -> CaseResult:
    """A timed row; the samples scatter around the times."""
    own = base_us / speed
    samples = {
        "baseline": tuple(base_us * noise.uniform(0.99, 1.01) for _ in range(blocks)),
        "solution": tuple(own * noise.uniform(0.99, 1.01) for _ in range(blocks)),
    }
    scattered = [math.log(speed * factor) for factor in (0.995, 0.998, 0.999, 1.001, 1.002, 1.005)]
    ratio = stats.ratio(stats.of_blocks(scattered), 0.01)
    assert ratio is not None
    return CaseResult(
        id=case,
        status="ok",
        clock="device",
        baseline_us=base_us,
        solution_us=own,
        best_us=best and base_us / best,
        speedup=ratio.speedup,
        low=ratio.low,
        high=ratio.high,
        verdict=ratio.verdict,
        vs_best=Ratio(speed / best, speed / best * 0.995, speed / best * 1.005, "same") if best else None,
        wall=WallTime(base_us + 14.0, own + 12.0, (base_us + 14.0) / (own + 12.0)),
        roofline=min(0.95, 0.5 * speed),
        bound="compute" if base_us > 100 else None,
        kernels=1,
        blocks=blocks,
        dropped=0,
        checked=2,
        samples=samples,
    )


def rows_of(task: Task, number: int, level: float, best: Speeds, seed: int, blocks: int = 8) -> list[CaseResult]:
    noise = random.Random(seed * 1_000_003 + number)
    rows = []
    for place, case in enumerate(task.timed):
        lean = 1 + 0.25 * math.sin(place * 1.7 + 1) * (level - 0.9)
        speed = max(0.4, level * lean * noise.uniform(0.99, 1.01))
        rows.append(row(case.id, 2.0 + 3.1 * 1.55 ** (place % 14), speed, best.get(case.id), noise, blocks))
    if number % 11 == 6:
        rows[1] = CaseResult(rows[1].id, "wrong", detail="out differs at [3, 17]: got 1.25, expected 1.5", checked=2)
    return rows


def summary_of(task: Task, number: int, rows: list[CaseResult], series: list[Summary]) -> Summary:
    """An entry's run; one that would be best is confirmed."""
    words = IDEAS[(number - 1) % len(IDEAS)]
    started = RunStarted(
        run=f"20261114T{number:06d}-abc",
        source=source_hash(number),
        reason="save",
        cases=tuple(item.id for item in rows),
        at=f"2026-11-{1 + number // 1440 % 28:02d}T{number // 60 % 24:02d}:{number % 60:02d}:00+00:00",
        baseline="compile",
        hypothesis=words,
        task_hash=task.hash,
    )
    about = comparison.SummaryInputs(
        environment=ENVIRONMENT,
        series=series[-40:],
        complete={item.id for item in rows} >= {case.id for case in task.timed},
        is_iteration=True,
        next="look at the tail wave" if number % 3 == 0 else "",
        hypothesis_by="Kim",
        hypothesis_at=started.at,
        baseline_hash="9f8e7d6c" * 8,
        command="kernbench run rms_norm --device cuda:0",
        version="0.1.0",
        seconds=0.9,
    )
    summary = comparison.summarise(task, started, {item.id: item for item in rows}, about)
    return comparison.numbered(replace(summary, confirmed=True if summary.awaits else None), number)


def make_log(
    folder: Path,
    count: int,
    cases: int = 12,
    seed: int = 1,
    blocks: int = 8,
    odd: str = "",
    weights: Sequence[float] = (),
) -> Task:
    """Writes the task and its runs.jsonl (each row twice, as it happens); sources of the first hundred iterations."""
    task = make_task(folder, cases, odd, weights)
    state = folder / ".kernbench"
    state.mkdir(exist_ok=True)
    (state / ".gitignore").write_text("*\n")
    series: list[Summary] = []
    best: Speeds = {}
    with (state / "runs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(1, count + 1):
            level = 0.97 + 0.9 * (1 - math.exp(-number / 9)) + 0.05 * math.sin(number * 2.3)
            rows = rows_of(task, number, level, best, seed, blocks)
            summary = summary_of(task, number, rows, series)
            best = {item.id: item.speedup or 1.0 for item in rows} if summary.best else best
            series.append(summary)
            file.write(_run_lines(task, summary, rows))
            if number <= 100:
                keep_source(task, state, summary.source, number)
    return task


def write_entries(task: Task) -> None:
    """The ITERATIONS.md of a log, as its runs have written it."""
    journal, seen = Journal(Path(task.folder) / ".kernbench"), iterations_file.KnownFile()
    for item in journal.summaries:
        text = EntryText(task, item, journal.cases_of(item.run))
        iterations_file.append(Path(task.folder) / "ITERATIONS.md", text, (item.iteration or 1) - 1, seen)


def keep_source(task: Task, state: Path, sha: str, number: int) -> None:
    place = state / "sources" / sha
    place.mkdir(parents=True, exist_ok=True)
    (place / "solution.py").write_text(source_text(number))


def add_to_source(state: Path, sha: str, name: str, data: bytes) -> None:
    """Gives a stored source another file, or a file other contents, and so another name, in the runs too."""
    contents = {**snapshot.read(state / "sources" / sha), name: data}
    new = snapshot.keep(dict(sorted(contents.items())), state)
    shutil.rmtree(state / "sources" / sha)
    runs = state / "runs.jsonl"
    runs.write_text(runs.read_text(encoding="utf-8").replace(sha, new.sha), encoding="utf-8")


def _run_lines(task: Task, summary: Summary, rows: list[CaseResult]) -> str:
    started = {
        "run": summary.run,
        "source": summary.source,
        "reason": "save",
        "cases": [item.id for item in rows],
        "at": summary.at,
        "baseline": summary.baseline,
        "schema": 1,
        "task": task.name,
        "environment": to_dict(ENVIRONMENT),
    }
    landed = [encode("case", item, run=summary.run) for item in rows]
    early = [encode("case", replace(item, checked=1, samples=None), run=summary.run) for item in rows]
    return "\n".join([encode("start", **started), *early, *landed, encode("finished", summary)]) + "\n"


def stretch(task: Task, count: int) -> None:
    """Makes a log of so many runs, in seconds: the runs of a short one again and again, each with a name, a number and
    a source of its own."""
    runs = Path(task.folder) / ".kernbench" / "runs.jsonl"
    journal = Journal(runs.parent)
    _head, *blocks = runs.read_text(encoding="utf-8").split('{"event":"start"')
    with runs.open("w", encoding="utf-8") as file:
        for number in range(1, count + 1):
            known = journal.summaries[(number - 1) % len(blocks)]
            text = blocks[(number - 1) % len(blocks)].replace(known.run, f"20261114T{number:06d}-abc")
            text = text.replace(known.source, source_hash(number))
            text = text.replace(f'"iteration":{known.iteration},', f'"iteration":{number},').rstrip()
            file.write('{"event":"start"' + text[:-1] + ',"unwritten":true}\n')
            file.write(encode("entered", run=f"20261114T{number:06d}-abc", iteration=number) + "\n")
