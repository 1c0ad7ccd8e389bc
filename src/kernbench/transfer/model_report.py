"""A model's rows as tables. Pure: every function returns the lines to print."""

from __future__ import annotations

from collections.abc import Sequence

from harness.shared import format as fmt
from harness.shared.codes import OURS_OF
from harness.shared.model_step import OutputGap
from kernbench import render
from kernbench.report import columns
from kernbench.transfer.model_row import ModelRow, expected_speedup, shares_after

OWN_OF = {ours: own for own, ours in OURS_OF.items()}


def lines(rows: Sequence[ModelRow]) -> list[str]:
    """The row with all tasks in full; the rows of single tasks as one table. That only the wiring was checked is said
    before the times."""
    first, *alone = rows
    text = _whole(first)
    if alone:
        text += ["", *_each(alone)]
    notes = [f"note: {note}" for note in dict.fromkeys(note for row in rows for note in row.notes)]
    return [*notes, "", *text] if first.word == "checked" else [*text, *notes]


def _whole(row: ModelRow) -> list[str]:
    if not row.times:
        return [outcome(row)]
    parts = [_sides(row), _shares(row), _numerics(row), _drift(row), [outcome(row)], _files(row)]
    return [_head(row), *(line for part in parts if part for line in ("", *part))]


def _head(row: ModelRow) -> str:
    device = row.environment.device_name or row.environment.device
    if row.times[0].total_ms is None:
        return f"{row.title}, {fmt.plural(row.rounds, 'round')} in turns on {device}"
    where = f" on {row.environment.device_name}" if row.environment.device_name else ""
    return f"{row.title}, {fmt.plural(row.rounds, 'pair')} of runs in turns{where}"


def _sides(row: ModelRow) -> list[str]:
    """The times; a side with the kernels is also compared with its counterpart without."""
    has_clocks = any(item.sm_mhz is not None for item in row.times)
    has_total = any(item.total_ms is not None for item in row.times)
    more = (*(("SM MHz", "W") if has_clocks else ()), *(("whole run ms", "peak MB") if has_total else ()))
    cells = [("side", "ms", "over eager", "kernels' gain", "verdict", *more)]
    problems = []
    for item in row.times:
        own = OWN_OF.get(item.name, "")
        ratio = row.ratio_of(item.name, own)
        clocks = (fmt.whole(item.sm_mhz), fmt.whole(item.watts)) if has_clocks else ()
        whole = (fmt.microseconds(item.total_ms), fmt.whole(item.peak_mb)) if has_total else ()
        over = fmt.speedup(row.ratio_of(item.name, "eager")) if item.name != "eager" else ""
        gain, verdict = (
            ("", "") if ratio is None else (fmt.speedup(ratio), f"{render.SIGNS[ratio.verdict]} {ratio.verdict}")
        )
        verdict = "" if row.word == "checked" else verdict
        cells.append((item.name, fmt.microseconds(item.ms), over, gain, verdict, *clocks, *whole))
        if item.problem:
            problems.append(f"{item.name}: {item.problem}")
    return columns(cells, left=(0, 4)) + problems


def _shares(row: ModelRow) -> list[str]:
    sources = {patch.task: patch for patch in row.sources}
    after = shares_after(row.shares)
    header = ("task", "source", "calls", "share", "after", "micro", "calls here", "expected", "bit-exact")
    cells = [header]
    for item in row.shares:
        patch = sources[item.task]
        expected = expected_speedup([item], row.sources)
        cells.append(
            (
                item.task,
                f"{patch.what} {patch.source[:8]}",
                str(item.calls),
                fmt.fine_percent(item.share),
                fmt.fine_percent(after[item.task]) if item.task in after else fmt.DASH,
                fmt.times(patch.micro),
                fmt.times(item.gain),
                fmt.exact(expected),
                _yes(item.exact),
            )
        )
    return columns(cells, left=(0, 1)) if row.shares else []


def _numerics(row: ModelRow) -> list[str]:
    cells = [("output", *_gap_header(row), "bit-exact")]
    cells += [(gap.side, *_gap(gap), _yes(gap.bit_exact)) for gap in row.gaps]
    return columns(cells) if row.gaps else []


def _drift(row: ModelRow) -> list[str]:
    cells = [("step", *_gap_header(row))]
    cells += [(str(number), *_gap(gap)) for number, gap in enumerate(row.drift, 1)]
    return columns(cells) if row.drift else []


def _gap_header(row: ModelRow) -> tuple[str, ...]:
    return "max abs", "relative L2", "PSNR dB", f"L2 to {row.wide or 'wider'}", "of eager"


def _gap(gap: OutputGap) -> tuple[str, ...]:
    errors = fmt.error(gap.max_abs), fmt.error(gap.relative_l2)
    return *errors, fmt.fixed(gap.psnr_db, 1), fmt.error(gap.wide_l2), fmt.error(gap.original_wide_l2)


def _yes(exact: bool | None) -> str:
    return fmt.DASH if exact is None else "yes" if exact else "no"


def _files(row: ModelRow) -> list[str]:
    named = (("images", row.images), ("perf dumps", row.dumps))
    return [f"{what}: {', '.join(paths)}" for what, paths in named if paths]


def _each(alone: Sequence[ModelRow]) -> list[str]:
    """One task at a time: what it promises, and what the step shows."""
    cells = [("one at a time", "share", "micro", "calls here", "expected", "measured", "bit-exact", "result")]
    for row in alone:
        share = row.shares[0] if row.shares else None
        patch = row.sources[0]
        cells.append(
            (
                patch.task,
                fmt.DASH if share is None else fmt.fine_percent(share.share),
                fmt.times(patch.micro),
                fmt.times(share.gain if share else None),
                fmt.exact(row.expected),
                fmt.speedup(row.ratio),
                _yes(row.exact),
                row.said,
            )
        )
    return columns(cells, left=(0, 7))


def entry(row: ModelRow) -> str:
    """The row in an entry of its task, after the model's name."""
    before, after = step_ms(row)
    is_timed = before and after and row.word != "checked"
    step = f"step {fmt.microseconds(before)} -> {fmt.microseconds(after)} ms, " if is_timed else ""
    return step + outcome(row).removeprefix(f"{row.model}: ")


def step_ms(row: ModelRow) -> tuple[float | None, float | None]:
    """The sides that were compared: without the kernels, and with them."""
    times = {item.name: item.ms for item in row.times}
    return times.get(row.over), times.get(row.side)


def outcome(row: ModelRow) -> str:
    """The row in one line."""
    if row.ratio is None:
        return f"{row.model}: {row.said}; not kept"
    if row.word == "checked":
        return f"{row.model}: {row.why or 'the wiring and the numerics are right'}, with references for the kernels"
    parts = [f"{row.model}: {row.side} over {row.over} {fmt.speedup(row.ratio)}, {row.said}"]
    if row.word != "too small to see" and row.expected is not None and (row.side, row.over) == ("ours", "eager"):
        parts.append(f"expected {fmt.exact(row.expected)}")
    if row.floor is not None:
        parts.append(f"A/A floor {fmt.fine_percent(row.floor)}")
    parts.append("kept" if row.kept else f"not kept{': ' + row.why if row.why else ''}")
    return " · ".join(parts)
