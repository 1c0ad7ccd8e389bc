"""The first line, the answer to a save: right or not, against the best, against the baseline, and what is running.

Every part has its place at every width; a narrow screen has shorter forms of it. The machine comes last, at the right.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.cells import cell_len

from harness.shared import format as fmt
from harness.shared.results import Ratio
from kernbench import render
from kernbench.events import Summary
from kernbench.tui.state.board import Board
from kernbench.tui.state.engine_protocol import Engine
from kernbench.tui.text import status_text
from kernbench.tui.text.spans import Part, Span, clean, fit, spell

BEST_NOW = "best"
BAR = 8
"""Cells of the progress bar."""
RIGHT, BEST, BASE, STATE, MACHINE = range(5)
ORDER = (MACHINE, MACHINE, STATE, RIGHT, BASE, STATE, RIGHT, BEST, STATE, BASE, BASE, BEST, BEST)
"""Which part is shortened next."""
ORDER_IF_WAITING = (MACHINE, MACHINE, RIGHT, BASE, RIGHT, BEST, BASE, BASE, BEST, BASE, BEST, STATE, STATE)
"""While a row takes long, or a save waits for a confirmation, its name stays."""
Forms = tuple[tuple[str, ...], str]
"""The forms of a part, longest first, and its style."""


def line_one(board: Board, engine: Engine, width: int, ascii_only: bool, now: datetime | None = None) -> list[Span]:
    is_old = board.run is not None or board.failure is not None or not board.landed()
    answer = [
        Part(tuple(spell(form, ascii_only) for form in forms), "dim" if is_old and style != "bad" else style)
        for forms, style in (_failed(board) if board.failure is not None and board.run is None else _answer(board))
    ]
    is_busy = board.run is not None or board.confirming is not None or bool(board.models.running)
    doing = tuple(spell(form, ascii_only) for form in _doing(board, engine, now))
    state = Part(doing, "accent" if is_busy else "warn" if engine.paused else "")
    is_waiting = status_text.seconds_on_it(board, now) or (board.confirming and board.confirming.before_save)
    order = ORDER_IF_WAITING if is_waiting else ORDER
    spans = fit([*answer, state, Part(_machine(board), "dim")], width, order)
    return _machine_at_the_right(spans, width) if spans and spans[-1][0].strip() in _machine(board) else spans


def _answer(board: Board) -> list[Forms]:
    summary = board.summary
    if board.reading:
        return [(("reading the log",), "dim"), (("",), ""), (("",), "")]
    found = [correctness(summary), against_best(summary, board.best_now), against_baseline(summary)]
    if board.shows_the_save_before:
        forms, style = found[0]
        found[0] = tuple(f"{status_text.OF_THE_SAVE_BEFORE} {form}" for form in forms), style
    return found


def _failed(board: Board) -> list[Forms]:
    """The source could not be run: the second line says why. The best is as before."""
    assert board.failure is not None
    word = "BAD TASK" if board.failure.status == "bad_task" else render.STATUS_WORDS[board.failure.status].upper()
    return [((word,), "bad"), against_best(None, board.best_now), (("",), "")]


def correctness(summary: Summary | None) -> Forms:
    if summary is None:
        return ("no result yet", "no result"), "dim"
    if summary.right:
        said = f"✓ {render.count_parts(summary)[0]}"
        return (said, "✓ passed", "✓"), "faster"
    kinds = [name for name in render.FAILURE_ORDER if summary.counts.get(name)]
    word = "WRONG" if kinds == ["wrong"] else "FAILED"
    failed = sum(summary.counts[name] for name in kinds)
    run = status_text.cases_of(summary) - summary.counts.get("skipped", 0)
    short = f"{word}: {failed} of {fmt.plural(run, 'case')}"
    left = summary.counts.get("skipped", 0) if {"timeout", "crashed"} & set(kinds) else 0
    more = f"{left} not run" if left else "speedup withheld"
    return ((f"{short} ({more})", short, word) if failed else (word,)), "bad"


def against_best(summary: Summary | None, best_now: Summary | None) -> Forms:
    """Timed side by side in the same run, or what is known without that."""
    if summary is None:
        known = f"best {_named(best_now)}" if best_now and best_now.geomean else ""
        return (known, ""), "dim"
    if not summary.right or summary.environment.interpreted:
        return ("",), ""
    standing = _standing(summary, best_now)
    ratio = summary.vs_best
    if ratio is None:
        alone = "is best" if standing == BEST_NOW else standing  # `best  0.97x` would read as the best's time
        return (alone or f"vs best {fmt.DASH}",), "strong" if standing else "dim"
    signed = f"vs best {fmt.geomean(ratio)} {render.SIGNS[ratio.verdict]}"
    after = f" ({standing})" if standing else ""
    short = f"vs best {fmt.times(ratio.speedup)} {render.SIGNS[ratio.verdict]}"
    return (f"{signed} {ratio.verdict}{after}", f"{signed} {ratio.verdict}", signed, short), _style(ratio)


def _standing(summary: Summary, best_now: Summary | None) -> str:
    """Another process may have found a better one, or confirmed this one."""
    if summary.is_unsettled and (best_now is None or best_now.run != summary.run):
        return render.UNSETTLED
    if best_now is None or not best_now.names & summary.names:
        return ""
    return "new best" if summary.new_best else BEST_NOW


def against_baseline(summary: Summary | None) -> Forms:
    if summary is None or not summary.right:
        return ("",), ""
    if summary.environment.interpreted:
        return ("checked, not timed",), "faster"
    ratio = summary.ratio
    if ratio is None:
        return ("not timed",), "dim"
    short = f"{fmt.geomean(ratio)} {render.SIGNS[ratio.verdict]}"
    over = f"over {clean(Path(summary.baseline).name)}"
    forms = f"{short}{render.weighted(summary)} {over}", f"{short} {over}", short, fmt.times(ratio.speedup)
    return forms, _style(ratio)


def _style(ratio: Ratio) -> str:
    return {"faster": "faster", "slower": "slower"}.get(ratio.verdict, "strong")


def _named(best: Summary) -> str:
    return f"{fmt.times(best.geomean)}, entry dropped" if best.dropped else fmt.times(best.geomean)


def _doing(board: Board, engine: Engine, now: datetime | None) -> tuple[str, ...]:
    """What is running, with a bar of how far it is."""
    forms, event = status_text.state(board, engine, now), board.progress
    if board.run is None or event is None or event.count < 1:
        return forms
    return f"{bar(event.index / event.count)} {forms[0]}", *forms


def bar(share: float) -> str:
    filled = round(min(max(share, 0.0), 1.0) * BAR)
    return "█" * filled + "░" * (BAR - filled)


def _machine(board: Board) -> tuple[str, ...]:
    environment = board.environment
    if environment is None:
        return ("",)
    name, condition = status_text.device(clean(environment.device_name)), clean(environment.condition)
    return f"{name}  {condition}" if condition else name, name, ""


def _machine_at_the_right(spans: list[Span], width: int) -> list[Span]:
    free = width - sum(cell_len(text) for text, _ in spans)
    text, style = spans[-1]
    return [*spans[:-1], (" " * max(free, 0) + text, style)]
