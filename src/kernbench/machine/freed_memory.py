"""Gives memory that was freed back to the system, which glibc would keep for good."""

from __future__ import annotations

import contextlib


def give_back() -> None:
    """Takes a millisecond or less; does nothing under another C library."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
