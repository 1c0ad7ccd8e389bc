"""sweep: variants of a solution, the best of them in the log and, if asked, in the file."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.commands.run import (
    NO_DEVICE,
    USAGE,
    WRONG,
    kept_in,
    load_task,
    loop_options,
    read_options,
    run_until_signal,
    task_argument,
    words,
)

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.events import Event, Summary
    from kernbench.sweep.halving import Standing
    from kernbench.sweep.sweep_report import SweepReport
    from kernbench.sweep.sweep_run import Sweep
    from kernbench.sweep.variants import Setting, Variant

OWN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")
"""The name of a sweep's folder."""
STATE, MOST_KEPT = "sweeps", 20
"""Folder in the task's state folder, and how many sweeps it keeps."""


@click.command(short_help="Try values of constants, and time the best of them in full.")
@task_argument
@click.option("--set", "sets", multiple=True, metavar="NAME=A,B,C", help="Values of a constant; several: all pairs.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Try N of the combinations.")
@click.option(
    "--variants",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead of --set: a folder with one file per variant.",
)
@click.option("--write", is_flag=True, help="Write the winner to the solution if it is faster beyond the noise.")
@click.option("-m", "message", metavar="TEXT", callback=words, help="Hypothesis for the entry in ITERATIONS.md.")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Folder for the report.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of a table.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Use only ASCII characters.")
@loop_options
def sweep(
    task: str | None,
    sets: tuple[str, ...],
    sample: int | None,
    variants: Path | None,
    write: bool,
    message: str | None,
    to: Path | None,
    as_json: bool,
    ascii_only: bool,
    **given: Any,
) -> None:
    """Try variants of the solution: screen all of them, time the best in full, log the winner.

    Exits with 1 if no variant is right. `kernbench guide sweep`.

    \b
    kernbench sweep rms_norm --set TILE=1024,2048,4096 --set num_warps=2,4,8
    kernbench sweep softmax_host --variants variants --write
    """
    from kernbench.sweep.sweep_run import Sweep
    from kernbench.task import snapshot

    loaded, options = load_task(task), read_options(given)
    if to is not None and (there := next(to.glob("report.*"), None)) is not None:
        raise UserError(f"{there} already exists; choose another folder with `--to`")
    state = kept_in(loaded, given["state"])
    contents = snapshot.read(Path(loaded.folder), state, loaded.ignore)
    names, found = _variants(contents, loaded, sets, sample, variants)
    began_with = snapshot.keep(contents, state, loaded).sha
    told = _Teller(loaded, names, as_json, ascii_only)
    folder = _own_folder(state)
    run = Sweep(loaded, state, folder, options, found)
    command = _command(loaded, sets, sample, variants)

    async def main() -> int:
        try:
            await run.run(told.stage)
            if run.winner is None:
                return WRONG
            click.echo(f"timing the winner against {loaded.baseline} and the best so far", err=True)
            told.entry = await run.log(run.winner, message or told.hypothesis(run), told.tried(run, command), told.hear)
            return 0 if told.entry is not None and told.entry.right else WRONG
        finally:
            await run.close()

    from kernbench.worker.process import Unusable

    try:
        code = run_until_signal(main())
    except Unusable as problem:
        click.echo(f"kernbench: {problem}", err=True)
        code = NO_DEVICE if problem.code == "no_device" else USAGE
    told.is_over = code in (0, WRONG)
    if not told.is_over and all(item.status == "waiting" for item in run.standings):
        sys.exit(code)
    wrote = told.written(run, began_with) if write and code == 0 else ""
    told.end(run, command, to or folder, wrote)
    sys.exit(code)


def _variants(
    contents: dict[str, bytes], task: Task, sets: tuple[str, ...], sample: int | None, folder: Path | None
) -> tuple[tuple[str, ...], list[Variant]]:
    """The names of the constants, and the variants."""
    from kernbench.sweep import variants

    if bool(sets) == (folder is not None):
        raise click.UsageError("give --set NAME=A,B,C (several times for several constants), or --variants DIR")
    if folder is not None:
        return ("variant",), variants.of_folder(contents, task, folder)
    settings: list[Setting] = [variants.Setting.parse(text) for text in sets]
    return tuple(setting.name for setting in settings), variants.of_constants(contents, task, settings, sample)


def _command(task: Task, sets: tuple[str, ...], sample: int | None, folder: Path | None) -> str:
    words = ["kernbench", "sweep", Path(task.folder).name]
    words += [word for text in sets for word in ("--set", text)]
    words += ["--sample", str(sample)] if sample is not None else []
    words += ["--variants", str(folder)] if folder is not None else []
    return shlex.join(words)


def _own_folder(state: Path) -> Path:
    """A new folder for this sweep's runs, sources and report; the oldest ones make room."""
    import secrets
    import shutil

    place = state / STATE
    kept = sorted(old for old in place.iterdir() if OWN.fullmatch(old.name)) if place.is_dir() else []
    for old in kept[: -MOST_KEPT + 1]:
        shutil.rmtree(old, ignore_errors=True)
    folder = place / f"{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    folder.mkdir(parents=True)
    return folder


class _Teller:
    """Says how the sweep goes, and what came of it."""

    def __init__(self, task: Task, names: tuple[str, ...], as_json: bool, ascii_only: bool) -> None:
        self._task, self._names, self._as_json, self._ascii_only = task, names, as_json, ascii_only
        self._began = time.monotonic()
        self.is_over = True
        self.entry: Summary | None = None

    def stage(self, stage: str, item: Standing) -> None:
        from kernbench.sweep import sweep_report

        if self._as_json:
            click.echo(sweep_report.json_line(stage, item))
            return
        said = fmt.speedup(item.ratio) if item.score is not None else f"{item.word}: {item.detail}"
        click.echo(f"{stage}  {item.variant.name}  {'right' if item.variant.is_now and item.score else said}", err=True)

    def hear(self, event: Event) -> None:
        from kernbench.events import BuildFailed, Notice

        if isinstance(event, Notice):
            click.echo(f"kernbench: {event.text}", err=True)
        elif isinstance(event, BuildFailed):
            click.echo(f"kernbench: {event.message}", err=True)

    def found(self, run: Sweep) -> SweepReport:
        from kernbench.sweep.sweep_report import SweepReport

        return SweepReport(
            task=self._task.name,
            names=self._names,
            standings=run.standings,
            winner=run.winner,
            over=run.over,
            device=run.device,
            seconds=time.monotonic() - self._began,
            is_over=self.is_over,
        )

    def hypothesis(self, run: Sweep) -> str:
        assert run.winner is not None
        best = "the source as it is" if run.winner.variant.is_now else run.winner.variant.name
        return f"sweep of {', '.join(self._names)}: {best} is the fastest of {len(run.standings)}"

    def tried(self, run: Sweep, command: str) -> str:
        from kernbench.sweep import sweep_report

        return sweep_report.tried(self.found(run), command)

    def written(self, run: Sweep, began_with: str) -> str:
        """Writes the winner; returns a sentence, also where it is not written."""
        found = self.found(run)
        if self.entry is not None and self.entry.is_refused:
            return "nothing was written: the winner's confirmation disagreed with its run"
        against = self.entry.vs_best if self.entry is not None else None
        if against is not None and against.high < 1:
            return f"nothing was written: in its own run the winner is {fmt.speedup(against)} of the best"
        if found.winner is None or not found.is_better:
            return "nothing was written: no variant is faster than the source as it is beyond the noise"
        try:
            return run.write(found.winner, began_with, self.entry.iteration if self.entry is not None else None)
        except UserError as problem:
            return f"nothing was written: {problem}"

    def end(self, run: Sweep, command: str, folder: Path, wrote: str) -> None:
        from kernbench import report
        from kernbench.sweep import sweep_report

        found, entry = self.found(run), self.entry.iteration if self.entry is not None else None
        if self._as_json:
            click.echo(sweep_report.json_end(found, command, wrote, entry))
        else:
            chart = sweep_report.heat_text(found, self._ascii_only)
            for line in (*sweep_report.table(found), "", *chart, *([""] if chart else []), found.sentence):
                click.echo(line)
        if self.entry is not None:
            click.echo(f"the winner's own run: {report.outcome(self.entry)}", err=True)
        for sentence in (
            wrote,
            *(f"wrote {os.path.relpath(path)}" for path in sweep_report.write(folder, found, command)),
        ):
            if sentence:
                click.echo(sentence, err=True)


COMMANDS = (sweep,)
