"""Folds a recording into functions and categories, and picks the functions that are worth a task."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernbench.rank import fast_paths
from kernbench.rank.categories import CATEGORIES, NOT_OFFERED, category
from kernbench.rank.fast_paths import FastPath, Verdict
from kernbench.rank.python_frames import Name, Names
from kernbench.rank.recording import Amount, Origin, Recording, Tensor

LEAST_SHARE = 0.01
"""Of the device time, from which a function is a candidate."""
NO_FUNCTION = "(no Python function)"
CALLED = frozenset(("forward", "__call__"))
"""Methods that go by the name of their class."""


@dataclass
class FunctionRow:
    """One Python function, with what it launched itself and through torch."""

    function: str
    place: str = ""
    caller: str = ""
    us: float = 0.0
    calls: int = 0
    share: float = 0.0
    open_share: float = 0.0
    """Without what is left to the libraries."""
    categories: dict[str, float] = field(default_factory=dict)
    """Microseconds of each."""
    kernels: dict[str, float] = field(default_factory=dict)
    dims: tuple[int, ...] = ()
    item_bytes: int = 1
    fast_path: Verdict = field(default_factory=Verdict)
    site: str = ""
    problem: str = ""
    command: str = ""

    @property
    def mostly(self) -> str:
        return max(self.categories, key=lambda name: self.categories[name])

    @property
    def is_candidate(self) -> bool:
        return bool(self.site or self.problem) and self.open_share >= LEAST_SHARE


@dataclass
class Ranking:
    source: str
    on_gpu: bool
    device_us: float
    window_us: float
    idle_us: float
    categories: dict[str, float]
    """Shares of the device time."""
    graph_share: float
    rows: list[FunctionRow]
    unknown: list[str]

    @property
    def candidates(self) -> list[FunctionRow]:
        return sorted((row for row in self.rows if row.is_candidate), key=lambda row: -row.open_share)

    def lines(self) -> list[dict[str, Any]]:
        """As JSON: the whole, then every function."""
        whole = {"event": "rank", **{key: value for key, value in asdict(self).items() if key != "rows"}}
        rows = [{"event": "function", **asdict(row), "candidate": row.is_candidate} for row in self.rows]
        return [whole, *rows]


def rank(recording: Recording, names: Names, paths: Sequence[FastPath], command: Sequence[str]) -> Ranking:
    total = recording.device_us
    shares = dict.fromkeys(CATEGORIES, 0.0)
    rows: dict[str, FunctionRow] = {}
    callers: dict[str, Counter[str]] = {}
    graph = 0.0
    for origin, amount in recording.work.items():
        kind = category(origin.kernel, origin.operator)
        shares[kind] += amount.us / total if total else 0.0
        graph += amount.us if origin.graph else 0.0
        found = [names.of(frame) for frame in origin.frames]
        row = _row(rows, origin, found)
        _add(row, origin, amount, kind)
        if len(found) > 1:
            callers.setdefault(row.function, Counter())[found[1].site] += amount.calls
    for row in rows.values():
        row.share = row.us / total if total else 0.0
        kept = sum(us for kind, us in row.categories.items() if kind not in NOT_OFFERED)
        row.open_share = kept / total if total else 0.0
        row.caller = callers[row.function].most_common(1)[0][0] if row.function in callers else ""
        row.fast_path = fast_paths.judge(
            paths, row.function, row.kernels, Tensor(row.dims, row.item_bytes), recording.on_gpu
        )
    ordered = sorted(rows.values(), key=lambda row: -row.us)
    ranking = Ranking(
        source=recording.source,
        on_gpu=recording.on_gpu,
        device_us=total,
        window_us=recording.window_us,
        idle_us=recording.idle_us,
        categories=shares,
        graph_share=graph / total if total else 0.0,
        rows=ordered,
        unknown=recording.unknown,
    )
    _offer(ranking.candidates, command)
    return ranking


def _row(rows: dict[str, FunctionRow], origin: Origin, found: Sequence[Name]) -> FunctionRow:
    if not found:
        return rows.setdefault(key := origin.span or origin.operator or NO_FUNCTION, FunctionRow(key))
    name = found[0]
    row = rows.setdefault(name.site, FunctionRow(name.site, name.place))
    row.site, row.problem = ("" if name.problem else name.site), name.problem
    return row


def _add(row: FunctionRow, origin: Origin, amount: Amount, kind: str) -> None:
    row.us += amount.us
    row.calls += amount.calls
    row.categories[kind] = row.categories.get(kind, 0.0) + amount.us
    row.kernels[origin.kernel] = row.kernels.get(origin.kernel, 0.0) + amount.us
    if kind not in NOT_OFFERED:
        largest = max(Tensor(row.dims, row.item_bytes), amount.largest, key=lambda tensor: tensor.size)
        row.dims, row.item_bytes = largest


def _offer(candidates: Sequence[FunctionRow], command: Sequence[str]) -> None:
    """Give every candidate that can be captured its command, with a task name that no other has."""
    taken: set[str] = set()
    for row in candidates:
        if not row.site:
            continue
        name = plain = task_name(row.site)
        while name in taken:
            name = f"{plain}_{len(taken) + 1}"
        taken.add(name)
        words = shlex.join(command) if command else "COMMAND"
        row.command = f"kernbench capture --site {shlex.quote(row.site)} --new {name} -- {words}"


def task_name(site: str) -> str:
    """`diffusers.models.normalization:AdaLayerNormZero.forward` gives ada_layer_norm_zero."""
    parts = site.partition(":")[2].split(".")
    name = parts[-2] if len(parts) > 1 and parts[-1] in CALLED else parts[-1]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return re.sub(r"\W+", "_", words).strip("_") or "task"
