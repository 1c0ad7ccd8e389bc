"""What every test may count on: asyncio under anyio, caches of its own, and skips for what this machine lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


def _has_gpu() -> bool:
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


NEEDS = {
    "gpu": (_has_gpu, "no NVIDIA GPU"),
    "tmux": (lambda: shutil.which("tmux") is not None, "no tmux"),
    "chromium": (lambda: shutil.which("chromium") is not None, "no chromium"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for marker, (is_here, reason) in NEEDS.items():
        if not is_here():
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests, and the processes they start, neither read nor leave anything in the user's caches."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        yield folder
