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
@click.argument("words", nargs=-1, metavar="[TOPIC]", shell_complete=complete_topic)
def guide(words: tuple[str, ...]) -> None:
    """Read about how kernbench works. TOPIC is a page, or the name of a finding. Without it, lists the pages.

    \b
    kernbench guide
    kernbench guide best
    kernbench guide left between calls
    """
    topic, known = " ".join(words).lower(), pages()
    if not topic:
        _list_topics()
    elif topic in known:
        _show(known[topic].read_text(encoding="utf-8"))
    else:
        click.echo(_finding(topic, known))


def _show(text: str) -> None:
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


def _finding(name: str, known: dict[str, Path]) -> str:
    """The section about a finding."""
    from difflib import get_close_matches

    from harness.shared import format as fmt
    from harness.shared.errors import UserError

    parts = known["findings"].read_text(encoding="utf-8").split("\n## ")[1:]
    sections = {part.partition("\n")[0].lower(): f"## {part.rstrip()}" for part in parts}
    if name in sections:
        return sections[name]
    near = get_close_matches(name, [*known, *sections], 3)
    hint = f" (did you mean {fmt.joined(near, 'or')}?)" if near else ""
    raise UserError(f"the guide has no page or finding {name!r}{hint}; its pages are {fmt.joined(list(known))}")


COMMANDS = (guide,)
