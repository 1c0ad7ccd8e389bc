"""The interpreters of this machine, for code that must run under several."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path


@functools.cache
def pythons() -> tuple[str, ...]:
    """Every Python from 3.10 on that can be found here."""
    names = [f"python3.{minor}" for minor in range(10, 20)]
    places = [shutil.which(name) for name in names]
    root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    places += [str(path) for path in Path(root, "versions").glob("3.1[0-9]*/bin/python")]
    found = dict.fromkeys([sys.executable, *places])
    return tuple(place for place in found if place and _version(place) >= (3, 10))


def _version(python: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else (0,)
