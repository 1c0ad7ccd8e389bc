"""What the workbench is doing, the second status line and the hint, as text from the board and the engine."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import islice

from rich.cells import cell_len

from harness.shared import findings
from harness.shared import format as fmt
from kernbench import render
from kernbench.events import Confirming, RunStarted, Summary
from kernbench.tui.state.board import Board, Row
from kernbench.tui.state.engine_protocol import Engine
from kernbench.tui.text.spans import Part, Span, clean, clip, fit

OF_THE_SAVE_BEFORE = "prev:"
FILTERED = "filtered out (esc: show all)"
LONG_RUN_SECONDS = 2.0
STUCK_SECONDS = 3.0
"""A row that takes this long is named, even if other parts of the line must go."""
OVERDUE_SECONDS = 4.0
"""A first run that takes this long shows its duration."""
NAMED_FROM, LONGEST_NAME = 70, 20
"""Cells from which the second line names the task, and of its name."""
RECENT_RUNS = 50
"""How many iterations an estimate looks back on."""
_NOISE = re.compile(r"\((?:R|TM|tm)\)|\b(?:NVIDIA|AMD|Intel|CPU|Processor|\d+-Core)\b|@.*$")


def quoted(text: str, width: int | None = None) -> str:
    """A hypothesis in quotes, at most `width` cells including them."""
    if not text:
        return ""
    text = " ".join(text.split())
    return f'"{clip(clean(text), width - 2) if width else clean(text)}"'


def device(name: str) -> str:
    """`NVIDIA H200` as `H200`: the user knows the maker."""
    return " ".join(_NOISE.sub(" ", name).split()) or name


def state(board: Board, engine: Engine, now: datetime | None = None) -> tuple[str, ...]:
    """What the workbench is doing, longest form first."""
    if board.run is not None:
        return _running(board, now)
    if board.sweep:
        return (f"sweep: {clean(board.sweep)}", f"sweep: {clean(board.sweep.partition(',')[0])}", "sweep")
    if board.unusable:
        return ("no worker",)
    if board.models.running:
        running = clean(board.models.running)
        return running, running.partition(":")[0]
    if board.confirming is not None:
        return _confirming(board.confirming, engine.paused)
    if board.worker == "starting":
        return ("starting the worker", "starting")
    if engine.paused:
        return ("paused, save pending", "paused, pending", "paused") if engine.waits else ("paused",)
    if board.summary is not None and board.summary.is_unsettled and board.confirmation is None:
        return ("watching, to be confirmed", "to be confirmed", "watching")
    return ("watching",) if engine.is_alone else ("watching (another workbench is open)", "watching, shared")


def _confirming(event: Confirming, paused: bool) -> tuple[str, ...]:
    named = f"confirming #{event.iteration}" if event.iteration is not None else "confirming"
    if event.before_save and not paused:
        return f"{named} before this save", f"{named}, save waits", "save waits"
    return (f"paused, {named}", "paused") if paused else (named, "confirming")


def _running(board: Board, now: datetime | None) -> tuple[str, ...]:
    event = board.progress
    if event is None:
        return ("starting a run", "running")
    if event.compiler:
        passed = f", {stuck} s" if (stuck := seconds_on_it(board, now)) else ""
        return f"{render.progress(event)}{passed}", f"compiling{passed}"
    short = f"{render.STEP_WORDS[event.step]} {min(event.index + 1, event.count)}/{event.count}"
    if event.case and (stuck := seconds_on_it(board, now)):
        return f"{short} {clean(board.label(event.case))} for {stuck} s", f"{short} {stuck} s", short
    left = seconds_left(board, now)
    forms = [f"{short} {clean(board.label(event.case))}", short] if event.case else [short]
    return (f"{forms[0]}, {left}", f"{short}, {left}", *forms[1:]) if left else tuple(forms)


def seconds_on_it(board: Board, now: datetime | None) -> int:
    """Whole seconds spent on the current row, once that is longer than usual; else 0."""
    if board.progress is None or board.progress_at is None or now is None:
        return 0
    passed = (now - board.progress_at).total_seconds()
    return int(passed) if passed >= STUCK_SECONDS else 0


def seconds_left(board: Board, now: datetime | None) -> str:
    """Time left of a run that usually takes a while, or time spent when it is overdue."""
    if board.run is None or now is None:
        return ""
    try:
        passed = (now - datetime.fromisoformat(board.run.at)).total_seconds()
    except (ValueError, TypeError):
        return ""
    usual = board.usual_seconds or 0.0
    if passed > max(usual + 2, OVERDUE_SECONDS):
        return f"{fmt.seconds(round(passed))} so far"
    left = usual - passed
    return f"about {fmt.seconds(round(left))} left" if usual >= LONG_RUN_SECONDS and left >= 1 else ""


def usual_seconds(iterations: Sequence[Summary], cases: int) -> float | None:
    """The median time of the last five runs with as many cases; older runs are no longer typical."""
    newest = reversed(iterations[-RECENT_RUNS:])
    alike = (item for item in newest if item.seconds is not None and cases_of(item) == cases)
    taken = sorted(item.seconds or 0.0 for item in islice(alike, 5))
    return taken[len(taken) // 2] if taken else None


def cases_of(summary: Summary) -> int:
    """Of a run, whatever came of them."""
    return sum(summary.counts.get(name, 0) for name in render.STATUS_WORDS)


def line_two(board: Board, engine: Engine, width: int) -> list[Span]:
    """The task, and what came of it; an error gets the whole line."""
    name = clip(clean(board.task.name), LONGEST_NAME)
    if width < NAMED_FROM or board.failure is not None or (board.unusable and board.run is None):
        return _what_came_of_it(board, engine, width)
    said = _what_came_of_it(board, engine, width - cell_len(name) - 2)
    return [(name, "head"), ("  ", ""), *said]


def _what_came_of_it(board: Board, engine: Engine, width: int) -> list[Span]:
    if board.failure is not None:
        return _failure(board, width)
    if board.unusable and board.run is None:
        return [(clip(clean(board.unusable), width), "bad")]
    if board.run is not None:
        return _so_far(board, width)
    if board.summary is not None:
        return _finished(board, board.summary, engine, width)
    if board.new_series:
        return [(clip("task changed: starting a new series (no best yet)", width), "warn")]
    said = _hypothesis(engine) or clean(board.task.summary)
    return [(clip(said, width), "dim")]


def _hypothesis(engine: Engine) -> str:
    """The hypothesis of the next run."""
    return f"hypothesis: {clean(' '.join(engine.notes.hypothesis.split()))}" if engine.notes.hypothesis else ""


def _failure(board: Board, width: int) -> list[Span]:
    failure = board.failure
    assert failure is not None
    message = clean(render.place(failure.where, failure.message))
    again = f"({failure.failed_builds} in a row)" if failure.failed_builds > 1 else ""
    opens = "(e: open it)" if failure.where else ""
    shorter = clip(message, max(width - 14, 20))
    parts = [Part((message, shorter), "bad"), Part((opens, ""), "dim"), Part((again, ""), "dim")]
    return fit(parts, width, order=(2, 0, 1))


def _so_far(board: Board, width: int) -> list[Span]:
    run = board.run
    assert run is not None
    landed = board.landed()
    failed = sum(1 for result in landed if result.failed)
    right = sum(1 for result in landed if result.status in ("ok", "interpreted"))
    cause = _cause(board)
    parts = [
        Part((f"source {run.source[:8]}", "")),
        Part((quoted(run.hypothesis), quoted(run.hypothesis, 24), quoted(run.hypothesis, 14)), "strong"),
        Part((f"{right}/{len(run.cases)} passed",)),
        Part((f"{failed} failed" if failed else "",), "bad"),
        Part((f"unclear: {cause}", cause) if cause else ("",), "warn"),
        Part((f"baseline {clean(run.baseline)}", ""), "dim"),
    ]
    return fit(parts, width, order=(5, 1, 0, 1, 4))


def _finished(board: Board, summary: Summary, engine: Engine, width: int) -> list[Span]:
    number = f"#{summary.iteration}" if summary.iteration is not None else ""
    # A re-run has the same hypothesis as the next save: show it once.
    why = summary.hypothesis if summary.hypothesis != engine.notes.hypothesis else ""
    others = render.count_parts(summary, board.landed())[1:]  # the first is in the line above
    worst = summary.worst
    seconds = fmt.seconds(summary.seconds) if summary.seconds is not None else ""
    saved = board.last_run is not None and board.last_run.reason == "save"
    timed = sum(1 for case in board.task.cases if case.headline)
    left_out = timed - summary.counts.get("headline", timed) if summary.ratio else 0
    coming = _hypothesis(engine)
    on_device = summary.environment.device != "cpu"  # on the CPU every time is wall time
    parts = [
        Part((number,), "strong"),
        Part(_standing(summary, _cause(board)), "warn"),
        Part((quoted(why), quoted(why, 24), quoted(why, 14), ""), "strong"),
        Part((f"wall {fmt.times(summary.wall)}", "") if summary.wall and on_device else ("",)),
        Part(("  ".join(others), "  ".join(render.count_parts(summary)[1:]), ""), "warn"),
        Part((f"{left_out} left out", "") if left_out else ("",), "warn"),
        Part((f"worst {clean(worst.label)} {fmt.times(worst.speedup)}", f"worst {fmt.times(worst.speedup)}", ""))
        if worst
        else Part(("",)),
        Part((f"{seconds} after the save" if saved else f"in {seconds}", seconds, "") if seconds else ("",), "dim"),
        Part((coming, clip(coming, 40), clip(coming, 24), ""), "accent"),
    ]
    return fit(parts, width, order=(7, 8, 2, 3, 7, 2, 8, 6, 2, 6, 8, 4, 4, 5, 1))


def _standing(summary: Summary, cause: str) -> tuple[str, ...]:
    """Whether it is refused, undecided or stalled, longest form first."""
    if summary.is_refused:
        return ("refused as best", "refused")
    if summary.undecided:
        return (f"undecided ({cause})", "undecided") if cause else ("undecided",)
    stalled = f"stalled: {max(summary.streak, 3)} iterations without a new best"
    return (stalled, "stalled") if summary.stalled else ("",)


def _cause(board: Board) -> str:
    """What made rows unclear: other programs on this machine or this GPU; empty if nothing of the kind was seen."""
    found = findings.disturbance(board.landed())
    return clean(found.name) if found else ""


def hint(board: Board, engine: Engine, hidden: Collection[str] = ()) -> str:
    """The most useful thing to do now; `hidden` are the cases that the filter hides."""
    failure = board.failure
    if failure is not None:
        at = f"e: open {failure.where}" if failure.where else f"e: open {board.solution}"
        return f"{at}, t: show the traceback" if failure.traceback else at
    if board.sweep and board.run is None:
        return "S ends the sweep and shows its table; a save ends it, too"
    if board.unusable and board.run is None:
        return "r: restart the worker, 5: show its output"
    if board.worker == "starting":
        return "the worker is starting; the first run follows"
    if engine.paused:
        return "paused: space resumes, r runs once; saves wait"
    if board.run is not None:
        return _while_it_runs(board, board.run)
    return _after_run(board, engine, hidden)


def _while_it_runs(board: Board, run: RunStarted) -> str:
    if not any(row.result is not None and not row.fresh for row in board.rows()):
        return "rows fill in as they finish"
    than = "this save" if run.reason == "save" else "this run"
    return f"dim numbers are older than {than}; rows brighten as they finish"


def _after_run(board: Board, engine: Engine, hidden: Collection[str]) -> str:
    if board.warning:
        return f"{board.warning}: times may be off (2: details)"
    failed = board.failed_rows()
    if failed:
        return _failed(failed, hidden)
    red = board.invalid_rows()
    if red:
        seen = failing_row(board, hidden)
        why = f"press enter on {clean(seen.case.label)} for details" if seen else FILTERED
        return f"{fmt.plural(len(red), 'row')} {'is' if len(red) == 1 else 'are'} invalid: {why}"
    if board.summary is not None and board.summary.findings:
        finding = max(board.summary.findings, key=lambda item: item.disqualifying)
        return f"{clean(finding.name)}: {clean(finding.help)}"
    waiting = sum(1 for row in board.rows() if row.result and row.result.reason == "needs_gpu")
    if waiting:
        need = "needs" if waiting == 1 else "need"
        return f"{fmt.plural(waiting, 'row')} {need} a GPU: small cases are checked on the CPU, nothing is timed"
    if board.summary is not None and board.summary.stalled:
        return f"stalled: {render.MOVES} (h: note which)"
    if board.confirmation is not None and not board.confirmation.confirmed:
        return clean(render.confirmation(board.confirmation))
    if board.summary is not None and board.summary.not_best:
        offer = " (r: time again)" if board.summary.undecided else ""
        return clean(render.not_best(board.summary)) + offer
    behind = sum(1 for result in board.landed() if result.vs_best and result.vs_best.verdict == "slower")
    if behind:
        return f"{fmt.plural(behind, 'row')} slower than best (d: show the diff)"
    slower = [result for result in board.landed() if result.verdict == "slower"]
    if slower:
        shown = [result for result in slower if result.id not in hidden]
        slowest = min(shown or slower, key=lambda result: result.speedup or 1.0)
        why = f"press enter on {clean(board.label(slowest.id))} for details" if shown else FILTERED
        return f"{fmt.plural(len(slower), 'row')} slower than baseline: {why}"  # the line above has the `worst`
    unclear = board.verdicts("unclear")
    if unclear:
        because = f" on a {cause}" if (cause := _cause(board)) else ""
        return f"{fmt.plural(unclear, 'row')} unclear{because} (r: time again)"
    if board.landed() and not engine.notes.hypothesis:
        return f"h: describe what you are trying next; save {board.solution} to run"
    return f"save {board.solution} to run"


def failing_row(board: Board, hidden: Collection[str]) -> Row | None:
    """The row that a hint tells the user to look at."""
    rows = board.failed_rows() or board.invalid_rows()
    return next((row for row in rows if row.case.id not in hidden), None)


def _failed(failed: Sequence[Row], hidden: Collection[str]) -> str:
    seen = [row for row in failed if row.case.id not in hidden]
    first = (seen or failed)[0]
    word = render.STATUS_WORDS[first.result.status] if first.result else "failed"
    raised = any(row.result and row.result.traceback for row in failed)
    more = "t: show the traceback" if raised else "enter on it for details" if seen else FILTERED
    which = "first" if first is failed[0] else "first shown:"
    return f"{fmt.plural(len(failed), 'row')} failed, {which} {clean(first.case.label)} ({word}): {more}"
