"""Whatever a worker's lines hold: each is taken, or refused in one printable line."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from harness.shared.lines import UNREADABLE
from kernbench.worker.wire_check import GARBLED, Refused, WireCheck
from tests.fuzz.test_wire import MESSAGES
from tests.fuzz.user_files import VALUES, fuzzed, nearly

CASES = [{"id": "a", "kind": "case"}, {"id": "b", "kind": "check"}]
REQUEST: dict[str, Any] = {"run": "r", "cases": ["a", "b"], "task": {"cases": CASES}, "controls": True, "best": "/best"}
OTHERS: list[dict[str, Any]] = [
    {"event": "floor", "case": "a", "floor": 0.01},
    {"event": "wrote", "files": ["x.py"], "task_files": [], "unseen": False},
    {"event": "built", "case": "a", "ms": 1.0},
    {"event": "loaded", "compiler": {"target": "x"}},
    {"event": "held"},
    {"event": "finished"},
    {"event": "ready", "environment": {}},
]
LINES = st.lists(st.one_of(*map(nearly, [*MESSAGES, *OTHERS])), min_size=1, max_size=4)


@fuzzed(200)
@given(kind=st.sampled_from(["run", "floor"]), lines=LINES, at_ms=VALUES)
@example(kind="run", lines=[{"event": "case", "result": {"id": "\x1b]0;owned\x07\n" * 99}}], at_ms=0)
@example(kind="run", lines=[{"event": [], "run": {}}], at_ms=10**400)
def test_a_line_is_taken_or_refused_in_one_line(kind: str, lines: list[Any], at_ms: Any) -> None:
    wire = WireCheck(7)
    wire.asked({"request": kind, **REQUEST})
    started = {"event": "started", "environment": {"device": "cpu"}, "at_ms": 0}
    words = "taken"
    try:
        for number, line in enumerate([started, *({"at_ms": at_ms, **line} for line in lines)]):
            wire.check({"run": "r", **line, "pid": 7, "seq": number + 1})
    except Refused as problem:
        words = str(problem)
    except UNREADABLE:
        words = GARBLED
    assert words.isprintable()
    assert len(words) < 200
