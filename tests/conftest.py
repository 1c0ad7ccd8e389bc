"""What every test may count on: asyncio under anyio, caches of its own, and skips for what this machine lacks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from harness.shared import taskfile
from kernbench.engine.jobs import Options
from kernbench.engine.session import Session
from kernbench.worker import launched, supervisor
from tests import FAKE
from tests.sessions import PATIENT, Watched, toy


def _has_gpu() -> bool:
    return os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")


NEEDS = {
    "gpu": (_has_gpu, "no NVIDIA GPU"),
    "tmux": (lambda: shutil.which("tmux") is not None, "no tmux"),
    "ray": (lambda: importlib.util.find_spec("ray") is not None, "no Ray: pip install 'kernbench[ray]'"),
    "chromium": (lambda: shutil.which("chromium") is not None, "no chromium"),
}


SLOWEST = ("terminal", "kernels", "families", "selfcheck", "commands", "guide", "precompile")
"""Folders whose files begin first, so that no process works alone at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in SLOWEST)
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
    """Tests, and the processes they start, neither read nor leave anything in the user's caches and state."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_counts() -> None:
    """A shell without job control starts what it runs in the background deaf to ctrl+c, and so would be the programs
    that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def fakes_without_packages() -> Iterator[None]:
    """The fake harness needs no packages, and finding them is half of what its processes take."""
    real = launched.command

    def command(streams: Sequence[int], words: Sequence[str]) -> list[str]:
        return real(streams, [words[0], "-S", *words[1:]] if str(FAKE) in words else words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launched, "command", command)
        yield


@pytest.fixture(scope="session", autouse=True)
def workers_start_alone() -> Iterator[None]:
    """On a machine with many cores too, where a spare and the judge would start with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "ENOUGH_CORES", 1_000_000)
        yield


@pytest.fixture(autouse=True)
def no_worker_left() -> Iterator[None]:
    """A test that leaves a worker behind fails itself; otherwise a later one that counts them would."""
    before = _workers()
    yield
    assert not _workers() - before, "the test left a worker running: close its session"


def _workers() -> set[int]:
    """Living children of this process whose command line says `worker`."""
    found = set()
    for listed in Path("/proc/self/task").glob("*/children"):  # by the thread that started them
        with contextlib.suppress(OSError):  # a thread that has just ended
            found |= {int(pid) for pid in listed.read_text().split() if b"worker" in _command(pid)}
    return found


def _command(pid: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toy task."""
    return toy(tmp_path / "toy")


@pytest.fixture
async def watched(folder: Path) -> AsyncIterator[Callable[..., Watched]]:
    """Opens sessions on the toy task over the fake harness, and closes them."""
    opened: list[Session] = []

    def make(**options: object) -> Watched:
        settings = {"harness": FAKE, "deadlines": PATIENT}
        session = Session(taskfile.load(folder), folder / ".kernbench", Options(**{**settings, **options}))  # type: ignore[arg-type]
        opened.append(session)
        return Watched(session)

    yield make
    for session in opened:
        await session.close()
