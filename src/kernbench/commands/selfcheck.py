"""selfcheck: kernbench measures itself."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from harness.shared import format as fmt
from kernbench.commands.run import loop_options, read_options, run_until_signal
from kernbench.machine.terminal import clear_line, obeys

if TYPE_CHECKING:
    from kernbench.selfcheck import Report, Tell


@click.command()
@click.argument("task", default="rms_norm")
@click.option("--only", multiple=True, metavar="PART", help="aa, slow, ncu or latency; may be repeated.")
@click.option("--repeats", type=int, default=20, show_default=True, help="Number of aa runs; other parts need fewer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per row, then one per part.")
@loop_options
def selfcheck(task: str, only: tuple[str, ...], repeats: int, as_json: bool, **given: Any) -> None:
    """Check how well kernbench measures on this machine.

    \b
    kernbench selfcheck                         everything, on rms_norm; takes minutes
    kernbench selfcheck --only aa --repeats 5   a kernel against itself
    kernbench selfcheck softmax_host --only latency

    Exits with 1 when nothing could be measured; the notes say why.
    """
    from kernbench.selfcheck import PARTS

    unknown = [part for part in only if part not in PARTS]
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: expected one of {', '.join(PARTS)}")

    async def main() -> int:
        measured = False
        for part in only or PARTS:
            report = await measure(part, task, read_options(given), repeats, functools.partial(_tell, part))
            _tell("", "")
            _print(report, as_json)
            measured |= bool(report.rows)
        return 0 if measured else 1

    sys.exit(run_until_signal(main()))


async def measure(part: str, task: str, options: Any, repeats: int, tell: Tell) -> Report:
    from kernbench.selfcheck import accuracy, agreement, latency

    if part == "aa":
        return await accuracy.against_itself(task, options, repeats, tell)
    if part == "slow":
        return await accuracy.slowed_down(task, options, max(2, repeats // 2), tell)
    if part == "ncu":
        return await agreement.with_ncu(task, options, tell)
    return await latency.from_save_to_rows(task, options, max(2, repeats // 4), tell)


def _tell(part: str, text: str) -> None:
    """Overwrite one line on a terminal; otherwise print a line per message."""
    if obeys(sys.stderr):
        clear_line(sys.stderr)
        click.echo(f"{part}: {text}" if text else "", err=True, nl=False)
    elif text:
        click.echo(f"{part}: {text}", err=True)


def _print(report: Report, as_json: bool) -> None:
    from harness.shared.lines import finite
    from kernbench import report as text

    if as_json:
        for row in report.rows:
            click.echo(json.dumps(finite({"event": "row", "part": report.part, **row})))
        click.echo(json.dumps({"event": "part", "part": report.part, "notes": report.notes}))
        return
    click.echo(f"== {report.part}")
    if report.rows:
        header = tuple(report.rows[0])
        cells = [tuple(_cell(row.get(name)) for name in header) for row in report.rows]
        left = [place for place, name in enumerate(header) if isinstance(report.rows[0][name], str)]
        for line in text.columns([header, *cells], left=left):
            click.echo(line)
    for note in report.notes:
        click.echo(f"{report.part}: {note}")


def _cell(value: object) -> str:
    if value is None or value != value:
        return "-"
    return fmt.fixed(value, 2) if isinstance(value, float) else str(value)


COMMANDS = (selfcheck,)
