"""Tolerances by output dtype: the `[tolerance]` table of a task, and that of a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.shared.task import Tolerance
from harness.shared.taskfile import values as read
from harness.shared.taskfile.values import TaskError, shown

DTYPES = frozenset(
    "bfloat16 float16 float32 float64 float8_e4m3fn float8_e5m2 "
    "bool uint8 int8 int16 int32 int64 complex64 complex128".split()
)
BOUNDS: dict[str, Any] = {"atol": 0.0, "rtol": 0.0, "matched": 1.0, "cap": None}
"""Each with its default."""


def read_tolerances(path: Path, key: str, data: Any) -> dict[str, Tolerance]:
    """The tolerances that a table names."""
    if not isinstance(data, dict):
        example = "float32 = { atol = 1e-5, rtol = 1e-5 }"
        raise TaskError(path, key, f"must be a table keyed by output dtype, such as {example}")
    return {dtype: _bounds(path, f"{key}.{dtype}", dtype, bounds) for dtype, bounds in data.items()}


def _bounds(path: Path, key: str, dtype: str, bounds: Any) -> Tolerance:
    if dtype not in DTYPES:
        raise TaskError(path, key, f"{shown(dtype)} is not a torch dtype; use one such as float32 or bfloat16")
    if not isinstance(bounds, dict):
        raise TaskError(path, key, "must be a table, such as { atol = 1e-5, rtol = 1e-5 }")
    read.known_keys(path, key, bounds, frozenset(BOUNDS))
    atol, rtol, matched, cap = (bounds.get(name, default) for name, default in BOUNDS.items())
    if not (_is_number(atol) and _is_number(rtol)):
        raise TaskError(path, key, "atol and rtol must be non-negative numbers")
    if not (_is_number(matched) and 0 < matched <= 1):
        raise TaskError(path, f"{key}.matched", f"must be a share above 0 and up to 1, not {shown(matched)}")
    if cap is not None and not _is_number(cap):
        raise TaskError(path, f"{key}.cap", f"must be a non-negative number, not {shown(cap)}")
    return Tolerance(float(atol), float(rtol), float(matched), None if cap is None else float(cap))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
