"""What calls of all cases would compile: the entry called on phantoms, with launches turned into jobs.

The snapshot is loaded as the worker loads it, so that Triton gives its kernels the same keys, and every case's inputs
are made by the reference as phantoms (fake_gpu.py): shapes, strides, offsets and numbers are what a key is made of.
What cannot be had without values, or without a GPU, raises, and that case is left out. The first case's kernels are
left to the worker, which is at them already. To be used in a process that does nothing else: it launches nothing
any more.
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
from harness.inputs.cache import RunCache
from harness.inputs.reference import Draw
from harness.precompile import SETTINGS, fake_gpu
from harness.private import triton_private
from harness.shared.run_request import RunRequest

NOT_HERE = ("torch.utils.cpp_extension", "cupy")
"""Compilers with locks of their own, which a killed process would leave locked, and what is no use without a GPU."""
Job = Callable[[], Any]


def jobs(request: RunRequest, said: dict[str, Any]) -> list[Job]:
    """What calls of all cases would compile, in order and each once, without what the first case needs."""
    collected = Collected()
    _prepare(said, collected)
    cache, task = RunCache(), request.task
    with fake_gpu.FakeTensors():
        entry = cache.function("solution", "solution.py", request.source, task, request.build)
        reference = cache.reference(task, request.source, request.build)
        first: set[Any] = set()
        for index, case in enumerate(request.cases):
            with contextlib.suppress(BaseException):
                entry(**reference.make(task.case(case), Draw(0), said["device"]))
            if index == 0:
                first = set(collected.jobs)
    return [job for key, job in collected.jobs.items() if key not in first]


class Collected:
    """Stands where Triton keeps its AsyncCompileMode: everything to be compiled comes by here, named by its key."""

    def __init__(self) -> None:
        self.jobs: dict[Any, Job] = {}

    def submit(self, key: Any, compile_it: Job, _finish: Any) -> None:
        self.jobs.setdefault(key, compile_it)


def _prepare(said: dict[str, Any], collected: Collected) -> None:
    """This process compiles as the worker does, and launches nothing."""
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    os.environ.update(said["settings"])
    fake_gpu.install(said)
    triton_private.pin_backend_key(said["backend"])
    triton_private.collect_compilations(collected)
    prepare_cuda(collected)
    torch.compile = _refuse
    torch.set_num_threads(1)  # for inputs that are made on the CPU: the cores belong to what is timed
    for module in NOT_HERE:
        sys.modules[module] = None  # type: ignore[assignment]  # importing it raises


def prepare_cuda(collected: Collected) -> None:
    """Of harness.cuda's images: compiled and written, never loaded."""

    class Image(library.Image):
        def __init__(self, code: bytes, lowered: dict[str, str]) -> None:
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
    raise NotImplementedError("not ahead of time")
