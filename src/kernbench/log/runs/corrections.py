"""What was found out about rows after their run had ended: the `corrected` lines of runs.jsonl.

A line gives the new sentence and the new findings of some rows of one run; their status and times stay. Versions that
do not know these lines skip them. The lines are few, so all are kept in memory, and the rows are corrected as they are
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.shared.lines import decode_checked, to_dict
from harness.shared.results import CaseResult, Finding

CORRECTED = b'{"event":"corrected"'


@dataclass(frozen=True)
class Correction:
    """The parts of a row that change."""

    id: str
    detail: str | None
    findings: tuple[Finding, ...]


class Corrections:
    def __init__(self) -> None:
        self._runs: dict[str, dict[str, Correction]] = {}
        """By run and case."""

    def take(self, data: Mapping[str, Any]) -> None:
        """Notes a `corrected` line; raises if it cannot be one."""
        rows = [decode_checked(Correction, row) for row in data["rows"]]
        self._runs.setdefault(str(data["run"]), {}).update({row.id: row for row in rows})

    def applied(self, run: str, rows: dict[str, CaseResult]) -> dict[str, CaseResult]:
        known = self._runs.get(run, {})
        more = {name: known[name] for name in rows if name in known}
        return rows | {
            name: replace(rows[name], detail=row.detail, findings=row.findings) for name, row in more.items()
        }

    def applied_to_data(self, run: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same for rows as plain data."""
        known = self._runs.get(run, {})
        return [row | to_dict(known[name]) if (name := str(row["id"])) in known else row for row in rows]


def line_of(run: str, rows: Iterable[CaseResult]) -> dict[str, Any]:
    """The values of a `corrected` line, given the rows as they are now."""
    return {"run": run, "rows": [to_dict(Correction(row.id, row.detail, row.findings)) for row in rows]}
