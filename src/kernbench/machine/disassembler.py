"""SASS of a GPU's machine code: nvdisasm, from the toolkit or as Triton brings it along."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile

from kernbench.machine import tool

SECONDS = 20.0


def find(besides: str = "") -> str:
    """The path of nvdisasm: on PATH, in CUDA_HOME, or where the worker has seen one; empty if there is none."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    places = [shutil.which("nvdisasm") or "", os.path.join(home, "bin", "nvdisasm"), besides]
    return next((place for place in places if place and os.access(place, os.X_OK)), "")


@functools.lru_cache(maxsize=32)
def sass(program: str, image: bytes) -> str:
    """The listing of every function in the image; empty if nvdisasm does not know the GPU."""
    if not program:
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        try:
            return tool.answer([program, "-c", "-ndf", file.name], SECONDS)
        except tool.ToolError:
            return ""
