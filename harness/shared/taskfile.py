"""task.toml -> Task; every error names the file and the key.

`load(folder)` reads task.toml and an optional cases.json, and checks (without running it) that reference.py defines
what the task names. Sizes, depths and counts are limited, and only regular files are opened, so that no folder can
block its reader. The worker never reads these files; it receives the Task as JSON. Standard library only.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import re
import reprlib
import tomllib
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from harness.shared.errors import UserError
from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.task import DEFAULT_TOLERANCE, Case, CaseKind, Task, Tolerance, old_task_hash, task_hash
from harness.shared.used_files import (
    LARGEST_FILE,
    NAMED_BASELINES,
    PARSED,
    SOLUTION,
    is_file,
    syntax_tree,
    task_files,
)

DTYPES = frozenset(
    "bfloat16 float16 float32 float64 float8_e4m3fn float8_e5m2 "
    "bool uint8 int8 int16 int32 int64 complex64 complex128".split()
)
TASK_KEYS = frozenset(
    "name entry summary baseline device threads mutates rowwise layout libraries ignore tolerance "
    "case smoke check grid".split()
)
CASE_KEYS = frozenset("id label kind headline models known axes".split())
KINDS = ("case", "smoke", "check")
MOST_THREADS = 1024
MOST_POINTS = 10_000
"""Of a grid. They are counted before they are made."""
DEEPEST = 20
LONGEST_ID, LONGEST_SENTENCE = 500, 400
LARGEST_TOML = 1 << 18
"""Python's parser reads about 0.7 MB a second."""
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){40}""")
"""Python's parser needs 30 s for `a.a.a` with 32,000 parts."""
_DIGITS = re.compile(r"[0-9_]{4301,}")
"""More digits than Python converts."""
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80


class TaskError(UserError):
    """An unusable task: one sentence with file and key."""

    def __init__(self, file: Path, key: str, problem: str) -> None:
        key, problem = one_line(key), one_line(problem)
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file, self.key, self.problem = file, key, problem


def one_line(text: str) -> str:
    """Text from a user's file, escaped and shortened; the end stays, because it has the line number."""
    if len(text) > LONGEST_SENTENCE:
        text = f"{text[: LONGEST_SENTENCE // 2]} ... {text[-LONGEST_SENTENCE // 4 :]}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: Any) -> str:
    """A value from a user's file as Python writes it, shortened."""
    return _repr.repr(value)


def load(folder: Path) -> Task:
    folder = folder.resolve()
    path = folder / "task.toml"
    data = read_toml(path, "no such file; `kernbench new NAME` creates a task to start from")
    _known_keys(path, "", data, TASK_KEYS)
    entry = _text(path, "entry", data.get("entry"))
    if not entry.isidentifier():
        raise TaskError(path, "entry", f"{shown(entry)} is not a function name")
    baseline = _baseline(path, data)
    _bytes(folder / SOLUTION, "no such file; create it and define the entry named in task.toml")
    _defines(folder / "reference.py", "entry", entry, "make_inputs")
    if baseline not in NAMED_BASELINES:
        _defines(folder / baseline, "entry", entry)
    cases = _cases(path, data)
    task = Task(
        name=_text(path, "name", data.get("name", folder.name)),
        entry=entry,
        folder=str(folder),
        summary=_text(path, "summary", data.get("summary", "")),
        baseline=baseline,
        device=cast(Any, _choice(path, "device", data.get("device", "cuda"), ("cuda", "cpu"))),
        threads=_count(path, "threads", data.get("threads", 1), MOST_THREADS),
        mutates=_texts(path, "mutates", data.get("mutates", [])),
        rowwise=_texts(path, "rowwise", data.get("rowwise", [])),
        layout=cast(Any, _choice(path, "layout", data.get("layout", "reference"), ("reference", "any"))),
        tolerance=_tolerances(path, data.get("tolerance", {})),
        cases=cases,
        hash="",
        old_hash=old_task_hash(folder, baseline),
        files=tuple(task_files(folder, baseline)),
        ignore=_ignore(path, data, baseline),
        libraries=_flag(path, "libraries", data.get("libraries", False)),
    )
    return replace(task, hash=task_hash(task))


def read_toml(path: Path, missing: str = "no such file") -> dict[str, Any]:
    """A whole TOML file; everything in it is text, numbers below 2^64, dates, and lists and tables of these."""
    text = _read(path, missing, LARGEST_TOML)
    if found := _LONG_KEY.search(text):
        raise TaskError(path, _line(text, found), f"nested too deeply; use at most {DEEPEST} levels")
    return cast(dict[str, Any], _parsed(path, text, tomllib.loads, "TOML"))


def _line(text: str, found: re.Match[str] | None) -> str:
    return f"line {text.count(chr(10), 0, found.start()) + 1}" if found else ""


def _parsed(path: Path, text: str, parse: Callable[[str], Any], language: str) -> Any:
    try:
        data = parse(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as problem:
        raise TaskError(path, "", f"not valid {language}: {problem}") from None
    except RecursionError:
        raise TaskError(path, "", f"nested too deeply; use at most {DEEPEST} levels") from None
    except ValueError:  # the limit on digits is the only other reason
        place = _line(text, _DIGITS.search(text))
        raise TaskError(path, place, "a number has too many digits; use one below 2^64") from None
    _check_values(path, "", data)
    return data


def _read(path: Path, missing: str, limit: int = LARGEST_FILE) -> str:
    try:
        return _bytes(path, missing, limit).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise TaskError(path, "", f"not UTF-8 (byte {problem.start}): {problem.reason}") from None


def _bytes(path: Path, missing: str, limit: int = LARGEST_FILE) -> bytes:
    try:
        return read_bytes(path, limit)
    except NotRegular as problem:
        raise TaskError(path, "", str(problem).removeprefix(f"{path} ").removeprefix("is ")) from None
    except FileNotFoundError:
        raise TaskError(path, "", missing) from None
    except OSError as problem:
        raise TaskError(path, "", f"cannot be read: {problem.strerror}") from None


def _check_values(path: Path, key: str, value: Any, depth: int = 0) -> None:
    """Refuses what cannot be written again, as JSON or on a screen, wherever in the file it is."""
    if depth > DEEPEST:
        raise TaskError(path, key, f"nested too deeply; use at most {DEEPEST} levels")
    if isinstance(value, dict):
        for name, item in value.items():
            place = f"{key}.{name}" if key else name
            _check_values(path, place, name, depth)
            _check_values(path, place, item, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_values(path, f"{key}[{index}]", item, depth + 1)
    elif isinstance(value, int) and value.bit_length() > 64:
        raise TaskError(path, key, "an integer of more than 64 bits; use a smaller one")
    elif isinstance(value, str) and not _is_text(value):
        raise TaskError(path, key, f"{shown(value)} contains a lone surrogate, which is not text")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cases(path: Path, data: dict[str, Any]) -> tuple[Case, ...]:
    cases = [
        _case(path, f"{kind}[{index}]", entry, kind)
        for kind in KINDS
        for index, entry in enumerate(_tables(path, kind, data.get(kind, [])))
    ]
    listed = path.with_name("cases.json")
    if os.path.lexists(listed):
        text = _read(listed, "a link to a file that does not exist")
        tables = _tables(listed, "", _parsed(listed, text, json.loads, "JSON"))
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
    _known_keys(path, key, data, CASE_KEYS)
    case_id = _text(path, f"{key}.id", data.get("id"))
    axes = data.get("axes", {})
    if not isinstance(axes, dict):
        raise TaskError(path, f"{key}.axes", 'must be a table, such as { rows = 128, dtype = "float32" }')
    _known_dtypes(path, f"{key}.axes", axes)
    _plain_data(path, key, data)
    kind = _choice(path, f"{key}.kind", data.get("kind", kind), KINDS)
    known = data.get("known")
    if known is not None and not isinstance(known, dict):
        raise TaskError(path, f"{key}.known", 'must be a table, such as { published_us = 518.6, source = "H200" }')
    headline = data.get("headline", False)
    if not isinstance(headline, bool) or (headline and kind != "case"):
        raise TaskError(path, f"{key}.headline", "must be true or false, and only a timed case can be a headline")
    return Case(
        id=case_id,
        label=_text(path, f"{key}.label", data.get("label", case_id)),
        kind=cast(CaseKind, kind),
        headline=headline,
        models=_texts(path, f"{key}.models", data.get("models", [])),
        known=known,
        axes=axes,
    )


def _grid(path: Path, grid: Any) -> list[Case]:
    if not isinstance(grid, dict):
        raise TaskError(path, "grid", "must be a table of lists, such as tokens = [6, 33]")
    if not grid:
        return []
    _plain_data(path, "grid", grid)
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
    return [Case(id=f"grid:{_text(path, 'grid', name)}", label=name, kind="check", axes=point) for name, point in ids]


def _plain_data(path: Path, key: str, data: Any) -> None:
    """Cases are sent as JSON, so report what JSON cannot represent (a TOML date, a NaN)."""
    for name, value in data.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            problem = "contains a date or another value that JSON cannot represent; use text, numbers, lists and tables"
            raise TaskError(path, f"{key}.{name}", problem) from None


def _known_dtypes(path: Path, key: str, axes: dict[str, Any]) -> None:
    for name, value in axes.items():
        if name == "dtype" or name.endswith("_dtype"):
            for dtype in value if isinstance(value, list) else [value]:
                if not isinstance(dtype, str) or dtype not in DTYPES:
                    problem = f"{shown(dtype)} is not a torch dtype; use one such as float32 or bfloat16"
                    raise TaskError(path, f"{key}.{name}", problem)


def _baseline(path: Path, data: dict[str, Any]) -> str:
    default = "baseline.py" if path.with_name("baseline.py").exists() else "eager"
    baseline = _text(path, "baseline", data.get("baseline", default))
    if baseline not in NAMED_BASELINES and (Path(baseline).name != baseline or not is_file(path.parent / baseline)):
        raise TaskError(path, "baseline", f"{shown(baseline)} is not eager, compile, or a file next to task.toml")
    return baseline


def _ignore(path: Path, data: dict[str, Any], baseline: str) -> tuple[str, ...]:
    patterns = tuple(pattern.rstrip("/") for pattern in _texts(path, "ignore", data.get("ignore", [])))
    own = () if baseline in NAMED_BASELINES else (baseline,)
    for pattern in patterns:
        for name in (*PARSED, SOLUTION, "reference.py", *own):
            if fnmatchcase(name, pattern):
                raise TaskError(path, "ignore", f"{shown(pattern)} matches {name}, which every run needs")
    return patterns


def _defines(path: Path, key: str, *names: str) -> None:
    """Looks for top-level names without running the file; a star import is assumed to define anything."""
    text = _read(path, "no such file; every task needs one")
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
            raise TaskError(path, key if name != "make_inputs" else name, f"the file does not define {shown(name)}")


def _tolerances(path: Path, data: Any) -> dict[str, Tolerance]:
    if not isinstance(data, dict):
        raise TaskError(
            path, "tolerance", "must be a table keyed by output dtype, such as float32 = { atol = 1e-5, rtol = 1e-5 }"
        )
    tolerances = dict(DEFAULT_TOLERANCE)
    for dtype, bounds in data.items():
        key = f"tolerance.{dtype}"
        if dtype not in DTYPES:
            raise TaskError(path, key, f"{shown(dtype)} is not a torch dtype; use one such as float32 or bfloat16")
        if not isinstance(bounds, dict):
            raise TaskError(path, key, "must be a table, such as { atol = 1e-5, rtol = 1e-5 }")
        _known_keys(path, key, bounds, frozenset({"atol", "rtol"}))
        numbers = [bounds.get("atol", 0.0), bounds.get("rtol", 0.0)]
        if any(
            isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < float("inf")
            for number in numbers
        ):
            raise TaskError(path, key, "atol and rtol must be non-negative numbers")
        tolerances[dtype] = Tolerance(float(numbers[0]), float(numbers[1]))
    return tolerances


def _known_keys(path: Path, key: str, data: dict[str, Any], known: frozenset[str]) -> None:
    for name in data:
        if name not in known:
            place = f"{key}.{name}" if key else name
            raise TaskError(path, place, f"unknown key; the known keys are {', '.join(sorted(known))}")


def _tables(path: Path, key: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        wanted = f"must be written as [[{key}]] tables" if key else "must be a list of objects"
        raise TaskError(path, key, wanted)
    return value


def _text(path: Path, key: str, value: Any) -> str:
    if value is None:
        raise TaskError(path, key, "missing")
    is_line = isinstance(value, str) and _is_text(value) and value.splitlines() in ([], [value])
    if not is_line or (not value and not key.endswith("summary")):
        raise TaskError(path, key, f"must be a single-line string, not {shown(value)}")
    assert isinstance(value, str)
    return value


def _texts(path: Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TaskError(path, key, "must be a list of strings")
    return tuple(_text(path, key, item) for item in value)


def _choice(path: Path, key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise TaskError(path, key, f"{shown(value)} is not one of {', '.join(allowed)}")
    return str(value)


def _flag(path: Path, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TaskError(path, key, f"must be true or false, not {shown(value)}")
    return value


def _count(path: Path, key: str, value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise TaskError(path, key, f"must be an integer from 1 to {most}, not {shown(value)}")
    return value
