"""rank: which Python functions a command's device time belongs to."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernbench.commands.run import run_until_signal

if TYPE_CHECKING:
    from kernbench.rank import fast_paths
    from kernbench.rank.ranking import Ranking
    from kernbench.rank.recorded_command import RecordOptions

SECONDS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0}


def read_seconds(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\w*)", text.strip())
    if found is None or found[2] not in SECONDS:
        raise click.BadParameter(f"{text!r} is not a time, such as 30s, 500ms or 2m")
    return float(found[1]) * SECONDS[found[2]]


@click.command(short_help="Rank a command's Python functions by device time.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read a trace of torch.profiler (.json, .json.gz) or an nsys export (.sqlite) instead of running COMMAND.",
)
@click.option(
    "--for", "for_s", default="5s", show_default=True, callback=read_seconds, metavar="T", help="How long to record."
)
@click.option(
    "--skip", "skip_s", default="0s", callback=read_seconds, metavar="T", help="Wait after the first call of a module."
)
@click.option("--whole", is_flag=True, help="Record from the import of torch on, not from the first call of a module.")
@click.option("--stop", is_flag=True, help="End COMMAND once its recording is written, for servers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of tables.")
def rank(
    command: tuple[str, ...],
    source: Path | None,
    for_s: float,
    skip_s: float,
    whole: bool,
    stop: bool,
    as_json: bool,
) -> None:
    """Show which Python functions the device time of COMMAND belongs to, and which of them are worth a kernel.

    Kernels count for the innermost function outside torch. COMMAND's own output goes to stderr.

    \b
    kernbench rank -- python generate.py
    kernbench rank --skip 20s --for 5s -- sglang generate --prompt cat
    kernbench rank --from step.trace.json.gz
    """
    if not command and source is None:
        raise click.UsageError("give a command after --, or a recording with --from")
    if whole and skip_s:
        raise click.UsageError("--skip counts from the first call of a module, which --whole does not wait for")
    from kernbench.rank import rank_report
    from kernbench.rank.recorded_command import RecordOptions

    def show(ranking: Ranking) -> None:
        for line in [json.dumps(line) for line in ranking.lines()] if as_json else rank_report.lines(ranking):
            click.echo(line)

    async def main() -> int:
        show(await ranked_command(command, RecordOptions(for_s, skip_s, whole, stop)))
        return 0

    if source is None:
        sys.exit(run_until_signal(main()))
    show(ranked_file(source, command))  # without an event loop, in which no signal would end it


def ranked_file(source: Path, command: tuple[str, ...]) -> Ranking:
    from kernbench.rank import chrome_trace, nsys_report, ranking
    from kernbench.rank.python_frames import Names

    recording = (nsys_report if nsys_report.is_export(source) else chrome_trace).read(source)
    path = [Path.cwd(), *(Path(place) for place in sys.path if place)]
    return ranking.rank(recording, Names(path), _fast_paths(), command)


async def ranked_command(command: tuple[str, ...], options: RecordOptions) -> Ranking:
    from kernbench.rank import ranking, recorded_command

    def echo(chunk: bytes) -> None:
        click.echo(chunk, err=True, nl=False)

    recording, names = await recorded_command.record(command, options, echo)
    return ranking.rank(recording, names, _fast_paths(), command)


def _fast_paths() -> list[fast_paths.FastPath]:
    from kernbench import settings
    from kernbench.rank import fast_paths

    return fast_paths.load([Path.cwd() / fast_paths.FILE, settings.place(os.environ).with_name(fast_paths.FILE)])


COMMANDS = (rank,)
