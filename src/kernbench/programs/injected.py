"""Gets a module of `harness` into every Python process of a program, spawned ones too: by a folder on PYTHONPATH."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernbench.worker.process import harness_folder


def write(folder: Path, module: str, settings: Mapping[str, Any]) -> None:
    """`start(settings)` of the module, such as `capture.injected`, is called before the program's own code."""
    harness = harness_folder()
    shutil.copyfile(harness / "injection" / "startup.py", folder / "sitecustomize.py")
    about = {"harness": str(harness), "module": module, "settings": settings}
    (folder / "inside.json").write_text(json.dumps(about), encoding="utf-8")


def variables(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is to have it."""
    path = os.pathsep.join(filter(None, [str(folder), environ.get("PYTHONPATH")]))
    return {**environ, "PYTHONPATH": path}
