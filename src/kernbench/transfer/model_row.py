"""What a model's step came to: its word, whether the kernels are kept, and the `model` line of runs.jsonl.

The worker measures; here is decided what that means. A step that is not wired or forbidden has no number at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.codes import AS_IT_IS
from harness.shared.model_step import Limits, ModelFile, OutputGap, Patch, SideRatio, SideTime, StepResult, TaskShare
from harness.shared.results import Ratio
from harness.shared.run_request import Environment

Word = Literal["faster", "same", "slower", "unclear", "too small to see", "not wired", "forbidden", "checked"]
"""`checked`: references stood in for the kernels, so the times say nothing about these."""
REFUSED = ("slower", "not wired", "forbidden")
"""Words with which no kernel is kept."""


@dataclass(frozen=True)
class ModelRow:
    """The `model` line of runs.jsonl and of `transfer --json`."""

    run: str
    model: str
    config: str
    at: str
    word: Word
    kept: bool
    why: str = ""
    """Behind the word, or why it is not kept."""
    side: str = ""
    """The fastest with the kernels, and the fastest without, which it is compared with."""
    over: str = ""
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    expected: float | None = None
    """Speedup of the step by the shares and the gains of the kernels by themselves, over eager."""
    resolvable: float | None = None
    """The smallest change of the step that could be seen, as a fraction."""
    floor: float | None = None
    exact: bool | None = None
    """Whether the output is the same bit for bit."""
    sources: tuple[Patch, ...] = ()
    times: tuple[SideTime, ...] = ()
    ratios: tuple[SideRatio, ...] = ()
    shares: tuple[TaskShare, ...] = ()
    gaps: tuple[OutputGap, ...] = ()
    wide: str = ""
    rounds: int = 0
    notes: tuple[str, ...] = ()
    model_hash: str = ""
    command: str = ""
    version: str = ""
    drift: tuple[OutputGap, ...] = ()
    """Of each step, every one going on from the output of the one before."""
    images: tuple[str, ...] = ()
    """Of a decoder: as it is, with the kernels, and the difference; in runs.jsonl the names, next to it."""
    dumps: tuple[str, ...] = ()
    """Perf dumps of a command's middle runs: as it is, and with the kernels."""
    environment: Environment = field(default_factory=Environment)

    @property
    def title(self) -> str:
        """The model, with its config."""
        return f"{self.model} ({self.config})" if self.config else self.model

    @property
    def ratio(self) -> Ratio | None:
        if self.speedup is None or self.low is None or self.high is None:
            return None
        word = self.word if self.word in ("faster", "slower", "same") else "unclear"
        return Ratio(self.speedup, self.low, self.high, word)

    @property
    def said(self) -> str:
        """The word with what belongs to it."""
        if self.word == "too small to see" and self.expected is not None and self.resolvable is not None:
            expected, resolvable = fmt.change(self.expected), fmt.fine_percent(self.resolvable)
            return f"{self.word} (expected {expected}, resolvable {resolvable})"
        return f"{self.word}: {self.why}" if self.word in ("not wired", "forbidden") else self.word

    def ratio_of(self, side: str, over: str) -> Ratio | None:
        return next((item.ratio for item in self.ratios if (item.side, item.over) == (side, over)), None)


def decided(model: ModelFile, result: StepResult, forbidden: str, is_stand_in: bool, about: ModelRow) -> ModelRow:
    """The row; `about` has what is known without the result."""
    if forbidden:
        return replace(about, word="forbidden", kept=False, why=forbidden)
    if result.not_wired:
        return replace(about, word="not wired", kept=False, why=result.not_wired)
    chosen = _fastest(result)
    expected = expected_speedup(result.shares, about.sources)
    half = math.expm1(math.log(chosen.high / chosen.low) / 2)
    resolvable = max(result.margin or stats.MARGIN, half)
    own = _ours(result.gaps)
    outside = _outside(own, model.limits) or _outside(_of_side(result.gaps, chosen.side), model.limits)
    outside = outside or _drifted(result.drift, model.limits)
    word: Word = "checked" if is_stand_in else _word(chosen, expected, resolvable)
    return replace(
        about,
        word=word,
        kept=word not in REFUSED and not outside,
        why=outside,
        side=chosen.side,
        over=chosen.over,
        speedup=chosen.speedup,
        low=chosen.low,
        high=chosen.high,
        expected=expected,
        resolvable=resolvable,
        floor=result.floor,
        exact=None if own is None else own.bit_exact,
        times=result.times,
        ratios=result.ratios,
        shares=result.shares,
        gaps=result.gaps,
        wide=result.wide,
        notes=(*about.notes, *result.notes),
        drift=result.drift,
        images=result.images,
    )


def expected_speedup(shares: Sequence[TaskShare], patches: Sequence[Patch]) -> float | None:
    """Of the step, if each task's share of it shrinks by its gain; None if a share or a gain is not known.

    The gain is the larger of that in the task's own rows and that of the model's calls: the rows may be timed against
    compiled code, which says too little about eager, and the model's calls may gain less than the rows promise.
    """
    micro = {patch.task: patch.micro for patch in patches}
    saved = 0.0
    for item in shares:
        gains = [gain for gain in (micro.get(item.task), item.gain) if gain is not None]
        if not gains:
            return None
        saved += item.share * (1 - 1 / max(gains))
    return 1 / (1 - saved) if shares and saved < 1 else None


def shares_after(shares: Sequence[TaskShare]) -> dict[str, float]:
    """By task, of the step with all kernels in it; a task whose calls could not be timed has none."""
    times = {item.task: item.share / item.gain for item in shares if item.gain}
    step = 1 - sum(item.share - times[item.task] for item in shares if item.task in times)
    return {task: time / step for task, time in times.items()} if step > 0 else {}


def _word(chosen: SideRatio, expected: float | None, resolvable: float) -> Word:
    """A kernel is not to blame for a step that cannot show it; that is known only for eager, where shares are taken."""
    is_open = chosen.verdict in ("same", "unclear") and (chosen.side, chosen.over) == ("ours", "eager")
    if is_open and expected is not None and stats.distance(expected) < resolvable:
        return "too small to see"
    return chosen.verdict  # type: ignore[return-value]


def _fastest(result: StepResult) -> SideRatio:
    """The fastest side with the kernels over the fastest without."""
    times = {item.name: item.ms for item in result.times if item.ms is not None}
    own, ours = ({name: ms for name, ms in times.items() if (name in AS_IT_IS) is is_own} for is_own in (True, False))
    over, side = (min(group, key=group.__getitem__) for group in (own, ours))
    return next(item for item in result.ratios if (item.side, item.over) == (side, over))


def _ours(gaps: Sequence[OutputGap]) -> OutputGap | None:
    """The output to judge: torch.compile's own rounding is not the kernels'."""
    found = [gap for gap in gaps if gap.side not in AS_IT_IS]
    return next((gap for gap in found if "compile" not in gap.side), next(iter(found), None))


def _of_side(gaps: Sequence[OutputGap], side: str) -> OutputGap | None:
    return next((gap for gap in gaps if gap.side == side), None)


def _outside(gap: OutputGap | None, limits: Limits) -> str:
    """Which limit of the model the output is out of, in words. A compiled side only has to be finite: its rounding is
    torch.compile's own."""
    if gap is None:
        return ""
    if not gap.is_finite:
        return f"the output of {gap.side} has values that are not finite"
    if "compile" in gap.side:
        return ""
    if limits.relative_l2 is not None and (gap.relative_l2 or 0.0) > limits.relative_l2:
        return f"relative L2 {fmt.error(gap.relative_l2)} is over the limit of {fmt.plain(limits.relative_l2)}"
    if limits.psnr_db is not None and gap.psnr_db is not None and gap.psnr_db < limits.psnr_db:
        return f"PSNR {fmt.fixed(gap.psnr_db, 1)} dB is under the limit of {fmt.plain(limits.psnr_db)} dB"
    if limits.fp32_ratio is not None and gap.wide_l2 is not None and gap.original_wide_l2:
        ratio = gap.wide_l2 / gap.original_wide_l2
        if ratio > limits.fp32_ratio:
            most = fmt.factor(limits.fp32_ratio)
            return f"its error against wider weights is {fmt.factor(ratio)} the original's, over the limit of {most}"
    return ""


def _drifted(drift: Sequence[OutputGap], limits: Limits) -> str:
    if not drift:
        return ""
    last, after = drift[-1], f"after {fmt.plural(len(drift), 'step')}"
    if not last.is_finite:
        return f"{after} the output has values that are not finite"
    if limits.drift_l2 is not None and (last.relative_l2 or 0.0) > limits.drift_l2:
        most = fmt.plain(limits.drift_l2)
        return f"relative L2 {fmt.error(last.relative_l2)} {after} is over the limit of {most}"
    return ""
