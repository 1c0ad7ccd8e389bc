"""gate: the tasks that changed since a revision, for CI and hooks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from harness.shared import format as fmt
from kernbench.atomic_write import written_aside
from kernbench.commands.completion import complete_task
from kernbench.commands.run import NO_DEVICE, USAGE, read_options, run_until_signal

if TYPE_CHECKING:
    from kernbench.gate.gate_report import Findings
    from kernbench.gate.gate_rows import TaskOutcome

LARGEST_TOLERANCE = 0.5
SUMMARY = "GITHUB_STEP_SUMMARY"


def revision(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not text.removeprefix("git:") or not text.startswith("git:"):
        raise click.BadParameter(f"{text} is not a revision such as git:origin/main")
    return text.removeprefix("git:")


def percentage(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """`3%`, or `0.03`."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= LARGEST_TOLERANCE:
        raise click.BadParameter(f"{text} is not a slowdown such as 3%")
    return value


def report_file(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a file that is not a report from before, or that cannot be written, while there is time."""
    if path is None:
        return None
    try:
        if path.exists() and not (path.is_file() and _begins_as_xml(path)):
            raise click.BadParameter(f"{path} exists and is not XML; choose another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(path, b""):
            pass
    except OSError as problem:
        raise click.BadParameter(f"cannot write {path}: {problem.strerror}") from None
    return path


def _begins_as_xml(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(5) == b"<?xml"


@click.command(short_help="Check the tasks that changed since a revision, for CI.")
@click.argument("tasks", nargs=-1, shell_complete=complete_task)
@click.option(
    "--against",
    callback=revision,
    default="git:origin/main",
    show_default=True,
    metavar="git:REV",
    help="Compare with the solutions of this revision.",
)
@click.option(
    "--tolerance",
    callback=percentage,
    metavar="P%",
    help="The smallest slowdown that counts. Default: 2% on a GPU, 5% on a CPU.",
)
@click.option("--case", metavar="GLOB", help="Run only cases whose id or label matches.")
@click.option("--grid", is_flag=True, help="Run all grid cases instead of a sample of 32.")
@click.option("--device", metavar="D", help="cpu, cuda:N or idle. With cuda:N, a missing GPU is an error.")
@click.option("--python", "pythons", multiple=True, metavar="P", help="Python that has torch; several: run under each.")
@click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs, instead of .kernbench.")
@click.option("--deadline", multiple=True, metavar="STEP=S", help="Time limit for a step, as in `kernbench run`.")
@click.option("--budget", type=float, default=200.0, show_default=True, metavar="MS", help="Timing budget per case.")
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=report_file,
    metavar="FILE",
    help="Write JUnit XML; replaces an earlier report.",
)
@click.option(
    "--summary",
    type=click.File("a", encoding="utf-8", lazy=False),
    envvar=SUMMARY,
    metavar="FILE",
    help=f"Append the result as Markdown. Default: ${SUMMARY}, if set.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of tables.")
def gate(
    tasks: tuple[str, ...],
    against: str,
    tolerance: float | None,
    pythons: tuple[str, ...],
    state: Path | None,
    junit: Path | None,
    summary: TextIO | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Check the tasks whose files changed, or TASKS, and time them against their solutions of another revision.

    Exits with 1 if a row is wrong or slower, 4 if the noise is too wide to tell, 0 otherwise. `kernbench guide ci`.

    \b
    kernbench gate --against git:origin/main
    kernbench gate --against git:v1.2 softmax_host --tolerance 3%
    """
    from kernbench.gate import changed_tasks, gate_report
    from kernbench.gate.gate_rows import exit_code
    from kernbench.gate.gate_run import Gate
    from kernbench.machine.git_folder import Revision
    from kernbench.task import lookup
    from kernbench.worker.process import Unusable

    options = read_options({**given, "python": None, "baseline": None, "condition": None, "no_confirm": True})
    folders = [lookup.find_task(name) for name in tasks]
    place = folders[0] if folders else Path.cwd()
    chosen = Revision.of(against, place)
    folders = folders or changed_tasks.changed(place, chosen)
    outcomes: list[TaskOutcome] = []
    many = len(folders) * max(len(pythons), 1)

    def tell(outcome: TaskOutcome) -> None:
        outcomes.append(outcome)
        took = fmt.seconds(outcome.seconds)
        click.echo(f"{len(outcomes)}/{many}  {outcome.name}  {outcome.word}  {took}", err=True)

    async def main() -> int:
        for python in pythons or (None,):
            named = (python or "") if len(pythons) > 1 else ""
            own = replace(options, python=python)
            await Gate(f"git:{chosen.commit}", own, tolerance, named, state).run(folders, tell)
        return exit_code(outcomes)

    try:
        code = run_until_signal(main())
    except Unusable as problem:
        click.echo(f"kernbench: {problem}", err=True)
        sys.exit(NO_DEVICE if problem.code == "no_device" else USAGE)
    if code == 130:
        sys.exit(code)
    found = gate_report.Findings(chosen, outcomes)
    for line in gate_report.json_lines(found) if as_json else (*gate_report.all_tables(found), found.verdict):
        click.echo(line)
    is_written = _write(found, junit, summary)
    sys.exit(code if is_written else code or USAGE)


def _write(found: Findings, junit: Path | None, summary: TextIO | None) -> bool:
    from kernbench.gate import gate_report

    try:
        if junit is not None:
            with written_aside(junit, gate_report.junit(found).encode()) as move:
                move()
        if summary is not None:
            summary.write(gate_report.summary(found) + "\n")
            summary.flush()
    except OSError as problem:
        name = problem.filename or getattr(summary, "name", "")
        click.echo(f"kernbench: cannot write {name}: {problem.strerror}", err=True)
        return False
    return True


COMMANDS = (gate,)
