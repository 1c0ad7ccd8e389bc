"""Counts the examples of every property, for `make fuzz`."""

from __future__ import annotations

import re

import pytest

COUNT = re.compile(r"(\d+) (?:passing|failing)")
_counts: dict[str, int] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        _counts.setdefault(report.nodeid, 0)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    said = str(getattr(item, "hypothesis_statistics", ""))
    _counts[item.nodeid] = sum(int(number) for number in COUNT.findall(said))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    properties = [count for count in _counts.values() if count]
    if properties:
        terminalreporter.write_line(f"{sum(properties)} fuzz cases in {len(properties)} properties")
