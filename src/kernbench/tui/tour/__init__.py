"""The tour over the workbench: a small box with the next step. Without steps, none of it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kernbench.tui.app import Workbench

if TYPE_CHECKING:
    from kernbench.demo.tour_steps import Step


def workbench(steps: Sequence[Step]) -> Callable[..., Workbench]:
    """What makes the workbench, with the tour if there are steps."""
    if not steps:
        return Workbench
    from kernbench.tui.tour.guided_workbench import GuidedWorkbench

    return partial(GuidedWorkbench, steps=steps)
