"""The part of a pull request that is about models: steps, totals, shares, exactness, and perf dumps for SGLang."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.codes import OURS_OF
from harness.shared.model_step import SideTime
from kernbench import render
from kernbench.log.entries import entry_text
from kernbench.transfer import perf_dump
from kernbench.transfer.model_row import ModelRow, shares_after
from kernbench.transfer.perf_dump import PerfDump
from kernbench.upstream.model_gate import ModelGate

OWN_OF = {ours: own for own, ours in OURS_OF.items()}
MOST_STALLED = 0.05
"""By which a total may exceed the median times the steps."""
Table = list[list[str]]


def section(said: ModelGate) -> list[str]:
    """Markdown lines; of a model that ran no step with this source, only that."""
    lines = [f"- {remark}" for remark in said.remarks]
    lines += [f"- shown with `--anyway`: {said.refusal}"] if said.refused else []
    lines = ["## In a model", "", *lines, ""]
    rows = timed(said)
    if not rows:
        return lines
    lines += ["### Denoising step", "", *_steps(rows), "", *_remarks(rows), ""]
    lines += ["### End to end", "", *_totals(rows), "", _about_totals(rows), *_stalls(rows), ""]
    if any(row.shares for row in rows):
        lines += ["### Share of the step", "", *_shares(rows), ""]
    compared = [row for row in rows if row.gaps]  # not the outputs of a command
    if compared:
        lines += ["### Exactness", "", *_exactness(compared), "", *_about_exactness(compared), ""]
    return lines


def timed(said: ModelGate) -> list[ModelRow]:
    """The rows with numbers."""
    return [row for row in said.rows if row.ratio is not None and row.times]


def dumps(said: ModelGate) -> dict[str, str]:
    """Files that SGLang's compare_perf.py reads: one without the kernels and one with them for each model."""
    found = {}
    for place, row in _files(timed(said)).items():
        for number, (name, side) in enumerate((("before", row.over), ("after", row.side))):
            if _is_command(row):  # it wrote them itself
                text = _own_dump(row, number)
            else:
                time = _time(row, side)
                text = perf_dump.text(_dump(row, time)) if time is not None else ""
            if text:
                found[f"{place}-{name}.json"] = text
    return found


def _files(rows: Sequence[ModelRow]) -> dict[str, ModelRow]:
    """The beginning of the names of each row's dumps; a second config of a model has a number."""
    found: dict[str, ModelRow] = {}
    for row in rows:
        count = sum(other.model == row.model for other in found.values())
        found[f"perf/{row.model}-{count + 1}" if count else f"perf/{row.model}"] = row
    return found


def _is_command(row: ModelRow) -> bool:
    return any(time.total_ms is not None for time in row.times)


def _own_dump(row: ModelRow, number: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(row.dumps[number]).read_text(encoding="utf-8")
    return ""


def _dump(row: ModelRow, time: SideTime) -> PerfDump:
    total = round(sum(time.samples), 6)
    peak = _peak(row, time)
    memory = {} if peak is None else {f"after_{perf_dump.DENOISING}": {"peak_allocated_mb": peak}}
    return PerfDump(
        total_ms=total,
        stages={perf_dump.DENOISING: total},
        steps_ms=time.samples,
        memory_mb=memory,
        at=row.at,
        request=row.run,
        meta={
            "model": row.model,
            "config": row.config,
            "side": time.name,
            "device": row.environment.device_name or row.environment.device,
            "sources": {patch.task: patch.source for patch in row.sources},
            "made_by": f"kernbench {row.version}",
        },
    )


def _peak(row: ModelRow, time: SideTime) -> float | None:
    """Of a side in a graph, whose replay allocates nothing: that of the same side without one."""
    plain = _time(row, time.name.removesuffix("+graph"))
    return time.peak_mb if time.peak_mb is not None or plain is None else plain.peak_mb


def _steps(rows: Sequence[ModelRow]) -> list[str]:
    """Every side of every model; one with the kernels is also compared with its counterpart without."""
    table = [["model", "side", "step ms", "over eager", "kernels' gain", "verdict"]]
    for row in rows:
        for item in row.times:
            if item.ms is None:
                continue
            ratio = row.ratio_of(item.name, OWN_OF.get(item.name, ""))
            word = f"{render.SIGNS[ratio.verdict]} {ratio.verdict}" if ratio else ""
            over = fmt.speedup(row.ratio_of(item.name, "eager")) if item.name != "eager" else ""
            gain = fmt.speedup(ratio) if ratio else ""
            table.append([row.title, item.name, fmt.microseconds(item.ms), over, gain, word])
    return _markdown(table, left=(0, 1, 5))


def _remarks(rows: Sequence[ModelRow]) -> list[str]:
    lines = []
    for row in rows:
        floor = f", A/A floor {fmt.fine_percent(row.floor)}" if row.floor is not None else ""
        device = row.environment.device_name or ("" if _is_command(row) else row.environment.device)
        where = f" on {device}" if device else ""
        lines.append(f"{row.title}: medians of {_count(row, row.rounds)} of each side in turns{where}{floor}.")
    return [*lines, "± is half the 95% interval."]


def _totals(rows: Sequence[ModelRow]) -> list[str]:
    has_peak = any(item.peak_mb is not None for row in rows for item in row.times)
    peaks = ["peak MB before", "peak MB after"] if has_peak else []
    table = [["model", "sides", "timed", "before ms", "after ms", "speedup", "result", *peaks]]
    for row in rows:
        before, after = _time(row, row.over), _time(row, row.side)
        if before is None or after is None:
            continue
        cells = [row.title, f"{row.side} over {row.over}", _count(row, len(after.samples))]
        cells += [fmt.fixed(_total(item), 1) for item in (before, after)]
        cells += [fmt.speedup(row.ratio), row.said]
        cells += [fmt.whole(_peak(row, item)) for item in (before, after)] if has_peak else []
        table.append(cells)
    return _markdown(table, left=(0, 1, 6))


def _count(row: ModelRow, number: int) -> str:
    return fmt.plural(number, "run" if _is_command(row) else "step")


def _total(time: SideTime) -> float:
    """Of a command the median of its whole runs, else the sum of the steps."""
    return sum(time.samples) if time.total_ms is None else time.total_ms


def _about_totals(rows: Sequence[ModelRow]) -> str:
    files = ", ".join(f"`{place}-before.json` and `{place}-after.json`" for place in _files(rows))
    sides = "The fastest side with the kernels against the fastest without"
    return f"{sides}; {files} have every step, in the form that SGLang's compare_perf.py reads."


def _stalls(rows: Sequence[ModelRow]) -> list[str]:
    """Sides whose total a few slow steps decide: a total has them, the interval does not."""
    lines = []
    for row in (row for row in rows if not _is_command(row)):
        for time in filter(None, (_time(row, row.over), _time(row, row.side))):
            usual = stats.median(time.samples)
            if sum(time.samples) > (1 + MOST_STALLED) * usual * len(time.samples):
                slowest = fmt.microseconds(max(time.samples))
                lines.append(
                    f"The total of {row.model}, {time.name}, says little: its slowest step took {slowest} ms, "
                    f"the median is {fmt.microseconds(usual)}. Such steps count in a total, not in the speedup."
                )
    return lines


def _shares(rows: Sequence[ModelRow]) -> list[str]:
    table = [["model", "task", "calls", "share before", "share after", "calls' gain"]]
    for row in rows:
        after = shares_after(row.shares)
        for item in row.shares:
            known = after.get(item.task)
            left = fmt.DASH if known is None else fmt.fine_percent(known)
            cells = [row.title, item.task, str(item.calls), fmt.fine_percent(item.share), left]
            table.append([*cells, fmt.times(item.gain)])
    return _markdown(table, left=(0, 1))


def _exactness(rows: Sequence[ModelRow]) -> list[str]:
    wide = next((row.wide for row in rows if row.wide), "wider")
    table = [["model", "side", "bit-exact", "max abs", "relative L2", "PSNR dB", f"L2 to {wide}", "of eager"]]
    for row in rows:
        for gap in row.gaps:
            cells = [row.title, gap.side, "yes" if gap.bit_exact else "no", fmt.error(gap.max_abs)]
            cells += [fmt.error(gap.relative_l2), fmt.fixed(gap.psnr_db, 1)]
            table.append([*cells, fmt.error(gap.wide_l2), fmt.error(gap.original_wide_l2)])
    return _markdown(table, left=(0, 1, 2))


def _about_exactness(rows: Sequence[ModelRow]) -> list[str]:
    """Upstream turns bit-exact kernels on by default, and others only with a switch."""
    others = [row.model for row in rows if row.exact is False]
    if not others:
        return ["The output is the original's, bit for bit."]
    return [f"Not bit-exact in {fmt.joined(others)}: upstream may want it behind a quality switch."]


def _time(row: ModelRow, side: str) -> SideTime | None:
    return next((item for item in row.times if item.name == side and item.samples), None)


def _markdown(table: Table, left: Sequence[int]) -> list[str]:
    rule = ["---" if place in left else "---:" for place in range(len(table[0]))]
    return [entry_text.cells(cells) for cells in (table[0], rule, *table[1:])]
