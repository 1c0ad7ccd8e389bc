"""SOL-ExecBench and flashinfer-bench: a definition in JSON, its workloads in JSON lines; a solution is JSON too.

The definition's `reference` is Python that defines `run`. A workload gives the axes that vary their sizes, and says
where the inputs come from; each becomes a case.
"""

from __future__ import annotations

import ast
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from harness.shared.used_files import syntax_tree, text_of
from kernbench.suites.formats import solution_json
from kernbench.suites.formats.foreign_problem import Contents, Form, Problem
from kernbench.suites.formats.kernelbench import RANDOM
from kernbench.suites.formats.task_text import task_text
from kernbench.suites.formats.workloads import Unfit, Workload, cases, read

NAME, EXPORT = "definitions", "solution-json"
FILES, FOLDER = "*.json", "definition.json"
PARTS = {"name": str, "reference": str, "axes": dict, "inputs": dict, "outputs": dict}
exported = solution_json.exported
REFERENCE = '''"""{title}: definition.json has the reference and its inputs, cases.json the workloads."""

from harness.foreign.definitions import Definition

_definition = Definition("definition.json", globals())
make_inputs, setup, {entry} = _definition.make_inputs, _definition.setup, _definition.run
'''


def detect(path: Path) -> Problem | None:
    text = text_of(path)
    if '"reference"' not in text:  # as in most JSON files, which need not be parsed then
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or any(not isinstance(data.get(part), kind) for part, kind in PARTS.items()):
        return None
    path = path.resolve()
    workloads, refused = list[Workload](), ""
    try:
        _check(data)
        workloads = read(path, data)
    except Unfit as problem:
        refused = str(problem)
    title, about = f"{path.parent.name}/{path.name}", f"{len(workloads)} workloads" if workloads else ""
    make = partial(_contents, path, title, data, workloads)
    return Problem(NAME, path, re.sub(r"[^\w.-]", "_", data["name"]), title, make, about, refused)


def _check(data: dict[str, Any]) -> None:
    """Raises Unfit if the problem is not supported: if it is judged by something other than its values."""
    try:
        tree = syntax_tree(data["reference"])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unfit("its reference is not valid Python") from None
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        raise Unfit("its reference does not define run")
    if data.get("op_type") == "sampling":
        raise Unfit("samples are judged by their distribution, which kernbench cannot do")
    if data["name"].startswith("dsa_topk_indexer"):
        raise Unfit("its indices are judged as sets with ties, which kernbench cannot do")


def _contents(path: Path, title: str, data: dict[str, Any], workloads: list[Workload], form: Form) -> Contents:
    entry, solution, original = "run", {"solution.py": data["reference"]}, dict[str, str]()
    if form.solution is not None:
        entry, solution, original = solution_json.unpacked(form.solution)
    constants = _constants(data, workloads) if form.solution is None else {}
    origin = {"format": NAME, "definition": data["name"], "inputs": str(len(data["inputs"]))}
    summary = _first_line(data.get("description")) or title
    task = task_text(data["name"], summary, entry, form, origin, workloads[0].tolerance, seeded=_draws(data))
    listed = json.dumps(cases(workloads, constants, form.scale), indent=1) + "\n"
    reference = REFERENCE.format(title=title, entry=entry)
    return Contents(task, reference, solution, {"definition.json": path}, {"cases.json": listed, **original})


def _draws(data: dict[str, Any]) -> bool:
    """Whether the reference draws random numbers, other than for its inputs."""
    tree, own = syntax_tree(data["reference"]), data.get("custom_inputs_entrypoint")
    nodes = (node for top in tree.body if getattr(top, "name", None) != own for node in ast.walk(top))
    names = (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes)
    return any(str(name).lower() in RANDOM for name in names)


def _constants(data: dict[str, Any], workloads: list[Workload]) -> dict[str, int]:
    """Axes that never vary and whose size nothing else names, neither the reference nor a number among the inputs.
    Only the problem itself works with another size: a solution relies on them."""
    named = {node.value for node in ast.walk(syntax_tree(data["reference"])) if isinstance(node, ast.Constant)}
    named |= {about.get("value") for item in workloads for about in item.inputs.values()}
    values = {name: axis["value"] for name, axis in data["axes"].items() if axis["type"] == "const"}
    return {name: value for name, value in values.items() if value not in named}


def _first_line(text: Any) -> str:
    return text.strip().partition("\n")[0][:200] if isinstance(text, str) else ""
