"""A ranking as text: where the device time went, by category and by function, and what to do about it."""

from __future__ import annotations

from harness.shared import format as fmt
from kernbench.rank.categories import IDLE, NOT_OFFERED
from kernbench.rank.ranking import LEAST_SHARE, FunctionRow, Ranking
from kernbench.report import columns

SHOWN = 0.002
"""Share of the device time, below which a function has no line."""
LONGEST_NAME = 60
GRAPH = (
    "CUDA graphs launched {}: it belongs to the functions that replay them; record without graphs to see the others."
)


def lines(ranking: Ranking) -> list[str]:
    return [*_head(ranking), "", *_categories(ranking), "", *_functions(ranking), *_commands(ranking)]


def _head(ranking: Ranking) -> list[str]:
    device = "GPU" if ranking.on_gpu else "CPU"
    found = [
        f"{ranking.source}: {_ms(ranking.device_us)} ms of device time ({device})"
        f" in a window of {_ms(ranking.window_us)} ms",
        *ranking.unknown,
    ]
    if ranking.graph_share:
        found.append(GRAPH.format(fmt.fine_percent(ranking.graph_share)))
    return found


def _categories(ranking: Ranking) -> list[str]:
    rows = [("category", "share", "ms")]
    for name, share in ranking.categories.items():
        rows.append((name, fmt.fine_percent(share), _ms(share * ranking.device_us)))
    idle = ranking.idle_us / ranking.window_us if ranking.window_us else 0.0
    table = columns([*rows, (IDLE, fmt.fine_percent(idle), _ms(ranking.idle_us))])
    return [*table[:-1], f"{table[-1]}  of the window; recording stacks lengthens it"]


def _functions(ranking: Ranking) -> list[str]:
    rows = [("share", "ms", "calls", "function", "mostly", "existing fast path")]
    shown = [row for row in ranking.rows if row.share >= SHOWN]
    for row in shown:
        texts = _short(row.function), row.mostly, row.fast_path.text
        rows.append((fmt.fine_percent(row.share), _ms(row.us), str(row.calls), *texts))
    table = columns(rows, left=(3, 4, 5))
    if rest := [row for row in ranking.rows if row.share < SHOWN]:
        share = fmt.fine_percent(sum(row.share for row in rest))
        table.append(f"{fmt.plural(len(rest), 'function')} of less than {fmt.fine_percent(SHOWN)} each: {share}")
    return table


def _commands(ranking: Ranking) -> list[str]:
    least = fmt.percent(LEAST_SHARE)
    if not any(row.place for row in ranking.rows):
        return ["", "Candidates are Python functions, and this recording has none."]
    if not ranking.candidates:
        return ["", f"No function has {least} or more that is not {fmt.joined(NOT_OFFERED, 'or')}."]
    found = ["", f"Candidates, {least} or more that is not {fmt.joined(NOT_OFFERED, 'or')}:"]
    for row in ranking.candidates:
        found += ["", *_candidate(row)]
    return found


def _candidate(row: FunctionRow) -> list[str]:
    called = f", called by {_short(row.caller)}" if row.caller else ""
    found = [f"{fmt.fine_percent(row.open_share)}  {row.function} ({row.place}{called})"]
    if row.fast_path.path:
        found.append(f"  fast path {row.fast_path.path}, {row.fast_path.text} ({row.fast_path.detail})")
    found.append(f"  {row.command}" if row.command else f"  cannot be captured: {row.problem}")
    return found


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"...{name[3 - LONGEST_NAME :]}"


def _ms(us: float) -> str:
    return fmt.microseconds(us / 1000)
