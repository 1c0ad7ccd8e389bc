"""Keeps a task's folder of builds small: the most recently used images and extensions stay."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time

from harness import host
from harness.shared.run_request import Environment

MOST_IMAGES = 100
"""Images of host C++ and CUDA: some kilobytes each."""
MOST_EXTENSIONS = 20
"""Builds of torch's extensions: some megabytes each."""
MOST_COMPILER_CACHES = 4
"""Of torch.compile: one per state of the task, torch, Triton and GPU."""
ABANDONED_S = 3600.0
"""No image takes this long to write."""


def prune(build: str) -> None:
    """Removes what went unused for longest. Never waits: it skips a folder in which something is being built."""
    _keep_latest(os.path.join(build, "extensions"), MOST_EXTENSIONS)
    _keep_latest(os.path.join(build, "inductor"), MOST_COMPILER_CACHES)
    _keep_latest(build, MOST_IMAGES)


def inductor_cache(build: str, task_hash: str, environment: Environment) -> str:
    """Where torch.compile finds what an earlier worker has compiled: 0.07 s a row instead of 0.4 to 1.1 s."""
    about = f"{environment.torch} {environment.triton} {environment.device_name}"
    name = f"{task_hash}-{hashlib.sha256(about.encode()).hexdigest()[:8]}"
    return os.path.join(build, "inductor", name)


def _keep_latest(folder: str, most: int) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_others(folder, most)
        finally:
            os.close(handle)


def _remove_others(folder: str, most: int) -> None:
    used: dict[str, float] = {}
    paths: dict[str, list[str]] = {}
    for entry in os.scandir(folder):
        about = entry.stat(follow_symlinks=False)
        last = max(about.st_atime, about.st_mtime)
        if entry.name.startswith(host.UNFINISHED) or (
            entry.name.endswith(".part") and last < time.time() - ABANDONED_S
        ):
            _remove(entry.path)
        elif "-" in entry.name:  # NAME-HASH; a CUDA image has two files
            build = entry.name.partition(".")[0]
            used[build] = max(last, used.get(build, 0.0))
            paths.setdefault(build, []).append(entry.path)
    for build in sorted(used, key=used.__getitem__, reverse=True)[most:]:
        for path in paths[build]:
            _remove(path)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
