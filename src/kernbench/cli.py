"""The command line: owns stdout, stderr and the exit codes.

Exit codes: 0 success; 1 a case is wrong, failed or slower; 2 usage error or bad task; 3 the requested device is missing
or unavailable; 4 `gate` cannot tell; 70 internal error. Data goes to stdout, messages go to stderr. A command's module
is imported when the command is named, and its dependencies when it is called, so `kernbench --version` stays instant.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from harness.shared.errors import UserError
from kernbench import version
from kernbench.commands import completion, run
from kernbench.machine.terminal import clear_line, print_only_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

LONGEST_HELP = 66
"""Characters that fit next to a command's name in 80 columns."""
PACKAGES = {
    "textual": "textual",
    "rich": "rich",
    "pandas": "pandas",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
}
"""What to install, by the name of the module that some command imports."""
READER_LEFT = 141
"""The exit code that shells report for a program killed by SIGPIPE."""
EXAMPLES = """\b
Examples:
  kernbench                          pick a task and open the workbench
  kernbench softmax_host             open the workbench on one task
  kernbench run softmax_host         check and time once, print a table
  kernbench run rms_norm --device cuda:0 -m "16-byte loads"
  kernbench log softmax_host         list the iterations so far

\b
Environment:
  KERNBENCH_PYTHONPATH   folders for the worker's sys.path, as in PYTHONPATH,
                         which the worker does not get
  NO_COLOR               no colors
"""


GROUPS = {
    "Work": {
        "open": "run",
        "run": "run",
        "watch": "run",
        "new": "setup",
        "import": "unattended.suites",
        "suite": "unattended.suites",
        "sweep": "unattended.sweep",
        "transfer": "models.transfer",
        "capture": "models.capture",
        "gate": "unattended.gate",
        "mcp": "unattended.mcp",
        "campaign": "unattended.campaign",
        "demo": "setup",
    },
    "Look": {
        "status": "history",
        "log": "history",
        "show": "history",
        "diff": "history",
        "know": "know",
        "profile": "profile",
        "trace": "profile",
        "rank": "models.rank",
        "guide": "guide",
    },
    "Share": {"export": "export", "port": "port", "restore": "history", "drop": "history"},
    "Machine": {
        "doctor": "setup",
        "selfcheck": "selfcheck",
        "fleet": "unattended.fleet",
        "completion": "completion",
    },
}
"""Commands by what they are for, each with the module of `kernbench.commands` that has it."""
MODULES = {name: module for group in GROUPS.values() for name, module in group.items()}


class OpensTasks(click.Group):
    """A group that imports the command that is asked for, and takes an unknown first word for a task to open."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        commands: tuple[click.Command, ...] = import_module(f"kernbench.commands.{MODULES[cmd_name]}").COMMANDS
        return next(command for command in commands if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """By what they are for, each with one whole line."""
        for title, names in GROUPS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, item.get_short_help_str(LONGEST_HELP)) for name, item in found if item])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [*super().shell_complete(ctx, incomplete), *completion.fitting_tasks(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            if len(args) > 1 and not args[1].startswith("-"):  # `open` takes one task only
                near = get_close_matches(args[0], self.list_commands(ctx), 1)
                hint = f"; did you mean {near[0]}?" if near else "; `kernbench --help` lists all commands"
                raise click.UsageError(f"unknown command {args[0]!r}{hint}")
            return "open", self.get_command(ctx, "open"), args
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # from `| head`; click would exit with 1, which means a wrong case
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(READER_LEFT)
        except KeyboardInterrupt:  # while a command loads; click would exit with 1
            clear_line(sys.stderr)
            ctx.exit(run.INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "-h", "--version"}
        is_completing = ctx.resilient_parsing and not args
        if not is_completing and (not args or (args[0].startswith("-") and args[0] not in own)):
            args = ["open", *args]
        return super().parse_args(ctx, args)


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"kernbench {version.described()}")
        ctx.exit()


@click.group(cls=OpensTasks, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, with the commit of a checkout, and exit.",
)
def cli() -> None:
    """A terminal workbench for live-editing GPU kernels.

    `kernbench [TASK]` opens the workbench, which checks, times and logs every save of the solution.
    """


def _missing(problem: Exception) -> str | None:
    """The package that an install with --no-deps left out."""
    name = problem.name if isinstance(problem, ModuleNotFoundError) else None
    return PACKAGES.get(name.partition(".")[0]) if name else None


def main(argv: list[str] | None = None) -> Any:
    print_only_text()
    try:
        return cli.main(args=argv, prog_name="kernbench", standalone_mode=True)
    except UserError as problem:
        click.echo(f"kernbench: {problem}", err=True)
        sys.exit(problem.exit_code)
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        is_gone = not place and isinstance(problem, FileNotFoundError)  # only getcwd names no file
        reason = "the current folder was deleted; go to another one" if is_gone else problem.strerror or problem
        click.echo(f"kernbench: {place}{reason}", err=True)
        sys.exit(2)
    except Exception as problem:
        from kernbench import crash_report

        if package := _missing(problem):
            command = f"{sys.executable} -m pip install {package}"
            click.echo(f"kernbench: this needs {package}, which is not installed; `{command}` installs it", err=True)
            sys.exit(2)
        if crash_report.is_asked_for():
            raise
        click.echo(f"kernbench: {crash_report.sentence(problem)}", err=True)
        sys.exit(crash_report.EXIT_CODE)


if __name__ == "__main__":
    main()
