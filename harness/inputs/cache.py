"""The cache between runs: loaded reference and baseline, compiled baselines, fixed-seed inputs and truth. Bounded.

A side loaded from an earlier snapshot is reused as long as every file it loaded is the same in the new one, so a
changed helper is never missed and an unchanged reference is not reloaded.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, cast
from weakref import WeakKeyDictionary

from harness.device.gpu import Gpu
from harness.inputs.reference import Draw, Inputs, Outputs, Reference, copies, nbytes
from harness.inputs.seeding import seed_everywhere
from harness.load import compiled as baseline
from harness.load.failure import BadTask, Paths, describe
from harness.load.side import Side
from harness.shared.results import Finding, Verdict
from harness.shared.task import Case, Task

ROOM = 256 << 20
"""Most bytes of inputs and truth to keep; on a GPU, a sixteenth of its memory."""


class CaseInputs:
    """One draw of a case's inputs, with truth and the reference's outputs computed on first use.

    Lazy on purpose: the candidate runs before anything here has computed the correct result. Read-only, because it is
    kept for later sources.
    """

    def __init__(self, reference: Reference, case: Case, draw: Draw, device: str, inputs: Inputs | None = None) -> None:
        """`inputs` are given if they are not those of the draw, but made from them."""
        self.reference, self.case, self._device = reference, case, device
        self.draw = draw
        self.inputs: Inputs = reference.make(case, draw, device) if inputs is None else inputs
        self.verdicts: WeakKeyDictionary[Callable[..., Any], Verdict] = WeakKeyDictionary()
        """Verdicts of functions called with these inputs; dropped together with their source."""
        self._truth: Outputs | None = None
        self._expected: Outputs | None = None
        self.nbytes = nbytes(self.inputs)
        """Inputs, truth and outputs made so far; a running count, because every row sums those of all cases."""

    def entry(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A side's function as the case calls it with these inputs. If the task is seeded, a call is so too."""
        call = self.reference.entry_for(function, self.case)
        return self._seeded(call) if self.reference.task.seeded else call

    def _seeded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def seeded(**inputs: Any) -> Any:
            self.seed()
            return call(**inputs)

        return seeded

    def _start(self) -> None:
        """Before a call of the reference: only a task that says so depends on torch's generators."""
        if self.reference.task.seeded:
            self.seed()

    def seed(self) -> None:
        """Sets torch's generators to what a call with these inputs starts from."""
        seed_everywhere(self.draw.seed, self._device)

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same for a call that is timed: the generators are seeded before it."""
        return self.reference.entry_for(function, self.case)

    @property
    def truth(self) -> Outputs:
        if self._truth is None:
            self._start()
            self._truth = self._added(self.reference.truth(self.case, self.inputs))
        return self._truth

    @property
    def expected(self) -> Outputs:
        """The reference's outputs in the production dtype."""
        if self._expected is None:
            self._start()
            self._expected = self._added(self.reference.outputs(self.case, copies(self.inputs)))
        return self._expected

    def _added(self, outputs: Outputs) -> Outputs:
        """The outputs, counted and read-only."""
        self.nbytes += nbytes(outputs)
        return cast("Outputs", MappingProxyType(outputs))


class RunCache:
    def __init__(self, gpu: Gpu | None = None) -> None:
        self.gpu = gpu
        self._room = gpu.memory_bytes // 16 if gpu else ROOM
        self._sides: dict[str, Side] = {}
        self._reference: tuple[str, Reference] | None = None
        self._prepared: dict[tuple[str, ...], Callable[..., Any]] = {}
        self._materials: dict[tuple[str, str, str, Draw], CaseInputs] = {}
        self.controls: dict[str, tuple[Finding, ...]] = {}
        """What the controls of a task found, by its hash."""
        self.first_case: str | None = None
        """The first case of the last run."""
        self.fixed = Draw(random.SystemRandom().randrange(1, 1 << 31))
        """The draw whose inputs are kept. Another one in every worker, so that no source can know it in advance."""

    def reference(self, task: Task, source: str, build: str) -> Reference:
        side = self._side("reference", source, task, build)
        if self._reference is not None and self._reference[0] == f"{task.hash} {side.package}":
            return self._reference[1]
        self._materials.clear()
        self._prepared.clear()
        paths = Paths(task.folder, source)
        try:
            reference = Reference(task, side.module("reference.py"), side.entry("reference.py", task.entry), paths)
        except BadTask:
            raise
        except BaseException as problem:
            fault = describe(problem, paths)
            raise BadTask(f"reference.py failed to load: {fault.message}", fault.where, fault.traceback) from None
        self._reference = (f"{task.hash} {side.package}", reference)
        return reference

    def function(self, role: str, file: str, source: str, task: Task, build: str) -> Callable[..., Any]:
        """The entry of a file in a snapshot; reuses the side loaded as `role` if nothing changed."""
        return self._side(role, source, task, build).entry(file, task.entry)

    def side(self, role: str) -> Side | None:
        return self._sides.get(role)

    def drop(self, role: str) -> None:
        side = self._sides.pop(role, None)
        if side is not None:
            if self._reference is not None:
                self._reference[1].forget_states(side.package)
            side.close()
            if role == "reference":  # closing emptied the modules of its functions
                self._reference = None
            self._prepared = {key: value for key, value in self._prepared.items() if side.package not in key}

    def _side(self, role: str, source: str, task: Task, build: str) -> Side:
        if self.holds(role, source, task):
            return self._sides[role]
        self.drop(role)
        side = self._sides[role] = Side(role, source, task.folder, build)
        return side

    def holds(self, role: str, source: str, task: Task) -> bool:
        """Whether a side is loaded and need not be loaded again for this snapshot."""
        held = self._sides.get(role)
        is_it = held is not None and held.loaded and held.user_folder == task.folder
        return bool(is_it) and held is not None and self._is_same(role, held, source)

    @staticmethod
    def _is_same(role: str, held: Side, source: str) -> bool:
        """Best is compared as a whole snapshot, including data it may read; other sides by the files they loaded."""
        return held.folder == os.path.abspath(source) if role == "best" else held.same_in(source)

    def compiled(self, function: Callable[..., Any], package: str, case: Case) -> Callable[..., Any]:
        key = (package, case.id)
        if key not in self._prepared:
            self._prepared[key] = baseline.compiled(function)
        return self._prepared[key]

    def is_compiled(self, package: str, case: Case) -> bool:
        return (package, case.id) in self._prepared

    def material(self, reference: Reference, case: Case, draw: Draw, device: str) -> CaseInputs:
        key = (reference.task.hash, case.id, device, draw)
        found = self._materials.get(key)
        if found is None:
            found = CaseInputs(reference, case, draw, device)
        if draw == self.fixed:
            self._materials[key] = found
        return found

    def trim(self, everything: bool = False) -> None:
        """Evicts down to the limit: the smallest entry that frees enough, otherwise the largest.

        The first case's entries go last: the next run usually needs them first, while the user waits for that row. LRU
        would evict them first.
        """
        if everything:
            self._materials.clear()
        if self._reference is not None:
            self._reference[1].trim_states(0 if everything else self._room)
        sizes = {key: material.nbytes for key, material in self._materials.items()}
        while (excess := sum(sizes.values()) - self._room) > 0:
            others = [key for key in sizes if key[1] != self.first_case] or [*sizes]
            enough = [key for key in others if sizes[key] >= excess]
            gone = min(enough, key=sizes.__getitem__) if enough else max(others, key=sizes.__getitem__)
            del sizes[gone], self._materials[gone]
