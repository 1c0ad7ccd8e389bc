"""robust-kbench: `forward_fn`, a `Model` that calls it with its weights, and `get_inputs` in func_forward.py.

config_forward.json next to it has settings of both. A solution is a function in place of `forward_fn`: in Python, or
`forward` in a .cu file that torch's extension loader compiles.
"""

from __future__ import annotations

import ast
import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from harness.shared.used_files import syntax_tree, text_of
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem, read_source
from kernbench.suites.formats.kernelbench import draws
from kernbench.suites.formats.task_text import task_text

NAME, EXPORT = "robust-kbench", "robust-kbench"
FILES = FOLDER = "func_forward.py"
DEFINED = {"Model", "forward_fn", "get_inputs"}
CONFIG = "config_forward.json"
Settings = dict[str, dict[str, Any]]
"""Arguments of `Model`, as `init`, and of `get_inputs`, as `inputs`."""
TOLERANCE = {dtype: {"atol": 1e-5, "rtol": 1e-5} for dtype in ("float32", "float16", "bfloat16")}
REFERENCE = '''"""robust-kbench {title}: problem.py has forward_fn, a model with its weights, and their inputs."""

import problem

from harness.foreign.robust_kbench import Problem

_problem = Problem(problem)
make_inputs, setup, forward_fn = _problem.make_inputs, _problem.setup, problem.forward_fn
'''
EXTENSION = '''"""Compiles forward.cu, with robust-kbench's options."""

from pathlib import Path

from torch.utils.cpp_extension import load

FLAGS = ["-O3", "--use_fast_math"]
forward_fn = load("forward_cu", [str(Path(__file__).with_name("forward.cu"))], extra_cuda_cflags=FLAGS).forward
'''


def detect(path: Path) -> Problem | None:
    try:
        tree = syntax_tree(text_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    if not set(defined) >= DEFINED:
        return None
    path = path.resolve()
    name = "_".join(_below_tasks(path.parent.parts))
    cases: list[Settings] = []
    refused = ""
    try:
        cases = _cases(json.loads(text_of(path.with_name(CONFIG))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        refused = f"needs {CONFIG} next to it, with lists of settings such as single_input_configs"
    title = f"{path.parent.name}/{path.name}"
    about = "1 case" if len(cases) == 1 else f"{len(cases)} cases"
    contents = partial(_contents, path, name, title, draws(defined["forward_fn"]), cases)
    return Problem(NAME, path, name, title, contents, about, refused)


def _below_tasks(parts: tuple[str, ...]) -> tuple[str, ...]:
    """What tells a problem from the others: kernelbench/level_1/task_3 has a namesake in level_2."""
    last = max((at for at, part in enumerate(parts[:-1]) if part == "tasks"), default=len(parts) - 2)
    return parts[last + 1 :]


def _cases(config: dict[str, Any]) -> list[Settings]:
    """The product of the settings, each combination once: single_* first, which a plain run of the suite takes."""
    found: list[Settings] = []
    for which in ("single", "multi"):
        lists = (config[f"{which}_{kind}_configs"] for kind in ("init", "input", "shared"))
        for init, inputs, shared in product(*lists):
            settings: Settings = {"init": {**init, **shared}, "inputs": {**inputs, **shared}}
            if settings not in found:
                found.append(settings)
    given = [settings for settings in found if any(settings.values())]
    return given or found[:1]


def _contents(path: Path, name: str, title: str, is_random: bool, cases: list[Settings], form: Form) -> Contents:
    own = form.solution
    text = read_source(own or path)
    solution = {"solution.py": text}
    if own is not None and own.suffix == ".cu":
        solution = {"solution.py": EXTENSION, "forward.cu": text}
    origin = {"format": NAME}
    task = task_text(name, f"robust-kbench {title}", "forward_fn", form, origin, TOLERANCE, seeded=is_random)
    scale = {} if form.scale == 1 else {"scale": form.scale}
    listed = [{"id": label, "axes": {**case, **scale}} for label, case in zip(_ids(cases), cases, strict=True)]
    data = {"cases.json": json.dumps(listed, indent=2) + "\n"}
    return Contents(task, REFERENCE.format(title=title), solution, {"problem.py": path}, data)


def _ids(cases: list[Settings]) -> list[str]:
    """Of the settings that are not the same in all cases."""
    flat = [{**case["inputs"], **case["init"]} for case in cases]
    names = dict.fromkeys(name for settings in flat for name in settings)
    told = [name for name in names if any(settings.get(name) != flat[0].get(name) for settings in flat)]
    return ["_".join(f"{name}_{item[name]}" for name in told if name in item) or "as_given" for item in flat]


def exported(files: dict[str, bytes], origin: dict[str, str]) -> bytes:
    """The solution in the suite's own form."""
    return files.get("forward.cu") or files["solution.py"]
