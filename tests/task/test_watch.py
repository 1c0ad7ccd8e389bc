"""What tells of a save: the watch on the folder, and a look at its files' times."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import watchfiles

from kernbench.task import source_files, watch

pytestmark = pytest.mark.anyio


class Seen:
    """Changes of a folder as they are told, and what was said meanwhile."""

    def __init__(self) -> None:
        self.told: list[bool] = []
        self.said: list[str] = []
        self._more = asyncio.Event()

    def hear(self, told: bool) -> None:
        self.told.append(told)
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def watching(folder: Path, state: Path | None = None, poll: bool = False) -> AsyncIterator[Seen]:
    seen, stop = Seen(), asyncio.Event()

    async def listen() -> None:
        async for told in watch.changes(folder, stop, poll, seen.said.append, state):
            seen.hear(told)

    listening = asyncio.create_task(listen())
    try:
        yield seen
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await listening


async def watch_begins(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[None]:
    """One for each time that a watch is on the folder."""
    begun: asyncio.Queue[None] = asyncio.Queue()
    awatch = watchfiles.awatch

    async def told(*words: object, **how: object) -> AsyncIterator[object]:
        watcher = awatch(*words, **{**how, "rust_timeout": 50})  # type: ignore[arg-type]
        first = True
        async for batch in watcher:
            if first:
                begun.put_nowait(None)
            first = False
            yield batch

    monkeypatch.setattr(watchfiles, "awatch", told)
    return begun


async def test_a_folder_that_was_made_again_is_watched_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = await watch_begins(monkeypatch)
    monkeypatch.setattr(watch, "LOOK_MS", 60_000)  # the looks tell of nothing here
    async with watching(folder) as seen, asyncio.timeout(60):
        await begun.get()
        shutil.copytree(folder, tmp_path / "made")
        folder.rename(tmp_path / "before")
        (tmp_path / "made").rename(folder)
        await begun.get()
        seen.told.clear()
        (folder / "solution.py").write_text("another")
        await seen.until(lambda: True in seen.told)


@pytest.mark.parametrize("spelled", ["notes/../st", "door/st"])
async def test_what_is_kept_in_the_state_is_no_change_however_it_is_spelled(folder: Path, spelled: str) -> None:
    (folder / "notes").mkdir()
    (folder / "st").mkdir()
    (folder / "door").symlink_to(".")
    batches = [folder / "st" / "runs.jsonl", folder / "st" / "sources" / "abc" / "solution.py"]

    async def told(*_: object, **__: object) -> AsyncIterator[set[tuple[int, str]]]:
        for path in (*batches, folder / "solution.py"):
            yield {(1, str(path))}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watchfiles, "awatch", told)
        found = [seen async for seen in watch._watched(folder, folder / spelled, asyncio.Event())]
    assert found == [False, False, True]


@pytest.mark.parametrize("poll", [False, True])
async def test_a_folder_that_cannot_be_looked_at_for_a_while_is_said_once_and_watched_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, poll: bool
) -> None:
    stamps, failures = source_files.stamps, list[int]()

    def fails(*words: Path | None) -> source_files.Stamps:
        if len(failures) < 3:
            failures.append(1)
            raise OSError(errno.EIO, "Input/output error", str(folder / "solution.py"))
        return stamps(*words)  # type: ignore[arg-type]

    async def blind(*_: object, stop_event: asyncio.Event, **__: object) -> AsyncIterator[set[object]]:
        while not stop_event.is_set():
            await asyncio.sleep(0.02)
            yield set()

    monkeypatch.setattr(source_files, "stamps", fails)
    monkeypatch.setattr(watchfiles, "awatch", blind)
    monkeypatch.setattr(watch, "LOOK_MS", 20)
    monkeypatch.setattr(watch, "POLL_MS", 20)
    async with watching(folder, poll=poll) as seen:
        await seen.until(lambda: len(failures) == 3 and bool(seen.told))  # by now it is known how the files are
        (folder / "solution.py").write_text("another")
        count = len(seen.told)
        await seen.until(lambda: len(seen.told) > count)
    (said,) = seen.said
    then = "saves will start runs again once that is fixed"
    assert said == f"cannot read {folder}/solution.py: Input/output error; {then}"


async def test_waiting_for_a_network_makes_no_look_rarer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*_: object) -> source_files.Stamps:
        time.sleep(0.3)
        return {}

    monkeypatch.setattr(source_files, "stamps", slowly)
    looks = watch.FolderPoller(folder, None, print)
    await looks.found_a_change()
    assert looks._took < 0.1  # of a processor
    looks._took = 1000.0
    looks._at = time.monotonic() - watch.LONGEST_REST_S
    assert looks.is_due(poll=True)
    assert not looks.is_due(poll=False)


async def test_a_name_that_is_not_utf8_ends_no_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = await watch_begins(monkeypatch)
    monkeypatch.setattr(watch, "LOOK_MS", 60_000)  # only a watch, or a look right after one ended, can report
    async with watching(folder) as seen, asyncio.timeout(60):
        for number in range(3):
            await begun.get()
            Path(os.fsdecode(bytes(folder) + b"/odd\xff.txt")).write_text(str(number))
        await begun.get()
        seen.told.clear()
        (folder / "solution.py").write_text("another")
        await seen.until(lambda: True in seen.told)
    assert seen.said == []
