"""Gives memory that was freed back to the system, which glibc would keep for good; pauses Python's collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


def give_back() -> None:
    """Takes a millisecond or less; does nothing under another C library."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """For reading a long log: that makes no cycles, and the collector would look at every run again and again, a fifth
    of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
