"""A task as described by task.toml and cases.json: what to compute, how accurately, and for which cases.

Two runs with the same task hash were checked and timed by the same rules. The hash covers what decides correctness and
speed: the parsed task and cases, and the code of the reference, of a baseline file and of every file in the folder that
they use. Names, labels, comments and formatting are left out, and so is every field at its default, so that a field
added later changes no hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.shared.regular_file import NotRegular, open_regular, read_bytes
from harness.shared.used_files import LARGEST_PARSED, NAMED_BASELINES, code_of

CaseKind = Literal["case", "smoke", "check"]
Judge = Literal["truth", "reference", "check"]
"""What decides whether outputs are right: unrounded results, the reference's own, or the task's `check` alone."""


@dataclass(frozen=True)
class Tolerance:
    atol: float
    rtol: float
    matched: float = 1.0
    """Share of the elements that must be within atol + rtol * |expected|."""
    cap: float | None = None
    """An absolute error that no element may exceed; None for any."""


@dataclass(frozen=True)
class Case:
    id: str
    label: str
    """Short name for narrow screens; defaults to the id."""
    kind: CaseKind = "case"
    headline: bool = False
    models: tuple[str, ...] = ()
    known: dict[str, Any] | None = None
    weight: float = 1.0
    """Its exponent in the weighted geomean, which is shown and decides nothing."""
    axes: dict[str, Any] = field(default_factory=dict)
    """A plain table that only reference.py interprets."""
    tolerance: dict[str, Tolerance] = field(default_factory=dict)
    """By output dtype; replaces the task's for this case."""

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
    return float(value) if isinstance(value, (int, float)) and value > 0 else 1.0


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
    """Covers everything that decides correctness and speed; a new hash starts a new series."""
    rowwise: tuple[str, ...] = ()
    """Inputs whose rows are independent, so that truth can be computed a few rows at a time."""
    old_hash: str = ""
    """The task's hash in earlier versions of kernbench: a run with this hash belongs to this task."""
    files: tuple[str, ...] = ()
    """The task's files other than task.toml and cases.json: reference, baseline, and files they use."""
    ignore: tuple[str, ...] = ()
    """Patterns of files and folders that are not part of a source."""
    libraries: bool = False
    """Whether a source may spend its time in a library's kernels without a finding."""
    outputs: tuple[str, ...] = ()
    """Inputs that the entry fills without reading them: destinations."""
    seeded: bool = False
    """Whether the entry draws random numbers: torch's generators are seeded before every call."""
    returned: bool = False
    """Whether only what the entry returns is an output, and inputs that it may write to are its scratch memory."""
    judge: Judge = "truth"
    dtype: Literal["reference", "any"] = "reference"
    """Of the outputs. Any: the tolerance is that of the reference's dtype."""
    compare: tuple[str, ...] = ()
    """More sides to time a row against, named like a baseline; they decide nothing."""
    compare_files: tuple[str, ...] = ()
    """The files of those sides that are not in `files`."""
    origin: dict[str, str] = field(default_factory=dict)
    """Of an imported task: `format`, and what that format needs to export a solution."""

    def case(self, case_id: str) -> Case:
        return next(case for case in self.cases if case.id == case_id)

    def tolerance_of(self, case: Case) -> dict[str, Tolerance]:
        """By output dtype."""
        return {**self.tolerance, **case.tolerance}

    @property
    def written(self) -> tuple[str, ...]:
        """Inputs that a call may write to."""
        return (*self.mutates, *self.outputs)

    @property
    def judged(self) -> tuple[str, ...]:
        """Inputs that are outputs, before what a call returns."""
        return () if self.returned else self.written

    @property
    def own_files(self) -> tuple[str, ...]:
        """All that belong to the task and not to a source, other than task.toml and cases.json."""
        return (*self.files, *self.compare_files)

    @property
    def timed(self) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.kind == "case")


DIGITS = 16
OLD_LARGEST = 1 << 28
"""Of a file in an old hash, which covered files of any size."""
DEFAULT_TOLERANCE = {
    "float64": Tolerance(1e-9, 1e-9),
    "float32": Tolerance(1e-5, 1e-5),
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
    "float8_e4m3fn": Tolerance(1e-1, 1e-1),
    "float8_e5m2": Tolerance(2e-1, 2e-1),
}
_DEFAULTS: dict[str, Any] = {"device": "cuda", "threads": 1, "mutates": (), "layout": "reference"}
"""Defaults of the fields that Task requires."""
_NOT_RULES = frozenset(
    "name folder summary ignore libraries compare compare_files origin hash old_hash files cases tolerance".split()
)
_NOT_CASE_RULES = frozenset("label models known weight tolerance".split())


def task_hash(task: Task) -> str:
    """The hash of a loaded task and the current contents of its `files`."""
    digest = hashlib.sha256(json.dumps(_rules(task), sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(task.files):
        code = _code(Path(task.folder) / name)
        digest.update(f"\0{name}\0{len(code)}\0".encode() + code)
    return digest.hexdigest()[:DIGITS]


_digests: dict[Path, tuple[tuple[int, int, int], bytes]] = {}


def _code(path: Path) -> bytes:
    """The part of a file that counts; for large files a digest, recomputed when the file changes."""
    try:
        about = path.stat()
        if about.st_size <= LARGEST_PARSED:
            return code_of(path.name, read_bytes(path, LARGEST_PARSED))
        stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
        known = _digests.get(path)
        if known is None or known[0] != stamp:
            digest = hashlib.sha256()
            with os.fdopen(open_regular(path), "rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            known = _digests[path] = (stamp, digest.digest())
        return known[1]
    except (OSError, NotRegular):
        return b""


def _rules(task: Task) -> dict[str, Any]:
    rules = _set_fields(task, _NOT_RULES)
    rules["tolerance"] = {
        dtype: _bounds(bounds) for dtype, bounds in task.tolerance.items() if bounds != DEFAULT_TOLERANCE.get(dtype)
    }
    rules["cases"] = sorted(map(_case_rules, task.cases), key=lambda case: str(case["id"]))
    return rules


def _case_rules(case: Case) -> dict[str, Any]:
    own = {dtype: _bounds(bounds) for dtype, bounds in case.tolerance.items()}
    return {**_set_fields(case, _NOT_CASE_RULES), **({"tolerance": own} if own else {})}


def _bounds(bounds: Tolerance) -> list[float | None]:
    """Without what has its default, so that older hashes stay."""
    more = [bounds.matched, bounds.cap] if (bounds.matched, bounds.cap) != (1.0, None) else []
    return [bounds.atol, bounds.rtol, *more]


def _set_fields(record: Any, left_out: frozenset[str]) -> dict[str, Any]:
    """The fields of a record that differ from their default."""
    fields: dict[str, Any] = {}
    for about in dataclasses.fields(record):
        value = getattr(record, about.name)
        default = _DEFAULTS.get(about.name, about.default)
        if about.default_factory is not dataclasses.MISSING:
            default = about.default_factory()
        if about.name not in left_out and value != default:
            fields[about.name] = value
    return fields


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, OLD_LARGEST)
    except (OSError, NotRegular):
        return b""


def old_task_hash(folder: Path, baseline: str) -> str:
    """The hash that kernbench computed before 0.2, over bytes. Runs with this hash belong to the current task if the
    current files still produce it."""
    digest = hashlib.sha256()
    names = ["task.toml", "cases.json", "reference.py"]
    for name in names if baseline in NAMED_BASELINES else [*names, *_old_files_behind(folder, baseline)]:
        content = _content(folder / name)
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:DIGITS]


_OLD_QUOTED = re.compile(r"""["']([\w+.-]+\.[a-z]+)["']""")
_OLD_IMPORTED = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.M)


def _old_files_behind(folder: Path, name: str) -> list[str]:
    found = [name]
    for current in found:
        text = _content(folder / current).decode("utf-8", "replace")
        named = [*_OLD_QUOTED.findall(text), *(f"{module}.py" for module in _OLD_IMPORTED.findall(text))]
        found += [other for other in dict.fromkeys(named) if other not in found and (folder / other).is_file()]
    return found
