"""csv: one tidy row per run and case, units in the column names. json: runs with their cases, as in runs.jsonl."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from harness.shared.lines import SCHEMA, finite, to_dict
from kernbench.export.collect import Collected
from kernbench.machine.plain_text import csv_cell, json_text
from kernbench.version import __version__

if TYPE_CHECKING:
    import pandas


def make_csv(about: Collected) -> str:
    return as_csv(about.frame)


def as_csv(frame: pandas.DataFrame) -> str:
    """Any part of the frame. Text that a spreadsheet would run as a formula is shown instead."""
    changed = {name: _defused(frame[name]) for name in frame.columns if frame[name].dtype.kind not in "biuf"}
    return frame.assign(**changed).to_csv(index=False, lineterminator="\n")


def _defused(column: pandas.Series) -> pandas.Series:
    texts = [value for value in column.unique() if isinstance(value, str)]
    changed = {text: cell for text in texts if (cell := csv_cell(text)) != text}
    return column.map(lambda value: changed.get(value, value)) if changed else column


def make_json(about: Collected) -> str:
    """One object; every number as measured, missing ones null."""
    runs = [{**to_dict(run), "cases": [_row(data) for data in rows]} for run, rows in about.with_rows()]
    whole = {
        "schema": SCHEMA,
        "kernbench": __version__,
        "exported_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "task": {name: value for name, value in to_dict(about.task).items() if name != "folder"},
        "runs": runs,
        **_by_gpu(about),
    }
    return json_text(json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1)) + "\n"


def _by_gpu(about: Collected) -> dict[str, Any]:
    """By GPU type, if there are several: the best, and what each source came to."""
    types = about.types
    told: dict[str, Any] = {name: {"best": None, "sources": {}} for name in types.names}
    for (source, name), item in types.by_source.items() if told else ():
        cases = {case: _row(to_dict(row)) for case, row in types.rows(item).items() if row.ratio is not None}
        told[name]["sources"][source] = {**types.data(item)[name], "cases": cases}
    for name, best in types.bests.items():
        told[name]["best"] = {"iteration": best.iteration, "source": best.source, "geomean": best.geomean}
    return {"by_gpu": told} if told else {}


def _row(data: dict[str, Any]) -> dict[str, Any]:
    return {name: finite(value) for name, value in data.items() if name not in ("event", "run")}
