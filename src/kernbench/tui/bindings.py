"""The keys that work everywhere, in the order of the key line, whose last ones give way where it is narrow."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("r", "app.rerun", "run", tooltip="check and time again, or the save that waits", id="rerun"),
    Binding("space", "app.pause", "pause", tooltip="stop or go on answering saves", id="pause"),
    Binding("h", "app.hypothesis", "why", tooltip="the hypothesis of the run to come", id="hypothesis"),
    Binding("d", "app.diff", "diff", tooltip="what changed from best to the files now", id="diff"),
    Binding("n", "app.profile(False)", "ncu", tooltip="what limits the row, by Nsight Compute", id="profile"),
    Binding("N", "app.profile(True)", "full ncu", show=False, tooltip="all that ncu knows", id="profile_full"),
    Binding("i", "pane('iterations')", "iters", tooltip="the iterations and their plot", id="iterations"),
    Binding("slash", "filter", "filter", key_display="/", tooltip="only the rows that match", id="filter"),
    Binding("e", "app.edit", "edit", tooltip="open $EDITOR at the error, or the solution", id="edit"),
    Binding("x", "app.next_step", "next", tooltip="the next step, written to the last entry", id="next"),
    Binding("w", "app.export", "export", tooltip="write the log for other people", id="export"),
    Binding("y", "app.copy_selected", "copy", tooltip="copy the row, or the entry, as markdown", id="copy"),
    Binding("Y", "app.copy_table", "copy table", show=False, tooltip="copy the table as markdown", id="copy_table"),
    Binding("s", "sort", "sort", tooltip="another order of the rows", id="sort"),
    Binding("m", "wall", "wall time", tooltip="device time or wall time", id="wall"),
    Binding("b", "app.baseline", "baseline", tooltip="choose what to compare with", id="baseline"),
    Binding("T", "app.tasks", "tasks", tooltip="work on another task", id="tasks"),
    Binding("t", "app.traceback", "traceback", show=False, tooltip="what raised in the build or row", id="traceback"),
    Binding("1", "pane('results')", "results", show=False, tooltip="the results", id="pane.results"),
    Binding("2", "pane('gpu')", "GPU", show=False, tooltip="what the machine does", id="pane.gpu"),
    Binding("3", "pane('profile')", "profile", show=False, tooltip="the row's profile", id="pane.profile"),
    Binding("4", "pane('iterations')", "iterations", show=False, tooltip="the iterations", id="pane.iterations"),
    Binding("5", "pane('output')", "output", show=False, tooltip="the output", id="pane.output"),
    Binding("tab", "step_pane(1)", "next pane", show=False, tooltip="the next pane"),
    Binding("shift+tab", "step_pane(-1)", "pane before", show=False, tooltip="the pane before"),
    Binding("plus", "whole", "maximise", show=False, key_display="+", tooltip="one pane over all", id="maximise"),
    Binding("escape", "restore", "all panes", show=False, tooltip="all panes and all rows; back to the results"),
    Binding("question_mark", "app.help", "help", key_display="?", tooltip="all keys", id="help"),
    Binding("q", "app.quit", "quit", tooltip="leave; results are kept", id="quit"),
    Binding("ctrl+q", "app.quit", "leave", show=False, tooltip="leave, but not from a box in which you type"),
    Binding("ctrl+c", "screen.copy_text", "copy selection", show=False, tooltip="copy text selected with the mouse"),
]
