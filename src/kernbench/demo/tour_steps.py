"""The tour's steps: what each says, and what the user does to get to the next. Text only; tui/tour shows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.shared.regular_file import NotRegular, read_bytes
from harness.shared.used_files import LARGEST_FILE

Deed = Literal["run", "save", "row", "why", "profile", "iterations"]
"""run: a run has finished. save: one has begun after that. why: the box for the hypothesis was opened. The others: that
page or pane was opened."""


@dataclass(frozen=True)
class Step:
    says: str
    """`{edit}` and the like stand for the keys of those actions, which a user may have changed."""
    until: Deed | None = None
    """None: the last step, which stays until it is closed."""


@dataclass(frozen=True)
class Edit:
    """A change of one word that is worth a save."""

    line: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"In line {self.line}, change {self.old} to {self.new} and save."


WANTED = {
    "solution.cpp": ('"no-trapping-math"', '"fast-math"'),
    "solution.py": ("OF_A_WARP = 1024", "OF_A_WARP = 512"),
}
"""By the file that the demo's task is about."""


def of_task(folder: Path, on_gpu: bool) -> list[Step]:
    file = "solution.py" if on_gpu else "solution.cpp"
    try:
        text = read_bytes(folder / file, LARGEST_FILE).decode("utf-8", "replace")
    except (OSError, NotRegular):  # opening the task reports it
        text = ""
    return steps(folder / file, edit_of(file, text), on_gpu)


def edit_of(file: str, text: str) -> Edit | None:
    """The change to propose, with the line where it is now; None if it was made already."""
    old, new = WANTED[file]
    number = next((number for number, line in enumerate(text.splitlines(), 1) if old in line), None)
    return Edit(number, old, new) if number else None


def steps(file: Path, edit: Edit | None, on_gpu: bool) -> list[Step]:
    proposal = str(edit) if edit else "Change something and save."
    here = Path.cwd()
    path = str(file.relative_to(here) if file.is_relative_to(here) else file).replace("{", "{{").replace("}", "}}")
    look = (
        Step(
            "Select a row with the arrow keys and press {profile}: Nsight Compute says what limits it. "
            "The first profile takes some seconds.",
            "profile",
        )
        if on_gpu
        else Step("Press {hypothesis} and note what you try next: it goes into the entry of your next save.", "why")
    )
    return [
        Step(f"kernbench is checking {file.name} on every shape and timing it against PyTorch: a row for each.", "run"),
        Step(f"Now you. Press {{edit}}, or open {path} in your own editor. {proposal}", "save"),
        Step(
            "The first line answers every save: is it right, does it beat the best so far, does it beat PyTorch? "
            "Once the rows are in, press enter on one for its details; esc comes back.",
            "row",
        ),
        look,
        Step("Press {iterations}: every save is an entry of ITERATIONS.md, to commit with the kernel.", "iterations"),
        Step("That is the loop. {help} lists all keys, `kernbench guide` explains the rest."),
    ]
