"""A task as described by task.toml and cases.json: what to compute, how accurately, and for which cases."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

CaseKind = Literal["case", "smoke", "check"]


@dataclass(frozen=True)
class Tolerance:
    atol: float
    rtol: float


@dataclass(frozen=True)
class Case:
    id: str
    label: str
    """Short name for narrow screens; defaults to the id."""
    kind: CaseKind = "case"
    headline: bool = False
    models: tuple[str, ...] = ()
    known: dict[str, Any] | None = None
    axes: dict[str, Any] = field(default_factory=dict)
    """A plain table that only reference.py interprets."""

    @property
    def variant(self) -> str:
        return str(self.axes.get("variant", ""))

    @property
    def size(self) -> float:
        """Product of all numbers among the axes, as a guess of how much there is to do."""
        return _product(self.axes)


def _product(value: Any) -> float:
    if isinstance(value, (dict, list, tuple)):
        return math.prod(map(_product, value.values() if isinstance(value, dict) else value))
    return value if isinstance(value, (int, float)) and value > 0 else 1


@dataclass(frozen=True)
class Task:
    name: str
    entry: str
    folder: str
    """Absolute path of the folder that the user edits."""
    summary: str
    baseline: str
    """eager, compile, or the name of a file next to task.toml."""
    device: Literal["cuda", "cpu"]
    threads: int
    """CPU threads for both sides; shown next to the times."""
    mutates: tuple[str, ...]
    layout: Literal["reference", "any"]
    tolerance: dict[str, Tolerance]
    """By output dtype."""
    cases: tuple[Case, ...]
    hash: str
    """Covers everything that decides correctness and speed (code_equality.py); a new hash starts a new series."""
    rowwise: tuple[str, ...] = ()
    """Inputs whose rows are independent, so that truth can be computed a few rows at a time."""
    old_hash: str = ""
    """The task's hash in earlier versions of kernbench: a run with this hash belongs to this task."""
    files: tuple[str, ...] = ()
    """The task's files other than task.toml and cases.json: reference, baseline, and files they use."""
    ignore: tuple[str, ...] = ()
    """Patterns of files and folders that are not part of a source."""

    def case(self, case_id: str) -> Case:
        return next(case for case in self.cases if case.id == case_id)

    @property
    def timed(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.kind == "case")
