"""sweep: variants of a solution, the best of them in the log and, if asked, in the file."""

from __future__ import annotations

import os
import shlex
import sys
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
    from collections.abc import Callable

    from harness.shared.task import Task
    from kernbench.engine.jobs import Options
    from kernbench.events import Event
    from kernbench.sweep.halving import Standing
    from kernbench.sweep.sweep_job import SweepJob
    from kernbench.sweep.trial import Bench
    from kernbench.sweep.variants import Setting, Variant


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
@click.option("--ray", "ray_address", metavar="auto|HOST:PORT", help="Time the variants on this Ray cluster.")
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
    ray_address: str | None,
    ascii_only: bool,
    **given: Any,
) -> None:
    """Try variants of the solution: screen all of them, time the best in full, log the winner.

    Exits with 1 if no variant is right. `kernbench guide sweep`.

    \b
    kernbench sweep rms_norm --set OF_A_WARP=512,1024,2048 --set num_warps=2,4,8
    kernbench sweep softmax_host --variants variants --write
    """
    from kernbench.sweep.sweep_job import Order, SweepJob
    from kernbench.task import snapshot

    if ray_address is not None and given["device"] not in (None, "cpu"):
        raise click.UsageError("--ray takes the GPUs of the cluster; only --device cpu goes with it")
    loaded, options = load_task(task), read_options(given)
    if to is not None and (there := next(to.glob("report.*"), None)) is not None:
        raise UserError(f"{there} already exists; choose another folder with `--to`")
    state = kept_in(loaded, given["state"])
    contents = snapshot.read(Path(loaded.folder), state, loaded.ignore)
    names, found = _variants(contents, loaded, sets, sample, variants)
    command = _command(loaded, sets, sample, variants, ray_address)
    bench = _on_cluster(ray_address, loaded, options, found) if ray_address is not None else None
    job = SweepJob(Order(loaded, state, contents, names, found, command), options, bench)
    told = _Teller(job, as_json, ascii_only)
    next_step = f"timing the winner against {loaded.baseline} and the best so far"
    code = _run(job, next_step, message or "", told, write)
    job.is_over = code in (0, WRONG)
    if not job.is_over and all(item.status == "waiting" for item in job.sweep.standings):
        sys.exit(code)
    told.end(to or job.folder, job.write() if write and code == 0 else "")
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


def _run(job: SweepJob, next_step: str, message: str, told: _Teller, write: bool) -> int:
    """Runs the sweep to its end; returns the exit code."""
    from kernbench.worker.process import Unusable

    async def main() -> int:
        try:
            await job.run(told.stage)
            if (won := job.sweep.winner) is None:
                return WRONG
            click.echo(next_step, err=True)
            try:
                entry = await job.log(message, told.hear)
            except Unusable as problem:  # here; the variants were timed elsewhere
                hint = "" if write or won.variant.is_now else f"; {job.sweep.put_there(won)}"
                click.echo(f"kernbench: {problem}{hint}", err=True)
                return 0
            return 0 if entry is not None and entry.right else WRONG
        finally:
            await job.close()

    try:
        return run_until_signal(main())
    except Unusable as problem:
        click.echo(f"kernbench: {problem}", err=True)
        return NO_DEVICE if problem.code == "no_device" else USAGE
    except UserError as problem:
        if all(item.status == "waiting" for item in job.sweep.standings):
            raise
        click.echo(f"kernbench: {problem}", err=True)  # a cluster is gone: the table has what was measured
        return USAGE


def _on_cluster(address: str, task: Task, options: Options, variants: list[Variant]) -> Callable[[Path], Bench]:
    from kernbench.fleet.ray_bench import RayBench

    return lambda folder: RayBench(address, task, folder, options, variants, lambda text: click.echo(text, err=True))


def _command(
    task: Task, sets: tuple[str, ...], sample: int | None, folder: Path | None, ray_address: str | None
) -> str:
    words = ["kernbench", "sweep", Path(task.folder).name]
    words += [word for text in sets for word in ("--set", text)]
    words += ["--sample", str(sample)] if sample is not None else []
    words += ["--variants", str(folder)] if folder is not None else []
    words += ["--ray", ray_address] if ray_address is not None else []
    return shlex.join(words)


class _Teller:
    """Says how the sweep goes, and what came of it."""

    def __init__(self, job: SweepJob, as_json: bool, ascii_only: bool) -> None:
        self._job, self._as_json, self._ascii_only = job, as_json, ascii_only

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

    def end(self, folder: Path, wrote: str) -> None:
        from kernbench import report
        from kernbench.sweep import sweep_report

        found, entry, command = self._job.report(), self._job.entry, self._job.command
        if self._as_json:
            click.echo(sweep_report.json_end(found, command, wrote, entry.iteration if entry is not None else None))
        else:
            chart = sweep_report.heat_text(found, self._ascii_only)
            for line in (*sweep_report.table(found), "", *chart, *([""] if chart else []), found.sentence):
                click.echo(line)
        if entry is not None:
            click.echo(f"the winner's own run: {report.outcome(entry)}", err=True)
        for sentence in (
            wrote,
            *(f"wrote {os.path.relpath(path)}" for path in sweep_report.write(folder, found, command)),
        ):
            if sentence:
                click.echo(sentence, err=True)


COMMANDS = (sweep,)
