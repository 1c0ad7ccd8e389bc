"""The last line of an entry: an HTML comment with its codes and numbers, for programs; never with words.

It makes a pulled entry as good as one's own. Its keys are those of a Summary; defaults are left out. Numbers have eight
digits: with six, a ratio that is rounded again could show another last digit than the entry's table. A timed row is
`[id, baseline us, solution us, speedup, low, high, verdict]`, a timed case that failed is `[id, status]`. A trailer
that is missing, broken or doubled does not count: the entry is then read by old_entries.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, get_args

from harness.shared.codes import L2State
from harness.shared.lines import decode, to_dict
from harness.shared.results import FAILURES, CaseResult, Ratio, VerdictWord
from harness.shared.run_request import Environment
from harness.shared.task import Task
from kernbench import render
from kernbench.events import NotBestCode, Summary

SCHEMA = 1
BEGIN, END = "\n<!-- kernbench ", " -->"
ROWS = ',"rows":['
"""The last key; listing entries does not parse what follows."""
LARGEST = 1e300
"""A float holds every number below it."""
VERDICTS, REASONS, L2_STATES = (frozenset(get_args(codes)) for codes in (VerdictWord, NotBestCode, L2State))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_code(value: Any, codes: frozenset[str]) -> bool:
    return isinstance(value, str) and value in codes  # a list would raise


def _is_ratio(value: Any) -> bool:
    whole = isinstance(value, dict) and value.keys() == {item.name for item in fields(Ratio)}
    return (
        whole
        and _is_code(value["verdict"], VERDICTS)
        and all(_is_number(value[name]) for name in ("speedup", "low", "high"))
    )


FORMS: dict[str, Callable[[Any], bool]] = {
    "run": _is_text,
    "source": lambda value: _is_text(value) and re.fullmatch("[0-9a-f]*", value) is not None,
    "code": _is_text,
    "at": _is_text,
    "right": _is_flag,
    "geomean": _is_number,
    "low": _is_number,
    "high": _is_number,
    "verdict": lambda value: _is_code(value, VERDICTS),
    "weighted": _is_number,
    "vs_best": _is_ratio,
    "best": _is_flag,
    "confirmed": _is_flag,
    "awaits": _is_flag,
    "best_geomean": _is_number,
    "not_best_code": lambda value: _is_code(value, REASONS),
    "stalled": _is_flag,
    "counts": lambda value: isinstance(value, dict) and all(_is_count(item) for item in value.values()),
    "repeats": _is_count,
    "complete": _is_flag,
    "baseline": _is_text,
    "task_hash": _is_text,
}
"""Keys of the run, each with its check."""
ABOUT: dict[str, Callable[[Any], bool]] = {
    "device": _is_text,
    "device_name": _is_text,
    "l2": lambda value: _is_code(value, L2_STATES),
    "interpreted": _is_flag,
}
"""Keys of its environment."""


def line(task: Task, summary: Summary, results: Mapping[str, CaseResult]) -> str:
    data = to_dict(summary)
    unset = to_dict(Summary("", "", "", False))
    values = {name: _short(data[name]) for name in FORMS if name == "right" or data[name] != unset[name]}
    about = {name: data["environment"][name] for name in ABOUT if data["environment"][name]}
    rows = [row for case in task.timed if case.id in results for row in _row(results[case.id])]
    whole = {"schema": SCHEMA, **values, "environment": about, "rows": rows}
    return f"<!-- kernbench {_dumped(whole)} -->"


def _dumped(data: Any) -> str:
    """JSON without two hyphens in a row, which would end the comment."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("--", "-\\u002d")


def with_confirmation(line: str, confirmed: bool) -> str:
    """A trailer's line, once its run was confirmed or refused; the line itself if it cannot be read."""
    data = _parsed(_line(line))
    if data is None or not isinstance(data.get("environment"), dict):
        return line
    data["confirmed"] = confirmed
    last = {name: data.pop(name) for name in ("environment", "rows") if name in data}
    first = {name: data.pop(name) for name in ("schema", *FORMS) if name in data}
    return f"<!-- kernbench {_dumped({**first, **data, **last})} -->"


def find(text: str, run: str) -> int:
    """Where the trailer of a run's entry names it; -1 if none does."""
    return text.find(f',"run":{_dumped(run)},')


def read(text: str) -> dict[str, Any] | None:
    """The trailer of an entry as data, without its rows; None unless there is exactly one and it is whole."""
    values, rows, _end = _line(text).partition(ROWS)
    data = _parsed(values + "}") if rows else None
    about = data.get("environment") if data is not None else None
    if data is None or data.get("schema") != SCHEMA or not isinstance(about, dict) or "right" not in data:
        return None
    is_whole = all(is_form(data[name]) for name, is_form in FORMS.items() if name in data)
    return data if is_whole and all(is_form(about[name]) for name, is_form in ABOUT.items() if name in about) else None


def _line(text: str) -> str:
    """The JSON of the trailer; empty unless there is exactly one."""
    _words, *found = f"\n{text}".split(BEGIN)
    line = found[0].partition("\n")[0].rstrip() if len(found) == 1 else ""
    return line.removesuffix(END) if line.endswith(END) else ""


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def applied(entry: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """A pulled entry read from its text, with the trailer's values in place of the text's."""
    words = {name: value for name, value in entry.items() if name not in FORMS}
    values = {name: data[name] for name in FORMS if name in data}
    about = {name: data["environment"][name] for name in ABOUT if name in data["environment"]}
    run = {"run": "", "source": "", "at": "", **values}
    outcome = render.outcome(decode(Summary, {**run, "environment": decode(Environment, about)}))
    return {**words, **run, "environment": {**entry["environment"], **about}, "outcome": outcome}


def rows(text: str) -> dict[str, CaseResult]:
    """The timed cases of an entry by id; skips anything that this module would not write."""
    found: dict[str, CaseResult] = {}
    data = (_parsed(_line(text)) if read(text) is not None else None) or {}
    for row in data.get("rows", ()):
        if not isinstance(row, list) or not row or not _is_text(row[0]):
            continue
        if len(row) == 2 and _is_code(row[1], FAILURES):
            found[row[0]] = CaseResult(row[0], row[1])
        elif len(row) == 7 and all(value is None or _is_number(value) for value in row[1:6]):
            names = ("baseline_us", "solution_us", "speedup", "low", "high")
            times = dict(zip(names, row[1:6], strict=True))
            verdict = row[6] if _is_code(row[6], VERDICTS) else None
            found[row[0]] = decode(CaseResult, {"id": row[0], "status": "ok", **times, "verdict": verdict})
    return found


def without(text: str) -> str:
    """An entry as people read it."""
    lines = text.split("\n")
    kept = [line for line in lines if not (f"\n{line}".startswith(BEGIN) and line.rstrip().endswith(END))]
    return "\n".join(kept).rstrip() + "\n" if len(kept) < len(lines) else text


def _row(row: CaseResult) -> Iterator[list[Any]]:
    if row.failed:
        yield [row.id, row.status]
    elif row.ratio is not None:
        times = (row.baseline_us, row.solution_us, row.speedup, row.low, row.high)
        yield [row.id, *(_short(value) for value in times), row.verdict]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.8g}")
    return {name: _short(item) for name, item in value.items()} if isinstance(value, dict) else value
