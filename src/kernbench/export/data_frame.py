"""All runs of a task as one pandas frame: a row per run and case, with units in the column names.

`kernbench.history("rms_norm")` returns it in a notebook; every export is made from the same frame. Numbers are those of
runs.jsonl, to the last digit, or of a pulled log that was never run here; missing ones are NaN, None or NA.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harness.shared.task import Task
from kernbench import render
from kernbench.events import Summary
from kernbench.log import gpu_types
from kernbench.log.entries.entry_text import HASH
from kernbench.log.gpu_types import GpuTypes

if TYPE_CHECKING:
    import pandas

RUN_COLUMNS = (
    "run iteration repeats at source outcome right best stalled hypothesis hypothesis_by hypothesis_at next_step"
    " failed_builds geomean_speedup geomean_low geomean_high geomean_verdict weighted_geomean_speedup"
    " wall_geomean_speedup baseline baseline_hash task_hash device device_name condition driver clocks torch triton"
    " python kernbench command duration_s"
).split()
CASE_COLUMNS = (
    "case label kind headline status verdict clock baseline_us solution_us best_us speedup speedup_low speedup_high"
    " vs_best_speedup vs_best_low vs_best_high vs_best_verdict wall_baseline_us wall_solution_us wall_speedup"
    " light_fraction light_bound exact_fraction error_max_abs error_baseline_max_abs error_bound_abs floor_fraction"
    " kernels blocks dropped_blocks checked findings detail where"
).split()
INTEGERS = ("iteration", "repeats", "kernels", "blocks", "dropped_blocks", "checked")
OUTCOMES = {"partial": "part", "build error": "no build"}
"""Values that programs may select by stay as they were when the word on the screen changes."""
NUMBERS = ("_us", "speedup", "_low", "_high", "_fraction", "_abs", "_s")
"""Name endings of numeric columns."""


def frame(task: Task, runs: Iterable[tuple[Summary, Sequence[dict[str, Any]]]]) -> pandas.DataFrame:
    """Runs in their order, each with its cases as they landed."""
    import pandas

    about = {case.id: (case.label, case.kind, case.headline) for case in task.cases}
    summaries: list[Summary] = []
    rows: list[tuple[Any, ...]] = []
    owners: list[int] = []
    for summary, cases in runs:
        owners += [len(summaries)] * len(cases)
        rows += [_case_row(data, about.get(data["id"])) for data in cases]
        summaries.append(summary)
    about_runs = _typed(pandas.DataFrame([_run_row(item) for item in summaries], columns=RUN_COLUMNS))
    columns = zip(*rows, strict=True) if rows else ([] for _name in CASE_COLUMNS)
    table = _typed(pandas.DataFrame(dict(zip(CASE_COLUMNS, map(list, columns), strict=True)), columns=CASE_COLUMNS))
    return pandas.concat([about_runs.iloc[owners].reset_index(drop=True), table], axis=1)


def by_gpu_type(table: pandas.DataFrame, types: GpuTypes) -> pandas.DataFrame:
    """With columns for each GPU type, such as `H200_solution_us` and `H200_speedup`: what the source came to there
    in the same case. The same table if there is one type."""
    import pandas

    for name in types.names:
        rows = {
            (short, case): row
            for (short, gpu), item in types.by_source.items()
            if gpu == name
            for case, row in types.rows(item).items()
        }
        places = list(zip(table["source"].str[:HASH], table["case"], strict=True))
        for field in ("solution_us", "speedup"):
            values = [getattr(rows[place], field) if place in rows else None for place in places]
            title = f"{gpu_types.short(name).replace(' ', '_')}_{field}"
            table[title] = pandas.Series(values, index=table.index, dtype="float64")
    return table


def _run_row(summary: Summary) -> tuple[Any, ...]:
    about = summary.environment
    return (
        summary.run,
        summary.iteration,
        summary.repeats,
        summary.at,
        summary.source,
        OUTCOMES.get(word := render.outcome(summary), word),
        summary.right,
        summary.holds,
        summary.stalled,
        summary.hypothesis,
        summary.hypothesis_by,
        summary.hypothesis_at,
        summary.next,
        summary.failed_builds,
        summary.geomean,
        summary.low,
        summary.high,
        summary.verdict,
        summary.weighted,
        summary.wall,
        summary.baseline,
        summary.baseline_hash,
        summary.task_hash,
        about.device,
        about.device_name,
        about.condition,
        about.driver,
        render.clocks(about),
        about.torch,
        about.triton,
        about.python,
        summary.version,
        summary.command,
        summary.seconds,
    )


def _case_row(data: dict[str, Any], about: tuple[str, str, bool] | None) -> tuple[Any, ...]:
    get = data.get
    best, wall, error = get("vs_best") or {}, get("wall") or {}, get("error") or {}
    label, kind, headline = about or (data["id"], "", False)
    return (
        data["id"],
        label,
        kind,
        headline,
        get("status"),
        get("verdict"),
        get("clock"),
        get("baseline_us"),
        get("solution_us"),
        get("best_us"),
        get("speedup"),
        get("low"),
        get("high"),
        best.get("speedup"),
        best.get("low"),
        best.get("high"),
        best.get("verdict"),
        wall.get("baseline_us"),
        wall.get("solution_us"),
        wall.get("speedup"),
        get("light"),
        get("bound"),
        get("exact"),
        error.get("max"),
        error.get("baseline_max"),
        error.get("bound"),
        get("floor"),
        get("kernels"),
        get("blocks"),
        get("dropped"),
        get("checked"),
        "; ".join(finding["name"] for finding in get("findings") or ()),
        get("detail"),
        _place(get("where")),
    )


def _place(where: dict[str, Any] | None) -> str | None:
    if not where:
        return None
    return where["file"] if where.get("line") is None else f"{where['file']}:{where['line']}"


def _typed(table: pandas.DataFrame) -> pandas.DataFrame:
    """The same types whether a column is full, empty or missing."""
    kinds = dict.fromkeys((name for name in INTEGERS if name in table), "Int64")
    kinds |= dict.fromkeys(_numbers(table), "float64")
    return table.astype(kinds)


def _numbers(table: pandas.DataFrame) -> Iterator[str]:
    return (name for name in table.columns if name.endswith(NUMBERS) and name not in INTEGERS)
