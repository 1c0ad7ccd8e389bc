"""For `kernbench doctor`: which private names are missing in this Python, and whether its versions are tested."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from harness.cuda import torch_internals
from harness.private import process_state, torch_private, triton_private

TRIED = (("2.11", "3.6"), ("2.13", "3.6"))
"""Versions of torch and triton with which all tests passed: the first on an H200 (CUDA 13.0), the second on a CPU."""


def report() -> dict[str, Any]:
    """The number of names, the missing ones with the effect of each, and untested versions."""
    tables = [torch_private.NAMES, process_state.NAMES]
    if importlib.util.find_spec("triton") is not None:
        tables.append(triton_private.NAMES)
    count = sum(len(table.without) for table in tables)
    missing = {name: text for table in tables for name, text in table.missing().items()}
    if torch.version.cuda is not None:  # a CPU build has none of these and does not need them
        count += len(torch_internals.WITHOUT)
        missing.update(torch_internals.missing())
    return {"count": count, "missing": missing, "untried": untried(torch.__version__, _triton_version())}


def untried(torch_version: str, triton_version: str | None) -> str:
    """These versions in words; empty if they are tested."""
    pair = (_minor(torch_version), _minor(triton_version) if triton_version else None)
    if any(pair[0] == torch_tried and pair[1] in (triton_tried, None) for torch_tried, triton_tried in TRIED):
        return ""
    return f"torch {torch_version}" + (f" and triton {triton_version}" if triton_version else "")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _triton_version() -> str | None:
    try:
        import triton
    except Exception:
        return None
    return str(triton.__version__)
