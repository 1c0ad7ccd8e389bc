"""log, show, diff, restore, drop and status: what was tried, and how to get it back."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernbench.commands.completion import complete_words
from kernbench.commands.run import load_task, task_argument
from kernbench.machine.plain_text import json_text
from kernbench.machine.terminal import control, obeys

if TYPE_CHECKING:
    from harness.shared.task import Task
    from kernbench.events import Summary
    from kernbench.log.entries.entry_list import EntryList
    from kernbench.log.entries.pulled_entries import PulledEntries
    from kernbench.log.runs.journal import Journal

state_option = click.option(
    "--state", type=click.Path(path_type=Path), metavar="DIR", help="Folder for runs, instead of .kernbench."
)
STALL_GAP = "  "
"""Added to the usual gap: `stalled` must not read as the first word of the hypothesis."""
REFERENCE = "a number, best, last, now, or the start of a source hash"


def located(task: str | None, state: Path | None, to_edit: bool = False) -> tuple[Task, Path]:
    """The task and its state folder. A shipped task of an installed package can be read, not edited."""
    from kernbench.task import lookup

    loaded = load_task(task, to_edit, solution=False)
    return loaded, state.resolve() if state else Path(loaded.folder) / lookup.STATE_FOLDER


def opened(task: str | None, state: Path | None, to_edit: bool = False) -> tuple[Task, Journal]:
    from kernbench.log.runs.journal import Journal

    loaded, folder = located(task, state, to_edit)
    return loaded, Journal(folder)


def warned(task: Task, journal: Journal) -> PulledEntries:
    """The task's entries, after a warning if they cannot be trusted."""
    from kernbench.log import stored_sources

    entries = stored_sources.entries_of(task)
    if problem := entries.problem(journal):
        click.echo(f"kernbench: {problem}", err=True)
    if journal.unwritten:
        click.echo(f"kernbench: {journal.unwritten}", err=True)
    return entries


def split(words: tuple[str, ...], most: int) -> tuple[str | None, list[str]]:
    """TASK is optional: the first word is a task only if there is one of that name."""
    from kernbench.task import lookup
    from kernbench.task.lookup import ProjectError

    if words and not (words[0] in ("best", "last", "now") or words[0].isdecimal()):
        try:
            lookup.find_task(words[0], to_edit=False)
        except ProjectError:
            if len(words) > most:
                raise
        else:
            return words[0], list(words[1:])
    return None, list(words)


def echo_diff(lines: list[str]) -> None:
    colours = {"+": "32", "-": "31", "@": "36"} if obeys(sys.stdout) else {}
    for line in lines:
        if colour := colours.get(line[:1]):
            control(sys.stdout, f"\x1b[{colour}m")
        click.echo(line)
        if colour:
            control(sys.stdout, "\x1b[0m")


@click.command()
@task_argument
@state_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per iteration.")
def log(task: str | None, state: Path | None, as_json: bool) -> None:
    """List the iterations so far. Includes entries from a pulled ITERATIONS.md."""
    from harness.shared import format as fmt
    from harness.shared.lines import encode
    from kernbench import render, report
    from kernbench.log import best, gpu_types, stored_sources
    from kernbench.log.gpu_types import GpuTypes

    loaded, journal = opened(task, state)
    pulled = warned(loaded, journal)
    entries, types = best.listing(loaded, journal, pulled), GpuTypes(loaded, journal, pulled)
    for number in entries.doubled():
        words = " ".join(["kernbench show", *([shlex.quote(task)] if task else []), str(number)])
        click.echo(f"kernbench: {stored_sources.taken_twice(number)}; `{words}` prints both", err=True)
    if as_json:
        for entry in entries:
            by_gpu = {"by_gpu": types.data(entry)} if types.names else {}
            click.echo(json_text(encode("iteration", entry, best_now=entries.is_best_now(entry), **by_gpu)))
        return
    if not entries:
        if not journal.waiting:
            hint = "a save in the workbench or `run -m` logs one"
            click.echo(f"no iterations of {loaded.name} yet; {hint}", err=True)
        return
    speeds = [gpu_types.short(name) for name in types.names] or ["geomean"]
    titles = ("#", "age", "source", *speeds, "outcome", "stall", "hypothesis")
    sources, usual = {path.name for path in (journal.state / "sources").glob("*")}, loaded.baseline
    rows: list[tuple[str, ...]] = [titles]
    found = best.find(loaded, journal, pulled)
    for entry in entries:
        is_unconfirmed = found.is_unconfirmed and entries.is_best_now(entry)
        outcome = render.outcome(entry) if types.names else best.outcome(entries, entry)  # each type has its best
        row = _log_row(entry, outcome, is_unconfirmed, sources, usual)
        rows.append((*row[:3], *types.cells(entry), *row[4:]) if types.names else row)
    for line in report.columns(rows, left=(2, *(place + len(speeds) for place in (3, 4, 5)))):
        click.echo(line)
    if found.summary is not None and found.summary.dropped:
        named = f"#{found.summary.iteration} ({fmt.times(found.summary.geomean)})"
        click.echo(f"kernbench: the best is still {named}, whose entry was dropped", err=True)


def _log_row(entry: Summary, outcome: str, is_unconfirmed: bool, sources: set[str], usual: str) -> tuple[str, ...]:
    """`sources` are those kept here. `usual` is the task's own baseline; an entry over another one is marked."""
    from harness.shared.format import DASH
    from kernbench import render
    from kernbench.log.entries import entry_text

    written, remarks = entry.local_run is not entry, entry_text.origin(entry)
    if not written and entry.source not in sources:
        remarks.append("source not in this state folder")
    if other := entry_text.over(entry, usual):
        remarks.append(other)
    if is_unconfirmed:
        remarks.append("unconfirmed")
    if entry.repeats is not None:
        remarks.append(f"same source as #{entry.repeats}")
    words = entry_text.title(entry) if written else " ".join(entry.hypothesis.split()) or "-"
    return (
        str(entry.iteration),
        render.age(entry.at),
        entry.source[:8] or DASH,
        entry_text.speed(entry),
        outcome,
        f"stalled{STALL_GAP}" if entry.stalled else "",
        f"{words} ({', '.join(remarks)})" if remarks else words,
    )


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[TASK] N", shell_complete=complete_words)
@state_option
@click.option("--source", is_flag=True, help="Print the source files instead of the entry.")
@click.option(
    "--to", "target", type=click.Path(path_type=Path), metavar="DIR", help="Write the source files into this folder."
)
def show(words: tuple[str, ...], state: Path | None, source: bool, target: Path | None) -> None:
    """Show an iteration's entry or source. N is a number, best, last, or the start of a source hash."""
    from kernbench.log import stored_sources

    name, references = split(words, most=1)
    if len(references) != 1:
        raise click.UsageError(f"expected one iteration: {REFERENCE}")
    task, journal = opened(name, state)
    if target is not None:
        names = stored_sources.copy_out(stored_sources.find(task, journal, references[0]), task, target)
        click.echo(f"wrote {', '.join(names)} to {target}", err=True)
        return
    if source:
        point = stored_sources.find(task, journal, references[0])
        for path in stored_sources.solution_files(point, task):
            click.echo(f"# ---- {point.name}/{path}")
            data = (point.folder / path).read_bytes()
            click.echo(data.decode("utf-8", "replace") if sys.stdout.isatty() else data)
        return
    pulled = warned(task, journal)
    listed = pulled.iterations(journal)
    found = _entries_with(listed, references[0]) or [stored_sources.summary_of(task, journal, references[0])]
    for place, summary in enumerate(found):
        if place:
            click.echo()
        _show_entry(task, journal, summary)
        _show_types(task, journal, pulled, summary)


def _entries_with(listed: EntryList, reference: str) -> list[Summary]:
    """The entries with a number; prints a warning if there are two."""
    from kernbench.log import stored_sources

    found = listed.with_number(int(reference)) if reference.isdecimal() else []
    if len(found) > 1:
        click.echo(f"kernbench: {stored_sources.taken_twice(int(reference))}; here are both", err=True)
    return found


def _show_entry(task: Task, journal: Journal, summary: Summary) -> None:
    """Print the text in ITERATIONS.md, then the result of a run on this machine that did not make the entry."""
    from kernbench import report
    from kernbench.log.entries import iterations_file

    log = Path(task.folder) / "ITERATIONS.md"
    number = summary.iteration
    text = iterations_file.entry_of(log, number, summary.source, summary.at) if number is not None else None
    if text is not None:
        click.echo(text, nl=False)
    run = summary.local_run
    if run is not None and run.took_over and run.confirmed is None:
        why = "it waits for a new worker" if run.awaits else "an older kernbench, which confirmed nothing, ran it"
        click.echo(f"kernbench: unconfirmed: {why}", err=True)
    if run is None or (text is not None and run is summary and run.run in {made.run for made in journal.numbered()}):
        return
    if text is not None:
        click.echo("\nTimed again on this machine:\n")
    results = journal.cases_of(run.run)
    for line in report.table(task, results):
        click.echo(line)
    told = report.outcome(replace(run, iteration=None) if text else run, results.values())
    click.echo("\n".join(report.folded(told, " · ")))


def _show_types(task: Task, journal: Journal, pulled: PulledEntries, summary: Summary) -> None:
    """Print what the source came to on each GPU type, if it was timed on several."""
    from kernbench import report
    from kernbench.log.gpu_types import GpuTypes

    types = GpuTypes(task, journal, pulled)
    table = types.table(summary)
    for line in ["", "The same source by GPU type:", "", *report.columns(table), "", types.sentence()] if table else ():
        click.echo(line)


@click.command()
@click.argument("words", nargs=-1, metavar="[TASK] [N [M]]", shell_complete=complete_words)
@state_option
def diff(words: tuple[str, ...], state: Path | None) -> None:
    """Show what changed between two sources. Default: from the best to the working copy."""
    from kernbench.log import stored_sources

    name, references = split(words, most=2)
    if len(references) > 2:
        raise click.UsageError(f"expected at most two sources; each is {REFERENCE}")
    task, journal = opened(name, state)
    old, new = (stored_sources.find(task, journal, word) for word in [*references, *["best", "now"][len(references) :]])
    lines = stored_sources.diff(old, new, task)
    echo_diff(lines)
    if not lines:
        click.echo(f"no difference between {old.name} and {new.name}", err=True)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[TASK] N", shell_complete=complete_words)
@state_option
def restore(words: tuple[str, ...], state: Path | None) -> None:
    """Restore an iteration's solution. Saves a snapshot of the current files first."""
    from kernbench.log import stored_sources

    name, references = split(words, most=1)
    if len(references) != 1:
        raise click.UsageError(f"expected one source to restore: {REFERENCE}")
    task, journal = opened(name, state, to_edit=True)
    point = stored_sources.find(task, journal, references[0])
    before, changed = stored_sources.restore(task, point, journal.state)
    click.echo(stored_sources.restored(point, before, changed, name, state), err=True)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="[TASK] N", shell_complete=complete_words)
@state_option
@click.option("--undo", is_flag=True, help="Put the entry back where it was.")
@click.option("--yes", is_flag=True, help="Do not ask, even if the entry was edited.")
def drop(words: tuple[str, ...], state: Path | None, undo: bool, yes: bool) -> None:
    """Remove an entry from ITERATIONS.md; --undo puts it back. Its run is kept, and its number is not reused."""
    from kernbench.log import drop_entry

    name, references = split(words, most=1)
    if len(references) != 1 or not references[0].isdecimal():
        raise click.UsageError("drop which entry? give its number")
    task, journal = opened(name, state, to_edit=True)
    number = int(references[0])
    if undo:
        drop_entry.undo(task, journal, number)
        click.echo(f"entry {number} is back in ITERATIONS.md", err=True)
        return
    entry = drop_entry.find(task, journal, number)
    doubt = drop_entry.doubt(task, journal, entry)
    if doubt and not yes:
        if not sys.stdin.isatty():
            raise drop_entry.DropError(f"entry {number} was not dropped: {doubt}; `--yes` drops it anyway")
        click.confirm(f"Entry {number}: {doubt}. Drop it anyway?", abort=True, err=True)
    is_best = drop_entry.drop(task, journal, entry)
    command = shlex.join(["kernbench", "drop", *([name] if name else []), str(number), "--undo"])
    best = "; its source stays the best until another takes over" if is_best else ""
    click.echo(f"dropped entry {number}{best}; `{command}` puts it back", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per task.")
def status(as_json: bool) -> None:
    """List the project's tasks: best, last verdict, age."""
    from kernbench import report
    from kernbench.log import overview
    from kernbench.task import lookup

    rows: list[Any] = [overview.of(folder) for folder in lookup.list_tasks()]
    if as_json:
        for row in rows:
            click.echo(json.dumps(asdict(row)))
        return
    if not rows:
        click.echo("no tasks here; `kernbench new NAME` creates one", err=True)
        return
    table = [("task", "iterations", "best", "last", "age")]
    table += [
        (_typed(row), str(row.iterations), row.best, row.last + (" stalled" if row.stalled else ""), row.age)
        for row in rows
    ]
    for line in report.columns(table, left=(0, 3)):
        click.echo(line)
    for row in rows:
        if row.problem:
            click.echo(f"kernbench: {row.problem}", err=True)


def _typed(row: Any) -> str:
    """The task's name, and its folder if that is what commands expect."""
    folder = Path(row.folder).name
    return str(row.name) if folder == row.name else f"{row.name} ({folder})"


COMMANDS = (log, show, diff, restore, drop, status)
