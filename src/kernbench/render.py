"""One spelling of every number and verdict, shared by the screen, the commands and ITERATIONS.md. Plain text only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from harness.shared.errors import Where
from harness.shared.results import CaseResult, Ratio
from harness.shared.run_request import Environment
from kernbench.events import Progress, PulledEntry, Summary

DASH = "-"
SIGNS = {"faster": "▲", "slower": "▼", "same": "=", "unclear": "?"}
ASCII_SIGNS = {"faster": "^", "slower": "v", "same": "=", "unclear": "?"}
STATUS_WORDS = {
    "ok": "right",
    "wrong": "WRONG",
    "build_error": "no build",
    "runtime_error": "error",
    "timeout": "timeout",
    "crashed": "crashed",
    "skipped": "skipped",
    "interpreted": "checked",
}
MUCH_SPREAD = 10.0
"""Percent; from here on an interval that is even in its logarithm is visibly uneven."""
FAILURE_ORDER = ("wrong", "runtime_error", "timeout", "crashed", "build_error")
"""Statuses of a case that came to nothing, the most telling first: a wrong value says more than what broke off."""
STEP_WORDS = {
    "load": "loading",
    "build": "building",
    "baseline": "preparing baseline",
    "inputs": "making inputs",
    "check": "checking",
    "time": "timing",
    "recheck": "rechecking",
}


def microseconds(value: float | None) -> str:
    """Four significant digits at most, never an exponent: 2.413, 17.62, 518.6, 12340."""
    if value is None:
        return DASH
    decimals = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:.{decimals}f}"


def times(value: float | None) -> str:
    """Two places, and below a twentieth two digits: what is 200 times slower is not 0.00x."""
    return DASH if value is None else f"{value:.2f}x" if value >= 0.05 or value <= 0 else f"{value:.2g}x"


def spread(ratio: Ratio) -> str:
    """Half the interval's width, in percent of the ratio; of one that reaches much further up than down both ends."""
    percent = (ratio.high - ratio.low) / 2 / ratio.speedup * 100
    down, up = (1 - ratio.low / ratio.speedup) * 100, (ratio.high / ratio.speedup - 1) * 100
    if percent >= MUCH_SPREAD and up > 1.5 * down:
        return f"-{down:.0f}+{up:.0f}%"
    return f"±{percent:.1f}%" if percent < 99.95 else f"±{percent:.0f}%"


def exact(ratio: Ratio | None) -> str:
    """A row's ratio without its interval, to three places."""
    return DASH if ratio is None else f"{ratio.speedup:.3f}x"


def speedup(ratio: Ratio | None) -> str:
    return DASH if ratio is None else f"{exact(ratio)} {spread(ratio)}"


def geomean(ratio: Ratio | None) -> str:
    return DASH if ratio is None else f"{times(ratio.speedup)} {spread(ratio)}"


def percent(fraction: float | None) -> str:
    return DASH if fraction is None else f"{fraction * 100:.0f}%"


def kernels(count: int) -> str:
    return "1 kernel a call" if count == 1 else f"{count} kernels a call"


def error(value: float | None) -> str:
    return DASH if value is None else "0" if value == 0 else f"{value:.1e}"


def verdict(result: CaseResult, ascii_only: bool = False) -> str:
    """The word of a row, with its sign; a row that is not right says what it is instead."""
    if result.status == "ok" and result.verdict:
        return f"{(ASCII_SIGNS if ascii_only else SIGNS)[result.verdict]} {result.verdict}"
    return "not run" if result.status == "skipped" else STATUS_WORDS[result.status]


def place(where: Where | None, message: str) -> str:
    return message if where is None else f"{where}: {message}"


def progress(event: Progress) -> str:
    words = f"{STEP_WORDS[event.step]} {min(event.index + 1, event.count)}/{event.count}"
    return f"{words} {event.case}" if event.case else words


def age(at: str, now: datetime | None = None) -> str:
    """How long ago an ISO time was, in one unit."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return DASH
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    seconds = ((now or datetime.now(timezone.utc)) - then).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"


def plural(count: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def checks(results: Iterable[CaseResult]) -> str:
    """`27/27 check cases right`: those that were run; what was not run is counted apart, and never as wrong."""
    rows = list(results)
    run = [row for row in rows if row.status != "skipped"]
    right = sum(not row.failed for row in run)
    parts = [f"{right}/{plural(len(run), 'check case')} right"] if run else []
    missing = len(rows) - len(run)
    if missing:
        parts.append(f"{missing} not run" if run else f"{plural(missing, 'check case')} not run")
    return ", ".join(parts)


def outcome(summary: Summary) -> str:
    """The word of an iteration: improved, best, same, slower, or how it failed; elsewhere made, as it is written.

    A run of a part of the cases is neither better nor worse than one of all.
    """
    if isinstance(summary, PulledEntry):
        return summary.outcome or DASH
    if not summary.right:
        return next((STATUS_WORDS[name].lower() for name in FAILURE_ORDER if summary.counts.get(name)), "wrong")
    if summary.environment.interpreted:
        return "checked"
    if not summary.complete:
        return "part"
    if summary.best:
        return "first" if summary.best_geomean is None else "improved" if summary.took_over else "best"
    if summary.vs_best is not None:
        return {"faster": "faster", "slower": "slower", "same": "same", "unclear": "unclear"}[summary.vs_best.verdict]
    return summary.verdict or "not timed"


def counts(summary: Summary) -> str:
    """`15/15 right, 2 unclear, 1 not run`."""
    return ", ".join(count_parts(summary))


def count_parts(summary: Summary) -> list[str]:
    """What happened to the cases: how many are right, then the failures, then the rest."""
    tally = summary.counts
    run = sum(tally.get(name, 0) for name in STATUS_WORDS if name != "skipped")
    right = tally.get("ok", 0) + tally.get("interpreted", 0)
    parts = [f"{right}/{run} right"]
    for name in FAILURE_ORDER:
        if tally.get(name):
            parts.append(f"{tally[name]} {STATUS_WORDS[name].lower()}")
    parts += [f"{tally[name]} {name}" for name in ("slower", "unclear") if tally.get(name)]
    return parts + ([f"{tally['skipped']} not run"] if tally.get("skipped") else [])


def minute(at: str) -> str:
    """An ISO time in UTC, to the minute."""
    return f"{at[:10]} {at[11:16]} UTC"


def clocks(about: Environment) -> str:
    """What is known of the clocks; empty where nothing could be read."""
    return about.clocks or (f"SM {about.sm_mhz} MHz" if about.sm_mhz else "")


def wall(summary: Summary) -> str:
    """Geomean of the wall-time speedups, with its interval where one was measured."""
    if summary.wall is None or summary.wall_low is None or summary.wall_high is None:
        return times(summary.wall)
    return geomean(Ratio(summary.wall, summary.wall_low, summary.wall_high, "same"))
