"""guide: reference pages that ship with the program, read in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import click


def pages() -> dict[str, Path]:
    """The pages by topic, in alphabetical order."""
    from kernbench.task.lookup import PACKAGE

    return {path.stem: path for path in sorted((PACKAGE / "guide").glob("*.md"))}


def complete_topic(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [topic for topic in pages() if topic.startswith(incomplete)]


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topic)
def guide(topic: str | None) -> None:
    """Read about how kernbench works. Without TOPIC, lists the pages.

    \b
    kernbench guide
    kernbench guide best
    """
    if topic is None:
        _list_topics()
        return
    text = _page(topic).read_text(encoding="utf-8")
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)


def _list_topics() -> None:
    from kernbench import report

    rows = [(topic, _title(path)) for topic, path in pages().items()]
    for line in report.columns(rows, left=(0, 1)):
        click.echo(line)


def _title(path: Path) -> str:
    """The first heading of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))


def _page(topic: str) -> Path:
    from difflib import get_close_matches

    from harness.shared import format as fmt
    from harness.shared.errors import UserError

    known = pages()
    if topic in known:
        return known[topic]
    near = get_close_matches(topic, known, 3)
    hint = f"did you mean {fmt.joined(near, 'or')}?" if near else "`kernbench guide` lists the topics"
    raise UserError(f"the guide has no page {topic!r}; {hint}")


COMMANDS = (guide,)
