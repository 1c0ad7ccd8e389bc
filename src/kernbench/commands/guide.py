"""guide: reference pages that ship with the program, read in the terminal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kernbench.machine.markdown_text import Line

WIDEST = 100
"""Characters of a line of prose."""


def complete_topic(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from kernbench.machine import guide_pages

    return [topic for topic in guide_pages.pages() if topic.startswith(incomplete)]


@click.command()
@click.argument("words", nargs=-1, metavar="[TOPIC]", shell_complete=complete_topic)
def guide(words: tuple[str, ...]) -> None:
    """Read about how kernbench works. TOPIC is a page, or the name of a finding. Without it, lists the pages.

    \b
    kernbench guide
    kernbench guide first
    kernbench guide left between calls
    """
    from kernbench.machine import guide_pages

    topic, known = " ".join(words).lower(), guide_pages.pages()
    if not topic:
        _list_topics(known)
    elif topic in known:
        _show(known[topic].read_text(encoding="utf-8"))
    else:
        click.echo(_finding(topic, known))


def _show(text: str) -> None:
    """A terminal gets the page in its width, anything else the Markdown as it is."""
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from kernbench.machine import markdown_text

    width = min(shutil.get_terminal_size().columns, WIDEST)
    click.echo_via_pager("\n".join(map(_underlined, markdown_text.lines(text, width))) + "\n")


def _underlined(line: Line) -> str:
    mark = {"title": "=", "head": "-"}.get(line.kind)
    return f"{line.text}\n{mark * len(line.text)}" if mark else line.text


def _list_topics(known: dict[str, Path]) -> None:
    """By group, each with its title."""
    from kernbench.machine import guide_pages

    width, last = max(map(len, known)), ""
    for topic, path in known.items():
        if (group := guide_pages.group(topic)) != last:
            click.echo(f"{group}:")
        last = group
        click.echo(f"  {topic:<{width}}  {guide_pages.title(path)}")


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
    raise UserError(f"the guide has no page or finding {name!r}{hint}; `kernbench guide` lists its pages")


COMMANDS = (guide,)
