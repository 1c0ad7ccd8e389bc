"""Shell completion of tasks, cases, iterations and baselines, and the script that asks for it.

An answer must come while a finger is still on the tab key: files are read, nothing is imported or run. Only words that
a shell takes as they are: another would be split, or run as a command, once it is typed.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from harness.shared.task import Task

ENTRY = re.compile(r"^## (\d{1,9}) · (.*)$", re.MULTILINE)
LARGEST_LOG = 1 << 26
Pairs = Iterable[tuple[str, str]]
"""Words with what a shell may show next to them."""


def _fitting(pairs: Pairs, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(word, help=says or None)
        for word, says in pairs
        if word.startswith(incomplete) and _is_one_word(word)
    ]


def _is_one_word(text: str) -> bool:
    """Whether a shell takes it as it is."""
    return shlex.quote(text) == text


def complete_task(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return fitting_tasks(incomplete)


def fitting_tasks(incomplete: str) -> list[CompletionItem]:
    return _fitting(((name, "") for name in _tasks()), incomplete)


def complete_shipped(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tasks to copy: the project's and the shipped ones."""
    from kernbench.task import lookup

    return _fitting(((name, "") for name in sorted({*_tasks(), *lookup.shipped_tasks()})), incomplete)


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from kernbench.transfer import model_file

    return _fitting(((name, "") for name in model_file.models()), incomplete)


def complete_case(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Labels, as the table shows them, or ids: those that a shell would not take as they are, and all once an id's
    beginning was typed."""
    task = _task(_named(ctx))
    if task is None:
        return []
    shown = [case for case in task.cases if case.kind != "check"] or task.cases
    short = ((case.label if _is_one_word(case.label) else case.id, ", ".join(case.models)) for case in shown)
    return _fitting(short, incomplete) or _fitting(((case.id, case.label) for case in shown), incomplete)


def complete_iteration(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _fitting(_iterations(_named(ctx)), incomplete)


def complete_against(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _fitting([("baseline", "the task's baseline"), *_iterations(_named(ctx))], incomplete)


def complete_words(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """`[TASK] N`: the first word may be either."""
    before = ctx.params.get("words") or ()
    if before:
        return _fitting(_iterations(before[0]), incomplete)
    return _fitting([*((name, "task") for name in _tasks()), *_iterations(None)], incomplete)


def complete_baseline(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The words, and the Python files of the task; a path is left to the shell."""
    from click.shell_completion import CompletionItem

    from harness.shared.used_files import NAMED_BASELINES

    task = _task(_named(ctx))
    files = sorted(path.name for path in Path(task.folder).glob("*.py")) if task else []
    words = [(name, "") for name in (*NAMED_BASELINES, "best", *files)]
    return _fitting(words, incomplete) or [CompletionItem(incomplete, type="file")]


def _tasks() -> list[str]:
    from kernbench.task import lookup

    return [folder.name for folder in lookup.list_tasks()]


def _named(ctx: click.Context) -> str | None:
    """The task among the words so far, which click leaves unread if they end with an option that lacks its value."""
    found = ctx.params.get("task") or next(iter(ctx.args), None)
    return str(found) if found else None


def _folder(name: str | None) -> Path | None:
    """The task's folder; None where the words so far name no task."""
    from harness.shared.errors import UserError
    from kernbench.task import lookup

    try:
        return lookup.find_task(name, to_edit=False)
    except (UserError, OSError):
        return None


def _task(name: str | None) -> Task | None:
    from harness.shared import taskfile
    from harness.shared.errors import UserError

    folder = _folder(name)
    try:
        return taskfile.load(folder) if folder else None
    except (UserError, OSError):  # opening the task reports it
        return None


def _iterations(task: str | None) -> Iterator[tuple[str, str]]:
    """The numbers in ITERATIONS.md, newest first, then the words for a source."""
    from harness.shared.regular_file import NotRegular, read_bytes

    folder = _folder(task)
    if folder is None:
        return
    try:
        text = read_bytes(folder / "ITERATIONS.md", LARGEST_LOG).decode("utf-8", "replace")
    except (OSError, NotRegular):
        text = ""
    yield from reversed([(found[1], found[2].strip()) for found in ENTRY.finditer(text)])
    yield from (("best", "the best source"), ("last", "the newest run"), ("now", "the working copy"))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script.

    Completes commands, options, tasks, cases, iterations and baselines. Add the line for your shell to the file that
    it reads at its start:

    \b
    bash  ~/.bashrc                    eval "$(kernbench completion bash)"
    zsh   ~/.zshrc                     eval "$(kernbench completion zsh)"
    fish  ~/.config/fish/config.fish   kernbench completion fish | source
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        sys.exit(2)
    click.echo(found(ctx.find_root().command, {}, "kernbench", "_KERNBENCH_COMPLETE").source())


COMMANDS = (completion,)
