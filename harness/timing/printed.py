"""How much a call prints, counted in one more call after the timed ones, which stay as they are.

A call that prints is timed with its printing, and on a host that is most of its time. For the one call, stdout and
stderr are a file in memory; what is in it afterwards goes to the log, where it was meant to go.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import sys
from types import TracebackType

import torch

STREAMS = (1, 2)
PASSED_ON = 64 * 1024
"""Bytes of the output that reach the log."""


class Printed:
    """Counts the bytes that are written to stdout and stderr inside of `with`."""

    def __init__(self) -> None:
        self.bytes = 0
        self._saved: list[int] = []
        self._file = -1

    def __enter__(self) -> Printed:
        _flush()
        try:
            self._file = os.memfd_create("kernbench-output")
            self._saved = [os.dup(stream) for stream in STREAMS]
        except (AttributeError, OSError):  # another system, or no descriptor left: nothing is counted
            return self
        faulthandler.enable(self._saved[-1])  # a crash is reported to the log itself
        for stream in STREAMS:
            os.dup2(self._file, stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()  # what a kernel prints arrives only now
        finally:
            _flush()
            self._put_back()

    def _put_back(self) -> None:
        for saved, stream in zip(self._saved, STREAMS, strict=False):
            os.dup2(saved, stream)
            os.close(saved)
        if self._saved:
            faulthandler.enable(STREAMS[-1])
        if self._file < 0:
            return
        self.bytes = os.fstat(self._file).st_size
        if self.bytes:
            with contextlib.suppress(OSError):
                os.write(STREAMS[-1], os.pread(self._file, PASSED_ON, 0))
        os.close(self._file)


def _flush() -> None:
    """Empties the buffers of Python and of C."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a source may have put anything in its place
            stream.flush()
    ctypes.CDLL(None).fflush(None)
