"""The row page: all details of one row, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.results import FAILURES, CaseResult
from harness.shared.task import Task
from kernbench import render
from kernbench.events import Summary
from kernbench.tui.state.board import Row
from kernbench.tui.state.row_history import Outcome
from kernbench.tui.text import failure_text, row_checks
from kernbench.tui.text.gpu_text import ASCII_BARS, BARS
from kernbench.tui.text.spans import Span, clean, pad, spell

BINS = 20
MOST_PAST, LEAST_PAST = 40, 2
"""Iterations of a row's history."""
MOST_BLOCKS = 60
DRIFT = 0.05
"""The ends of the scale on which blocks show in order."""
MEAN_LEGEND = "* mean of the middle half of the blocks, as in the table; speedups: the same mean of per-block ratios"
Line = list[Span]


def lines(
    row: Row,
    task: Task,
    bandwidth: float | None = None,
    ascii_only: bool = False,
    past: Sequence[tuple[Summary, Outcome]] = (),
) -> list[Line]:
    """The row page, one paragraph per line. `bandwidth` is that of a copy on this GPU, `past` the row's iterations."""
    found = list(_lines(row, task, bandwidth, ascii_only, past))
    return [[(spell(text, ascii_only), style) for text, style in line] for line in found]


def _lines(
    row: Row, task: Task, bandwidth: float | None, ascii_only: bool, past: Sequence[tuple[Summary, Outcome]]
) -> Iterator[Line]:
    case, result = row.case, row.result
    yield [(clean(case.id), "strong")]
    about = [case.kind, "headline" if case.headline else "", ", ".join(case.models)]
    yield [(clean(" · ".join(part for part in about if part)), "dim")]
    if case.axes:
        yield [(clean("  ".join(f"{name}={value}" for name, value in case.axes.items())), "dim")]
    tolerances = row_checks.tolerances(task, case, result)
    if task.judge == "check":
        yield [("judged by check() in reference.py", "dim")]
    elif tolerances:
        against = " against the reference" if task.judge == "reference" else ""
        bounds = [row_checks.bounds(dtype, bound) for dtype, bound in tolerances.items()]
        yield [(clean(f"tolerance{against}: " + ", ".join(bounds)), "dim")]
    yield []
    if result is None:
        yield [("not run yet", "dim")]
        return
    if not row.fresh:
        yield [("from an earlier run", "warn")]
    yield from _outcome(result)
    yield from _times(result, row.before)
    yield from _past(past, ascii_only)
    yield from _findings(result)
    yield from _samples(result, ascii_only)
    yield from _measuring(result, bandwidth)
    yield from _ledger(result)
    yield from row_checks.errors(result)
    yield from row_checks.inputs(result)
    known = result.known or case.known
    if known:
        yield []
        yield [("known", "head")]
        yield [(clean("  " + "  ".join(f"{name} {value}" for name, value in known.items())), "")]


def _outcome(result: CaseResult) -> Iterator[Line]:
    if result.failed or result.status == "skipped":
        word = render.STATUS_WORDS[result.status]
        yield [(word, "bad" if result.failed else "dim"), ("  " + clean(failure_text.sentence(result)), "")]
        if result.where is not None:
            yield [(clean(f"  at {result.where}"), "strong"), (f"  (e: open it{_has_traceback(result)})", "dim")]
            if result.where.text:
                yield [(f"  {result.where.line or ''} | {clean(result.where.text)}", "")]
        return
    style = {"faster": "faster", "slower": "slower", "unclear": "warn"}.get(result.verdict or "", "")
    yield [(render.verdict(result), style), (f"   checked {result.checked}/2", "dim")]
    if result.detail:
        yield [(clean(result.detail), "warn")]


def _has_traceback(result: CaseResult) -> str:
    return ", t: show the traceback" if result.traceback else ""


def _times(result: CaseResult, before: CaseResult | None) -> Iterator[Line]:
    ratio = result.ratio
    if ratio is not None:
        bounds = f"95% interval {fmt.exact(ratio.low)} to {fmt.exact(ratio.high)}"
        yield [(f"against the baseline  {fmt.speedup(ratio)}   {bounds}", "")]
    if result.vs_best is not None:
        best = result.vs_best
        yield [(f"against the best      {fmt.speedup(best)}   {render.SIGNS[best.verdict]} {best.verdict}", "")]
    for side in result.others:
        name = pad(f"against {clean(side.name)}", 20)
        yield [
            (f"{name}  {fmt.speedup(side.ratio)}   {fmt.microseconds(side.us)} us", ""),
            ("   decides nothing", "dim"),
        ]
    if before is not None and before.speedup and result.speedup:
        change = fmt.times(result.speedup / before.speedup)
        yield [(f"against the last run  {change}", ""), ("   not timed side by side", "dim")]
    if result.clock != "wall" and result.wall is not None and result.wall.speedup is not None:
        sides = f"{fmt.microseconds(result.wall.baseline_us)} -> {fmt.microseconds(result.wall.solution_us)} us"
        yield [(f"wall                  {fmt.times(result.wall.speedup)}   {sides}", "")]


def _past(past: Sequence[tuple[Summary, Outcome]], ascii_only: bool) -> Iterator[Line]:
    """Its speedups over the iterations, a cell each, from the least to the most."""
    shown = past[-MOST_PAST:]
    speedups = [outcome.speedup for _, outcome in shown if outcome.speedup is not None]
    if len(speedups) < LEAST_PAST:
        return
    least, most = min(speedups), max(speedups)
    bars = ASCII_BARS if ascii_only else BARS
    scale = (len(bars) - 1) / (most - least) if most > least else 0.0
    cells: list[Span] = []
    for _, outcome in shown:
        if outcome.speedup is not None:
            style = "faster" if outcome.speedup > 1 else "slower"
            cells.append((bars[round((outcome.speedup - least) * scale)], style))
        else:
            cells.append(("x", "bad") if outcome.status in FAILURES else (" ", ""))
    first, last = (entry.iteration or 0 for entry in (shown[0][0], shown[-1][0]))
    yield [
        (f"iterations #{first} to #{last}  ", ""),
        *cells,
        (f"  {fmt.exact(least)} to {fmt.exact(most)} over the baseline", "dim"),
    ]


def _samples(result: CaseResult, ascii_only: bool) -> Iterator[Line]:
    """One line per side, with a histogram of its blocks from minimum to maximum."""
    sides = [(side, values) for side, values in (result.samples or {}).items() if values]
    if not sides:
        return
    yield []
    yield [(f"{'us per call':<11}{'mean*':>9}{'median':>9}{'min':>9}  {'blocks':<{BINS}}  {'max':<8}count", "head")]
    for side, values in sides:
        centres = stats.interquartile_mean(values), stats.median(values), min(values)
        figures = "".join(f"{fmt.microseconds(figure):>9}" for figure in centres)
        yield [
            (f"{clean(side).replace('_', ' '):<11}{figures}  ", ""),
            (histogram(values, BINS, ascii_only), "accent"),
            (f"  {fmt.microseconds(max(values)):<8}{len(values)}", ""),
        ]
    yield [(MEAN_LEGEND, "dim")]
    yield from _in_order(sides, ascii_only)


def _in_order(sides: Sequence[tuple[str, Sequence[float]]], ascii_only: bool) -> Iterator[Line]:
    """The blocks in the order of their timing, on one scale: a drift or a throttled stretch shows in all sides."""
    bars = ASCII_BARS if ascii_only else BARS
    for side, values in sides:
        shown = values[:MOST_BLOCKS]
        middle = stats.median(values)
        cells = (min(max((value / middle - 1 + DRIFT) / (2 * DRIFT), 0.0), 1.0) for value in shown)
        yield [
            (f"{clean(side).replace('_', ' '):<11}", ""),
            ("".join(bars[round(cell * (len(bars) - 1))] for cell in cells), "accent"),
        ]
    yield [(f"block by block, from {fmt.percent(DRIFT)} below the median to {fmt.percent(DRIFT)} above", "dim")]


def histogram(values: Sequence[float], bins: int, ascii_only: bool) -> str:
    """How many values fall in each part of the range; an empty part is blank."""
    least, most = min(values), max(values)
    counts = [0] * bins
    for value in values:
        part = (value - least) / (most - least) if most > least else 0.5
        counts[min(int(part * bins), bins - 1)] += 1
    bars = ASCII_BARS if ascii_only else BARS
    highest = max(counts)
    return "".join(" " if not count else bars[(count * len(bars) - 1) // highest] for count in counts)


def _measuring(result: CaseResult, bandwidth: float | None) -> Iterator[Line]:
    """How the times were measured, and their share of the roof."""
    taken = [
        f"{result.clock} clock" if result.clock else "",
        fmt.plural(result.blocks, "block") if result.blocks is not None else "",
        _dropped(result),
        f"A/A floor {fmt.fine_percent(result.floor)}" if result.floor is not None else "",
    ]
    reached = [
        f"{fmt.plural(result.kernels, 'kernel')} per call" if result.kernels is not None else "",
        fmt.roof(result.roofline, bandwidth, result.bound) if result.roofline is not None else "",
    ]
    for facts in (taken, reached):
        if any(facts):
            yield [("  ".join(fact for fact in facts if fact), "dim")]


def _dropped(result: CaseResult) -> str:
    """How many blocks were dropped, and why."""
    if not result.dropped:
        return ""
    why = f" ({clean(result.dropped_for)})" if result.dropped_for else ""
    return f"{result.dropped} dropped{why}"


def _ledger(result: CaseResult) -> Iterator[Line]:
    """The kernels of one call, in launch order."""
    ledger = result.ledger or ()
    if not ledger:
        return
    whole = sum(kernel.us for kernel in ledger) or 1.0
    yield []
    yield [(f"{'us':>10}  {'share':>5}  {'stream':>6}  kernel", "head")]
    for kernel in ledger:
        numbers = f"{fmt.microseconds(kernel.us):>10}  {fmt.percent(kernel.us / whole):>5}  {kernel.stream:>6}"
        yield [(numbers, ""), (f"  {clean(kernel.name)}", "strong")]
    if result.span_us is not None and result.span_us > whole:
        yield [(f"{fmt.microseconds(result.span_us - whole):>10}  between kernels", "dim")]


def _findings(result: CaseResult) -> Iterator[Line]:
    if not result.findings:
        return
    yield []
    yield [("findings", "head")]
    for finding in result.findings:
        yield [(f"  {clean(finding.name)}: ", "bad" if finding.disqualifying else "warn"), (clean(finding.help), "")]
