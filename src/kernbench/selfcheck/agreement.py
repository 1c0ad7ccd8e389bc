"""ncu: our device time compared with Nsight Compute's duration of the same kernel, for each state of the L2."""

from __future__ import annotations

import csv
import shutil
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Literal

from harness.shared import format as fmt
from kernbench.engine.jobs import Options
from kernbench.ncu import nsight
from kernbench.selfcheck import Report, Tell
from kernbench.selfcheck.task_copy import TaskCopy
from kernbench.worker.process import child_environment

CALLS = 5
UNITS = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3, "ms": 1e3, "msecond": 1e3}
CONDITIONS: tuple[Literal["cold", "warm", "dirty"], ...] = ("cold", "dirty", "warm")


async def with_ncu(task: str, options: Options, tell: Tell) -> Report:
    try:
        ncu = nsight.find(options.ncu)
    except nsight.NoNcu as problem:
        return Report("ncu", notes=[f"nothing to compare with: {problem}"])
    ours: dict[str, dict[str, float]] = {}
    for condition in CONDITIONS:
        async with TaskCopy(task, replace(options, condition=condition, baseline="eager"), tell) as shop:
            await shop.run()
            for case, row in shop.rows().items():
                ours.setdefault(case, {})[condition] = row.solution_us or 0.0
            if condition == CONDITIONS[-1]:
                theirs = await _durations(shop, ncu)
            labels = {case.id: case.label for case in shop.session.task.timed}
    report = Report("ncu")
    for case, times in ours.items():
        if theirs.get(case) and "cold" in times:
            off = {f"{name}_percent": 100 * (value / theirs[case] - 1) for name, value in times.items()}
            report.rows.append({"case": labels[case], "ncu_us": theirs[case], "cold_us": times["cold"], **off})
    report.notes.append(_sum_up(report))
    return report


def _sum_up(report: Report) -> str:
    means = {
        name: statistics.mean(abs(row[f"{name}_percent"]) for row in report.rows)
        for name in CONDITIONS
        if report.rows and f"{name}_percent" in report.rows[0]
    }
    if not means:
        return "ncu reported no durations; is it allowed to read the GPU counters?"
    nearest = min(means, key=lambda name: means[name])
    beyond = [row["case"] for row in report.rows if _beyond(row["cold_us"], row["ncu_us"])]
    mark = f"outside the limits: {', '.join(beyond)}" if beyond else "every row within the limits"
    mean = fmt.fine_percent(means[nearest] / 100)
    return f"{mark}; times with a {nearest} L2 are closest to ncu's (mean difference {mean})"


def _beyond(ours: float, theirs: float) -> bool:
    if theirs < 10:
        return abs(ours - theirs) > 1.3
    return abs(ours / theirs - 1) > (0.04 if theirs >= 40 else 0.10)


async def _durations(shop: TaskCopy, ncu: Path) -> dict[str, float]:
    """Median of five profiled calls per case; a call's duration is the sum over its kernels."""
    flags = ["--clock-control", "none", "--profile-from-start", "off", "--metrics", "gpu__time_duration.sum", "--csv"]
    environment = {**child_environment(None), "TMPDIR": tempfile.mkdtemp(prefix="kernbench-ncu-")}
    log = f"{environment['TMPDIR']}/out.csv"
    answers = await shop.other_methods(environment, str(ncu), *flags, "--log-file", log, profiled=True)
    cases = [answer["case"] for answer in answers]
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            times = _parse(file.read())
    except OSError:
        times = []
    shutil.rmtree(environment["TMPDIR"], ignore_errors=True)
    each = len(times) // (CALLS * len(cases)) if cases else 0
    if not each:
        return {}
    calls = [sum(times[start : start + each]) for start in range(0, len(times), each)]
    return {case: statistics.median(calls[place * CALLS : (place + 1) * CALLS]) for place, case in enumerate(cases)}


def _parse(text: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(lines)
    found = []
    for row in rows:
        if row.get("Metric Name") == "gpu__time_duration.sum":
            found.append(float(row["Metric Value"].replace(",", "")) * UNITS.get(row.get("Metric Unit", "us"), 1.0))
    return found
