"""task.toml -> Task; every error names the file and the key.

`load(folder)` reads task.toml and an optional cases.json, and checks (without running it) that reference.py defines
what the task names. The worker never reads these files; it receives the Task as JSON. Standard library only.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from harness.shared.task import DEFAULT_TOLERANCE, Task, old_task_hash, task_hash
from harness.shared.taskfile import values as read
from harness.shared.taskfile.case_tables import read_cases
from harness.shared.taskfile.tolerances import read_tolerances
from harness.shared.taskfile.values import TaskError, shown
from harness.shared.used_files import NAMED_BASELINES, PARSED, SOLUTION, is_file, side_files, syntax_tree, task_files

TASK_KEYS = frozenset(
    "name entry summary baseline compare device threads mutates outputs returned seeded rowwise layout dtype judge "
    "libraries ignore origin tolerance case smoke check grid".split()
)
MOST_THREADS = 1024
MOST_COMPARED = 4
"""Sides besides the baseline: each is timed with every row."""
JUDGES = ("truth", "reference", "check")
AS_REFERENCE = ("reference", "any")
"""Whether the outputs' layout and dtype have to be those of the reference."""


def load(folder: Path, *, solution: bool = True) -> Task:
    """With `solution=False` solution.py may be missing: the log can be read, and restored from, all the same."""
    folder = folder.resolve()
    path = folder / "task.toml"
    data = read.toml(path, "no such file; `kernbench new NAME` creates a task to start from")
    read.known_keys(path, "", data, TASK_KEYS)
    entry = read.text(path, "entry", data.get("entry"))
    if not entry.isidentifier():
        raise TaskError(path, "entry", f"{shown(entry)} is not a function name")
    baseline = _baseline(path, data)
    if solution:
        read.file_bytes(folder / SOLUTION, "no such file; create it and define the entry named in task.toml")
    _defines(folder / "reference.py", "entry", entry, "make_inputs")
    if baseline not in NAMED_BASELINES:
        _defines(folder / baseline, "entry", entry)
    judge = read.choice(path, "judge", data.get("judge", "truth"), JUDGES)
    if judge == "check":
        _defines(folder / "reference.py", "judge", "check", why=', which judge = "check" in task.toml calls')
    compare = _compare(path, data, baseline)
    for name in _named_files(*compare):
        _defines(folder / name, "entry", entry)
    cases = read_cases(path, data)
    files = task_files(folder, baseline)
    task = Task(
        name=read.text(path, "name", data.get("name", folder.name)),
        entry=entry,
        folder=str(folder),
        summary=read.text(path, "summary", data.get("summary", "")),
        baseline=baseline,
        device=cast(Any, read.choice(path, "device", data.get("device", "cuda"), ("cuda", "cpu"))),
        threads=read.count(path, "threads", data.get("threads", 1), MOST_THREADS),
        mutates=read.texts(path, "mutates", data.get("mutates", [])),
        rowwise=read.texts(path, "rowwise", data.get("rowwise", [])),
        layout=cast(Any, read.choice(path, "layout", data.get("layout", "reference"), AS_REFERENCE)),
        tolerance=DEFAULT_TOLERANCE | read_tolerances(path, "tolerance", data.get("tolerance", {})),
        cases=cases,
        hash="",
        old_hash=old_task_hash(folder, baseline),
        files=tuple(files),
        ignore=_ignore(path, data, _named_files(baseline, *compare)),
        libraries=read.flag(path, "libraries", data.get("libraries", False)),
        outputs=read.texts(path, "outputs", data.get("outputs", [])),
        returned=read.flag(path, "returned", data.get("returned", False)),
        seeded=read.flag(path, "seeded", data.get("seeded", False)),
        judge=cast(Any, judge),
        dtype=cast(Any, read.choice(path, "dtype", data.get("dtype", "reference"), AS_REFERENCE)),
        compare=compare,
        compare_files=tuple(name for name in side_files(folder, _named_files(*compare)) if name not in files),
        origin=_origin(path, data),
    )
    return replace(task, hash=task_hash(task))


def _baseline(path: Path, data: dict[str, Any]) -> str:
    default = "baseline.py" if path.with_name("baseline.py").exists() else "eager"
    return _side(path, "baseline", read.text(path, "baseline", data.get("baseline", default)))


def _side(path: Path, key: str, name: str) -> str:
    if name not in NAMED_BASELINES and (Path(name).name != name or not is_file(path.parent / name)):
        raise TaskError(path, key, f"{shown(name)} is not eager, compile, or a file next to task.toml")
    return name


def _compare(path: Path, data: dict[str, Any], baseline: str) -> tuple[str, ...]:
    names = read.texts(path, "compare", data.get("compare", []))
    if len(names) > MOST_COMPARED:
        raise TaskError(path, "compare", f"names {len(names)} sides; use at most {MOST_COMPARED}")
    for place, name in enumerate(names):
        _side(path, "compare", name)
        if name in (baseline, SOLUTION, *names[:place]):
            what = {baseline: "the baseline", SOLUTION: "the solution"}.get(name, "named twice")
            raise TaskError(path, "compare", f"{shown(name)} is {what}; name other sides")
    return names


def _origin(path: Path, data: dict[str, Any]) -> dict[str, str]:
    table = data.get("origin", {})
    if not isinstance(table, dict):
        raise TaskError(path, "origin", f"{shown(table)} is not a table")
    return {name: read.text(path, f"origin.{name}", value) for name, value in table.items()}


def _named_files(*sides: str) -> list[str]:
    return [name for name in sides if name not in NAMED_BASELINES]


def _ignore(path: Path, data: dict[str, Any], own: list[str]) -> tuple[str, ...]:
    patterns = tuple(pattern.rstrip("/") for pattern in read.texts(path, "ignore", data.get("ignore", [])))
    for pattern in patterns:
        for name in (*PARSED, SOLUTION, "reference.py", *own):
            if fnmatchcase(name, pattern):
                raise TaskError(path, "ignore", f"{shown(pattern)} matches {name}, which every run needs")
    return patterns


def _defines(path: Path, key: str, *names: str, why: str = "") -> None:
    """Looks for top-level names without running the file; a star import is assumed to define anything."""
    text = read.file_text(path, "no such file; every task needs one")
    try:
        tree = syntax_tree(text)
    except SyntaxError as problem:
        raise TaskError(path, f"line {problem.lineno or 1}", f"syntax error: {problem.msg}") from None
    except (RecursionError, MemoryError):
        raise TaskError(path, "", "an expression is nested too deeply for Python's parser") from None
    except ValueError as problem:  # a NUL byte
        raise TaskError(path, "", f"not Python: {problem}") from None
    defined: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            defined.update((alias.asname or alias.name) for alias in node.names)
    for name in names:
        if name not in defined and "*" not in defined:
            what = f"the file does not define {shown(name)}{why}"
            raise TaskError(path, key if name != "make_inputs" else name, what)
