"""A model's sites and the entries that stand in for them, each loaded once.

Sites are found when they are asked for: in a command they exist only after the command has imported their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from harness.load.failure import Paths, describe
from harness.load.side import Side
from harness.shared.model_step import ModelFile, Patch, Rewrite, Site
from harness.transfer import sites
from harness.transfer.sites import Found, ModelProblem, Patches
from harness.transfer.wiring import Watch

COMPILED_FILE = "op.py"
"""The entry as an operator that a graph can hold."""
Replaced = tuple[Found, Any]


def fault(problem: BaseException, patches: Sequence[Mapping[str, Any]], model: str) -> tuple[str, str]:
    """What failed and where: in a task's source, or else in the model's files."""
    for patch in patches:
        found = describe(problem, Paths(str(patch["user_folder"]), str(patch["folder"])))
        if found.where is not None:
            return found.message, f"{patch['task']}/{found.where}"
    found = describe(problem, Paths(model))
    return found.message, "" if found.where is None else str(found.where)


class Wired:
    def __init__(self, about: ModelFile) -> None:
        self.about = about
        self.side = Side("model", about.folder, about.folder)
        self._loaded: dict[tuple[Patch, bool], tuple[Side, Callable[..., Any]]] = {}

    @cached_property
    def found(self) -> dict[str, Found]:
        """The sites and rewrites by name, after everything has been imported."""
        names = [*(site.call for site in self.about.sites), *(item.call for item in self.about.rewrites)]
        return {name: sites.find(self.side, name) for name in names}

    @cached_property
    def rewritten(self) -> list[Replaced]:
        return [(self.found[item.call], self.rewriting(item)) for item in self.about.rewrites]

    def rewriting(self, item: Rewrite) -> Any:
        return sites.named(self.side, item.by)

    def plain(self, tasks: Sequence[str], watch: Watch) -> Patches:
        """The model's own code at every site of these tasks, watched."""
        chosen = [site for site in self.about.sites if site.task in tasks]
        own = [(self.found[site.call], watch.site(site, self.found[site.call].original)) for site in chosen]
        return Patches([*self.rewritten, *own])

    def ours(self, patches: Sequence[Patch], watch: Watch, for_compile: bool = False) -> Patches:
        """The entries at their sites; for torch.compile, at those that are not left to it."""
        replaced = []
        for patch in patches:
            own = [site for site in self.about.sites if site.task == patch.task]
            chosen = [site for site in own if site.compiled or not for_compile]
            if chosen:
                entry = watch.entry(patch.task, self.entry(patch, for_compile))
                replaced += [(self.found[site.call], self.stand_in(site, entry, watch)) for site in chosen]
        if for_compile and not replaced:
            raise ModelProblem("every site is left to torch.compile (model.toml)")
        return Patches([*self.rewritten, *replaced])

    def stand_in(self, site: Site, entry: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
        return watch.site(site, sites.named(self.side, site.adapter)(entry))

    def entry(self, patch: Patch, for_compile: bool = False) -> Callable[..., Any]:
        """Loaded once: an operator can be registered only once."""
        key = patch, for_compile
        if key not in self._loaded:
            side = Side("compiled" if for_compile else "ours", patch.folder, patch.user_folder, patch.build)
            has_operators = patch.file == "solution.py" and side.holds(COMPILED_FILE.removesuffix(".py"))
            if for_compile and has_operators:
                self._loaded[key] = side, self._operator(side.module(COMPILED_FILE), patch)
            else:
                self._loaded[key] = side, side.entry(patch.file, patch.entry)
        return self._loaded[key][1]

    def _operator(self, operators: Any, patch: Patch) -> Callable[..., Any]:
        if patch.task in self.about.operators:
            return sites.named(self.side, self.about.operators[patch.task])(operators)  # type: ignore[no-any-return]
        return getattr(operators, patch.entry)  # type: ignore[no-any-return]
