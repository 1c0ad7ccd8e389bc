"""profile and trace: one case under Nsight Compute or torch's profiler, without the screen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.shared import format as fmt
from kernbench.commands.completion import complete_against, complete_baseline, complete_case
from kernbench.commands.run import (
    NO_DEVICE,
    USAGE,
    WRONG,
    load_task,
    make_session,
    read_device,
    run_until_signal,
    task_argument,
)

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.engine.jobs import Options
    from kernbench.engine.session import Session
    from kernbench.events import RefusalCode
    from kernbench.ncu.explainer import Answer


@click.command()
@task_argument
@click.option(
    "--case",
    required=True,
    metavar="ID",
    shell_complete=complete_case,
    help="Id, label, or a pattern that matches only this case.",
)
@click.option(
    "--against",
    metavar="baseline|best|N",
    shell_complete=complete_against,
    help="Compare with the baseline, the best or an iteration.",
)
@click.option("--full", is_flag=True, help="All metrics, the hottest lines, and a report for the Nsight Compute GUI.")
@click.option("--ncu", metavar="PATH", help="Use this ncu instead of the one on PATH.")
@click.option(
    "--baseline",
    metavar="eager|compile|FILE",
    shell_complete=complete_baseline,
    help="Use this baseline instead of the task's.",
)
@click.option("--device", metavar="D", help="cuda:N or idle (the least busy GPU). Default: the first GPU.")
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs, instead of .kernbench.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per side.")
@click.option("--markdown", is_flag=True, help="Print the comparison as a Markdown table, for a pull request.")
def profile(task: str | None, case: str, as_json: bool, markdown: bool, against: str | None, **given: Any) -> None:
    """Show what limits one case and what to try next.

    \b
    kernbench profile rms_norm --case 4096x3072
    kernbench profile rms_norm --case 4096x3072 --against best --json
    kernbench profile rms_norm --case 4096x3072 --full
    """
    from kernbench.events import ProfileFailed

    if markdown and against is None:
        raise click.UsageError("--markdown prints a comparison; add what to compare with, such as --against baseline")
    loaded = load_task(task)
    only = _only(loaded, case)

    async def main() -> int:
        session = make_session(loaded, _options(given), given["state"])
        try:
            if loaded.device != "cpu":
                click.echo(f"profiling {only}; ncu has to start first (in the workbench it is kept ready)", err=True)
            answer = await session.profile(only, against, given["full"])
            if isinstance(answer, ProfileFailed):
                return _failed(answer, as_json)
            await _print(session, answer, as_json, markdown)
        finally:
            await session.close()
        return 0

    sys.exit(run_until_signal(main()))


def _only(task: Task, case: str) -> str:
    from harness.shared.errors import UserError
    from kernbench.task import case_choice

    try:
        return case_choice.only(task, case).id
    except UserError as problem:
        raise click.UsageError(f"--case {problem}") from None


async def _print(session: Session, answer: Any, as_json: bool, markdown: bool) -> None:
    from kernbench.diagnosis.rules import diagnose
    from kernbench.ncu import profile_text
    from kernbench.ncu.profiler import as_json as in_json

    both = [answer.profile, *([answer.other] if answer.other else [])]
    if as_json:
        for item in both:
            click.echo(json.dumps(in_json(item, diagnose(item)), allow_nan=False))
        return
    if markdown and answer.other is not None:
        click.echo(profile_text.markdown(answer.other, answer.profile))
        return
    tried = await session.archive.tried()
    for line in profile_text.summary_lines(answer.profile, answer.diagnosis, answer.other, width=80, tried=tried):
        click.echo(line)
    if answer.profile.report:
        await _print_full(session, answer.profile)
    click.echo(fmt.seconds(answer.seconds), err=True)


async def _print_full(session: Session, profile: Any) -> None:
    from kernbench.ncu import profile_text

    found = await session.explainer.profiler.drilldown(profile)
    click.echo()
    for line in profile_text.hot_lines(found.lines):
        click.echo(line)
    click.echo()
    click.echo(found.details)
    click.echo(f"the report is {profile.report}; open it in the Nsight Compute GUI", err=True)


def _failed(answer: Answer, as_json: bool) -> int:
    from kernbench import render
    from kernbench.diagnosis.rules import diagnose
    from kernbench.events import ProfileFailed
    from kernbench.ncu import profile_text
    from kernbench.ncu.profiler import as_json as in_json

    assert isinstance(answer, ProfileFailed)
    click.echo(f"kernbench: {render.place(answer.where, answer.message)}", err=True)
    if answer.known is not None and as_json:
        click.echo(json.dumps(in_json(answer.known, diagnose(answer.known)), allow_nan=False))
    elif answer.known is not None:
        for line in profile_text.summary_lines(answer.known, diagnose(answer.known), width=80):
            click.echo(line)
    return _status(answer.code, WRONG)


def _status(refusal: RefusalCode | None, otherwise: int) -> int:
    from kernbench.ncu import refusals

    return NO_DEVICE if refusal in refusals.NO_DEVICE else otherwise


@click.command()
@task_argument
@click.option(
    "--case",
    required=True,
    metavar="ID",
    shell_complete=complete_case,
    help="Id, label, or a pattern that matches only this case.",
)
@click.option("--device", metavar="D", help="cpu, cuda:N or idle (the least busy GPU). Default: the task's device.")
@click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one.")
@click.option("--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs, instead of .kernbench.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="PATH", help="Write the Chrome trace here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per kernel and operator.")
def trace(task: str | None, case: str, output: Path | None, as_json: bool, **given: Any) -> None:
    """Show where one call spends its time, by kernel and operator.

    Uses torch's profiler and writes a Chrome trace.

    \b
    kernbench trace softmax_host --case 128x4096
    kernbench trace rms_norm --case 4096x3072 -o trace.json
    """
    from dataclasses import asdict

    from harness.shared.errors import UserError
    from kernbench.ncu import profile_text
    from kernbench.ncu.refusals import Refused

    loaded = load_task(task)
    only = _only(loaded, case)

    async def main() -> int:
        session = make_session(loaded, _options(given), given["state"])
        place = (output or trace_file(session.state, only)).absolute()
        try:
            rows = await session.trace(only, place)
        except UserError as problem:
            click.echo(f"kernbench: {problem}", err=True)
            return _status(problem.code if isinstance(problem, Refused) else None, USAGE)
        finally:
            await session.close()
        for line in [json.dumps(asdict(row)) for row in rows] if as_json else profile_text.trace_lines(rows):
            click.echo(line)
        click.echo(f"open {place} in a browser: chrome://tracing or ui.perfetto.dev", err=True)
        return 0

    sys.exit(run_until_signal(main()))


def trace_file(state: Path, case: str) -> Path:
    """Directly in the state folder, even if the case's name contains a slash."""
    return state / f"trace-{case.replace('/', '_')}.json"


def _options(given: dict[str, Any]) -> Options:
    from kernbench.engine.jobs import Options

    return Options(
        device=read_device(given["device"]),
        python=given["python"],
        baseline=given.get("baseline"),
        ncu=given.get("ncu"),
        harness=Path(os.environ["KERNBENCH_HARNESS"]) if "KERNBENCH_HARNESS" in os.environ else None,
    )


COMMANDS = (profile, trace)
