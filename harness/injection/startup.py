"""Copied into a folder on PYTHONPATH as sitecustomize.py: every Python that a program starts runs it first.

A file next to it names a module of this package and its settings. It is loaded under another package name, because the
program may have a `harness` itself, and leaves `sys.path` as the program would have found it. Then the sitecustomize.py
that this one hides runs, if there is one.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = "inside.json"
PACKAGE = "_kernbench_harness"


def load() -> None:
    with open(os.path.join(HERE, FILE), encoding="utf-8") as file:
        about = json.load(file)
    folder = about["harness"]
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(PACKAGE, init, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no package in {folder}")
    sys.modules[PACKAGE] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    importlib.import_module(f"{PACKAGE}.{about['module']}").start(about["settings"])


def run_hidden() -> None:
    """The next sitecustomize.py on the path takes this one's name, as it would have had it."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        load()
    except Exception as problem:  # the program must run as it would have
        print(f"kernbench: cannot get into {sys.executable}: {problem}", file=sys.stderr)
    finally:
        run_hidden()
