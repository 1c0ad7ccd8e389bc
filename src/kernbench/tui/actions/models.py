"""`M`: runs one step of a model with the files as they are; asks which model if several have a site for the task."""

from __future__ import annotations

from functools import partial

from kernbench.tui.pages.dialogs import Choose
from kernbench.tui.state.bench import Bench


def ask(bench: Bench) -> None:
    engine = bench.engine
    choices = engine.models.choices()
    if not choices:
        bench.say(f"no model has a site for {engine.task.name}; `kernbench guide transfer` says how to make one")
    elif len(choices) == 1:
        _start(bench, choices[0])
    else:
        bench.push_screen(Choose("Run a step of", choices, engine.models.last, "last"), partial(_start, bench))


def _start(bench: Bench, name: str | None) -> None:
    if name is None:
        return
    if bench.board.sweep or bench.engine.supervisor.is_gpu_lent:
        bench.say("a sweep is running: S ends it" if bench.board.sweep else "a profile is being taken: M after it")
        return
    bench.engine.models.start(name)
    after = "once this run has ended; " if bench.engine.running else ""
    bench.say(f"{name} runs in its own worker: {after}a save ends it")
