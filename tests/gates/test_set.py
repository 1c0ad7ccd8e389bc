"""The set of cheats and honest oddities: enough of each, all different, none a variant of another by a constant."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.faults.workbench import Answer
from tests.gates.cheats import CHEATS
from tests.gates.oddities import ODDITIES
from tests.gates.play import chosen, gains_nothing, judge, markdown, summary, uneven
from tests.gates.record import CLASSES, Cheat, Oddity

EVERYTHING: list[Cheat | Oddity] = [*CHEATS, *ODDITIES]


def test_every_class_has_three_mechanisms() -> None:
    counts = Counter(cheat.group for cheat in CHEATS)
    assert counts.keys() == CLASSES.keys()
    assert min(counts.values()) >= 3


def test_there_are_enough() -> None:
    assert len(CHEATS) >= 40
    assert sum("cpu" in cheat.devices for cheat in CHEATS) >= 25
    assert len(ODDITIES) >= 24


def test_names_are_unique() -> None:
    assert repeated(source.name for source in EVERYTHING) == []


def test_no_source_is_another_with_other_numbers() -> None:
    assert repeated(re.sub(r"\d+(\.\d+)?(e-?\d+)?", "0", source.source) for source in EVERYTHING) == []


def test_no_mechanism_is_described_twice() -> None:
    assert repeated(source.how for source in EVERYTHING) == []


@pytest.mark.parametrize("source", EVERYTHING, ids=lambda source: source.name)
def test_a_source_is_python_that_defines_the_entry(source: Cheat | Oddity) -> None:
    tree = ast.parse(source.source)
    assert "softmax" in {
        name for node in tree.body for name in ([node.name] if isinstance(node, ast.FunctionDef) else assigned(node))
    }


def assigned(node: ast.stmt) -> list[str]:
    return [item.id for item in node.targets if isinstance(item, ast.Name)] if isinstance(node, ast.Assign) else []


def repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


RED = {"name": "result kept between calls", "help": "", "red": True, "code": "result_kept"}
NOTE = {"name": "nondeterministic", "help": "", "red": False, "code": "nondeterministic"}
BUSY = {"name": "busy machine", "help": "", "red": False, "code": "busy_machine"}


def answer(status: str = "ok", findings: tuple[dict[str, object], ...] = (), **row: object) -> Answer:
    rows = {"a": {"id": "a", "status": status, "findings": list(findings), "detail": None, **row}}
    return Answer(rows, {"right": status == "ok", "findings": []}, "", 0.1)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (answer(), "passed"),
        (answer(findings=(BUSY,)), "passed"),
        (answer(findings=(NOTE,)), "note"),
        (answer(findings=(NOTE, RED)), "disqualified"),
        (answer("wrong"), "wrong"),
        (answer("crashed"), "refused"),
    ],
)
def test_a_save_is_judged(given: Answer, verdict: str) -> None:
    assert judge(given)[0] == verdict


@pytest.mark.parametrize(
    ("given", "is_even"),
    [
        (answer(verdict="same", low=0.99, high=1.01), True),
        (answer(verdict="faster", speedup=1.2, low=1.1, high=1.3), False),
        (answer("wrong"), False),
        (answer(findings=(RED,)), False),
    ],
)
def test_an_honest_save_is_even_or_not(given: Answer, is_even: bool) -> None:
    assert (uneven(given) == "") == is_even


@pytest.mark.parametrize(
    ("mean", "verdict", "nothing"), [(0.7, "slower", True), (1.0, "faster", False), (1.2, "unclear", False)]
)
def test_a_cheat_that_gains_nothing_is_harmless(mean: float, verdict: str, nothing: bool) -> None:
    given = answer(verdict=verdict)
    assert gains_nothing(replace(given, finished={"geomean": mean})) == nothing


def test_a_name_or_a_class_chooses() -> None:
    assert {source.name for source in chosen(CHEATS, "cpu", ["wire"])} == {
        cheat.name for cheat in CHEATS if cheat.group == "wire"
    }
    assert [source.name for source in chosen(CHEATS, "cuda", ["persisting"])] == ["persisting window"]
    assert chosen(CHEATS, "cpu", ["persisting"]) == []


def test_what_was_not_played_is_in_the_table() -> None:
    text = markdown([], CHEATS)
    assert text.count("not played yet") == len(CHEATS)
    assert summary([]) == []
