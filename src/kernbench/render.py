"""One spelling of every verdict, status and count, for the screen, commands and ITERATIONS.md. Plain text only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from harness.shared import findings
from harness.shared import format as fmt
from harness.shared.errors import Where
from harness.shared.results import CaseResult, Ratio
from harness.shared.run_request import Environment
from kernbench.events import Confirmed, Progress, PulledEntry, Summary
from kernbench.machine.plain_text import one_line

SIGNS = {"faster": "▲", "slower": "▼", "same": "=", "unclear": "?"}
ASCII_SIGNS = {"faster": "^", "slower": "v", "same": "=", "unclear": "?"}
STATUS_WORDS = {
    "ok": "passed",
    "wrong": "WRONG",
    "build_error": "build error",
    "runtime_error": "error",
    "timeout": "timeout",
    "crashed": "crashed",
    "skipped": "skipped",
    "interpreted": "checked",
}
COUNTED = {"build_error": "build error", "runtime_error": "error", "timeout": "timeout"}
"""Statuses that are counted as nouns: `2 errors`, but `2 wrong`."""
NOT_RUN = "not run"
"""The outcome of a run in which nothing could be run, such as a GPU's cases without a GPU."""
FAILURE_ORDER = ("wrong", "runtime_error", "timeout", "crashed", "build_error")
"""Statuses of a failed case, the most informative first: a wrong value says more than a crash."""
UNSETTLED = "best?"
"""The word for a run that would be best and waits for its confirmation."""
MOVES = "profile again, re-read the log, or change direction"
"""What to do about a stall."""
ROOF = "% roof"
BOUNDS = {"memory": "mem", "compute": "comp"}
"""Of a roofline, as short as a table needs them."""
STEP_WORDS = {
    "load": "loading",
    "build": "building",
    "baseline": "preparing the baseline",
    "inputs": "making inputs",
    "check": "checking",
    "time": "timing",
    "recheck": "rechecking",
}


def verdict(result: CaseResult, ascii_only: bool = False) -> str:
    """A row's verdict with its sign; a row that is not right shows its status instead."""
    if result.status == "ok" and result.verdict:
        return f"{(ASCII_SIGNS if ascii_only else SIGNS)[result.verdict]} {result.verdict}"
    return NOT_RUN if result.status == "skipped" else STATUS_WORDS[result.status]


def place(where: Where | None, message: str) -> str:
    """One line, even if an exception's name or message has several."""
    return one_line(message if where is None else f"{where}: {message}")


def progress(event: Progress) -> str:
    if event.compiler:
        return f"compiling ({event.compiler})"
    words = f"{STEP_WORDS[event.step]} {min(event.index + 1, event.count)}/{event.count}"
    return f"{words} {event.case}" if event.case else words


def age(at: str, now: datetime | None = None) -> str:
    """How long ago an ISO time was, in one unit."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return fmt.DASH
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    seconds = ((now or datetime.now(timezone.utc)) - then).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def accuracy(row: CaseResult) -> str:
    """A row's largest error against the baseline's: `error 3.1x the baseline's`; empty if one is not known."""
    ratio = row.error.vs_baseline if row.error and not row.failed else None
    return "" if ratio is None else f"error {fmt.factor(ratio)} the baseline's"


def worst_accuracy(rows: Iterable[CaseResult]) -> CaseResult | None:
    """The row whose error is furthest above the baseline's; None if none is above it."""
    above = [(row.error.vs_baseline or 0.0, row) for row in rows if row.error and not row.failed]
    ratio, worst = max(above, key=lambda item: item[0], default=(0.0, None))
    return worst if ratio > 1 else None


def checks(results: Iterable[CaseResult]) -> str:
    """`27/27 check cases passed`, of those that ran; those that did not run are counted separately, never as wrong."""
    rows = list(results)
    run = [row for row in rows if row.status != "skipped"]
    right = sum(not row.failed for row in run)
    parts = [f"{right}/{fmt.plural(len(run), 'check case')} passed"] if run else []
    missing = len(rows) - len(run)
    if missing:
        parts.append(f"{missing} not run" if run else f"{fmt.plural(missing, 'check case')} not run")
    return ", ".join(parts)


def outcome(summary: Summary) -> str:
    """One word for an iteration: improved, best, same, slower, undecided, or how it failed; a pulled entry keeps its
    word. One that would be best is `best?` until it is confirmed, or `refused`.

    A run of only some cases is neither better nor worse than a run of all.
    """
    if isinstance(summary, PulledEntry):
        return summary.outcome or fmt.DASH
    if not summary.right:
        ran = {name for name, count in summary.counts.items() if count} - {"skipped"}
        otherwise = "wrong" if ran or not summary.counts.get("skipped") else NOT_RUN
        return next((STATUS_WORDS[name].lower() for name in FAILURE_ORDER if name in ran), otherwise)
    if summary.environment.interpreted:
        return "checked"
    if not summary.complete:
        return "partial"
    if summary.is_unsettled or summary.is_refused:
        return UNSETTLED if summary.is_unsettled else "refused"
    if summary.best:
        return "first" if summary.best_geomean is None else "improved" if summary.took_over else "best"
    if summary.undecided:
        return "undecided"
    if summary.vs_best is not None:
        return {"faster": "faster", "slower": "slower", "same": "same", "unclear": "unclear"}[summary.vs_best.verdict]
    return summary.verdict or "not timed"


def not_best(summary: Summary) -> str:
    """Why a right source is not best: `undecided: 3 rows are unclear against the best`; empty if nothing needs it."""
    if not summary.not_best:
        return ""
    return f"{'undecided' if summary.undecided else 'not best'}: {summary.not_best}"


def source_name(run: Summary) -> str:
    """`#12`, the entry about its source; the start of its hash, if there is none."""
    number = run.iteration if run.iteration is not None else run.repeats
    return f"#{number}" if number is not None else f"source {run.source[:8]}"


def confirmation(event: Confirmed, run: Summary | None = None) -> str:
    """What came of a run that would be best; leave out `run` where the screen already shows it."""
    name = f"{source_name(run)} is " if run is not None else ""
    return f"{name}{'confirmed as best' if event.confirmed else 'not the best'}: {event.why}"


def geomean(summary: Summary) -> str:
    """`1.13x ±0.4%`; if cases have weights, `1.13x ±0.4%, weighted 1.21x`."""
    return fmt.geomean(summary.ratio) + weighted(summary)


def weighted(summary: Summary) -> str:
    """What follows a geomean if cases have weights; empty otherwise."""
    return f", weighted {fmt.times(summary.weighted)}" if summary.weighted is not None and summary.right else ""


def roof_title(rows: Iterable[CaseResult]) -> str:
    """Heads the shares of the roofline: `% mem` or `% comp` if every row has that bound."""
    bounds = {row.bound for row in rows if row.roofline is not None}
    bound = next(iter(bounds)) if len(bounds) == 1 else None
    return f"% {BOUNDS[bound]}" if bound else ROOF


def roof(row: CaseResult, title: str) -> str:
    """A row's share in percent, with its bound if the title does not name it: `64 comp`."""
    share = fmt.whole(None if row.roofline is None else row.roofline * 100)
    return f"{share} {BOUNDS[row.bound]}" if row.bound and title == ROOF else share


def interval(ratio: Ratio) -> str:
    """A geomean with both ends, for two numbers that are compared: `1.42x [1.40, 1.44]`."""
    return f"{fmt.times(ratio.speedup)} [{fmt.fixed(ratio.low, 2)}, {fmt.fixed(ratio.high, 2)}]"


def counts(summary: Summary, rows: Iterable[CaseResult] = ()) -> str:
    """`15/15 passed, 2 unclear (busy machine), 1 not run`; the rows give the cause."""
    return ", ".join(count_parts(summary, rows))


def count_parts(summary: Summary, rows: Iterable[CaseResult] = ()) -> list[str]:
    """Counts of cases: right ones, then failures, then the rest."""
    tally = summary.counts
    cause = None if summary.undecided else findings.disturbance(rows)  # its sentence already names the cause
    because = {"unclear": f" ({cause.name})"} if cause else {}
    run = sum(tally.get(name, 0) for name in STATUS_WORDS if name != "skipped")
    right = tally.get("ok", 0) + tally.get("interpreted", 0)
    parts = [f"{right}/{run} passed"]
    for name in FAILURE_ORDER:
        if tally.get(name):
            noun = COUNTED.get(name)
            parts.append(fmt.plural(tally[name], noun) if noun else f"{tally[name]} {STATUS_WORDS[name].lower()}")
    parts += [f"{tally[name]} {name}{because.get(name, '')}" for name in ("slower", "unclear") if tally.get(name)]
    return parts + ([f"{tally['skipped']} not run"] if tally.get("skipped") else [])


def minute(at: str) -> str:
    """An ISO time in UTC, to the minute."""
    return f"{at[:10]} {at[11:16]} UTC"


def clocks(about: Environment) -> str:
    """What is known about the clocks; empty if nothing could be read."""
    return about.clocks or (f"SM {about.sm_mhz} MHz" if about.sm_mhz else "")


def wall(summary: Summary) -> str:
    """Geomean of the wall-time speedups, with its interval if one was measured."""
    if summary.wall is None or summary.wall_low is None or summary.wall_high is None:
        return fmt.times(summary.wall)
    return fmt.geomean(Ratio(summary.wall, summary.wall_low, summary.wall_high, "same"))
