"""Adds the shipped tasks to the wheel as data under kernbench/tasks/, without their runs.

In an editable install the tasks stay where they are, in kernels/: copies would go stale, and a folder named kernbench
in site-packages would hide the package itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LEFT_OUT = {".kernbench", "__pycache__"}


class ShippedTasks(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        kernels = Path(self.root, "kernels")
        for path in sorted(kernels.rglob("*")):
            inside = path.relative_to(kernels)
            if path.is_file() and not LEFT_OUT.intersection(inside.parts):
                build_data["force_include"][str(path)] = f"kernbench/tasks/{inside.as_posix()}"
