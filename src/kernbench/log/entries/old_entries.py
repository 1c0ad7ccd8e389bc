"""Entries without a valid trailer: the only module that reads words and tables of ITERATIONS.md back as values.

Every version wrote such lines and people edit them, so whatever does not read as kernbench wrote it is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from harness.shared.results import FAILURES, CaseResult, ClockName, OutputError, Status, VerdictWord, WallTime
from harness.shared.task import Task
from kernbench import render
from kernbench.log.entries import entry_text
from kernbench.log.runs import legacy

TIMES = re.compile(r"(?<!\d)(\d+(?:\.\d+)?(?:e-\d+)?)x")
INTERVAL = re.compile(TIMES.pattern + r" (?:±([\d.]+)|-([\d.]+)\+([\d.]+))%")
CLOCK = re.compile(r" cases? \((\w+)\)")
FIELD = re.compile(r"[-*+] +(?:(hypothesis|next|command|result|stalled):|(when|with task)[: ])")
BASELINE = "baseline "
MINUTE = re.compile(r"^(\S+) (\S+) UTC$")
WORDS: dict[str, Status] = {
    "right": "ok",
    "WRONG": "wrong",
    "no build": "build_error",
    "error": "runtime_error",
    "timeout": "timeout",
    "crashed": "crashed",
    "not run": "skipped",
    "checked": "interpreted",
    **{word: cast(Status, name) for name, word in render.STATUS_WORDS.items()},
}
"""As entries have spelled them so far, and as they are spelled today."""
FAILED = frozenset(word.lower() for word, status in WORDS.items() if status in FAILURES)
VERSUS_BEST = {words: word for word, words in entry_text.VERSUS_BEST.items()}
"""The outcome behind the words of a heading; earlier versions wrote the outcome itself."""
VERSIONS = {"driver": "driver", "clocks": "clocks", "torch": "torch", "triton": "triton", "Python": "python"}


def fields(number: int, text: str, source: str) -> dict[str, Any]:
    """Those of a PulledEntry as plain data, as far as its lines say them; `text` begins behind the heading's number."""
    heading, *lines = text.split("\n")
    title, *score = heading.strip().split(" · ")
    while len(score) > 2 or (len(score) == 2 and not TIMES.fullmatch(score[0])):
        title, score = f"{title} · {score[0]}", score[1:]
    times = TIMES.fullmatch(score[0]) if score else None
    words = "".join(score[1:] if times else score).partition(" (")[0]
    outcome = VERSUS_BEST.get(words, words)
    right = outcome not in FAILED
    geomean = float(times[1]) if times and right else None
    said = _said(lines)
    low, high = _interval(said.get("result", ""))[1:] if geomean is not None else (None, None)
    at, *circumstances = said.get("when", "").split(" · ")
    baselines = [part.removeprefix(BASELINE) for part in circumstances if part.startswith(BASELINE)]
    task_hash, *provenance = said.get("with task", "").split(" · ")
    named = dict(part.partition(" ")[::2] for part in provenance)
    return {
        "run": "",
        "source": source,
        "at": MINUTE.sub(r"\1T\2:00+00:00", at),
        "right": right,
        "geomean": geomean,
        "low": low,
        "high": high,
        "best": outcome in ("first", "improved", "best"),
        "stalled": bool(said.get("stalled")),
        "iteration": number,
        "hypothesis": said.get("hypothesis") or title,
        "next": said.get("next", ""),
        "baseline": baselines[0] if baselines else "",
        "baseline_hash": named.get("baseline", ""),
        "command": said.get("command", "").strip("`"),
        "task_hash": task_hash,
        "version": named.get("kernbench", ""),
        "environment": _environment(circumstances, named),
        "outcome": outcome,
    }


def _said(lines: Sequence[str]) -> dict[str, str]:
    """What the first line of each kind says."""
    found: dict[str, str] = {}
    for place, line in enumerate(lines):
        mark = FIELD.match(line) if line[:1] in entry_text.BULLETS else None
        if mark is None or (name := mark[1] or mark[2]) in found:
            continue
        is_wrapped = place + 1 < len(lines) and lines[place + 1].startswith("  ")
        words = entry_text.said(lines[place:], name) or "" if is_wrapped else line[mark.end() :].strip()
        found[name] = "" if words == "-" else words
    return found


def _environment(circumstances: Sequence[str], named: Mapping[str, str]) -> dict[str, str]:
    machine = [part for part in circumstances if not part.startswith(("source ", BASELINE, "same source", "after "))]
    condition = ", ".join(machine[1:])
    versions = {field: named[name] for name, field in VERSIONS.items() if name in named}
    name = machine[0] if machine else ""
    return {"device_name": name, "condition": condition, "l2": legacy.l2_of(condition), **versions}


def rows(task: Task, text: str) -> dict[str, CaseResult]:
    """The table of an entry, for the cases that the task still has: it names them by their labels."""
    ids: defaultdict[str, deque[str]] = defaultdict(deque)
    for case in task.cases:
        ids[" ".join(case.label.split())].append(case.id)
    clock = CLOCK.search(entry_text.said(text.split("\n"), "result") or "")
    found: dict[str, CaseResult] = {}
    for cells in _table(text):
        if ids[cells.get("case", "")] and (row := _row(ids[cells["case"]][0], cells, clock[1] if clock else "")):
            found[ids[cells["case"]].popleft()] = row
    return found


def times(text: str) -> dict[str, float]:
    """The solution's times in the table of an entry, by label; works without the task."""
    cells = {row.get("case", ""): _number(row.get("solution us", "")) for row in _table(text)}
    return {label: time for label, time in cells.items() if time is not None}


def _table(text: str) -> list[dict[str, str]]:
    """The rows below the first line that has the titles of a results table, each by these."""
    lines = [[_cell(cell) for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]] for line in text.split("\n")]
    start = next((at for at, cells in enumerate(lines) if cells[:1] == ["case"] and "speedup" in cells), len(lines))
    end = next((at for at in range(start, len(lines)) if not lines[at]), len(lines))
    return [dict(zip(lines[start], cells, strict=False)) for cells in lines[start + 2 : end]]


def _cell(text: str) -> str:
    return " ".join(text.replace("\\|", "|").replace("\\<", "<").split())


def _row(case: str, cells: Mapping[str, str], clock: str) -> CaseResult | None:
    words, error = cells.get("verdict", ""), _number(cells.get("error", ""))
    verdict = words.split()[-1] if words.split()[-1:] and words.split()[-1] in get_args(VerdictWord) else None
    status: Status | None = "ok" if verdict else WORDS.get(words)
    if status is None:
        return None
    worst = None if error is None else OutputError(error, None, None)
    if status != "ok":
        return CaseResult(case, status, error=worst)
    speedup, low, high = _interval(cells.get("speedup", ""))
    wall = TIMES.fullmatch(cells.get("wall", ""))
    return CaseResult(
        case,
        status,
        clock=cast(ClockName, clock) if clock in get_args(ClockName) else None,
        baseline_us=_number(cells.get("baseline us", "")),
        solution_us=_number(cells.get("solution us", "")),
        speedup=speedup,
        low=low,
        high=high,
        verdict=cast(VerdictWord, verdict) if speedup is not None else None,
        wall=WallTime(None, None, float(wall[1])) if wall else None,
        error=worst,
    )


def _interval(words: str) -> tuple[float, float, float] | tuple[None, None, None]:
    """Speedup, low and high of `1.25x ±0.4%` or `1.25x -3+8%`."""
    found = INTERVAL.search(words)
    if found is None:
        return None, None, None
    speedup, down, up = float(found[1]), _number(found[2] or found[3]), _number(found[2] or found[4])
    if down is None or up is None:
        return None, None, None
    return speedup, speedup * (1 - down / 100), speedup * (1 + up / 100)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
