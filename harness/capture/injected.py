"""Starts the recorder in a process of the command, and writes what it has seen.

Every Python process of the command has it, spawned ones too (harness/injection). Each process writes one JSON file, by
its pid: when a form is new, once a second, and when it ends, so that little is lost if it is killed. Nothing that
goes wrong here may stop the program: it goes into the file.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from ..injection.import_hook import after_import  # noqa: TID252 - the package has another name inside a program
from .recorder import Recorder, schema_of

EVERY_S = 1.0


class Report:
    """The file of this process."""

    def __init__(self, out: str) -> None:
        self._out, self._written = out, 0.0
        self.recorders: dict[str, Recorder] = {}
        self.problems: dict[str, str] = {}
        self.modules: dict[str, dict[str, str]] = {}
        self.looked: Any = None
        """The `Functions` that look for sites, if that is wanted."""
        self._forms = 0
        os.register_at_fork(after_in_child=self._forget)
        self.write()
        atexit.register(self._finish)

    def _forget(self) -> None:
        """A forked process starts from nothing: its parent reports what came before."""
        for kept in (*self.recorders.values(), *([self.looked] if self.looked is not None else [])):
            kept.forget()

    def write_after(self, module: Any) -> None:
        """A process forked by multiprocessing ends without atexit."""
        module.register_after_fork(self, lambda report: module.Finalize(report, report._finish, exitpriority=1))

    def _finish(self) -> None:
        """Processes without a site may outlive the command, and its folder: they have written already."""
        if self.recorders or self.problems or self.looked is not None:
            self.write()

    def changed(self) -> None:
        forms = sum(len(recorder.forms) for recorder in self.recorders.values())
        if forms != self._forms or time.monotonic() - self._written > EVERY_S:
            self._forms = forms
            self.write()

    def write(self) -> None:
        self._written = time.monotonic()
        with contextlib.suppress(Exception):  # the folder is gone, and with it the workbench; or CUDA is, after a fork
            for recorder in self.recorders.values():
                recorder.settle()
            path = os.path.join(self._out, f"{os.getpid()}.json")
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump(self._content(), file)
            os.replace(path + ".part", path)

    def _content(self) -> dict[str, Any]:
        torch = sys.modules.get("torch")
        return {
            "pid": os.getpid(),
            "python": sys.executable,
            "torch": str(getattr(torch, "__version__", "")),
            "modules": self.modules,
            "problems": {
                **{site: recorder.problem for site, recorder in self.recorders.items() if recorder.problem},
                **self.problems,
            },
            "functions": self.looked.plain() if self.looked is not None else {},
            "sites": {
                site: {
                    "forms": {key: form.plain() for key, form in list(recorder.forms.items())},
                    "left_out": recorder.left_out,
                    "in_graphs": recorder.in_graphs,
                }
                for site, recorder in self.recorders.items()
            },
        }


def start(wanted: dict[str, Any]) -> None:
    """`out` is the folder for reports, `sites` names what is recorded; `look` is for finding sites."""
    report = Report(wanted["out"])
    by_module: dict[str, list[str]] = {}
    for site in wanted["sites"]:
        by_module.setdefault(site.partition(":")[0], []).append(site)

    def patch(module: ModuleType) -> None:
        for site in by_module[module.__name__]:
            try:
                _patch(report, module, site)
            except Exception:  # the program's import must go on
                report.problems[site] = traceback.format_exc(limit=-1).strip().splitlines()[-1]

    then: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(by_module, patch)
    then.setdefault("multiprocessing.util", report.write_after)
    if wanted.get("look"):
        then["torch"] = lambda module: _look(report)
    after_import(then)


def _look(report: Report) -> None:
    from .functions import Functions

    found = Functions()
    found.begin()
    report.looked = found


def _patch(report: Report, module: ModuleType, site: str) -> None:
    *parents, name = site.partition(":")[2].split(".")
    owner: Any = module
    for part in parents:
        owner = getattr(owner, part, None)
    if not hasattr(owner, name):
        near = get_close_matches(name, dir(owner), 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        report.problems[site] = f"there is no {'.'.join([*parents, name])!r} in it{hint}"
        return
    holder = next((base for base in getattr(owner, "__mro__", (owner,)) if name in vars(base)), owner)
    kept = vars(holder)[name]
    function = getattr(kept, "__func__", kept)
    if isinstance(kept, type):
        report.problems[site] = f"it is a class; name a method, such as {site}.forward"
        return
    if not hasattr(function, "__code__") and not hasattr(function, "__wrapped__") and schema_of(function) is None:
        report.problems[site] = f"it is a {type(function).__name__}, not a Python function"
        return
    recorder = Recorder(site, function, isinstance(kept, classmethod), report.changed)
    wrapper: Any = recorder.wrapper()
    setattr(holder, name, type(kept)(wrapper) if isinstance(kept, (staticmethod, classmethod)) else wrapper)
    report.recorders[site] = recorder
    report.modules[module.__name__] = {"file": os.path.abspath(getattr(module, "__file__", "") or "")}
    report.changed()
