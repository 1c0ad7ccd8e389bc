"""port: the best solution into a file of another project, its tests, and later whether the win is still there."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernbench.commands.completion import complete_iteration
from kernbench.commands.history import echo_diff, opened, state_option
from kernbench.commands.run import NO_DEVICE, WRONG, make_session, read_device, run_until_signal, task_argument

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.log.runs.journal import Journal
    from kernbench.upstream.port import Port


@click.command()
@task_argument
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to replace."
)
@click.option(
    "--from",
    "reference",
    default="best",
    show_default=True,
    metavar="N",
    shell_complete=complete_iteration,
    help="The source to port.",
)
@click.option("--file", "name", metavar="NAME", help="Source file to port, if several fit.")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("--force", is_flag=True, help="Write even if the repository is not clean, or names are lost.")
@click.option("--anyway", is_flag=True, help="Write even if a model does not keep this source.")
@click.option(
    "--check", metavar="COMMAND", help="Run these tests there before and after; put the file back if one breaks."
)
@click.option("--verify", is_flag=True, help="Write nothing: time the file there against the source.")
@click.option("--device", metavar="D", help="For --verify: cpu, cuda:N or idle.")
@click.option("--python", metavar="P", help="Python that can import the file, if not this one.")
@state_option
def port(
    task: str | None,
    target: Path,
    reference: str,
    name: str | None,
    dry_run: bool,
    force: bool,
    anyway: bool,
    check: str | None,
    verify: bool,
    device: str | None,
    python: str | None,
    state: Path | None,
) -> None:
    """Copy the best solution into a file in your project.

    Shows the difference first. Writes only if the file's repository is clean and no name in the file is lost or --force
    is given, if every model that ran this source keeps it or --anyway is given, and if the file can still be imported
    and no test of --check breaks; otherwise exits with 1.

    \b
    kernbench port rms_norm --to ../sglang/path/norm.py --check 'pytest test/test_norm.py'
    kernbench port rms_norm --to ../sglang/path/norm.py --verify
    """
    from kernbench.upstream import port as porting

    loaded, journal = opened(task, state)
    plan = porting.plan(loaded, journal, target, reference, name)
    if verify:
        if check or dry_run or anyway or force:
            raise click.UsageError("--verify writes nothing; use it without --check, --dry-run, --force and --anyway")
        sys.exit(_verify(loaded, journal.state, plan, read_device(device), python))
    lines = plan.diff()
    echo_diff(lines)
    if not lines and plan.old == plan.new:
        click.echo(f"{target} is already the same as {plan.name}", err=True)
        return
    sys.exit(_write(loaded, journal, plan, dry_run, force, anyway, check, python))


def _write(
    task: Task,
    journal: Journal,
    plan: Port,
    dry_run: bool,
    force: bool,
    anyway: bool,
    check: str | None,
    python: str | None,
) -> int:
    from kernbench.upstream import model_gate, port_check
    from kernbench.upstream import port as porting

    said = model_gate.gate(task, journal, plan.source_hash)
    for remark in said.remarks:
        _tell(remark)
    if dry_run:
        if said.obstacle:
            _tell(f"it would not be written: {said.obstacle}")
        return 0
    obstacle = ("" if anyway else said.obstacle) or ("" if force else porting.obstacle(plan))
    if obstacle:
        _tell(f"not written: {obstacle}")
        return WRONG
    if undone := port_check.write_checked(plan, check, _tell, python):
        _tell(undone)
        return WRONG
    if said.refused:
        said.overrule(journal.state, "port", plan.target.name)
        _tell(f"written anyway: {said.refusal}")
    click.echo(f"wrote {plan.name} to {plan.target}", err=True)
    if plan.others:
        names = ", ".join(plan.others)
        _tell(f"not ported: {names}; the speedup may depend on compile flags or launch code in them")
    return 0


def _verify(task: Task, state: Path, plan: Port, device: str | None, python: str | None) -> int:
    """Times the file there as the solution, with the source as its baseline, outside the task's log."""
    from kernbench.commands.printing import TablePrinter
    from kernbench.engine.jobs import Options
    from kernbench.events import Summary
    from kernbench.upstream import port_verify

    if plan.old == plan.new:
        click.echo(f"{plan.target} is the same as {plan.name}, byte for byte", err=True)
        return 0

    async def main() -> int:
        with tempfile.TemporaryDirectory(prefix="kernbench-verify-") as place:
            both = port_verify.sources(task, plan, Path(place))
            options = Options(
                device=device,
                python=python,
                baseline=str(both.ours / "solution.py"),
                source=both.theirs,
                confirm=False,
                spares=False,
                has_keys=False,
                harness=Path(os.environ["KERNBENCH_HARNESS"]) if "KERNBENCH_HARNESS" in os.environ else None,
            )
            session = make_session(task, options, Path(place) / "state")
            printer = TablePrinter(session)
            session.listen(printer)
            try:
                outcome = await session.run_once(iteration=False)
            finally:
                printer.close()
                await session.close()
            if session.problem is not None:
                return NO_DEVICE
            summary = outcome if isinstance(outcome, Summary) else None
            port_verify.note(state, plan, summary, printer.results)
            click.echo(port_verify.verdict(plan, summary, printer.results))
            return printer.exit_code

    return run_until_signal(main())


def _tell(sentence: str) -> None:
    click.echo(f"kernbench: {sentence}", err=True)


COMMANDS = (port,)
