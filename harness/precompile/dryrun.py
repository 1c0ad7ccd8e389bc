"""Collects what calls of all cases would compile: calls the entry on fake tensors and turns launches into jobs.

The snapshot is loaded as in the worker, so that Triton computes the same cache keys for its kernels. The reference
makes every case's inputs as fake tensors (fake_gpu.py): a key depends only on shapes, strides, offsets and numbers. A
case that needs values or a GPU raises and is skipped. The first case's kernels are left to the worker, which is already
compiling them. Only for a process that does nothing else: afterwards it cannot launch anything.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from harness.cuda import library
from harness.inputs.cache import CaseInputs, RunCache
from harness.inputs.reference import Draw
from harness.precompile import SETTINGS, fake_gpu
from harness.private import triton_private
from harness.shared.run_request import RunRequest

NOT_HERE = ("torch.utils.cpp_extension", "cupy")
"""Blocked imports: compilers whose locks a killed process would leave locked, and modules useless without a GPU."""
Job = Callable[[], Any]


def jobs(request: RunRequest, said: dict[str, Any], whole: bool = False) -> list[Job]:
    """What calls of all cases would compile, in order and without duplicates; `whole` includes the first case."""
    collected = Collected()
    _prepare(said, collected)
    cache, task = RunCache(), request.task
    with fake_gpu.FakeTensors():
        entry = cache.function("solution", "solution.py", request.source, task, request.build)
        reference = cache.reference(task, request.source, request.build)
        first: set[Any] = set()
        for index, case in enumerate(request.cases):
            with contextlib.suppress(BaseException):
                material = CaseInputs(reference, task.case(case), Draw(0), said["device"])
                material.entry(entry)(**material.inputs)
            if index == 0 and not whole:
                first = set(collected.jobs)
    return [job for key, job in collected.jobs.items() if key not in first]


class Collected:
    """Replaces Triton's AsyncCompileMode: receives everything to be compiled, with its key."""

    def __init__(self) -> None:
        self.jobs: dict[Any, Job] = {}

    def submit(self, key: Any, compile_it: Job, _finish: Any) -> None:
        self.jobs.setdefault(key, compile_it)


def _prepare(said: dict[str, Any], collected: Collected) -> None:
    """Makes this process compile as the worker does, and launch nothing."""
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    os.environ.update(said["settings"])
    fake_gpu.install(said)
    triton_private.pin_backend_key(said["backend"])
    triton_private.collect_compilations(collected)
    prepare_cuda(collected)
    torch.compile = _refuse
    torch.set_num_threads(1)  # for inputs made on the CPU: leave the cores to the timed calls
    for module in NOT_HERE:
        sys.modules[module] = None  # type: ignore[assignment]  # importing it raises


def prepare_cuda(collected: Collected) -> None:
    """Makes harness.cuda compile and store images without loading them."""

    class Image(library.Image):
        def __init__(self, code: bytes, lowered: dict[str, str], ptx: str = "") -> None:
            self._lowered = lowered

        @classmethod
        def of(cls, source: Any, names: tuple[str, ...]) -> Image:
            collected.submit((source, names), functools.partial(super().of, source, names), None)
            return cls(b"", dict.fromkeys(names, ""))

        def kernel(self, name: str) -> Any:
            return name if name in self._lowered or "<" not in name else None

    class Kernel:
        def __init__(self, *_: Any) -> None: ...

        def __getitem__(self, where: Any) -> Callable[..., None]:
            return lambda *_: None

    library.Image, library.Kernel = Image, Kernel  # type: ignore[misc, assignment, attr-defined]


def _refuse(*_args: Any, **_options: Any) -> NoReturn:
    raise NotImplementedError("not supported when precompiling")
