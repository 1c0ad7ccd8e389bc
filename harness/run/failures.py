"""The row of a case that raised: whose fault it was, and whether the process can continue."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

import torch

from harness.inputs.cache import RunCache
from harness.load import interpreter
from harness.load.exception_text import attribute, written
from harness.load.failure import Paths, describe, place
from harness.run.quick_checks import NeedsGpu
from harness.shared import format as fmt
from harness.shared.codes import CUDA_ERROR_EXIT, Explanation, explain
from harness.shared.errors import Where
from harness.shared.results import CaseResult
from harness.shared.run_request import Environment
from harness.shared.task import Case
from harness.timing.blocks import SideFailed


class CaseFailures:
    def __init__(self, environment: Environment, paths: Paths, cache: RunCache) -> None:
        self._device, self._interpreted = environment.device, environment.interpreted
        self._paths, self._cache = paths, cache
        self.entry: Callable[..., Any] | None = None
        """The solution, once it is loaded."""
        self.elsewhere = False
        """The last row's failure was raised in code that is not the user's."""

    def row(self, case: Case, problem: BaseException) -> CaseResult:
        """The row for an exception; only the solution's failures count as failures."""
        own = isinstance(problem, SideFailed)  # those of other sides were caught earlier
        if own:
            problem = problem.__cause__ or problem
        if isinstance(problem, NeedsGpu):
            return _skipped(case, explain("needs_gpu"))
        lacking = interpreter.lacks(problem) if self._interpreted else None
        if lacking == "needs_gpu":
            return _skipped(case, Explanation(lacking, f"needs a GPU: {describe(problem, self._paths).message}"))
        if lacking is not None:
            return _skipped(case, explain(lacking))
        if isinstance(problem, torch.OutOfMemoryError) and not own:
            return _skipped(case, self._too_large(problem))
        fault = describe(problem, self._paths)
        self.elsewhere = fault.elsewhere
        return CaseResult(
            case.id,
            "runtime_error",
            detail=fault.message,
            where=fault.where or self._definition(),
            traceback=fault.traceback,
            known=case.known,
        )

    def _definition(self) -> Where | None:
        """Where the entry is defined: the place of a failure that has none, such as a call with wrong arguments."""
        if self.entry is None:
            return None
        code = attribute(attribute(self.entry, "__wrapped__", object, self.entry), "__code__", CodeType)
        if code is None or self._paths.relative(code.co_filename) is None:
            return Where("solution.py")
        return place(code.co_filename, code.co_firstlineno, self._paths)

    def is_poisoned(self) -> bool:
        """Whether an error has destroyed the CUDA context."""
        if not self._device.startswith("cuda"):
            return False
        try:
            torch.cuda.synchronize()
            torch.zeros(1, device=self._device).item()
        except BaseException:
            return True
        return False

    @staticmethod
    def leave() -> NoReturn:
        os._exit(CUDA_ERROR_EXIT)

    def _too_large(self, problem: BaseException) -> Explanation:
        """A case that does not fit is not a failure; frees the memory for the next case."""
        self._cache.trim(everything=True)  # cached inputs of other cases do not count as needed by this one
        held = 0 if self._device == "cpu" else torch.cuda.memory_allocated()
        wanted = asked_for(written(problem) or "")
        problem.__traceback__ = None  # its frames hold the tensors
        gc.collect()
        if self._device == "cpu":
            return explain("out_of_memory")
        torch.cuda.empty_cache()
        needed = held - torch.cuda.memory_allocated() + wanted
        free = torch.cuda.mem_get_info()[0]
        return explain("too_large", needed=fmt.fixed(needed / 2**30, 1), free=fmt.fixed(free / 2**30, 1))


def _skipped(case: Case, why: Explanation) -> CaseResult:
    return CaseResult(case.id, "skipped", detail=why.detail, reason=why.reason, known=case.known)


def asked_for(message: str) -> int:
    """Bytes of the allocation that failed, from torch's message."""
    found = re.search(r"Tried to allocate ([\d.]+) ([KMGT])iB", message)
    return int(float(found[1]) * 1024 ** ("KMGT".index(found[2]) + 1)) if found else 0
