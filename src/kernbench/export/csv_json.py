"""csv: one tidy row per run and case, units in the column names. json: runs with their cases, as in runs.jsonl."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from harness.shared.lines import SCHEMA, to_dict
from kernbench.export.collect import Collected
from kernbench.version import __version__


def make_csv(about: Collected) -> str:
    return about.frame.to_csv(index=False, lineterminator="\n")


def make_json(about: Collected) -> str:
    """One object; every number as measured, missing ones null."""
    by_run = {summary.run: summary for summary in about.runs}
    runs = [
        {**to_dict(by_run[run]), "cases": [_row(data) for data in rows]}
        for run, rows in about.journal.runs()
        if run in by_run
    ]
    whole = {
        "schema": SCHEMA,
        "kernbench": __version__,
        "exported_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "task": {name: value for name, value in to_dict(about.task).items() if name != "folder"},
        "runs": runs,
    }
    return json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _row(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("event", "run")}
