"""pr: a folder for a pull request. It has what was measured; what only its author can add is a named empty slot.

PULL_REQUEST.md   the body        change.diff   from the first source to the best
chart.svg, cases.svg              numbers.csv   every run and case
perf/                             perf dumps of models' steps, as SGLang writes them
images/                           a decoder's output without and with the kernels
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.shared import format as fmt
from harness.shared.results import CaseResult
from kernbench import render
from kernbench.events import Summary
from kernbench.export import causes, charts, csv_json, html_page
from kernbench.export.collect import Collected, name_of
from kernbench.export.formats import ExportError
from kernbench.export.markdown import by_gpu_type
from kernbench.log import stored_sources
from kernbench.log.entries import entry_text
from kernbench.log.entries.entry_list import key_of
from kernbench.log.runs.series import series_of
from kernbench.machine.plain_text import fenced, markdown
from kernbench.upstream import model_gate, model_images, model_tables
from kernbench.upstream.model_gate import ModelGate

DIFF_IN_BODY = 400


@dataclass(frozen=True)
class Pair:
    before: Summary | None
    """None if the first source is the best: then only the baseline is left to compare with."""
    after: Summary
    old: dict[str, CaseResult]
    new: dict[str, CaseResult]


@dataclass(frozen=True)
class PullRequest:
    files: dict[str, str]
    """By name."""
    images: dict[str, bytes]
    said: ModelGate
    """What models say of the source."""

    def note(self, state: Path) -> None:
        """To be called once the text has left: a source that a model does not keep leaves a line behind."""
        if self.said.refused:
            self.said.overrule(state, "pr")


def make(about: Collected, before: str | None = None, after: str | None = None, anyway: bool = False) -> PullRequest:
    """Raises ExportError if a model does not keep the source, unless it is to be shown anyway."""
    pair = _pair(about, before, after)
    said = model_gate.gate(about.task, about.journal, pair.after.source)
    if said.obstacle and not anyway:
        raise ExportError(f"{name_of(pair.after)} stays here: {said.obstacle}")
    diff = about.diff(pair.before, pair.after) if pair.before else None
    images = model_images.files(said)
    told = {
        "PULL_REQUEST.md": "\n".join(_body(about, pair, diff, said, images)) + "\n",
        "chart.svg": charts.trajectory(about.series) + "\n",
        "cases.svg": html_page.heatmap(about) + "\n",
        "numbers.csv": csv_json.make_csv(about),
    }
    told |= {"change.diff": "\n".join(diff) + "\n"} if diff else {}
    return PullRequest({**told, **model_tables.dumps(said)}, images, said)


def _pair(about: Collected, before: str | None, after: str | None) -> Pair:
    new = _named(about, after) if after else about.best
    if new is None or new.local_run is not new:
        raise ExportError(f"{about.no_best}; choose a source with `--after N`")
    series = about.series_for(new)
    old = _named(about, before) if before else about.first_of(series)
    if old is not None and about.series_for(old) != series:
        raise ExportError(f"{name_of(old)} and {name_of(new)} differ in task, baseline or machine: not comparable")
    if old is not None and old.source == new.source:
        old = None
    return Pair(old, new, about.rows(old) if old else {}, about.rows(new))


def _named(about: Collected, reference: str) -> Summary:
    if reference == "best" and about.best is not None and about.best.local_run is about.best:
        return about.best
    found = stored_sources.summary_of(about.task, about.journal, reference)
    if found.local_run is None:
        raise ExportError(f"entry {found.iteration} is from another machine and was not timed here: no rows to show")
    if found.local_run is found:
        return found
    again = [item.local_run for item in about.entries if key_of(item) == key_of(found)]
    return next((run for run in again if run is not None), found.local_run)


def _body(about: Collected, pair: Pair, diff: list[str] | None, said: ModelGate, images: dict[str, bytes]) -> list[str]:
    after = pair.after
    machine = after.environment.device_name or after.environment.device
    told = [
        f"# {about.task.name}: {_claim(after)} on {machine}",
        "",
        about.task.summary,
        "",
        _lead(about, pair),
        "",
        *_path(about, pair),
    ]
    measured = [
        *by_gpu_type(about, pair.after),
        *causes.section(about, pair.before, pair.after, [case.id for case in about.hottest(pair.new)]),
        *model_tables.section(said),
    ]
    chart, cases = ["![speedup by iteration](chart.svg)", ""], ["![cases over iterations](cases.svg)", ""]
    rows = _microbenchmark(about, pair)
    body = [*map(markdown, told), *chart, *map(markdown, rows), *cases, *map(markdown, measured)]
    body += [*model_images.section(said, images), *map(markdown, _environment(about, pair)), *_commands(pair, said)]
    return [*body, *_change(diff), *_slots(bool(model_tables.timed(said)), bool(images))]


def _claim(after: Summary) -> str:
    """What the title may claim: no more than the overall verdict."""
    speedup = fmt.times(after.geomean)
    if after.ratio is None:
        return f"{render.outcome(after)}, no speedup over {after.baseline}"
    return {
        "faster": f"{speedup} over {after.baseline}",
        "slower": f"slower than {after.baseline} ({speedup})",
        "same": f"as fast as {after.baseline} ({speedup})",
        "unclear": f"no clear difference from {after.baseline} ({speedup})",
    }[after.ratio.verdict]


def _lead(about: Collected, pair: Pair) -> str:
    counts = render.counts(pair.after, pair.new.values())
    text = "; ".join(
        [*entry_text.speeds(about.task, pair.after, pair.new), counts, *entry_text.accuracy(about.task, pair.new)]
    )
    findings = {finding.name for row in pair.new.values() for finding in row.findings}
    found = f"; findings: {', '.join(sorted(findings))}" if findings else ""
    return f"{text[:1].upper()}{text[1:]}{found}."


def _path(about: Collected, pair: Pair) -> list[str]:
    """The steps that became best, and how many entries the whole log has."""
    series = series_of(about.made, about.series_for(pair.after))
    until = next((place for place, item in enumerate(series) if item.source == pair.after.source), len(series) - 1)
    steps = [item for item in series[: until + 1] if item.took_over and item.holds]
    lines = [f"- {name_of(item)} {fmt.geomean(item.ratio)}: {_hypothesis(item)}" for item in steps]
    told = [*_beginning(about, pair), _tried(about, len(series), len(steps)), "", *lines, *([""] if lines else [])]
    return ["## How it came about", "", *told]


def _tried(about: Collected, comparable: int, steps: int) -> str:
    """`8 iterations, 5 of them from another machine, 1 new best:`."""
    total, elsewhere = len(about.entries), len(about.entries) - len(about.made)
    if not total:
        return about.nothing_logged
    other, is_one = len(about.made) - comparable, total == 1
    parts = [fmt.plural(total, "iteration")]
    parts += ["from another machine" if is_one else f"{elsewhere} of them from another machine"] if elsewhere else []
    parts += [f"{'' if is_one else f'{other} '}in another series (task, baseline or machine)"] if other else []
    parts += [f"{fmt.plural(steps, 'new best')}:" if steps else f"no new best{' here' if elsewhere else ''}."]
    return f"{parts[0]}:" if total == steps == 1 else ", ".join(parts)


def _beginning(about: Collected, pair: Pair) -> list[str]:
    """Names the first source if it has no entry and so is not among the steps."""
    first = pair.before or pair.after
    if first.iteration is not None:
        return []
    return [f"It began with {about.words_for(first)}, {fmt.geomean(first.ratio)}.", ""]


def _hypothesis(item: Summary) -> str:
    return " ".join(item.hypothesis.split()) or "no hypothesis"


def _microbenchmark(about: Collected, pair: Pair) -> list[str]:
    clock = next((row.clock for row in pair.new.values() if row.clock), "wall")
    walls = clock != "wall" and any(row.wall for row in pair.new.values())
    titles = ["case", "baseline us", *(f"{about.column_for(item)} us" for item in (pair.before, pair.after) if item)]
    titles += [f"speedup ({clock})"]
    titles += ["wall speedup"] if walls else []
    titles += ["verdict"]
    lines = ["## Microbenchmark", "", entry_text.cells(titles)]
    lines.append(entry_text.cells(["---" if title in ("case", "verdict") else "---:" for title in titles]))
    for case in about.task.timed:
        row = pair.new.get(case.id)
        if row is None:
            continue
        cells = [case.label, fmt.microseconds(row.baseline_us)]
        old = pair.old.get(case.id)
        cells += [fmt.microseconds(old.solution_us if old else None)] if pair.before else []
        cells += [fmt.microseconds(row.solution_us), fmt.speedup(row.ratio)]
        cells += [fmt.times(row.wall.speedup if row.wall else None)] if walls else []
        lines.append(entry_text.cells([*cells, render.verdict(row)]))
    return [*lines, *_totals(pair, len(titles), walls), "", *_remarks(about, pair, clock), ""]


def _totals(pair: Pair, width: int, walls: bool) -> list[str]:
    after = pair.after
    lines = []
    for name, ratio, wall in (
        ("**geomean**", render.geomean(after), render.wall(after)),
        (f"**worst**: {after.worst.label}", fmt.times(after.worst.speedup), "") if after.worst else ("", "", ""),
    ):
        if name:
            cells = [name, *[""] * (width - (4 if walls else 3)), f"**{ratio}**", *([wall] if walls else []), ""]
            lines.append(entry_text.cells(cells))
    return lines


def _remarks(about: Collected, pair: Pair, clock: str) -> list[str]:
    condition = pair.after.environment.condition
    lines = [
        f"Times are {'GPU time' if clock == 'device' else clock + ' time'} per call, measured in interleaved blocks"
        f"{', ' + condition if condition else ''}; ± is half the 95% interval;"
        " a lopsided interval is given by its two ends, such as -2+5%."
    ]
    if pair.before:
        name = about.words_for(pair.before)
        lines.append(f"{name[:1].upper()}{name[1:]} was measured in a separate run against the same baseline.")
    launcher = [
        about.task.case(row.id).label
        for row in pair.new.values()
        if clock != "wall" and row.wall and (row.wall.speedup or 0) > 1.05 and row.verdict in ("same", "slower")
    ]
    if launcher:
        lines.append(f"Only the launch got faster on {', '.join(launcher)}: wall time falls, device time does not.")
    return lines


def _environment(about: Collected, pair: Pair) -> list[str]:
    after = pair.after
    made_on = after.environment
    driver = made_on.driver and f"driver {made_on.driver}"
    machine = [made_on.device_name or made_on.device, driver, render.clocks(made_on), made_on.condition]
    versions = entry_text.versions(after)
    baseline, task = (digest[: entry_text.HASH] for digest in (after.baseline_hash, after.task_hash))
    against = f"baseline {after.baseline} ({baseline}), task {task}"
    lines = [f"- {', '.join(part for part in parts if part)}" for parts in (machine, versions, [against])]
    named = [("after", after), *([("before", pair.before)] if pair.before else [])]
    lines += [
        f"- {name}: {about.words_for(item)}, source {item.source[:12]}, {render.minute(item.at)}"
        for name, item in named
    ]
    return ["## Environment and commands", "", *lines, ""]


def _commands(pair: Pair, said: ModelGate) -> list[str]:
    runs = [item.command for item in (pair.after, pair.before) if item]
    commands = list(dict.fromkeys(filter(None, [*runs, *(row.command for row in said.rows)])))
    return [*fenced(commands, "sh"), ""] if commands else []


def _change(diff: list[str] | None) -> list[str]:
    if not diff:
        return []
    if len(diff) > DIFF_IN_BODY:
        return ["## Diff", "", f"{len(diff)} lines, in [change.diff](change.diff).", ""]
    summary = f"<details><summary>{len(diff)} lines, also in change.diff</summary>"
    return ["## Diff", "", summary, "", *fenced(diff, "diff"), "", "</details>", ""]


def _slots(has_models: bool, has_images: bool) -> list[str]:
    timings = [
        "- [ ] Model-level timings (kernel gains may not carry over)",
        "",
        "  | model, stage | before ms | after ms | speedup |",
        "  | --- | ---: | ---: | ---: |",
        "  | _denoise stage_ | | | |",
        "  | _end to end_ | | | |",
        "",
    ]
    image = ["- [ ] Image or output generated with the change, next to one without it"]
    left = [*([] if has_models else timings), *([] if has_images else image)]
    return ["## To be filled in by the author", "", *left] if left else []
