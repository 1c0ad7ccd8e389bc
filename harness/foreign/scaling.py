"""Smaller sizes for a problem, so that it fits into another machine."""

from __future__ import annotations

from typing import Any

LARGE, LEAST = 32, 16
"""Sizes from the first on are divided, and not below the second: the sizes of kernels and groups stay."""


def scaled(value: Any, scale: int) -> Any:
    """A size, or a list or tuple of sizes, divided; anything else as it is."""
    if type(value) is int and value >= LARGE:
        return max(LEAST, value // scale)
    return type(value)(scaled(item, scale) for item in value) if type(value) in (list, tuple) else value
