"""One request: prove that the entries are wired, compare the outputs, take the shares, then time all sides in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from harness.device.gpu import Gpu
from harness.load.exception_text import one_line
from harness.shared import format as fmt
from harness.shared import stats
from harness.shared.codes import AS_IT_IS
from harness.shared.model_step import OutputGap, Patch, SideRatio, SideTime, StepRequest, StepResult, TaskShare
from harness.timing.samples import Timing
from harness.transfer import step_images, step_numerics, step_sides, step_turns
from harness.transfer.loaded_model import LoadedModel
from harness.transfer.sites import ModelProblem, Patches
from harness.transfer.step_sides import StepSide
from harness.transfer.wiring import Counts, Timers, Watch

SHARE_STEPS = 5
"""Steps over which the shares are taken, after one to warm up."""


class StepRun:
    def __init__(self, model: LoadedModel, request: StepRequest, gpu: Gpu | None, tell: Callable[[str], None]) -> None:
        self.model, self.request, self.gpu, self.tell = model, request, gpu, tell
        self.tasks = [patch.task for patch in request.patches]
        self.notes: list[str] = []
        self.problems: dict[str, str] = {}

    def go(self) -> StepResult:
        """Whatever is not wired gets no number."""
        self.tell("checking the wiring")
        counts = Counts()
        with self.model.ours(self.request.patches, counts).applied():
            self.model.step()
        if counts.missing:
            return StepResult(self.request.run, not_wired=counts.missing)
        original = step_numerics.kept(self.model.step())
        sides = self._sides()
        gaps, wide = self._gaps(sides, original)
        shares = self._shares(original)
        drift = self._drift(bool(wide))
        images = self._images()
        meter = step_turns.Meter(self.gpu)
        timing = step_turns.timed(sides, self.request.rounds, self.gpu, meter, self._beat)
        floor = step_turns.floor(timing, sides[0].name)
        margin = stats.margin(stats.median(timing.samples[sides[0].name]), floor)
        return StepResult(
            run=self.request.run,
            times=tuple(self._time(name, timing, meter) for name in self.request.sides),
            ratios=tuple(self._ratios(timing, [side.name for side in sides], margin)),
            floor=floor,
            margin=margin,
            shares=tuple(shares),
            gaps=tuple(gaps),
            wide=wide,
            notes=tuple(self.notes),
            drift=tuple(drift),
            images=tuple(images),
        )

    def _drift(self, has_wide: bool) -> list[OutputGap]:
        steps = self.request.steps
        if not steps:
            return []
        self.tell(f"taking the drift over {fmt.plural(steps, 'step')}")
        return step_numerics.drift(self.model, self._ours(self.request.patches), steps, has_wide)

    def _images(self) -> list[str]:
        image = self.model.optional("image")
        if image is None or not self.request.images:
            return []
        original = image(self.model.step())
        with self._ours(self.request.patches).applied():
            ours = image(self.model.step())
        return step_images.write(self.request.images, self.model.about.name, original, ours)

    def _ours(self, patches: Sequence[Patch]) -> Patches:
        return self.model.ours(patches, Watch())

    def _beat(self, number: int) -> None:
        if number % step_turns.PER_BLOCK == 0:
            self.tell(f"timing, round {number + 1} of {self.request.rounds}")

    def _sides(self) -> list[StepSide]:
        """Those that can run, the step as it is first. Compiled ones are made before any with entries in it."""
        made: list[StepSide] = []
        for name in self.request.sides:
            self.tell(f"preparing {name}")
            try:
                made.append(step_sides.make(name, self.model, self.request.patches))
            except Exception as problem:
                if name in ("eager", "ours"):
                    raise
                self.problems[name] = one_line(str(problem).strip().partition("\n")[0] or type(problem).__name__)
        if not {side.name for side in made} - set(AS_IT_IS):
            raise ModelProblem(f"no side with the kernels runs: {next(iter(self.problems.values()))}")
        return made

    def _gaps(self, sides: list[StepSide], original: Any) -> tuple[list[OutputGap], str]:
        import torch

        self.tell("comparing outputs")
        wide, name = None, ""
        try:
            model, inputs, name = self.model.widened()
            wide = step_numerics.kept(model(**inputs))
            del model, inputs
            torch.cuda.empty_cache()  # the wide weights are gone; nothing happens without a GPU
        except torch.cuda.OutOfMemoryError:
            self.notes.append("not compared with wider weights: they do not fit into the GPU's memory")
            name = ""
        except Exception as problem:  # a model may be written for one dtype
            why = one_line(str(problem).strip().partition("\n")[0] or type(problem).__name__)
            self.notes.append(f"not compared with wider weights: the model does not run with them ({why})")
            name = ""
        found = [step_numerics.gap(side.name, step_numerics.kept(side.once()), original, wide) for side in sides[1:]]
        return found, name

    def _shares(self, original: Any) -> list[TaskShare]:
        """What the sites take of the step as it is, and how much less with the entries."""
        self.tell("taking the shares")
        plain, entries = Timers(self.gpu is not None), Timers(self.gpu is not None)
        own = self.model.plain(self.tasks, plain)
        if self.model.about.rewrites:
            with own.applied():
                gap = step_numerics.gap("rewritten", step_numerics.kept(self.model.step()), original, None)
            if not gap.bit_exact:
                self.notes.append(
                    "the rewrites change the output by themselves: their numbers are only near the model's"
                )
        before, whole = self._spent(own, plain)
        after, _ = self._spent(self.model.ours(self.request.patches, entries), entries)
        exact = {patch.task: self._is_exact(patch, original) for patch in self.request.patches}
        return [
            TaskShare(task, plain.calls[task], before[task] / whole, _gain(before, after, task), exact[task])
            for task in before
        ]

    def _is_exact(self, patch: Patch, original: Any) -> bool:
        """With this task alone."""
        with self._ours([patch]).applied():
            return step_numerics.gap(patch.task, step_numerics.kept(self.model.step()), original, None).bit_exact

    def _spent(self, inside: Patches, timers: Timers) -> tuple[dict[str, float], float]:
        """Seconds in each task's sites and in the whole step, medians."""
        steps: list[tuple[dict[str, float], float]] = []
        for _ in range(SHARE_STEPS + 1):
            with step_turns.turn(self.gpu):
                self._wait()
                begin = time.perf_counter()
                with inside.applied():
                    self.model.step()
                self._wait()
                steps.append((timers.take(), time.perf_counter() - begin))
        spent = {task: statistics.median(one.get(task, 0.0) for one, _ in steps[1:]) for task in self.tasks}
        return spent, statistics.median(whole for _, whole in steps[1:])

    def _wait(self) -> None:
        import torch

        if self.gpu is not None:
            torch.cuda.synchronize()

    def _time(self, name: str, timing: Timing, meter: step_turns.Meter) -> SideTime:
        if name in self.problems:
            return SideTime(name, problem=self.problems[name])
        samples = tuple(round(us / 1000, 6) for us in timing.samples[name])
        mhz, watts = meter.mhz.get(name), meter.watts.get(name)
        return SideTime(
            name,
            ms=stats.median(samples),
            samples=samples,
            sm_mhz=stats.median(mhz) if mhz else None,
            watts=stats.median(watts) if watts else None,
            peak_mb=meter.peak_mb.get(name),
        )

    def _ratios(self, timing: Timing, names: list[str], margin: float) -> list[SideRatio]:
        """Each side with the entries over every one without, and those over eager."""
        own = [name for name in names if name in AS_IT_IS]
        pairs = [(side, names[0]) for side in own[1:]]
        pairs += [(side, over) for side in names if side not in AS_IT_IS for over in own]
        found = []
        for side, over in pairs:
            ratio = timing.ratio(over, side, margin)
            if ratio is not None:
                found.append(SideRatio(side, over, ratio.speedup, ratio.low, ratio.high, ratio.verdict))
        return found


def _gain(before: dict[str, float], after: dict[str, float], task: str) -> float | None:
    return before[task] / after[task] if before[task] and after[task] else None
