"""A fake engine with a believable task, and the events of a run: what the screen tests inject."""

from __future__ import annotations

import dataclasses
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from harness.shared import findings
from harness.shared.errors import UserError, Where
from harness.shared.results import CaseResult, Finding, InputForm, KernelTime, OutputError, Ratio, WallTime
from harness.shared.run_request import Environment
from harness.shared.task import Case, Task, Tolerance
from kernbench.diagnosis.machine_code import KernelCode
from kernbench.engine.jobs import Options
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Confirmed,
    Event,
    ProfileReady,
    Progress,
    RunFinished,
    RunStarted,
    Summary,
    Worst,
)
from kernbench.machine.telemetry import GpuProcess, GpuSample, HostSample, Sample
from kernbench.settings import Settings
from kernbench.tui.app import Workbench
from kernbench.tui.messages import Tasks
from kernbench.tui.pages.picker import TaskRow

NOW = datetime(2026, 11, 14, 21, 30, tzinfo=timezone.utc)
H200 = Environment(
    device="cuda:0", device_name="NVIDIA H200", bandwidth=4.02e12, condition="cold L2, 1980 MHz", l2="cold"
)

# label, id, baseline us, solution us, verdict, light
NOISE = tuple(round(0.004 * ((index * 37) % 11 - 5) * abs(((index * 53) % 7) - 3) / 15, 5) for index in range(32))
_ROWS = [
    ("wan 75600x5120", "nss_s75600_d5120_mod-row3d-bf16", 518.6, 371.4, "faster", 0.96),
    ("wan 74088x5120", "nss_s74088_d5120_mod-row3d-bf16", 508.3, 366.0, "faster", 0.95),
    ("qwen 4096x3072", "nss_s4096_d3072_mod-row2d-bf16", 19.1, 17.6, "faster", 0.67),
    ("qwen m[bf16] 47", "nss_s47_d3072_m[bf16]", 2.41, 2.40, "unclear", 0.11),
    ("mova 101x1536", "nss_s101_d1536_mod-row3d-bf16", 2.4, 2.6, "slower", 0.09),
]


SAME = OutputError(1.2e-3, 1.1e-3, 1.1e-1, "out", (74_113, 4_097), 1.2519, 1.2507)
SUMS = OutputError(3e-7, None, 1.0e-1, "rstd", (74_113,), 0.998213, 0.998213)


def inputs(case_id: str) -> tuple[InputForm, ...]:
    """The scale is a sixth of a wider table; the shift's first stride says nothing, for there is one row."""
    found = re.search(r"_s(\d+)_d(\d+)_", case_id)
    assert found is not None
    rows, width = int(found[1]), int(found[2])
    return (
        InputForm("x", (rows, width), (width, 1), "bfloat16"),
        InputForm("scale", (rows, width), (6 * width, 1), "float32"),
        InputForm("shift", (1, width), (6 * width, 1), "float32"),
        InputForm("eps", value=1e-6),
        InputForm("affine", value=False),
    )


def make_task(grid: int = 4) -> Task:
    cases = [
        Case(id=name, label=label, headline=index < 4, models=(label.split()[0],), axes={"dtype": "bfloat16"})
        for index, (label, name, *_) in enumerate(_ROWS)
    ]
    cases.append(Case(id="smoke_3x64", label="smoke 3x64", kind="smoke", axes={"x": [3, 64], "dtype": "bfloat16"}))
    cases += [Case(id=f"grid_{index}", label=f"grid {index}", kind="check") for index in range(grid)]
    return Task(
        name="norm_scale_shift",
        entry="norm_scale_shift",
        folder="/home/dev/kernels/norm_scale_shift",
        summary="AdaLN: normalise a row, scale by 1 + scale, shift",
        baseline="compile",
        device="cuda",
        threads=1,
        mutates=(),
        layout="reference",
        tolerance={"bfloat16": Tolerance(5e-2, 5e-2)},
        cases=tuple(cases),
        hash="0123456789abcdef",
    )


def right(index: int, checked: int = 2) -> CaseResult:
    """The row of `_ROWS` as it lands when it is right."""
    _, name, base, now, verdict, light = _ROWS[index]
    speedup = base / now
    samples = {
        "baseline": tuple(base * (1 + noise) for noise in NOISE),
        "best": tuple(now * 1.012 * (1 + noise) for noise in NOISE[::-1]),
        "solution": tuple(now * (1 + noise) for noise in NOISE),
    }
    return CaseResult(
        id=name,
        status="ok",
        clock="device",
        baseline_us=base,
        solution_us=now,
        speedup=speedup,
        low=speedup * 0.996,
        high=speedup * 1.004,
        verdict=verdict,
        vs_best=Ratio(1.012, 1.009, 1.015, "faster"),
        roofline=light,
        error=SAME,
        errors=(SAME, SUMS),
        inputs=inputs(name),
        findings=(Finding("nondeterministic", "the same input gave other bits: look at atomics"),)
        if index == 3
        else (),
        wall=WallTime(base + 31.2, now + 33.0, (base + 31.2) / (now + 33.0)),
        kernels=2,
        ledger=(KernelTime("norm_scale_shift_kernel", 7, now * 0.9), KernelTime("memset", 7, now * 0.1)),
        span_us=now * 1.02,
        blocks=32,
        dropped=2,
        dropped_for="power cap",
        floor=0.003,
        checked=checked,
        samples=samples,
    )


def checked_only(name: str, status: str = "ok") -> CaseResult:
    return CaseResult(id=name, status=status, checked=2, error=OutputError(max=1e-3, baseline_max=1e-3, bound=5e-2))


def wrong(index: int) -> CaseResult:
    return CaseResult(
        id=_ROWS[index][1],
        status="wrong",
        error=OutputError(0.5, 1e-3, 8.75e-2, output="out", index=(4_093, 1_017), got=1.24609, expected=0.74609),
        detail="out differs at [4093, 1017]: got 1.24609, expected 0.74609 (allowed 0.087) (seed 7, spread 4)",
        inputs=inputs(_ROWS[index][1]),
        checked=1,
    )


def crashed(index: int) -> CaseResult:
    return CaseResult(
        id=_ROWS[index][1],
        status="crashed",
        detail="the worker died with SIGSEGV while it checked this case; a new one is up",
        where=Where("solution.py", 57, "tl.store(out + offsets, y)"),
        traceback='Fatal Python error: Segmentation fault\n  File "solution.py", line 57 in kernel',
    )


def summary(number: int | None = 12, **changes: object) -> Summary:
    plain = Summary(
        baseline="compile",
        run=f"run{number}",
        source="ab12cd34ef",
        at="2026-11-14T21:03:00+00:00",
        right=True,
        geomean=1.314,
        low=1.309,
        high=1.319,
        verdict="faster",
        wall=1.18,
        vs_best=Ratio(1.012, 1.009, 1.015, "faster"),
        best=True,
        best_geomean=1.29,
        counts={"ok": 10, "faster": 3, "unclear": 1, "slower": 1, "headline": 4},
        worst=Worst(_ROWS[4][1], _ROWS[4][0], 0.921),
        iteration=number,
        hypothesis="16-byte loads",
        seconds=0.93,
        environment=H200,
    )
    return dataclasses.replace(plain, **changes)


def history() -> list[Summary]:
    return [
        summary(9, hypothesis="first version", geomean=1.02, best_geomean=None, at="2026-11-12T10:00:00+00:00"),
        summary(10, hypothesis="two rows a block", geomean=1.29, at="2026-11-14T18:00:00+00:00"),
        summary(11, hypothesis="no mask [see m[bf16]]", right=False, best=False, geomean=None, low=None, high=None,
                verdict=None, vs_best=None, at="2026-11-14T20:40:00+00:00"),
        summary(12),
    ]  # fmt: skip


STARTED = RunStarted(
    run="run13",
    source="cd34ef56ab",
    reason="save",
    cases=tuple(case.id for case in make_task().cases),
    at="2026-11-14T21:29:58+00:00",
    baseline="compile",
    hypothesis="eight rows per block",
)
BROKEN = BuildFailed(
    run="run13",
    source="cd34ef56ab",
    message="undefined name 'BLOCK'",
    where=Where("solution.py", 41, "offsets = tl.arange(0, BLOCK)"),
    traceback="Traceback (most recent call last):\n  File \"solution.py\", line 41, in kernel\nNameError: name 'BLOCK'",
)


def landed(*results: CaseResult) -> list[Event]:
    return [CaseLanded("run13", result) for result in results]


def whole_run(*replaced: CaseResult, **changes: object) -> list[Event]:
    """A run from start to end; the results given take the place of the right ones."""
    task = make_task()
    results = {row[1]: right(index) for index, row in enumerate(_ROWS)}
    results |= {case.id: checked_only(case.id) for case in task.cases if case.kind != "case"}
    results |= {result.id: result for result in replaced}
    if replaced:
        changes = {"right": False, "best": False, "geomean": None, "low": None, "high": None, "verdict": None,
                   "vs_best": None, "wall": None, "worst": None,
                   "counts": {"ok": 9, replaced[0].status: 1, "headline": 3}} | changes  # fmt: skip
    changes = {"source": STARTED.source} | changes
    finished = RunFinished(summary(13, run="run13", hypothesis="eight rows per block", **changes))
    return [STARTED, *landed(*results.values()), finished]


def unclear() -> list[CaseResult]:
    """Every row right, and unclear against the best because somebody else uses the GPU."""
    shared = findings.make("shared_gpu", processes="1 other process")
    rows = (right(index) for index in range(len(_ROWS)))
    return [dataclasses.replace(row, vs_best=Ratio(1.02, 0.94, 1.1, "unclear"), findings=(shared,)) for row in rows]


def undecided() -> RunFinished:
    """The end of such a run."""
    why: dict[str, Any] = {"not_best_code": "undecided", "not_best": "4 rows are unclear against the best"}
    standing = summary(13, run="run13", source=STARTED.source, best=False, hypothesis="eight rows per block", **why)
    return RunFinished(dataclasses.replace(standing, vs_best=Ratio(1.02, 0.98, 1.06, "unclear")))


def progress(step: str, index: int) -> Progress:
    return Progress("run13", step, STARTED.cases[index], index, len(STARTED.cases))


class FakeEngine:
    """Keeps what the screen asked for; `say` plays an event."""

    def __init__(self, fresh: bool = False) -> None:
        self.task = make_task()
        self.environment: Environment | None = None
        self.paused = self.waits = False
        self.finished: Summary | None = None
        self.is_alone = True
        self.changed = False
        self.running: str | None = None
        self.baseline = "compile"
        self.hypothesis = ""
        self.entry_without_words: int | None = None
        self.entries_of_saves: list[Summary] = []
        self.next_step = "eight rows per block"
        self.selected: str | None = None
        self.started = False
        self.closed = False
        self.state = Path(tempfile.mkdtemp(prefix="kernbench-scene-"))
        weakref.finalize(self, shutil.rmtree, self.state, ignore_errors=True)
        self.restored: list[str] = []
        self.dropped: list[Summary] = []
        self.code: dict[str, list[KernelCode]] = {}
        self.source_now = "BLOCK = 8"
        self.is_long = False
        self.archive = self
        self.options = Options()
        self.supervisor = self
        self.is_gpu_lent = False
        self.known: Mapping[str, Sequence[str]] = {}
        self.logbook = self
        self.notes = self
        self.models = self
        self.model_choices: list[str] = []
        self.last = ""
        self.models_run: list[str] = []
        self.profiled: list[tuple[str, bool]] = []
        self.exported: list[tuple[str, bool]] = []
        self.remembered = 0
        self.reruns = 0
        self.history = [] if fresh else history()
        self.results: dict[str, CaseResult] = {}
        if not fresh:
            self.results = {row[1]: right(index) for index, row in enumerate(_ROWS)}
            self.results |= {case.id: checked_only(case.id) for case in self.task.cases if case.kind != "case"}
        self._listeners: list[Callable[[Event], None]] = []

    def read(self) -> None:
        self.remembered += 1

    async def lend_gpu(self) -> None:
        self.is_gpu_lent = True

    def take_back_gpu(self) -> None:
        self.is_gpu_lent = False

    async def tried(self) -> Mapping[str, Sequence[str]]:
        return self.known

    def say(self, *events: Event) -> None:
        for event in events:
            if isinstance(event, RunFinished):
                self.finished = event.summary
            if isinstance(event, Confirmed) and self.finished is not None:
                self.finished = dataclasses.replace(self.finished, confirmed=event.confirmed)
            for listener in self._listeners:
                listener(event)

    def listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    def choices(self) -> list[str]:
        return self.model_choices

    def start(self, name: str = "") -> Any:
        """Of the engine, or of one of its models."""
        if name:
            self.models_run.append(name)
            return None
        return self._open()

    async def _open(self) -> None:
        self.started = True

    async def close(self) -> None:
        self.closed = True

    def rerun(self) -> None:
        self.reruns += 1

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    def set_baseline(self, name: str) -> None:
        self.baseline = name

    def baselines(self) -> tuple[str, ...]:
        return ("eager", "compile", "best")

    def hypothesis_for(self) -> int | None:
        return self.entry_without_words

    def set_hypothesis(self, number: int | None, text: str, instead_of: str = "") -> str:
        places = {item.iteration: place for place, item in enumerate(self.history)}
        if number in places:
            place = places[number]
            self.history[place] = dataclasses.replace(self.history[place], hypothesis=text)
            self.entry_without_words = None
            return f"entry {number} was updated"
        self.hypothesis = text
        return f"the next run tries: {text}"

    def made(self) -> int:
        return len(self.entries_of_saves)

    def logged(self) -> int:
        return len(self.entries_of_saves)

    def entry_after(self, count: int, besides: str = "") -> int | None:
        return next((item.iteration for item in self.entries_of_saves[count:] if item.run != besides), None)

    def enter(self, number: int, hypothesis: str = "") -> None:
        """A save makes an entry."""
        entry = summary(number, hypothesis=hypothesis, source=f"{number:08x}")
        self.history.append(entry)
        self.entries_of_saves.append(entry)
        self.say(dataclasses.replace(STARTED, run=entry.run, source=entry.source), RunFinished(entry))

    def next_now(self) -> str:
        return self.next_step

    def set_next(self, text: str) -> str:
        self.next_step = text
        return f"iteration 12 says next: {text}"

    def iterations(self) -> Sequence[Summary]:
        return self.history

    def summary(self, run: str) -> Summary | None:
        return self.finished if self.finished is not None and self.finished.run == run else None

    async def changed_elsewhere(self) -> bool:
        changed, self.changed = self.changed, False
        return changed

    def best_now(self) -> Summary | None:
        """What the newest run says of it: itself, or the source before it."""
        last = self.finished or self.last_summary()
        if last is None or last.holds:
            return last
        before = {"run": "before", "source": "of the best", "geomean": last.best_geomean}
        return dataclasses.replace(last, **before) if last.best_geomean else None

    def numbers(self) -> Sequence[int]:
        return [item.iteration or 0 for item in self.history]

    def last_results(self) -> Mapping[str, CaseResult]:
        return self.results

    def last_summary(self) -> Summary | None:
        return self.history[-1] if self.history else None

    def text(self, number: int, source: str | None = None, at: str = "") -> str:
        return f"## {number} · 16-byte loads · 1.31x\n- hypothesis: m[bf16] loads"

    async def profile(self, case: str, against: str | None = None, full: bool = False) -> object:
        self.profiled.append((case, full))
        return None

    def profiles(self) -> Mapping[str, ProfileReady]:
        return {}

    def export_target(self, kind: str) -> Path:
        return self.state / f"log.{kind}"

    def export(self, kind: str, force: bool) -> list[Path]:
        if kind == "html":
            raise UserError("Jinja2 is not installed")
        self.exported.append((kind, force))
        self.export_target(kind).write_text(kind)
        return [self.export_target(kind)]

    def rows(self, entry: Summary) -> Mapping[str, CaseResult]:
        """Every case as fast as the iteration, each a little less so than the one before."""
        if not entry.right:
            return {row[1]: wrong(index) for index, row in enumerate(_ROWS)}
        return {
            row[1]: dataclasses.replace(right(index), speedup=(entry.geomean or 1.0) * (1.2 - 0.1 * index))
            for index, row in enumerate(_ROWS)
        }

    def sources(self, reference: str) -> Mapping[str, str]:
        if reference == "7":
            raise UserError("the source of 7 is not on this machine")
        body = {"now": self.source_now, "best": "BLOCK = 4"}.get(reference, f"BLOCK = {reference}")
        return {"solution.py": f"import triton\n\n{body}\n\ndef kernel(x, m[bf16]):\n    return x\n"}

    def machine_code(self, reference: str) -> list[KernelCode]:
        if reference not in self.code:
            raise UserError(f"no machine code of {reference}: it is kept when a source runs on a GPU; run it here")
        return self.code[reference]

    def restore(self, reference: str) -> tuple[str, str]:
        self.restored.append(reference)
        return f"restored {reference}: solution.py", f"before {reference}"

    async def doubt(self, number: int) -> str:
        return "it has lines added or changed by hand" if number == 10 else ""

    async def drop(self, number: int) -> str:
        self.dropped = [item for item in self.history if item.iteration == number]
        self.history = [item for item in self.history if item.iteration != number]
        return f"dropped entry {number}"

    async def put_back(self, number: int) -> str:
        self.history = sorted([*self.history, *self.dropped], key=lambda item: item.iteration or 0)
        return f"entry {number} is back in ITERATIONS.md"


OWN_COLOURS = Settings(theme="kernbench")
"""Whatever terminal the tests run in."""


def make_app(engine: FakeEngine, ascii_only: bool = False, **given: Any) -> Workbench:
    return Workbench(engine, **{"settings": OWN_COLOURS, **given}, ascii_only=ascii_only, now=lambda: NOW)


def h200(second: int = 0, **changes: Any) -> GpuSample:
    """A GPU that works more from second to second."""
    gpu = GpuSample(
        index=0,
        uuid="GPU-11112222-3333-4444-5555-666677778888",
        name="NVIDIA H200",
        busy=min(second * 2, 97),
        bus=min(second, 63),
        memory_used=13_300_000_000,
        memory_total=150_100_000_000,
        sm_mhz=1980 if second > 10 else 345,
        sm_max_mhz=1980,
        memory_mhz=3201,
        memory_max_mhz=3201,
        power_w=76.0 + 10 * second,
        limit_w=700.0,
        celsius=min(30 + second // 2, 61),
        limits=("power cap",) if second > 50 else (),
        processes=(GpuProcess(4242, "python", 12_900_000_000, ours=True),),
    )
    return dataclasses.replace(gpu, **changes)


HOST = HostSample(cores=16, busy=12.0, memory_used=9_000_000_000, memory_total=128_000_000_000)
NO_GPU = Sample(dataclasses.replace(HOST, cores=2), (), "no NVIDIA driver here")


def busy_minute() -> list[Sample]:
    return [Sample(HOST, (h200(second),)) for second in range(60)]


def feel(app: Workbench, samples: Sequence[Sample]) -> None:
    for sample in samples:
        app.main.show_sample(sample)


TASKS = Tasks(
    lambda: [
        TaskRow("norm_scale_shift", "/home/dev/kernels/norm_scale_shift", "1.31x", "1.31x improved", "27 min"),
        TaskRow("rms_norm", "/home/dev/kernels/rms_norm", "1.84x", "wrong", "2 d"),
        TaskRow("softmax_host", "/home/dev/kernels/softmax_host", "-", "not run yet", "-"),
    ],
    lambda folder: FakeEngine(fresh=True),
)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything said is painted."""
    app = pilot.app
    assert isinstance(app, Workbench)
    await pilot.pause()
    while not app.settled and app.is_running:  # it no longer runs if it crashed
        await pilot.pause(0.02)
    await pilot.pause()


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    """Wait until it holds, a minute at most: the assertion that follows says what did not."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        await pilot.pause()
        if holds():
            return
        await pilot.pause(0.02)


def export_svg(app: Workbench) -> str:
    """A picture of the screen, as the README shows one."""
    return app.export_screenshot(title="kernbench", simplify=True)


def screen_text(app: Workbench) -> str:
    """What the terminal shows, line by line."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"
