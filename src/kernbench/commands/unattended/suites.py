"""import and suite: tasks from problems of other suites, one or many."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.shared import format as fmt
from harness.shared.errors import UserError
from kernbench.commands.run import loop_options, read_options, run_until_signal

if TYPE_CHECKING:
    from kernbench.engine.jobs import Options
    from kernbench.suites.formats.foreign_problem import Form, Problem
    from kernbench.suites.suite_run import Outcome, SuiteFile

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def fraction(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    """`1/16`, or `1` for the problem's own sizes."""
    found = re.fullmatch(r"1(?:/([1-9]\d{0,5}))?", text)
    if found is None:
        raise click.BadParameter(f"{text} is not a fraction such as 1/16")
    return int(found[1] or 1)


def duration(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """`90s`, `30m` or `8h`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smh])", text)
    if found is None:
        raise click.BadParameter(f"{text} is not a time such as 90s, 30m or 8h")
    return int(found[1]) * UNITS[found[2]]


def problems_in(source: Path, only: str | None) -> list[Problem]:
    from kernbench.suites import problems

    found = [problem for problem in problems.problems(source) if only is None or fnmatchcase(problem.name, only)]
    if not found:
        matching = f" that match {only}" if only is not None else ""
        raise UserError(f"no problems found in {source}{matching}; `kernbench guide suites` describes the formats")
    return found


@click.command("import", short_help="Make tasks from KernelBench, GPU MODE and other problems.")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--list", "only_list", is_flag=True, help="Show the problems; write nothing.")
@click.option("--only", metavar="GLOB", help="Only problems whose name matches, such as '19_*'.")
@click.option("--to", type=click.Path(path_type=Path), metavar="DIR", help="Where to put the tasks; default: here.")
@click.option("--copy", is_flag=True, help="Copy the problem into the task instead of linking to it.")
@click.option("--scale", callback=fraction, default="1", metavar="1/N", help="Divide the problem's sizes.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", help="What the tasks are for.")
@click.option(
    "--solution",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE|DIR",
    help="Start with this solution; for a single problem.",
)
def import_(
    source: Path,
    only_list: bool,
    only: str | None,
    to: Path | None,
    copy: bool,
    scale: int,
    device: str,
    solution: Path | None,
) -> None:
    """Make tasks from other suites' problems: one file, or all in a folder. Never overwrites files.

    KernelBench, SOL-ExecBench, flashinfer-bench, GPU MODE, robust-kbench, KDA-Pilot, plain files: `kernbench guide
    suites`.
    """
    from kernbench.suites.formats.foreign_problem import Form

    found = problems_in(source, only)
    if only_list:
        for problem in found:
            said = problem.refused and f"refused: {problem.refused}"
            click.echo(f"{problem.name}  {', '.join(filter(None, [problem.format, problem.about, said]))}")
        return
    if solution is not None and len(found) > 1:
        raise click.UsageError(f"--solution is for one problem, and {source} has {len(found)}")
    if solution is not None and solution.is_dir() != found[0].takes_folder:
        what = "folder" if found[0].takes_folder else "file"
        raise click.UsageError(f"--solution takes a {what} for {found[0].name}, and {solution} is none")
    made = _make(found, to or Path.cwd(), Form(scale, device, copy, solution))
    if len(found) > 1:
        click.echo(f"made {fmt.plural(made, 'task')} from {fmt.plural(len(found), 'problem')}", err=True)
        sys.exit(0 if made else 1)
    if found[0].about:
        click.echo(f"{found[0].title}: {found[0].about}", err=True)
    click.echo(f"`kernbench {(to or Path.cwd()) / found[0].name}` opens it; edit {found[0].edited} there", err=True)


def _make(found: list[Problem], to: Path, form: Form) -> int:
    """Makes their tasks and says where; a problem of several that is refused costs only itself. Returns how many."""
    from kernbench.suites.imported_task import write

    made = 0
    for problem in found:
        was_there = (to / problem.name).exists()
        try:
            folder = write(problem, to / problem.name, form)
        except UserError as refusal:
            if len(found) == 1:
                raise
            click.echo(f"refused: {refusal}", err=True)
        else:
            made += 1
            said = f"{folder} is there already, and was not changed" if was_there else f"{folder}"
            click.echo(said, err=was_there or len(found) == 1)
    return made


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), default=Path("suite"), metavar="DIR", help="Default: ./suite.")
@click.option("--only", metavar="GLOB", help="Only problems whose name matches.")
@click.option(
    "--solutions",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Solutions by the problems' names, such as 19_ReLU.py; without one, a problem runs as its own solution.",
)
@click.option("--scale", callback=fraction, default="1", metavar="1/N", help="Divide the problems' sizes.")
@click.option("--quick", is_flag=True, help="Only the quick checks, on one seed.")
@click.option("--resume", is_flag=True, help="Skip the problems that suite.jsonl already has.")
@click.option("--for", "budget_s", callback=duration, metavar="TIME", help="Stop after this time: 90s, 30m, 8h.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON line per problem instead of text.")
@click.option("--ray", "ray_address", metavar="auto|HOST:PORT", help="Run on the GPUs of this Ray cluster.")
@loop_options
def suite(
    source: Path,
    to: Path,
    only: str | None,
    solutions: Path | None,
    scale: int,
    quick: bool,
    resume: bool,
    budget_s: float | None,
    as_json: bool,
    ray_address: str | None,
    **given: Any,
) -> None:
    """Run all problems of a suite, unattended, and write a report."""
    from kernbench.suites import suite_report
    from kernbench.suites.formats.foreign_problem import Form
    from kernbench.suites.imported_task import write
    from kernbench.suites.suite_run import SuiteFile

    if ray_address is not None and given["device"] not in (None, "cpu"):
        raise click.UsageError("--ray takes every GPU of the cluster; only --device cpu goes with it")
    options = replace(read_options(given), quick=quick)
    found, file = problems_in(source, only), SuiteFile(to)
    names = {problem.name for problem in found}
    known = {name: item for name, item in file.known().items() if name in names} if resume else {}
    if file.path.exists() and not resume:
        raise UserError(f"{file.path} already exists; go on with --resume, or choose another folder with `--to`")

    def left(device: str) -> dict[str, Callable[[], Path]]:
        return {
            item.name: partial(write, item, to / item.name, Form(scale, device, False, _own(solutions, item)))
            for item in found
            if item.name not in known
        }

    outcomes, began = dict(known), time.monotonic()

    def tell(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        if as_json:
            click.echo(json.dumps(asdict(outcome)))
            return
        each = (time.monotonic() - began) / (len(outcomes) - len(known))
        click.echo(f"{len(outcomes)}/{len(found)}  {_result(outcome)}{_standing(outcomes, len(found), each)}")

    async def main() -> int:
        await _run_all(file, options, budget_s, ray_address, left, tell)
        return 0 if all(item.is_right for item in outcomes.values()) and len(outcomes) == len(found) else 1

    try:
        code = run_until_signal(main())
    finally:
        written = suite_report.write(to, source.name, list(outcomes.values()))
    if not as_json:
        click.echo("\n".join(suite_report.summary(list(outcomes.values()))))
    for report in written:
        click.echo(f"wrote {report}", err=True)
    sys.exit(code)


async def _run_all(
    file: SuiteFile,
    options: Options,
    budget_s: float | None,
    ray_address: str | None,
    left: Callable[[str], dict[str, Callable[[], Path]]],
    tell: Callable[[Outcome], None],
) -> None:
    """Here, or on a cluster."""
    if ray_address is not None:
        from kernbench.fleet.ray_suite import RaySuite

        await RaySuite(file, options, budget_s, ray_address).run(left, tell, lambda text: click.echo(text, err=True))
    else:
        from kernbench.suites.opening import device_here
        from kernbench.suites.suite_run import Suite

        device = device_here() if options.device is None else options.device.partition(":")[0]
        await Suite(file, options, budget_s).run(left(device), tell)


def _result(outcome: Outcome) -> str:
    what = outcome.word if outcome.is_right else f"{outcome.word}: {outcome.detail}"
    speed = "" if outcome.speedup is None else f" {fmt.times(outcome.speedup)}"
    return f"{outcome.name}  {what}{speed}  {fmt.seconds(outcome.seconds)}"


def _standing(outcomes: dict[str, Outcome], all_of_them: int, seconds_each: float) -> str:
    """How many have failed so far, and about how long the others will take."""
    failed = sum(not item.is_right for item in outcomes.values())
    left = (all_of_them - len(outcomes)) * seconds_each
    return (f", {failed} failed" if failed else "") + (f", about {fmt.seconds(left)} left" if left else "")


def _own(solutions: Path | None, problem: Problem) -> Path | None:
    """The solution of a problem's name, whatever its suffix; a folder of that name if it is one."""
    if solutions is not None and problem.takes_folder:
        return solutions / problem.name if (solutions / problem.name).is_dir() else None
    found = sorted(solutions.glob(f"{problem.name}.*")) if solutions is not None else []
    return next((path for path in found if path.is_file()), None)


COMMANDS = (import_, suite)
