"""One cheat of every class against the real workbench: caught or without any gain, the next honest save unharmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import ROOT
from tests.gates.cheats import CHEATS
from tests.gates.play import CAUGHT, Stage, line
from tests.gates.record import CLASSES, Cheat

PLAYED = (
    "apart by the stack", "kept by values", "expected result on the stack", "comparison replaced", "samples edited",
    "lines forged", "profile hook", "next input touched", "computed when freed", "reference on disk", "no maximum",
    "input marked",
)  # fmt: skip
SOME = [cheat for cheat in CHEATS if cheat.name in PLAYED]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = Stage("cpu", ROOT)
    yield made
    made.close()


def test_every_class_is_played() -> None:
    assert {cheat.group for cheat in SOME} == CLASSES.keys()


@pytest.mark.parametrize("cheat", SOME, ids=lambda cheat: cheat.name)
def test_a_cheat_is_caught_and_harms_nothing_else(stage: Stage, cheat: Cheat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.root)  # the workbench changes it
    played = stage.play(cheat)
    assert played.verdict in (*CAUGHT, "harmless"), line(played)
    assert not played.became_best
    assert not played.after, line(played)
