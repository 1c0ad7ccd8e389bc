"""One minute of the table of faults, and that the table is as large and as various as it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.row import Fault, Outcome, Save, Stage
from tests.faults.run_table import GROUPS, line, markdown
from tests.faults.table import TABLE

WITHOUT_ANOTHER_ISSUE = [f"F{number}" for number in range(1, 15) if number != 4]
"""F4, results that are forged, has another table."""
FAST = [fault for fault in TABLE if fault.quick and not fault.gpu]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


@pytest.mark.parametrize("fault", FAST, ids=lambda fault: fault.name)
def test_a_fault_is_as_specified(stage: Stage, fault: Fault) -> None:
    outcome = fault.play(stage)
    assert not outcome.wrong, line(fault, outcome)


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_faults_of_a_gpu_are_as_specified() -> None:
    """One of them; `make faults GPU=1` plays all."""
    stage = Stage("cuda")
    try:
        fault = next(fault for fault in TABLE if fault.name == "GPU: illegal access")
        outcome = fault.play(stage)
    finally:
        stage.close()
    assert not outcome.wrong, line(fault, outcome)


def test_every_finding_and_every_group_is_in_the_table() -> None:
    names = [fault.name for fault in TABLE]
    assert not [name for name, count in Counter(names).items() if count > 1]
    assert len([fault for fault in TABLE if not fault.gpu]) >= 100
    assert {fault.group for fault in TABLE} == set(GROUPS)
    assert not [number for number in WITHOUT_ANOTHER_ISSUE if not any(name.startswith(f"{number} ") for name in names)]


def test_a_row_that_is_not_as_specified_says_what(stage: Stage) -> None:
    """The table can fail: an answer other than the expected one is in its row."""
    fault = Save(
        name="x", group="source", done="a typo", texts={"solution_py": "zork\n"}, statuses="ok", says="never said"
    )
    outcome = fault.play(stage)
    assert outcome.wrong[0] == "rows are ['build_error'], not ['ok']"
    assert "does not say /never said/" in outcome.wrong[1]
    assert "| x | a typo |" in markdown([(fault, outcome)])
    assert "0 of 1 as specified" in markdown([(fault, outcome)])
    assert line(fault, Outcome()).startswith("ok ")
