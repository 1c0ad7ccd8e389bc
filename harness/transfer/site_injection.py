"""Runs inside the processes of a command: puts the entries at their sites as the sites' modules are imported.

It gets in before the command's own code (harness/injection). Until a module with a site is imported, it needs the
standard library only, and the process is as it was.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..injection.import_hook import after_import  # noqa: TID252 - the package has another name inside a program

if TYPE_CHECKING:
    from harness.shared.model_step import Patch
    from harness.transfer.sites import Found
    from harness.transfer.wired import Wired
    from harness.transfer.wiring import Watch


def start(plan: dict[str, Any]) -> None:
    """The plan has the harness's folder, the model, the patches, a folder for notes, and whether to watch."""
    calls = [item["call"] for item in (*plan["model"]["sites"], *plan["model"]["rewrites"])]
    injection = Injection(plan)
    after_import(dict.fromkeys((call.partition(":")[0] for call in calls), lambda module: injection(module.__name__)))


class Injection:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._notes = os.path.join(plan["notes"], str(os.getpid()))
        self._wired: Wired | None = None
        self._patches: list[Patch] = []
        self._put_in: set[str] = set()
        self._entries: dict[str, Callable[..., Any]] = {}

    def __call__(self, module: str) -> None:
        """Puts in what belongs to a module that has just been imported. The command may hide an error: it is noted."""
        _harness(self._plan["harness"])
        from harness.transfer.wired import fault

        try:
            self._put(module)
        except BaseException as problem:
            said, place = fault(problem, self._plan["patches"], self._plan["model"]["folder"])
            self.note(problem=f"{place}: {said}" if place else said)
            raise

    def note(self, **line: Any) -> None:
        with open(f"{self._notes}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _put(self, module: str) -> None:
        from harness.shared.lines import decode
        from harness.shared.model_step import ModelFile, Patch
        from harness.transfer import sites
        from harness.transfer.wired import Wired

        if self._wired is None:
            self._wired = Wired(decode(ModelFile, self._plan["model"]))
            self._patches = [decode(Patch, patch) for patch in self._plan["patches"]]
        wired, imported = self._wired, sys.modules[module]
        for item in wired.about.rewrites:
            if item.call.partition(":")[0] == module:
                sites.Patches([(sites.find_in(imported, item.call), wired.rewriting(item))]).put()
                self._put_own(wired)
        self._put_at(wired, module, lambda call: sites.find_in(imported, call))

    def _put_own(self, wired: Wired) -> None:
        """At the sites in the model's own folder, which its rewrites call."""
        from harness.transfer import sites

        for module in {site.call.partition(":")[0] for site in wired.about.sites} - self._put_in:
            if wired.side.holds(module.partition(".")[0]):
                self._put_in.add(module)
                self._put_at(wired, module, lambda call: sites.find(wired.side, call))

    def _put_at(self, wired: Wired, module: str, find: Callable[[str], Found]) -> None:
        from harness.transfer import sites

        watch = self._watch()
        for patch in self._patches:
            for site in wired.about.sites:
                if site.task == patch.task and site.call.partition(":")[0] == module:
                    new = wired.stand_in(site, self._entry(wired, patch, watch), watch)
                    sites.Patches([(find(site.call), new)]).put()

    def _entry(self, wired: Wired, patch: Patch, watch: Watch) -> Callable[..., Any]:
        if patch.task not in self._entries:
            self._entries[patch.task] = watch.entry(patch.task, wired.entry(patch))
        return self._entries[patch.task]

    def _watch(self) -> Watch:
        from harness.transfer.wiring import Noted, Watch

        return Noted(self.note) if self._plan["is_watched"] else Watch()


def _harness(folder: str) -> None:
    """The package, from its folder; `sys.path` stays as it is."""
    if "harness" not in sys.modules:
        init = os.path.join(folder, "__init__.py")
        spec = importlib.util.spec_from_file_location("harness", init, submodule_search_locations=[folder])
        assert spec is not None
        assert spec.loader is not None
        package = sys.modules["harness"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
