"""A Python file with a Triton kernel, its wrapper, a reference and inputs: `softmax`, `ref_softmax`, `make_inputs()`.

The reference is the one function whose name begins or ends with one of WORDS, and the wrapper the one other public
function with the same parameters. Many files look like that, so one counts only if it is named itself.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.shared.used_files import syntax_tree, text_of
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem, read_source
from kernbench.suites.formats.kernelbench import draws
from kernbench.suites.formats.task_text import task_text
from kernbench.task.lookup import ProjectError

NAME, FILES, FOLDER, EXPORT = "plain-file", "*.py", "", "plain-file"
WORDS = {"torch", "ref", "reference", "naive", "golden"}
INPUTS = ("make_inputs", "get_inputs")
JIT = {"triton.jit", "jit"}
CASES = """
[[case]]
id = "as_given"

[[smoke]]
id = "checked"
"""
"""Always a task for a GPU: without one, the second case runs in Triton's interpreter, where times mean nothing."""
REFERENCE = '''"""{title} as it was imported: problem.py has the reference and the inputs."""

import problem

from harness.foreign.plain_file import inputs_from

make_inputs = inputs_from(problem.{inputs}, problem.{reference})
{wrapper} = problem.{reference}
'''


@dataclass(frozen=True)
class Parts:
    """What was taken for what, by name; `missing` says why it is not all there."""

    wrapper: str = ""
    reference: str = ""
    inputs: str = ""
    missing: str = ""
    is_random: bool = False


def detect(path: Path) -> Problem | None:
    try:
        tree = syntax_tree(text_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    hosts = {node.name: node for node in functions if not _is_kernel(node)}
    if len(hosts) == len(functions):
        return None
    path, parts = path.resolve(), _parts(hosts)
    about = "" if parts.missing else f"wrapper {parts.wrapper}, reference {parts.reference}, inputs {parts.inputs}"
    contents = partial(_contents, path, parts)
    return Problem(NAME, path, path.stem, path.name, contents, about, parts.missing)


def _is_kernel(node: ast.FunctionDef) -> bool:
    called = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return any(ast.unparse(item) in JIT for item in called)


def _parts(hosts: dict[str, ast.FunctionDef]) -> Parts:
    references = [name for name in hosts if WORDS & {name.split("_")[0], name.split("_")[-1]}]
    if len(references) != 1:
        return Parts(missing=f"needs one reference, such as ref_softmax or softmax_torch; found {_listed(references)}")
    reference = hosts[references[0]]
    others = (name for name in hosts if not name.startswith("_") and name not in (reference.name, *INPUTS))
    wrappers = [name for name in others if _parameters(hosts[name]) == _parameters(reference)]
    if len(wrappers) != 1:
        like = f"{reference.name}({', '.join(_parameters(reference))})"
        return Parts(missing=f"needs one wrapper with the parameters of {like}; found {_listed(wrappers)}")
    inputs = [name for name in INPUTS if name in hosts and not _required(hosts[name])]
    if len(inputs) != 1:
        said = "needs make_inputs() or get_inputs(), without arguments, which returns those of the wrapper"
        return Parts(missing=f"{said}; found {_listed(inputs)}")
    return Parts(wrappers[0], reference.name, inputs[0], is_random=draws(reference))


def _parameters(node: ast.FunctionDef) -> list[str]:
    taken = node.args
    rest = [item for item in (taken.vararg, taken.kwarg) if item is not None]
    return [item.arg for item in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs, *rest)]


def _required(node: ast.FunctionDef) -> bool:
    taken = node.args
    missing = len(taken.posonlyargs) + len(taken.args) > len(taken.defaults)
    return missing or any(default is None for default in taken.kw_defaults)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _contents(path: Path, parts: Parts, form: Form) -> Contents:
    if form.scale != 1:
        raise ProjectError(f"{path.name}: kernbench cannot tell its sizes; leave --scale out and change {parts.inputs}")
    text = read_source(form.solution or path)
    names = {"title": path.name, "wrapper": parts.wrapper, "reference": parts.reference, "inputs": parts.inputs}
    form, origin = replace(form, device="cuda"), {"format": NAME}
    task = task_text(path.stem, path.name, parts.wrapper, form, origin, {}, seeded=parts.is_random) + CASES
    return Contents(task, REFERENCE.format(**names), {"solution.py": text}, {"problem.py": path})


def exported(files: dict[str, bytes], origin: dict[str, str]) -> bytes:
    """The file, with what became of its kernel and wrapper."""
    return files["solution.py"]
