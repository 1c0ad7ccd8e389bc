"""`w`: choose a format and export the log; asks before it overwrites a file."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from harness.shared.errors import UserError
from kernbench.export.formats import FORMATS
from kernbench.tui.pages.dialogs import Choose, Confirm
from kernbench.tui.state.bench import Bench


def ask(bench: Bench) -> None:
    if not bench.engine.logbook.iterations():
        bench.say(f"nothing to export yet: save {bench.board.solution} to make the first iteration")
        return
    choices = [f"{kind}: {words}" for kind, words in FORMATS.items()]
    bench.push_screen(Choose("Export as", choices), partial(_chosen, bench))


def _chosen(bench: Bench, choice: str | None) -> None:
    if choice is None:
        return
    kind = choice.partition(":")[0]
    target = bench.engine.archive.export_target(kind)
    if target.exists():
        question = f"Overwrite {_short(target)}?"
        bench.push_screen(Confirm(question, "It already exists."), partial(_confirmed, bench, kind))
    else:
        bench.run_worker(_write(bench, kind, force=False), exit_on_error=False)


def _confirmed(bench: Bench, kind: str, yes: bool | None) -> None:
    if not yes:
        bench.say("nothing exported")
    else:
        bench.run_worker(_write(bench, kind, force=True), exit_on_error=False)


async def _write(bench: Bench, kind: str, force: bool) -> None:
    try:
        written = await asyncio.to_thread(bench.engine.archive.export, kind, force)
    except (UserError, OSError, ImportError) as problem:
        bench.tell(f"nothing exported: {problem}", "error")
        return
    more = f" and {len(written) - 1} more" if len(written) > 1 else ""
    bench.tell(f"wrote {_short(written[0])}{more}")


def _short(path: Path) -> str:
    """The shorter of the absolute path and the path from the working directory."""
    return min(str(path), os.path.relpath(path), key=len)
