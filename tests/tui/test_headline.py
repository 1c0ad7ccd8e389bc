"""The first line: right or not, against the best, against the baseline, what is running; at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from harness.shared import format as fmt
from harness.shared.results import Ratio
from kernbench.events import Confirming, Event, RunFinished, Summary, WorkerChanged
from kernbench.tui.state.board import Board
from kernbench.tui.text import headline
from tests.tui.scene import H200, STARTED, FakeEngine, landed, make_task, progress, right, summary

BEST = Ratio(1.021, 1.009, 1.033, "faster")


def shown(width: int, *events: Event, best_now: Summary | None = None, ascii_only: bool = False) -> str:
    board = Board(make_task())
    for event in (WorkerChanged("ready", H200), STARTED, *landed(right(3)), *events):
        board.apply(event)
    board.best_now = best_now
    return "".join(text for text, _style in headline.line_one(board, FakeEngine(), width, ascii_only))


def done(**values: object) -> RunFinished:
    given = {"run": STARTED.run, "source": STARTED.source, "counts": {"ok": 10}, "vs_best": BEST, **values}
    return RunFinished(summary(13, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 78, 98, 118, 158, 218])
def test_the_answer_is_there_at_every_width_in_this_order(width: int) -> None:
    line = shown(width, done())
    parts = ["✓", "vs best 1.02x ±1.2% ▲", "1.31x", "watching"]
    assert [line.find(part) for part in parts] == sorted(line.find(part) for part in parts)
    assert all(part in line for part in parts)
    assert cell_len(line) <= width
    assert ("H200" in line) == (width >= 98)
    if width >= 78:
        assert "▲ faster" in line
    if width >= 98:
        assert line.endswith(("H200", "cold L2, 1980 MHz"))
        assert "over compile" in line


def test_what_is_known_without_timing_side_by_side() -> None:
    known = replace(summary(12), source=STARTED.source)
    assert "  vs best -  " in shown(118, done(vs_best=None))
    assert "  is best  1.31x" in shown(118, done(vs_best=None), best_now=known)
    for code, said in {"2f7c91d0aa": "is best", "19b3e5c8ff": f"vs best {fmt.DASH}"}.items():
        other_file = done(vs_best=None, source="5c1e07ab", code=code)  # the log compares code: so does this line
        assert f"  {said}  1.31x" in shown(118, other_file, best_now=replace(known, code="2f7c91d0bb"))
    assert "faster (new best)" in shown(118, done(best=True), best_now=known)
    assert "faster (best?)" in shown(118, done(best=True, awaits=True))
    assert "vs best" not in shown(118, done(right=False, geomean=None, counts={"ok": 8, "wrong": 2}))
    board = Board(make_task())
    board.best_now = known
    line = "".join(text for text, _style in headline.line_one(board, FakeEngine(), 118, False))
    assert line.startswith("no result yet  best 1.31x")


def test_a_bar_says_how_far_a_run_is() -> None:
    assert [headline.bar(share) for share in (0.0, 0.5, 2.0)] == ["░" * 8, "████░░░░", "█" * 8]
    running = (done(), replace(STARTED, run="run14"), replace(progress("time", 5), run="run14"))
    assert "  ████░░░░ timing 6/10 " in shown(158, *running)
    assert "####.... timing" in shown(158, *running, ascii_only=True)
    assert "timing 6/10" in shown(78, *running)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (38, "save waits"),
        (58, "confirming #1280, save waits"),
        (78, "confirming #1280 before this save"),
        (158, "confirming #1280 before this save"),
    ],
)
def test_a_save_that_waits_for_a_confirmation_says_so_at_every_width(width: int, said: str) -> None:
    begun = Confirming("run13", 1280, True, before_save=True)
    line = shown(width, done(awaits=True), begun)
    assert said in line
    assert "…" not in line
    assert line.startswith("✓")
    assert "vs best 1.02x" in line
    after = shown(width, done(awaits=True), begun, replace(begun, is_running=False))
    assert "before this save" not in after
    assert "before this save" not in shown(width, done(awaits=True), replace(begun, before_save=False))


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize(
    ("counts", "forms"),
    [
        ({"ok": 8, "wrong": 2, "skipped": 3}, ("2 of 10 cases (speedup withheld)", "WRONG: 2 of 10 cases", "WRONG")),
        ({"wrong": 1, "crashed": 2}, ("3 of 3 cases (speedup withheld)", "FAILED: 3 of 3 cases", "FAILED")),
        ({"timeout": 1, "skipped": 34}, ("1 of 1 case (34 not run)", "FAILED: 1 of 1 case", "FAILED")),
        ({}, ("FAILED",)),
    ],
)
def test_the_headline_of_what_is_wrong(interpreted: bool, counts: dict[str, int], forms: tuple[str, ...]) -> None:
    """In words even if nothing is timed: not everyone sees the color."""
    environment = replace(H200, interpreted=interpreted)
    found, style = headline.correctness(summary(right=False, geomean=None, counts=counts, environment=environment))
    assert style == "bad"
    assert found[0].endswith(forms[0])
    assert found[1:] == forms[1:]
    checked = headline.against_baseline(
        summary(geomean=None, environment=replace(H200, device="cpu", interpreted=True))
    )
    assert checked == (("checked, not timed",), "faster")


def test_a_weighted_geomean_follows_the_plain_one_where_there_is_room() -> None:
    forms, _ = headline.against_baseline(summary(baseline="compile", weighted=1.214))
    plain, _ = headline.against_baseline(summary(baseline="compile"))
    assert forms[0] == plain[0].replace(" over compile", ", weighted 1.21x over compile")
    assert forms[1:] == plain[1:]


def test_the_headline_names_its_baseline() -> None:
    for baseline, name in {"compile": "compile", "best": "best", "/home/me/old/solution.py": "solution.py"}.items():
        forms, _ = headline.against_baseline(summary(baseline=baseline))
        assert forms[0].endswith(f"over {name}")
        assert forms[1].endswith(f"over {name}")
