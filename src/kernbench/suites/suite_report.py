"""The report of a suite, as Markdown and html: a table by problem, and a few lines that sum it up."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.shared import format as fmt
from kernbench.export.formats import ExportError
from kernbench.export.html_page import page
from kernbench.suites.suite_run import Outcome

FAST = (0.0, 1.0, 2.0)
"""KernelBench's fast_p: the share of all problems that are right and more than p times as fast as the baseline. From 1
on only verdicts of `faster` count: noise puts half of the sources that are as fast as the baseline above 1x."""


def write(folder: Path, title: str, outcomes: Sequence[Outcome]) -> list[Path]:
    """report.md and, where Jinja2 is installed, report.html; returns their paths."""
    if not outcomes:
        return []
    texts = {"report.md": markdown(title, outcomes)}
    with contextlib.suppress(ExportError):
        texts["report.html"] = html(title, outcomes)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def markdown(title: str, outcomes: Sequence[Outcome]) -> str:
    lines = [f"# {title}", "", *(f"- {line}" for line in summary(outcomes)), ""]
    lines += ["| problem | result | baseline us | solution us | speedup | % roof | SOL | s | |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
    for item in outcomes:
        cells = [item.name, item.word]
        cells += [fmt.microseconds(item.baseline_us), fmt.microseconds(item.solution_us), fmt.times(item.speedup)]
        cells += [fmt.percent(item.roofline), fmt.fixed(item.sol_score, 2), fmt.fixed(item.seconds, 1)]
        cells += [item.note]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def html(title: str, outcomes: Sequence[Outcome]) -> str:
    place = Path(__file__).parent / "suite_page.html"
    return page(place, title, summary=summary(outcomes), outcomes=outcomes)


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """How many are right, how fast, and how long it took."""
    if not outcomes:
        return ["nothing was run"]
    counts = Counter("right" if item.is_right else item.status for item in outcomes)
    said = [f"{len(outcomes)} problems: {', '.join(f'{count} {word}' for word, count in counts.most_common())}"]
    timed = [(item.speedup, item.verdict) for item in outcomes if item.is_right and item.speedup is not None]
    if timed:
        mean = math.exp(sum(math.log(speedup) for speedup, _verdict in timed) / len(timed))
        shares = (
            sum(speedup > fast and (fast < 1 or verdict == "faster") for speedup, verdict in timed) / len(outcomes)
            for fast in FAST
        )
        spelled = ", ".join(
            f"fast_{fmt.plain(fast)} {fmt.percent(share)}" for fast, share in zip(FAST, shares, strict=True)
        )
        said.append(f"geomean {fmt.times(mean)} over {len(timed)}; {spelled}")
    scores = [score for item in outcomes if (score := item.sol_score) is not None]
    if scores:
        said.append(f"SOL score {fmt.fixed(sum(scores) / len(scores), 2)} over {len(scores)}")
    devices = Counter(item.device for item in outcomes if item.device)
    if len(devices) > 1:  # speedups are of one GPU each, but their mean is not
        said.append(f"on {', '.join(f'{name} ({count})' for name, count in devices.most_common())}")
    seconds = sum(item.seconds for item in outcomes)
    said.append(f"{fmt.seconds(seconds)}, {fmt.seconds(seconds / len(outcomes))} per problem")
    return said
