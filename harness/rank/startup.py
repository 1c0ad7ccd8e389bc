"""Copied into a folder on PYTHONPATH as sitecustomize.py: every Python that the command starts runs it first.

It loads the recorder by its path, leaves `sys.path` as the program would have found it, and then runs the
sitecustomize.py that it hides, if there is one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys

ENVIRONMENT = "KERNBENCH_RANK"
"""The variable with the recorder's path and settings, as JSON."""


def load_recorder() -> None:
    settings = json.loads(os.environ[ENVIRONMENT])
    spec = importlib.util.spec_from_file_location("_kernbench_recorder", settings["recorder"])
    if spec is None or spec.loader is None:
        return
    recorder = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = recorder  # dataclasses look their module up
    spec.loader.exec_module(recorder)
    recorder.install(settings)


def run_hidden() -> None:
    """The next sitecustomize.py on the path takes this one's name, as it would have had it."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:
        if ENVIRONMENT in os.environ:
            load_recorder()
    except Exception as problem:  # the program must run as it would have
        print(f"kernbench: the recorder could not be loaded: {problem}", file=sys.stderr)
    finally:
        run_hidden()
