"""The workloads of a definition: sizes of its axes, sources of its inputs, and tolerances; each becomes a case.

SOL-ExecBench has them in workload.jsonl next to the definition. flashinfer-bench has them below `workloads`, in folders
that mirror `definitions`, and each is part of a trace there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.shared.taskfile.tolerances import DTYPES

LEAST = 16
"""No axis is divided below this: sizes of kernels and groups stay."""
KINDS = ("random", "scalar", "safetensors", "custom", "generated")
MATCHED, MATCHED_IN_TRACE = 0.99, {"moe": 0.95}
"""Shares of the values that have to be within the tolerance: SOL-ExecBench's, and flashinfer-bench's by op_type."""
POINTER = b"version https://git-lfs"
Bounds = dict[str, float]


class Unfit(Exception):
    """The problem is not supported, for the reason that this says."""


@dataclass(frozen=True)
class Workload:
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]
    """Where inputs come from, by name; those that are not here are random."""
    tolerance: dict[str, Bounds]
    """By output dtype."""


def read(path: Path, data: dict[str, Any]) -> list[Workload]:
    """The workloads of the definition at this path; Unfit if there are none, or if they need what is not here."""
    try:
        return _read(path, data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        said = f"{type(problem).__name__}: {problem}"
        raise Unfit(f"its definition or a workload is not as expected ({said})") from None


def _read(path: Path, data: dict[str, Any]) -> list[Workload]:
    for name, about in data["outputs"].items():
        if about["dtype"] not in DTYPES:
            raise Unfit(f"output {name} is {about['dtype']}, which kernbench cannot compare")
    file = next((place for place in _places(path) if place.is_file()), None)
    lines = [] if file is None else file.read_text(encoding="utf-8").splitlines()
    found = [_workload(path, json.loads(line), data) for line in lines if line.strip()]
    varying = [name for name, axis in data["axes"].items() if axis["type"] == "var"]
    if varying and not found:
        raise Unfit(f"it has no workloads, which would give {', '.join(varying)} their sizes")
    return found or [Workload({}, {}, _tolerance({}, data, MATCHED))]


def _places(path: Path) -> Iterator[Path]:
    yield path.with_name("workload.jsonl")
    for root in path.parents:
        if root.name == "definitions":
            below = path.relative_to(root).with_suffix("")
            for folder in ("workloads", "traces/workloads"):
                yield root.parent / folder / f"{below}.jsonl"
                yield root.parent / folder / f"{below}.workload.jsonl"


def _workload(path: Path, line: dict[str, Any], data: dict[str, Any]) -> Workload:
    given, matched = line, MATCHED
    if "workload" in line:
        given, matched = line["workload"], MATCHED_IN_TRACE.get(data.get("op_type", ""), 1.0)
    inputs = {name: about for name, about in given["inputs"].items() if about["type"] != "random"}
    for name, about in inputs.items():
        if about["type"] not in KINDS:
            raise Unfit(f"input {name} is of the kind {about['type']}, which is unknown here")
        if about["type"] == "safetensors":
            inputs[name] = {**about, "path": str(_file(path, name, about["path"]))}
    return Workload(dict(given["axes"]), inputs, _tolerance(given, data, matched))


def _file(path: Path, name: str, wanted: str) -> Path:
    """A file with values; its path is relative to a folder above the definition."""
    found = next((place / wanted for place in path.parents if (place / wanted).is_file()), None)
    if found is None:
        raise Unfit(f"input {name} needs a file that is missing: {wanted}")
    with found.open("rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise Unfit(f"input {name} needs {wanted}, of which only a Git LFS pointer is here; run `git lfs pull`")
    return found


def _tolerance(given: dict[str, Any], data: dict[str, Any], matched: float) -> dict[str, Bounds]:
    """By dtype. Outputs of one dtype share the tighter tolerance."""
    checks = given.get("checks")
    if checks is None:
        checks = [
            {"required_matched_ratio": matched, **given.get("tolerance", {}), "output": name}
            for name in data["outputs"]
        ]
    found: dict[str, Bounds] = {}
    for check in checks:
        kind, mode = check.get("type", "numeric"), check.get("mode", "elementwise")
        if kind not in ("numeric", "exact") or mode != "elementwise":
            said = kind if kind != "numeric" else mode
            raise Unfit(f"its outputs are judged by {said}, which kernbench cannot do")
        dtype = data["outputs"][check["output"]]["dtype"]
        both = [found[dtype]] if dtype in found else []
        found[dtype] = min([*both, _bounds(check, kind == "exact")], key=lambda row: (row["atol"], row["rtol"]))
    return found


def _bounds(check: dict[str, Any], is_exact: bool) -> Bounds:
    if is_exact:
        return {"atol": 0.0, "rtol": 0.0}
    bounds = {"atol": float(check.get("max_atol", 1e-2)), "rtol": float(check.get("max_rtol", 1e-2))}
    if check.get("required_matched_ratio", 1.0) < 1:
        bounds["matched"] = float(check["required_matched_ratio"])
    if check.get("max_error_cap") is not None:
        bounds["cap"] = float(check["max_error_cap"])
    return bounds


def cases(workloads: list[Workload], constants: dict[str, int], scale: int) -> list[dict[str, Any]]:
    """As cases.json has them, with the tolerance where it is not the first one's. Workloads with the same sizes and
    inputs are one case. `constants` are axes that do not vary, and that may be divided as well."""
    made: dict[str, dict[str, Any]] = {}
    names: Counter[str] = Counter()
    for item in workloads:
        stays = any(about["type"] == "safetensors" for about in item.inputs.values())
        axes = item.axes if scale == 1 or stays else _divided({**item.axes, **constants}, scale)
        case: dict[str, Any] = {"axes": {**axes, **({"inputs": item.inputs} if item.inputs else {})}}
        if item.tolerance != workloads[0].tolerance:
            case["tolerance"] = item.tolerance
        key = json.dumps(case, sort_keys=True)
        if key in made:
            continue
        name = ",".join(f"{axis}={axes[axis]}" for axis in item.axes) or "as_given"
        names[name] += 1
        label = "x".join(str(axes[axis]) for axis in item.axes) or name
        again = f"#{names[name]}" if names[name] > 1 else ""
        made[key] = {"id": name + again, "label": label + again, **case}
    return list(made.values())


def _divided(axes: dict[str, int], scale: int) -> dict[str, int]:
    return {name: max(min(value, LEAST), value // scale) for name, value in axes.items()}
