"""What a worker's messages say about its process: when it is replaced, and when a source gets a clean one."""

from __future__ import annotations

from typing import Any

from kernbench.events import Event, Notice
from kernbench.worker.trust import MOST_REPLACED, Trust


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.trust = Trust(self.events.append)

    def run(self, source: str, *messages: dict[str, Any], pid: int = 1) -> list[bool]:
        """Which messages ask for a clean worker, then whether the worker goes."""
        self.trust.begin(pid, source)
        wanted = []
        for message in messages:
            self.trust.take(message)
            wanted.append(self.trust.wants_clean_worker(message))
        return [*wanted, self.trust.must_replace()]

    def said(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def changed(**fields: list[Any]) -> dict[str, Any]:
    return {"event": "changed", **fields}


def failed(**fields: bool) -> dict[str, Any]:
    return {"event": "failed", **fields}


def row(status: str, **fields: bool) -> dict[str, Any]:
    return {"event": "case", "result": {"id": "a", "status": status}, **fields}


def test_a_source_that_changes_nothing_keeps_its_worker() -> None:
    heard = Heard()
    assert heard.run("a", row("ok")) == [False, False]
    assert heard.run("b", row("wrong")) == [False, False]
    assert heard.said() == []


def test_a_replaced_function_costs_the_worker_and_twice_is_enough() -> None:
    heard = Heard()
    patch = changed(replaced=["torch.softmax"])
    went = [heard.run("a", patch, pid=number)[-1] for number in range(MOST_REPLACED + 2)]
    assert went == [True] * MOST_REPLACED + [False] * 2
    text = "the source changes torch.softmax at every save: its worker is kept, and its runs cannot become best"
    assert heard.said() == [text]
    assert heard.run("a", changed(replaced=["torch.softmax", "torch.relu"]))[-1]  # another reason


def test_a_quiet_run_ends_the_row_of_replacements() -> None:
    heard = Heard()
    patch = changed(replaced=["torch.softmax"])
    assert [heard.run("a", patch)[-1], heard.run("a", patch)[-1], heard.run("b", row("ok"))[-1]] == [True, True, False]
    assert heard.run("a", patch)[-1]


def test_an_honest_source_in_a_changed_worker_gets_a_clean_one() -> None:
    heard = Heard()
    assert heard.run("b", changed(left=["torch.softmax"])) == [True, True]


def test_a_failure_elsewhere_is_tried_again_only_where_another_source_ran() -> None:
    heard = Heard()
    assert heard.run("a", failed(elsewhere=True)) == [False, False]
    assert heard.run("b", failed(elsewhere=True)) == [True, False]
    assert heard.run("b", failed(elsewhere=False)) == [False, False]  # its own mistake
    assert heard.run("b", row("runtime_error", elsewhere=True)) == [True, False]
    assert heard.run("b", row("runtime_error")) == [False, False]
    assert heard.run("b", failed(elsewhere=True), pid=2) == [False, False]  # a new worker


def test_a_failure_of_the_harness_ends_the_worker() -> None:
    heard = Heard()
    heard.run("a", row("ok"))
    assert heard.run("b", failed(internal=True)) == [True, True]


def test_settings_and_packages_are_told_once() -> None:
    heard = Heard()
    messages = changed(restored=["the default dtype", "grad mode"]), changed(packages=[["torch.relu", "patcher"]])
    for _ in range(2):
        assert heard.run("a", *messages)[-1] is False
    assert heard.said() == [
        "restored the default dtype and grad mode, which the source had changed",
        "importing patcher replaced torch.relu",
    ]
    assert heard.trust.packages == ["patcher"]
