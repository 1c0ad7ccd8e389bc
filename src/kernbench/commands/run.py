"""open, run and watch: the loop on the screen, a single run, and the loop without a screen."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from harness.shared import format as fmt
from kernbench.commands.completion import complete_baseline, complete_case, complete_task
from kernbench.machine.terminal import clear_line, forget_exported_size, obeys, silence

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.engine.jobs import Options
    from kernbench.engine.session import Session
    from kernbench.events import Event
    from kernbench.tui.pages.picker import TaskRow

WRONG, USAGE, NO_DEVICE = 1, 2, 3
INTERRUPTED = 130
TOUR = "kernbench.tour"
"""Where `demo` leaves the steps of its tour for `open`."""
STEPS = ("build", "baseline", "check", "time", "compile")
"""What --deadline can limit."""
UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write that names no file fails with if it was the output's."""
UNCOUNTED = "cannot match NVML's GPUs to CUDA's (their order may differ); set CUDA_VISIBLE_DEVICES to GPU UUIDs"
_F = TypeVar("_F", bound=Callable[..., Any])


def task_argument(command: _F) -> _F:
    return click.argument("task", required=False, shell_complete=complete_task)(command)


def loop_options(command: _F) -> _F:
    options = [
        click.option(
            "--case", metavar="GLOB", shell_complete=complete_case, help="Run only cases whose id or label matches."
        ),
        click.option("--grid", is_flag=True, help="Run all grid cases instead of a sample of 32."),
        click.option(
            "--baseline",
            metavar="eager|compile|best|FILE|git:REV",
            shell_complete=complete_baseline,
            help="Compare with this instead of the task's baseline.",
        ),
        click.option(
            "--device",
            metavar="D",
            help="cpu, cuda:N or idle (the least busy GPU). Default: the task's device, or the CPU if no GPU is found.",
        ),
        click.option("--python", metavar="P", help="Python interpreter that has torch, if not this one."),
        click.option(
            "--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs, instead of .kernbench."
        ),
        click.option(
            "--deadline",
            multiple=True,
            metavar="STEP=S",
            help=f"Time limit for a step, in seconds: {', '.join(STEPS)}.",
        ),
        click.option(
            "--budget", type=float, default=100.0, show_default=True, metavar="MS", help="Timing budget per case."
        ),
        click.option("--warm", "condition", flag_value="warm", help="On a GPU: keep L2 as the last call left it."),
        click.option("--dirty", "condition", flag_value="dirty", help="On a GPU: fill L2 with lines to write back."),
        click.option("--no-confirm", is_flag=True, help="Do not confirm a new best in a new worker: it stays `best?`."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def read_options(given: dict[str, Any], poll: bool = False, has_keys: bool = False) -> Options:
    from kernbench.engine.jobs import Options
    from kernbench.worker.deadlines import Deadlines

    seconds: dict[str, float] = {}
    for item in given["deadline"]:
        step, _, value = item.partition("=")
        try:
            seconds[step] = float(value)
            if step not in STEPS or not 0 < seconds[step] < float("inf"):
                raise ValueError
        except ValueError:
            raise click.UsageError(f"--deadline {item}: expected STEP=SECONDS ({', '.join(STEPS)})") from None
    if not 0 < given["budget"] < float("inf"):
        raise click.UsageError(f"--budget {fmt.plain(given['budget'])}: expected a positive number of milliseconds")
    return Options(
        device=read_device(given["device"]),
        python=given["python"],
        baseline=given["baseline"],
        case=given["case"],
        grid=given["grid"],
        poll=poll,
        has_keys=has_keys,
        budget_ms=given["budget"],
        condition=given["condition"] or "cold",
        deadlines=Deadlines(**seconds),
        confirm=not given["no_confirm"],
        harness=Path(os.environ["KERNBENCH_HARNESS"]) if "KERNBENCH_HARNESS" in os.environ else None,
    )


def read_device(given: str | None) -> str | None:
    device = idle_device() if given == "idle" else given
    if device is not None and device != "cpu" and not (device.startswith("cuda:") and device[5:].isdigit()):
        raise click.UsageError(f"--device {device}: expected cpu, idle or cuda:N, such as cuda:0")
    return device


def idle_device() -> str:
    """The least busy GPU. CUDA and NVML number GPUs differently, so the worker sees only this one, by its uuid."""
    from kernbench.machine import telemetry

    sample = telemetry.MachineReader().read()
    if (chosen := None if sample.is_uncounted else telemetry.idle(sample.gpus)) is None:
        why = UNCOUNTED if sample.is_uncounted else f"no GPU to choose from ({sample.why})"
        click.echo(f"kernbench: --device idle: {why}", err=True)
        sys.exit(NO_DEVICE)
    os.environ["CUDA_VISIBLE_DEVICES"] = chosen.uuid
    return "cuda:0"


def load_task(name: str | None, to_edit: bool = True, *, solution: bool = True) -> Task:
    from harness.shared import taskfile
    from kernbench.suites import opening

    return taskfile.load(opening.task_folder(name, to_edit), solution=solution)


def make_session(task: Task, options: Options, state: Path | None) -> Session:
    from kernbench.engine.session import Session
    from kernbench.task import case_choice

    if options.case is not None and not case_choice.matching(task, options.case):
        raise click.UsageError(f"no case of {task.name} matches {options.case!r}; try {task.cases[0].id!r}")
    if task.device == "cpu" and options.condition != "cold":
        raise click.UsageError(f"{task.name} is a CPU task; --{options.condition} only applies to a GPU's L2")
    if task.device == "cpu" and (options.device or "cpu") != "cpu":
        raise click.UsageError(f"{task.name} is a CPU task (device in its task.toml); omit --device")
    return Session(task, kept_in(task, state), options)


def kept_in(task: Task, state: Path | None) -> Path:
    """The folder of the task's runs, created if missing; resolved, so all spellings of --state give the same path."""
    from kernbench.task import lookup

    return lookup.state_dir(Path(task.folder), state and state.resolve())


def _has_no_device(session: Session) -> bool:
    return session.problem is not None and session.problem.code == "no_device"


def run_until_signal(main: Coroutine[Any, Any, int]) -> int:
    """Run in the main thread. SIGTERM and SIGHUP end it like ctrl+c, so that the worker is always closed.

    Only the first signal counts: `timeout` sends two, and the second would interrupt the cleanup.
    """
    import asyncio
    import signal

    async def guarded() -> int:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
        return await main

    try:
        return asyncio.run(guarded())
    except (KeyboardInterrupt, asyncio.CancelledError):
        clear_line(sys.stderr)
        return INTERRUPTED
    except OSError as problem:
        if problem.filename is not None or problem.errno not in UNWRITTEN:
            raise
        silence(problem)
        return USAGE


@click.command("open")
@task_argument
@loop_options
@click.option(
    "--poll", is_flag=True, help="Poll for saves three times a second (NFS and other folders without events)."
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Use only ASCII characters in the panes.")
@click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal, for selecting text.")
def open_workbench(task: str | None, poll: bool, ascii_only: bool, no_mouse: bool, **given: Any) -> None:
    """Open the workbench, or a picker if there are several tasks."""
    from kernbench import settings
    from kernbench.suites import opening
    from kernbench.task import lookup

    task = task and str(opening.task_folder(task))  # report an unknown task before anything else
    need_terminal()
    gc.disable()  # what is made for the first paint stays; the workbench turns it on after that
    forget_exported_size()
    options, chosen = read_options(given, poll, has_keys=True), settings.load()
    if task is None and len(lookup.list_tasks()) > 1 and not (Path.cwd() / lookup.TASK_FILE).exists():
        gc.enable()  # the picker may stay open for long
        if (task := pick(chosen.theme, ascii_only)) is None:
            return
        gc.disable()
    loaded = load_task(task)
    from kernbench.machine.telemetry import MachineReader
    from kernbench.tui import tour
    from kernbench.tui.messages import Tasks

    app = tour.workbench(click.get_current_context().meta.get(TOUR, ()))(
        make_session(loaded, options, given["state"]),
        ascii_only=ascii_only,
        reader=MachineReader(),
        settings=chosen,
        tasks=None if given["state"] else Tasks(task_rows, partial(open_other, options)),
    )
    app.run(mouse=not no_mouse)
    leave_if_failed(app.mistake, app.return_code)
    if unwritten := getattr(app.engine, "unwritten", ""):
        click.echo(f"kernbench: {unwritten}", err=True)
    problem = getattr(app.engine, "problem", None)
    if problem is not None:
        click.echo(f"kernbench: {problem}", err=True)
        sys.exit(NO_DEVICE if problem.code == "no_device" else USAGE)


def need_terminal() -> None:
    streams = (sys.stdin, sys.stdout, sys.stderr)  # the screen is drawn on stderr
    if not all(map(obeys, streams)):
        what = "a terminal that is not dumb (TERM)" if all(stream.isatty() for stream in streams) else "a terminal"
        raise click.UsageError(f"the workbench needs {what}; `kernbench run TASK` and `kernbench watch TASK` do not")


def open_other(options: Options, folder: str) -> Session:
    """Open another task with the same options, except those that only fit the first."""
    from dataclasses import replace

    from harness.shared.errors import UserError

    task = load_task(folder)
    on_cpu = task.device == "cpu"
    try:
        return make_session(task, replace(options, case=None, device=None if on_cpu else options.device), None)
    except click.UsageError as problem:
        raise UserError(problem.message) from None


def task_rows() -> list[TaskRow]:
    from kernbench.log import overview
    from kernbench.task import lookup
    from kernbench.tui.pages.picker import TaskRow

    rows = [overview.of(folder) for folder in lookup.list_tasks()]
    return [TaskRow(row.name, row.folder, row.best, row.last, row.age) for row in rows]


def pick(theme: str | None, ascii_only: bool) -> str | None:
    from kernbench.tui.pages.picker import TaskPicker

    picker = TaskPicker(task_rows(), theme, ascii_only)
    task = picker.run()
    leave_if_failed(picker.mistake, picker.return_code)
    return task


def leave_if_failed(mistake: str, code: int | None) -> None:
    """Exit if the screen ended with an internal error; without a sentence, it has already shown the traceback."""
    from kernbench import crash_report

    if mistake:
        click.echo(f"kernbench: {mistake}", err=True)
    if code:
        sys.exit(crash_report.EXIT_CODE)


def words(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Replace what is not UTF-8, so that the text can be logged from any terminal."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode(errors="replace")


@click.command()
@task_argument
@loop_options
@click.option("-m", "message", metavar="TEXT", callback=words, help="Hypothesis; adds this run to ITERATIONS.md.")
@click.option("--next", "next_step", default="", metavar="TEXT", callback=words, help="Next step for the entry.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines instead of a table.")
@click.option("--ascii", "ascii_only", is_flag=True, help="Use only ASCII characters.")
@click.option("--allow-slower", is_flag=True, help="Do not exit with 1 for a slower case.")
@click.option("--sanitize", is_flag=True, help="Run the smallest case once under compute-sanitizer instead.")
def run(
    task: str | None,
    message: str | None,
    next_step: str,
    as_json: bool,
    ascii_only: bool,
    allow_slower: bool,
    sanitize: bool,
    **given: Any,
) -> None:
    """Check and time the solution once.

    Exits with 1 if a case fails or is slower.

    \b
    kernbench run softmax_host --json | jq 'select(.event == "case")'
    kernbench run rms_norm --case '*3072*' -m "two rows per program" --next "try four"
    kernbench run rms_norm --sanitize --case '*3072*'
    """
    from kernbench.commands.printing import JsonPrinter, TablePrinter

    if sanitize:
        sys.exit(run_sanitizer(load_task(task), read_options(given), given["state"], as_json))

    async def main() -> int:
        session = make_session(load_task(task), read_options(given), given["state"])
        printer = JsonPrinter(session) if as_json else TablePrinter(session, ascii_only)
        printer.allow_slower = allow_slower
        session.listen(printer)
        if next_step and message is None:
            raise click.UsageError("--next is written into a log entry; add -m TEXT to make one")
        session.notes.hypothesis, session.notes.next_step = message or "", next_step
        try:
            await session.run_once(iteration=message is not None)
            await session.confirm()
        finally:
            printer.close()
            await session.close()
        if session.problem is not None:
            return NO_DEVICE if _has_no_device(session) else USAGE
        return printer.exit_code

    sys.exit(run_until_signal(main()))


def run_sanitizer(task: Task, options: Options, state: Path | None, as_json: bool) -> int:
    import json
    from dataclasses import asdict

    from kernbench.ncu import sanitizer as sanitize
    from kernbench.task import snapshot
    from kernbench.worker.process import harness_folder

    device = "cuda:0" if options.device in (None, "auto", "cuda") else options.device
    if task.device == "cpu" or device == "cpu":
        raise click.UsageError(f"--sanitize checks GPU memory accesses, but {task.name} runs on the CPU here")
    case, kept = sanitize.smallest(task, options.case), kept_in(task, state)
    sanitize.find()
    click.echo(f"running {case.id} once under {sanitize.TOOL}; this takes a while", err=True)
    source = snapshot.take(Path(task.folder), kept, task)
    place, python = options.harness or harness_folder(), options.python or sys.executable
    report = sanitize.check(task, case, source.folder, kept / "build", python, device, place)
    for error in report.errors:
        click.echo(json.dumps(asdict(error)) if as_json else str(error))
    if report.problem is not None and not report.errors:  # a memory error makes the call fail, too
        click.echo(f"kernbench: {case.id}: {report.problem}", err=True)
    elif not report.errors:
        click.echo(f"{case.id}: no memory errors", err=True)
    return WRONG if report.errors or report.problem is not None else 0


@click.command()
@task_argument
@loop_options
@click.option(
    "--poll", is_flag=True, help="Poll for saves three times a second (NFS and other folders without events)."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON lines; a case may appear twice, with `checked` 1 and 2."
)
def watch(task: str | None, poll: bool, as_json: bool, **given: Any) -> None:
    """Run on every save, without the screen, until ctrl+c."""
    from kernbench.commands.printing import JsonPrinter, TablePrinter

    async def main() -> int:
        session = make_session(load_task(task), read_options(given, poll), given["state"])
        printer = JsonPrinter(session, live=True) if as_json else TablePrinter(session)

        def tell(event: Event) -> None:
            printer(event)
            if session.environment is None and _has_no_device(session):  # a lost device may come back
                session.leave()

        session.listen(tell)
        try:
            await session.start()
            await session.closed()
        finally:
            printer.close()
            await session.close()
        return NO_DEVICE if _has_no_device(session) else 0

    sys.exit(run_until_signal(main()))


COMMANDS = (open_workbench, run, watch)
