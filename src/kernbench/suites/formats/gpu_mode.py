"""GPU MODE's reference-kernels: a folder with task.yml, whose reference.py has `ref_kernel` and `generate_input`.

A solution is a submission.py with `custom_kernel(data)`. The files that task.yml lists are linked under the names that
it gives them, so that a submission finds `task` and `utils`; only their reference.py becomes problem.py.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness.shared.used_files import is_file, text_of
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem, read_source
from kernbench.suites.formats.gpu_mode_source import Source
from kernbench.suites.formats.task_text import task_text

NAME, EXPORT = "gpu-mode", "submission"
FILES = FOLDER = "task.yml"
SUBMISSION = "@SUBMISSION@"
"""What task.yml names as the source of the file that is handed in."""
THEIRS, OURS = "reference.py", "problem.py"
LARGE = 1024
"""Sizes above this are divided, and not below it: what has to be a multiple of 64 or 128 usually stays one."""
LONGEST_ID = 60
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
REFERENCE = '''"""GPU MODE {title}: problem.py has the reference and its inputs, solution.py has custom_kernel."""

import problem

from harness.foreign.gpu_mode import Problem

_problem = Problem(problem)
make_inputs, setup = _problem.make_inputs, _problem.setup
custom_kernel = problem.ref_kernel
'''
CHECK = "check = _problem.check\n"


def detect(path: Path) -> Problem | None:
    path = path.resolve()
    data = _read(path)
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, list) or not all(
        isinstance(item, dict) and {"name", "source"} <= {*item} for item in files
    ):
        return None
    listed = {str(item["name"]): str(item["source"]) for item in files}
    if SUBMISSION not in listed.values():
        return None
    main = str((data.get("config") or {}).get("main", ""))
    places = {name: (path.parent / where).resolve() for name, where in listed.items() if where != SUBMISSION}
    places = {name: place for name, place in places.items() if name != main}
    source = Source(text_of(places[THEIRS]) if THEIRS in places else "")
    folder = path.parent
    title = f"{folder.parent.name}/{folder.name}"
    links = {OURS if name == THEIRS else name: place for name, place in places.items()}
    contents = partial(_contents, title, data, source, links)
    return Problem(NAME, path, title.replace("/", "_"), title, contents, "", _refusal(data, source, links))


def _read(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(text_of(path))
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _refusal(data: dict[str, Any], source: Source, links: dict[str, Path]) -> str:
    """Why the problem is not supported; empty if it can."""
    if data.get("multi_gpu"):
        sizes = [args["world_size"] for _kind, args in _arguments(data) if isinstance(args.get("world_size"), int)]
        return f"needs {max(sizes)} GPUs" if sizes else "needs several GPUs"
    missing = next((place for place in links.values() if not is_file(place)), None)
    if missing is not None:
        return f"its file {missing} is missing"
    if not source.is_complete:
        return "its reference.py does not define ref_kernel and generate_input"
    packages = {name for place in links.values() for name in Source(text_of(place)).packages}
    known = {*sys.stdlib_module_names, "torch", "triton", "numpy", "reference", *(Path(name).stem for name in links)}
    absent = sorted(name for name in packages - known if importlib.util.find_spec(name) is None)
    if absent:
        return f"needs the package{'s' if len(absent) > 1 else ''} {', '.join(absent)}"
    return "" if any(_arguments(data)) else "its task.yml has neither tests nor benchmarks"


def _contents(title: str, data: dict[str, Any], source: Source, links: dict[str, Path], form: Form) -> Contents:
    text = read_source(form.solution) if form.solution else source.first_solution()
    filled, mutated = source.written()
    tolerance = source.tolerance()
    judge = "reference" if tolerance else "check"
    bounds = {dtype: dict(zip(("rtol", "atol"), tolerance, strict=True)) for dtype in DTYPES} if tolerance else {}
    task = task_text(
        title.replace("/", "_"), f"GPU MODE {title}", "custom_kernel", form, {"format": NAME}, bounds,
        judge=judge, dtype="any", outputs=filled, mutates=mutated, returned=bool(filled or mutated),
    )  # fmt: skip
    reference = REFERENCE.format(title=title) + (CHECK if judge == "check" else "")
    cases = ",\n".join(map(json.dumps, _cases(data, form.scale)))
    return Contents(task, reference, {"solution.py": text}, links, {"cases.json": f"[\n{cases}\n]\n"})


def _cases(data: dict[str, Any], scale: int) -> Iterator[dict[str, Any]]:
    """Benchmarks are timed, tests are not. Cases that differ in their seed alone are one: every run draws its own."""
    seen: dict[str, str] = {}
    for number, (kind, args) in enumerate(_arguments(data)):
        axes = {name: _scaled(value, scale) for name, value in args.items() if name != "seed"}
        key = json.dumps(axes, sort_keys=True)
        if key in seen:
            continue
        name = "_".join(_word(name, value) for name, value in axes.items()) or "as_given"
        seen[key] = f"{kind}_{number}" if len(name) > LONGEST_ID or name in seen.values() else name
        yield {"id": seen[key], "kind": kind, "axes": axes}


def _arguments(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What generate_input is called with, by the kind of the case."""
    for key, kind in (("benchmarks", "case"), ("tests", "smoke")):
        for item in data.get(key) or ():
            if isinstance(item, dict):
                yield kind, {str(name): value for name, value in item.items()}


def _scaled(value: Any, scale: int) -> Any:
    if isinstance(value, list):
        return [_scaled(item, scale) for item in value]
    return max(LARGE, value // scale) if type(value) is int and value > LARGE else value


def _word(name: str, value: Any) -> str:
    """`m64`, `m64x128` for a list, and a string alone."""
    if isinstance(value, str):
        return value
    return name + ("x".join(map(str, value)) if isinstance(value, list) else str(value))


def exported(files: dict[str, bytes], origin: dict[str, str]) -> bytes:
    """The solution in the suite's own form."""
    return files["solution.py"]
