"""Writes a task from the calls of a site: frozen cases, the original as reference, baseline and first solution.

A case is a form of call. Its weight is the time that it took in the program, so that the weighted geomean is the one by
time in the model; forms below a hundredth of that are checked and not timed. `capture.json` is the evidence, and what
the inputs are drawn from.
"""

from __future__ import annotations

import json
import keyword
import platform
import shlex
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.capture.command_run import Recorded, SiteRecord
from kernbench.machine.git import Git
from kernbench.task.lookup import TASK_FILE, ProjectError, repository_root

EVIDENCE = "capture.json"
INPUTS = frozenset("plain float dtype device list tuple dict tensor".split())
TAKEN = frozenset({"captured", "make_inputs", "setup", "Captured"})
"""Names in reference.py that an entry would hide."""
TIMED_SHARE = 0.01
LARGEST = 900_000
"""Bytes of capture.json: a larger file would not be part of the source."""
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}
REFERENCE = '''"""{site}: the original is what is right, and what to beat. Inputs are drawn like the captured ones."""

from harness.capture.captured import Captured

captured = Captured("capture.json", globals())
make_inputs = captured.make_inputs
{setup}

def {entry}({parameters}):
    return captured.original({arguments})
'''
SOLUTION = '''"""{site}, to be made faster. It starts as the original, from {file}."""

from harness.capture.captured import Captured

captured = Captured("capture.json", globals())


def {entry}({parameters}):
    return captured.original({arguments})
'''
TASK = """name = {name}
entry = {name}
summary = {summary}
baseline = "eager"                # the original
device = {device}
judge = "reference"               # right is what the original returns
"""


class Refused(UserError):
    """No task can be made of a site; one sentence."""


def refuse_name(folder: Path) -> None:
    name = folder.name
    if not name.isidentifier() or keyword.iskeyword(name) or name in TAKEN:
        why = "the files use it" if name in TAKEN else "use letters, digits and underscores"
        raise ProjectError(f"{name!r} is not a valid task name: {why}; my_kernel would work")
    if folder.exists():
        raise ProjectError(f"{folder} already exists; choose another name")


def write(folder: Path, recorded: Recorded, found: SiteRecord) -> None:
    """Creates the folder; an existing one is never touched."""
    refuse_name(folder)
    name = folder.name
    forms = {f"f{index}": form for index, form in enumerate(_usable(found))}
    evidence = _evidence(recorded, found, forms)
    words = _words(found, name, list(forms.values()))
    texts = {
        EVIDENCE: _lines(evidence),
        "cases.json": _cases(forms),
        "reference.py": REFERENCE.format(**words),
        "solution.py": SOLUTION.format(**words),
        TASK_FILE: _task(recorded, found, name, list(forms.values())),
    }
    folder.mkdir(parents=True)
    try:
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _usable(found: SiteRecord) -> list[dict[str, Any]]:
    """The forms that can be made again and judged, as many as the file can hold."""
    kept: list[dict[str, Any]] = []
    size, why = 0, ""
    for form in found.forms:
        if reason := _unusable(form):
            why = why or reason
            continue
        size += len(json.dumps(form))
        if kept and size > LARGEST:
            break
        kept.append(form)
    if not kept:
        raise Refused(f"{found.site}: {why}")
    return kept


def _unusable(form: dict[str, Any]) -> str:
    for item in form["arguments"]:
        for value in _leaves(item["value"]):
            if value["kind"] == "unknown":
                return f"its argument {item['name']!r} has a {value['type']}, which cannot be made again"
    if not any(value["kind"] == "tensor" for item in form["arguments"] for value in _leaves(item["value"])):
        return "no tensor is among its arguments"
    result = list(_leaves(form["result"]))
    if odd := [value for value in result if value["kind"] not in ("tensor", "plain", "float")]:
        return f"it returns a {odd[0].get('type') or odd[0].get('class') or odd[0]['kind']}, not tensors"
    if any(isinstance(value.get("value"), str) and value["kind"] == "plain" for value in result):
        return "it returns text, not tensors"
    if not any(value["kind"] == "tensor" or value["value"] is not None for value in result) and not form["mutates"]:
        return "it returns nothing and writes to none of its arguments"
    return ""


def _leaves(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts = value.get("items", value.get("attributes"))
    if parts is None:
        yield value
        return
    if value["kind"] == "object":
        yield value
    for part in parts.values() if isinstance(parts, dict) else parts:
        yield from _leaves(part)


def _evidence(recorded: Recorded, found: SiteRecord, forms: dict[str, dict[str, Any]]) -> dict[str, Any]:
    folder = import_folder(found)
    root = repository_root(Path(found.file).parent)
    status = Git(root).status("--untracked-files=no") if root else None
    return {
        "site": found.site,
        "command": shlex.join(recorded.command),
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "file": found.file,
        "folder": folder,
        "commit": Git(root).ask("rev-parse", "HEAD") if root else None,
        "clean": None if status is None else not status,
        "machine": platform.platform(),
        "python": recorded.pythons,
        "torch": recorded.torch,
        "processes": len(recorded.processes),
        "calls": found.calls,
        "left_out": found.left_out,
        "in_graphs": found.in_graphs,
        "forms": forms,
    }


def _lines(evidence: dict[str, Any]) -> str:
    """JSON with a line per key, and per form."""
    forms = ",\n".join(f"  {json.dumps(name)}: {json.dumps(form)}" for name, form in evidence["forms"].items())
    others = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in evidence.items() if key != "forms"]
    return "{\n" + "".join(others) + ' "forms": {\n' + forms + "\n }\n}\n"


def import_folder(found: SiteRecord) -> str:
    """The folder that has to be on sys.path to import the site's module; empty for an installed package."""
    path = Path(found.file)
    depth = found.site.partition(":")[0].count(".") + (path.name == "__init__.py")
    folder = path.parents[depth]
    return "" if {"site-packages", "dist-packages"} & set(folder.parts) else str(folder)


def _words(found: SiteRecord, name: str, forms: list[dict[str, Any]]) -> dict[str, str]:
    """The signature that all forms have in common; arguments that only some have are passed on by name."""
    everywhere = [
        item
        for item in forms[0]["arguments"]
        if all(item["name"] in {other["name"] for other in form["arguments"]} for form in forms)
    ]
    odd = [item["name"] for form in forms for item in form["arguments"] if not item["name"].isidentifier()]
    if odd:
        raise Refused(f"{found.site}: its argument {odd[0]!r} has no name that Python can write")
    some = any(len(form["arguments"]) > len(everywhere) for form in forms)
    named = [item["name"] for item in everywhere]
    passed = [name if item["by_position"] else f"{name}={name}" for item, name in zip(everywhere, named, strict=True)]
    has_objects = any(not _is_input(item["value"]) for form in forms for item in form["arguments"])
    return {
        "site": found.site,
        "entry": name,
        "file": Path(found.file).name,
        "setup": "setup = captured.setup  # the objects among its arguments\n" if has_objects else "",
        "parameters": ", ".join([*named, *(["**more"] if some else [])]),
        "arguments": ", ".join([*passed, *(["**more"] if some else [])]),
    }


def _is_input(value: dict[str, Any]) -> bool:
    parts = value.get("items", ())
    return value["kind"] in INPUTS and all(map(_is_input, parts.values() if isinstance(parts, dict) else parts))


def _task(recorded: Recorded, found: SiteRecord, name: str, forms: list[dict[str, Any]]) -> str:
    summary = f"{found.site}, captured from {shlex.join(recorded.command)}"
    text = TASK.format(
        name=json.dumps(name),
        summary=json.dumps(summary if len(summary) <= 200 else f"{found.site}, captured"),
        device=json.dumps("cuda" if any(value["device"] == "cuda" for value in _tensors(forms)) else "cpu"),
    )
    mutates = [path for path in forms[0]["mutates"] if all(path in form["mutates"] for form in forms)]
    inputs = {item["name"] for item in forms[0]["arguments"] if _is_input(item["value"])}
    if kept := [path for path in mutates if path.partition(".")[0] in inputs]:
        text += f"mutates = {json.dumps(kept)}\n"
    if any(form["is_random"] for form in forms):
        text += "seeded = true                     # it draws random numbers\n"
    return text


def _tensors(forms: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for form in forms:
        for item in sorted(form["arguments"], key=lambda item: not _is_input(item["value"])):
            yield from (value for value in _leaves(item["value"]) if value["kind"] == "tensor")


def _cases(forms: dict[str, dict[str, Any]]) -> str:
    total = sum(form["ms"] for form in forms.values())
    cases, seen = [], dict[str, int]()
    for place, form in forms.items():
        is_timed = form["ms"] >= TIMED_SHARE * total
        first = next(_tensors([form]))  # those passed as they are come before weights of a module
        label = shape_text(first)
        seen[label] = seen.get(label, 0) + 1
        name = label if seen[label] == 1 else f"{label}_{seen[label]}"
        case: dict[str, Any] = {
            "id": name,
            "kind": "case" if is_timed else "check",
            "known": {"calls": form["calls"], "us_per_call": _digits(1e3 * form["ms"] / form["calls"])},
            "axes": {
                "form": place,
                **({"dtype": first["dtype"]} if first["dtype"] in SHORT else {}),
                "shapes": shapes(form),
            },
        }
        if is_timed:
            case["weight"] = max(1e-9, _digits(form["ms"]))
        cases.append(case)
    return "[\n" + ",\n".join(f"  {json.dumps(case)}" for case in cases) + "\n]\n"


def shapes(form: dict[str, Any]) -> dict[str, list[int]]:
    """Of the tensors among the arguments."""
    return {item["name"]: item["value"]["shape"] for item in form["arguments"] if item["value"]["kind"] == "tensor"}


def shape_text(tensor: dict[str, Any]) -> str:
    """`1x36x256_fp32`."""
    size = "x".join(map(str, tensor["shape"])) or "scalar"
    return f"{size}_{SHORT.get(tensor['dtype'], tensor['dtype'])}"


def _digits(value: float) -> float:
    return float(fmt.plain(value))
