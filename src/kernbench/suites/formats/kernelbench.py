"""KernelBench: `Model`, `get_inputs` and `get_init_inputs` in one file; a solution is a class `ModelNew`.

MultiKernelBench, AKO4ALL and KernelBench-v3 have the same form.
"""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

from harness.shared.used_files import syntax_tree, text_of
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem, read_source
from kernbench.suites.formats.renaming import renamed
from kernbench.suites.formats.task_text import task_text

NAME, FILES, FOLDER, EXPORT = "kernelbench", "*.py", "", "kernelbench"
DEFINED = {"Model", "get_inputs", "get_init_inputs"}
RANDOM = {"dropout", "dropout1d", "dropout2d", "dropout3d", "rand", "randn", "randint", "bernoulli", "rand_like"}
"""Names that draw random numbers if a model uses them; compared in lower case."""
OLD, NEW = "Model", "ModelNew"
HALF = {"atol": 1e-2, "rtol": 1e-2}
TOLERANCE = {"float32": {"atol": 1e-4, "rtol": 1e-4}, "float16": HALF, "bfloat16": HALF}
CASE = """
[[case]]
id = "{case}"
axes = {axes}
"""
REFERENCE = '''"""KernelBench {title}: problem.py has the model and its inputs, solution.py a class ModelNew."""

import problem

from harness.foreign.kernelbench import Problem

_problem = Problem(problem)
make_inputs, setup = _problem.make_inputs, _problem.setup


def ModelNew(model, **inputs):
    return model(*inputs.values())
'''


def detect(path: Path) -> Problem | None:
    try:
        tree = syntax_tree(text_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    if not defined >= DEFINED:
        return None
    random = any(draws(node) for node in tree.body if isinstance(node, ast.ClassDef))
    path = path.resolve()
    title = f"{path.parent.name}/{path.name}"
    about = "draws random numbers" if random else ""
    return Problem(NAME, path, path.stem, title, partial(_contents, path, title, random), about)


def draws(node: ast.AST) -> bool:
    """Whether it seems to draw random numbers."""
    names = (item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in ast.walk(node))
    return any(str(name).lower() in RANDOM for name in names)


def _contents(path: Path, title: str, random: bool, form: Form) -> Contents:
    own = form.solution
    text = read_source(own) if own else first_solution(read_source(path))
    case, axes = ("as_given", "{}") if form.scale == 1 else (f"scaled_{form.scale}", f"{{ scale = {form.scale} }}")
    origin = {"format": NAME}
    task = task_text(path.stem, f"KernelBench {title}", NEW, form, origin, TOLERANCE, seeded=random)
    task += CASE.format(case=case, axes=axes)
    return Contents(task, REFERENCE.format(title=title), {"solution.py": text}, {"problem.py": path})


def first_solution(text: str) -> str:
    """The problem itself with its class renamed, which is right and as fast as the reference."""
    return renamed(text, OLD, NEW)


def exported(files: dict[str, bytes], origin: dict[str, str]) -> bytes:
    """The solution in the suite's own form."""
    return files["solution.py"]
