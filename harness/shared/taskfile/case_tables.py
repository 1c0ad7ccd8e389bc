"""The cases of a task: tables in task.toml, the list in cases.json, and the points of a grid."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any, cast

from harness.shared.task import Case, CaseKind
from harness.shared.taskfile import values as read
from harness.shared.taskfile.tolerances import DTYPES, read_tolerances
from harness.shared.taskfile.values import TaskError, shown

CASE_KEYS = frozenset("id label kind headline models known weight axes tolerance".split())
KINDS = ("case", "smoke", "check")
LONGEST_ID = 500
MOST_POINTS = 10_000
"""Of a grid. They are counted before they are made."""


def read_cases(path: Path, data: dict[str, Any]) -> tuple[Case, ...]:
    cases = [
        _case(path, f"{kind}[{index}]", entry, kind)
        for kind in KINDS
        for index, entry in enumerate(read.tables(path, kind, data.get(kind, [])))
    ]
    listed = path.with_name("cases.json")
    if os.path.lexists(listed):
        text = read.file_text(listed, "a link to a file that does not exist")
        tables = read.tables(listed, "", read.parsed(listed, text, json.loads, "JSON"))
        cases += [_case(listed, f"[{index}]", entry, "case") for index, entry in enumerate(tables)]
    cases += _grid(path, data.get("grid", {}))
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise TaskError(path, f"case {shown(case.id)}", "two cases have this id; ids must be unique")
        seen.add(case.id)
    if not any(case.kind != "check" for case in cases):
        raise TaskError(path, "case", "the task has no cases; add at least one [[case]] with an id and axes")
    if not any(case.headline for case in cases):  # then every timed case counts
        cases = [_as_headline(case) for case in cases]
    return tuple(cases)


def _as_headline(case: Case) -> Case:
    return Case(**{**case.__dict__, "headline": True}) if case.kind == "case" else case


def _case(path: Path, key: str, data: dict[str, Any], kind: str) -> Case:
    read.known_keys(path, key, data, CASE_KEYS)
    case_id = read.text(path, f"{key}.id", data.get("id"))
    axes = data.get("axes", {})
    if not isinstance(axes, dict):
        raise TaskError(path, f"{key}.axes", 'must be a table, such as { rows = 128, dtype = "float32" }')
    _known_dtypes(path, f"{key}.axes", axes)
    read.plain_data(path, key, data)
    kind = read.choice(path, f"{key}.kind", data.get("kind", kind), KINDS)
    known = data.get("known")
    if known is not None and not isinstance(known, dict):
        raise TaskError(path, f"{key}.known", 'must be a table, such as { published_us = 518.6, source = "H200" }')
    headline = data.get("headline", False)
    if not isinstance(headline, bool) or (headline and kind != "case"):
        raise TaskError(path, f"{key}.headline", "must be true or false, and only a timed case can be a headline")
    return Case(
        id=case_id,
        label=read.text(path, f"{key}.label", data.get("label", case_id)),
        kind=cast(CaseKind, kind),
        headline=headline,
        models=read.texts(path, f"{key}.models", data.get("models", [])),
        known=known,
        weight=read.positive(path, f"{key}.weight", data.get("weight", 1.0)),
        axes=axes,
        tolerance=read_tolerances(path, f"{key}.tolerance", data.get("tolerance", {})),
    )


def _grid(path: Path, grid: Any) -> list[Case]:
    if not isinstance(grid, dict):
        raise TaskError(path, "grid", "must be a table of lists, such as tokens = [6, 33]")
    if not grid:
        return []
    read.plain_data(path, "grid", grid)
    _known_dtypes(path, "grid", grid)
    values = [value if isinstance(value, list) else [value] for value in grid.values()]
    if any(not value for value in values):
        raise TaskError(path, "grid", "an axis has no values")
    count = math.prod(map(len, values))
    if count > MOST_POINTS:
        raise TaskError(path, "grid", f"has {count} combinations, more than {MOST_POINTS}; use fewer values")
    longest = [max(len(str(value)) for value in axis) + len(key) for key, axis in zip(grid, values, strict=True)]
    if sum(longest) > LONGEST_ID:
        raise TaskError(path, "grid", f"its keys and values make ids of more than {LONGEST_ID} characters")
    points = (dict(zip(grid, point, strict=True)) for point in itertools.product(*values))
    ids = ((",".join(f"{key}={value}" for key, value in point.items()), point) for point in points)
    named = ((read.text(path, "grid", name), point) for name, point in ids)
    return [Case(id=f"grid:{name}", label=name, kind="check", axes=point) for name, point in named]


def _known_dtypes(path: Path, key: str, axes: dict[str, Any]) -> None:
    for name, value in axes.items():
        if name == "dtype" or name.endswith("_dtype"):
            for dtype in value if isinstance(value, list) else [value]:
                if not isinstance(dtype, str) or dtype not in DTYPES:
                    problem = f"{shown(dtype)} is not a torch dtype; use one such as float32 or bfloat16"
                    raise TaskError(path, f"{key}.{name}", problem)
