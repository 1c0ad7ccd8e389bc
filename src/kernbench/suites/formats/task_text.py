"""The text of task.toml for an imported problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernbench.suites.formats.foreign_problem import Form


def task_text(
    name: str,
    summary: str,
    entry: str,
    form: Form,
    origin: Mapping[str, str],
    tolerance: Mapping[str, Mapping[str, float]],
    **more: Any,
) -> str:
    """`origin` is what an export needs, the format first; further keys are left out where they are false or empty.

    What holds for every suite: the reference's own result decides, in any layout, and a library may do the work.
    """
    keys = {"name": name, "summary": summary, "entry": entry, "judge": "reference", "layout": "any", "libraries": True}
    keys |= {"device": "cpu"} if form.device == "cpu" else {}
    keys |= {key: value for key, value in more.items() if value}
    lines = [*_pairs(keys), "", "[origin]", *_pairs(origin)]
    if tolerance:
        bounds = (f"{dtype} = {{ {', '.join(_pairs(row))} }}" for dtype, row in tolerance.items())
        lines += ["", "[tolerance]", *bounds]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """Strings, numbers, truth values and lists of them are the same in TOML as in JSON."""
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
