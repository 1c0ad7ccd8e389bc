"""KDA-Pilot: a folder with config.toml, whose bench/adapter.py makes inputs and calls a baseline and a solution.

Every row of bench/workloads.json becomes a case. A solution is the folder `solution`, in any form that the adapter can
import; a task has its own, next to links to the rest. Folders without an adapter are recognized and refused.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import tomllib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from harness.shared.used_files import C_LIKE, LARGEST_FILE, is_file, syntax_tree, text_of
from kernbench.export.formats import ExportError
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem, read_source
from kernbench.suites.formats.gpu_mode_source import Source
from kernbench.suites.formats.task_text import task_text
from kernbench.task.lookup import ProjectError
from kernbench.task.source_files import is_skipped, is_source

NAME, EXPORT = "kda", "kda"
FILES = FOLDER = "config.toml prompt.md"
TABLES = ("task", "build", "benchmark")
ADAPTER, WORKLOADS = "bench/adapter.py", "bench/workloads.json"
CALLED = ("make_case", "call_baseline", "call_candidate")
OLDER = ("benchmark.py", "src/register.py")
"""What folders of an older form have, some of them without config.toml."""
OWN_PROGRAM = f"has no {ADAPTER}: its benchmark is a separate program, which kernbench cannot call"
NO_BENCHMARK = f"has no {ADAPTER}: it only describes a problem, and has no benchmark yet"
TOLERANCE = 1e-2
"""What the suite allows where a row does not say."""
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
ON_CPU = {"", "python", "torch", "pytorch", "cpp", "c++"}
"""Languages of solutions that may run without a GPU."""
REFERENCE = '''"""KDA-Pilot {title}: bench/adapter.py makes the inputs and calls the baseline."""

from harness.foreign.kda import Problem

FILES = {files}
_problem = Problem(globals(), FILES)
make_inputs, setup, check, traffic = _problem.make_inputs, _problem.setup, _problem.check, _problem.traffic


def run(workload, inputs, outputs):
    _problem.baseline(workload, inputs, outputs)
'''
SOLUTION = '''"""Calls what is in the folder solution through bench/adapter.py, or the baseline if nothing is there.

Edit the files there, not this one.
"""

from harness.foreign.kda import Candidate

_candidate = Candidate(globals())


def run(workload, inputs, outputs):
    _candidate.call(workload, inputs, outputs)
'''
Rows = list[dict[str, Any]]


def detect(path: Path) -> Problem | None:
    path = path.resolve()
    folder = path.parent
    if path.suffix == ".md":  # an older folder without config.toml; one with it is found by that
        is_older = not is_file(folder / "config.toml") and all(is_file(folder / name) for name in OLDER)
        return Problem(NAME, path, folder.name, folder.name, _nothing, "", OWN_PROGRAM) if is_older else None
    try:
        config = tomllib.loads(text_of(path))
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(config.get(table), dict) for table in TABLES) or "slug" not in config["task"]:
        return None
    refused, rows = _refusal(folder), list[dict[str, Any]]()
    if not refused:
        try:
            rows = _rows(folder)
        except (ValueError, RecursionError, AttributeError, TypeError):
            refused = f"its {WORKLOADS} is not a list of rows"
    about = "" if refused else f"{len(rows)} rows{'' if _solution(folder / 'solution') else ', no solution yet'}"
    contents = partial(_contents, folder, config, rows)
    edited, is_folder = "the files in solution", True
    return Problem(NAME, path, folder.name, folder.name, contents, about, refused, edited, is_folder)


def _nothing(form: Form) -> Contents:
    raise ProjectError(OWN_PROGRAM)


def _refusal(folder: Path) -> str:
    """Why the folder is not supported; empty if it is."""
    if not is_file(folder / ADAPTER):
        has_one = any(is_file(folder / name) for name in ("benchmark.py", "bench/benchmark.py"))
        return OWN_PROGRAM if has_one else NO_BENCHMARK
    if not is_file(folder / WORKLOADS):
        return f"has no {WORKLOADS}, which would list its cases"
    try:
        body = syntax_tree(text_of(folder / ADAPTER)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"its {ADAPTER} is not valid Python"
    missing = [name for name in CALLED if name not in {getattr(node, "name", "") for node in body}]
    if missing:
        return f"its {ADAPTER} does not define {' and '.join(missing)}"
    absent = _absent(folder)
    return f"needs the package{'s' if len(absent) > 1 else ''} {', '.join(absent)}" if absent else ""


def _rows(folder: Path) -> Rows:
    """Raises ValueError or AttributeError if they are none."""
    rows: Rows = json.loads(text_of(folder / WORKLOADS))
    if not rows or not isinstance(rows, list):
        raise ValueError("no rows")
    for row in rows:
        _bounds(row, 1.0)
    return rows


def _bounds(row: dict[str, Any], matched: float) -> dict[str, dict[str, float]]:
    """The tolerance of a row, by output dtype."""
    bounds = {name: float(row.get(name, TOLERANCE)) for name in ("atol", "rtol")}
    bounds |= {"matched": matched} if matched < 1 else {}
    return dict.fromkeys(DTYPES, bounds)


def _absent(folder: Path) -> list[str]:
    """Packages that the adapter and what it imports of its folder cannot be loaded without, and that are not here."""
    loaded = _loaded(folder)
    packages = {name for place in loaded for name in Source(text_of(folder / place)).packages}
    near = {Path(name).stem for name in _below(folder, "bench")}
    known = {*sys.stdlib_module_names, "torch", "triton", "numpy", "baseline", "bench", "solution", *near}
    return sorted(name for name in packages - known if importlib.util.find_spec(name) is None)


def _loaded(folder: Path) -> list[str]:
    """The adapter, and the Python files in bench and baseline that it imports, directly or not."""
    others = [name for part in ("bench", "baseline") for name in _below(folder, part) if name.endswith(".py")]
    found = [ADAPTER]
    for current in found:
        words = _imported(text_of(folder / current))
        found += [name for name in others if name not in found and _module(name) in words]
    return found


def _module(name: str) -> str:
    place = Path(name)
    return place.parent.name if place.stem == "__init__" else place.stem


def _imported(text: str) -> set[str]:
    """All names in the import statements of a file."""
    try:
        nodes = [*ast.walk(syntax_tree(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    plain = (alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names)
    taken = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [*plain, *(node.module or "" for node in taken), *(alias.name for node in taken for alias in node.names)]
    return {part for name in names for part in name.split(".")}


def _below(folder: Path, part: str) -> list[str]:
    """The files of one of its folders that can be part of a task."""
    found: list[str] = []
    for place, folders, names in os.walk(folder / part):
        folders[:] = sorted(name for name in folders if not is_skipped(name))
        paths = (Path(place) / name for name in sorted(names) if is_source(name))
        found += [path.relative_to(folder).as_posix() for path in paths if is_file(path)]
    return found


def _solution(folder: Path) -> list[str]:
    return [name.partition("/")[2] for name in _below(folder.parent, folder.name)]


def _contents(folder: Path, config: dict[str, Any], rows: Rows, form: Form) -> Contents:
    language = str(config["build"].get("language", "")).lower()
    if form.device == "cpu" and language not in ON_CPU:
        raise ProjectError(
            f"{folder.name}: its language is {language}, which needs a GPU; open it on a machine with one"
        )
    if form.scale != 1:
        raise ProjectError(f"{folder.name}: its rows have shapes and strides that belong together; leave --scale out")
    own = form.solution or folder / "solution"
    solution = {"solution.py": SOLUTION, **{f"solution/{name}": _text(own / name) for name in _solution(own)}}
    near = [name for name in _loaded(folder) if name.startswith("bench/")]
    headers = [path.name for path in sorted(folder.iterdir()) if path.suffix in C_LIKE and is_file(path)]
    links = {name: (folder / name).resolve() for name in (*near, *_below(folder, "baseline"), *headers)}
    matched = float(config["benchmark"].get("required_matched_ratio", 1.0))
    summary, usual = f"KDA-Pilot {folder.name}", _bounds(rows[0], matched)
    task = task_text(folder.name, summary, "run", form, {"format": NAME}, usual)
    reference = REFERENCE.format(title=folder.name, files=json.dumps([*links], indent=4))
    data = {"cases.json": json.dumps(_cases(rows, matched), indent=1) + "\n"}
    return Contents(task, reference, solution, links, data)


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST_FILE:
        raise ProjectError(f"{path} is over 1 MB, so it cannot be part of a solution; load it by absolute path")
    return read_source(path)


def _cases(rows: Rows, matched: float) -> Rows:
    """Only rows that are in production count, if some are not; all of them are timed."""
    usual, names, made = _bounds(rows[0], matched), Counter[str](), Rows()
    counted = [bool(row.get("production", True)) for row in rows]
    for row, counts in zip(rows, counted, strict=True):
        name = str(row.get("id") or row.get("name") or row.get("function") or "row")
        names[name] += 1
        case: dict[str, Any] = {"id": name if names[name] == 1 else f"{name}#{names[name]}"}
        case |= {"headline": True} if counts and not all(counted) else {}
        bounds = _bounds(row, matched)
        made.append({**case, "axes": {"workload": row}, **({"tolerance": bounds} if bounds != usual else {})})
    return made


def exported(files: dict[str, bytes], origin: dict[str, str]) -> dict[str, bytes]:
    """The files of the folder solution."""
    found = {name.partition("/")[2]: content for name, content in files.items() if name.startswith("solution/")}
    if not found:
        raise ExportError("it has no solution yet, and runs the baseline as its own; put files into solution first")
    return found
