"""transfer: a model's step as it is and with tasks' kernels in it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from harness.shared.codes import FEWEST_PAIRS, SIDES
from kernbench.commands.completion import complete_model, complete_task
from kernbench.commands.run import NO_DEVICE, USAGE, WRONG, read_device, run_until_signal
from kernbench.machine.terminal import clear_line, obeys


def side_names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    unknown = [name for name in names if name not in SIDES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(SIDES)}")
    return names


@click.command(short_help="Time a model's step with the tasks' kernels in it.")
@click.argument("model", shell_complete=complete_model)
@click.option("--task", "tasks", multiple=True, metavar="T", shell_complete=complete_task, help="Only this task.")
@click.option("--each", is_flag=True, help="Also patch in one task at a time.")
@click.option(
    "--sides",
    callback=side_names,
    metavar="A,B",
    help="Ways to run the step. Default: all, on a CPU eager,ours.",
)
@click.option(
    "--source",
    "what",
    type=click.Choice(["best", "now", "reference"]),
    help="Which source of a task. Default: its best, or its files now; on a CPU the reference of a GPU task.",
)
@click.option("--config", metavar="C", help="A config of the model. Default: the first; on a CPU `tiny`.")
@click.option(
    "--rounds",
    type=click.IntRange(FEWEST_PAIRS),
    help="Steps of every side, 72 by default; of a command, pairs of runs, 6 by default.",
)
@click.option("--steps", type=click.IntRange(0, 1000), default=0, metavar="N", help="Show the drift over N steps.")
@click.option("--device", metavar="D", help="cpu, cuda:N or idle. Default: the first GPU, or the CPU.")
@click.option("--python", metavar="P", help="Python interpreter that has torch and the model's packages.")
@click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the result.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of tables.")
def transfer(model: str, as_json: bool, device: str | None, state: Path | None, **given: Any) -> None:
    """Time one step of MODEL as it is and with the tasks' kernels in it, in turns, on one set of weights.

    Exits with 1 if the kernels are not kept: the step is slower, they never ran, or the output is out of its limits.

    \b
    kernbench transfer mini
    kernbench transfer flux --task qknorm_rope --sides eager,ours
    kernbench transfer wan --each
    """
    from kernbench.task import lookup
    from kernbench.transfer import model_file, model_report, model_run
    from kernbench.worker.process import Unusable

    folder = model_file.find_model(model)
    if device and model_file.load(folder, given["config"], on_cpu=True).command:
        raise click.UsageError(f"--device: {model} is a command, which chooses its GPUs; see CUDA_VISIBLE_DEVICES")
    options = model_run.TransferOptions(
        device=read_device(device),
        state=lookup.state_dir(folder, state.resolve()) if state else None,
        command=shlex.join(["kernbench", *sys.argv[1:]]),
        **given,
    )

    async def main() -> int:
        try:
            rows = await model_run.ModelRun(folder, options, _tell).rows()
        finally:
            _tell("")
        for line in map(model_run.line_of, rows) if as_json else model_report.lines(rows):
            click.echo(line)
        return 0 if all(row.kept for row in rows) else WRONG

    try:
        sys.exit(run_until_signal(main()))
    except Unusable as problem:
        click.echo(f"kernbench: {problem}", err=True)
        sys.exit(NO_DEVICE if problem.code == "no_device" else USAGE)


def _tell(text: str) -> None:
    """Overwrites one line on a terminal; silent elsewhere."""
    clear_line(sys.stderr)
    if obeys(sys.stderr):
        click.echo(text, err=True, nl=False)


COMMANDS = (transfer,)
