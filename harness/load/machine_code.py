"""Keeps what a source was compiled to: registers, spills, shared memory, PTX and image of each of its GPU kernels.

Written once per source, after the last line of its run, so that no answer waits for it; the workbench compares two of
these files. Kernels of Triton come from the caches of the source's own functions, those of NVRTC from its libraries.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any

from harness.load.side import Side
from harness.private import triton_private

FOLDER = "machine_code"
MOST_KERNELS = 16
"""Of one source: an autotuner's other configurations are left out first."""
MOST_BYTES = 1 << 20
"""Of one file; a kernel that would go beyond it keeps its figures only."""
MOST_FILES = 200
"""The oldest go first."""


def write(side: Side, state: str, source: str) -> None:
    """`source` is the hash that names the source."""
    folder = os.path.join(state, FOLDER)
    path = os.path.join(folder, f"{source}.json")
    if os.path.exists(path):
        return
    kernels = [*_of_triton(side), *_of_libraries(side)][:MOST_KERNELS]
    if not kernels:
        return
    os.makedirs(folder, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(packed(kernels), file)
    os.replace(partial, path)
    _prune(folder)


def packed(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """The kernels without their code, and each piece of code once."""
    images: dict[str, dict[str, str]] = {}
    left = MOST_BYTES
    for kernel in kernels:
        ptx, code = kernel.pop("ptx").encode(), kernel.pop("code")
        name = hashlib.sha256(code + ptx).hexdigest()[:16]
        if name not in images:
            image = {
                kind: base64.b64encode(zlib.compress(data, 1)).decode()
                for kind, data in (("ptx", ptx), ("cubin", code))
            }
            size = sum(map(len, image.values()))
            if size > left:
                continue
            left -= size
            images[name] = image
        kernel["image"] = name
    return {"schema": 1, "nvdisasm": _nvdisasm(), "kernels": kernels, "images": images}


def _of_triton(side: Side) -> Iterator[dict[str, Any]]:
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{side.package}.")]
    values = {id(value): value for module in modules for value in list(vars(module).values())}
    return triton_private.compiled_kernels(values.values())


def _of_libraries(side: Side) -> Iterator[dict[str, Any]]:
    library = sys.modules.get("harness.cuda.library")  # loaded if a source needs it
    for item in list(library.LOADED) if library is not None else ():
        if item.is_below(side.folder):
            yield from item.compiled()


def _nvdisasm() -> str:
    """Triton brings one along; empty if there is none."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("triton")
        for place in (spec.submodule_search_locations or ()) if spec else ():
            path = os.path.join(place, "backends", "nvidia", "bin", "nvdisasm")
            if os.access(path, os.X_OK):
                return path
    return shutil.which("nvdisasm") or ""


def _prune(folder: str) -> None:
    with contextlib.suppress(OSError):
        files = sorted(os.scandir(folder), key=lambda entry: entry.stat().st_mtime)
        for entry in files[:-MOST_FILES]:
            os.unlink(entry.path)
