"""The global keys, in the order of the key line, which drops the last ones when it is narrow."""

from __future__ import annotations

from textual.binding import Binding, BindingType

KEYS: list[BindingType] = [
    Binding("r", "app.rerun", "run", tooltip="re-run now (runs a pending save first)", id="rerun"),
    Binding("space", "app.pause", "pause", tooltip="pause / resume running on save", id="pause"),
    Binding("h", "app.hypothesis", "why", tooltip="describe what you are trying next", id="hypothesis"),
    Binding("d", "app.diff", "diff", tooltip="diff best -> working copy, or the marked two", id="diff"),
    Binding("n", "app.profile(False)", "ncu", tooltip="profile the row with Nsight Compute", id="profile"),
    Binding("N", "app.profile(True)", "full ncu", show=False, tooltip="full Nsight Compute profile", id="profile_full"),
    Binding("i", "pane('iterations')", "iters", tooltip="show the iterations and their plot", id="iterations"),
    Binding("p", "plot", "plot", show=False, tooltip="exchange the plots: trajectory, roofline", id="plot"),
    Binding("slash", "filter", "filter", key_display="/", tooltip="filter the rows", id="filter"),
    Binding("e", "app.edit", "edit", tooltip="open the error or the solution in $EDITOR", id="edit"),
    Binding("x", "app.next_step", "next", tooltip="write the next step into the last entry", id="next"),
    Binding("w", "app.export", "export", tooltip="export the log", id="export"),
    Binding("y", "app.copy_selected", "copy", tooltip="copy the row or entry as Markdown", id="copy"),
    Binding("Y", "app.copy_table", "copy table", show=False, tooltip="copy the table as Markdown", id="copy_table"),
    Binding("s", "sort", "sort", tooltip="change the sort order", id="sort"),
    Binding("m", "wall", "wall time", tooltip="switch between device and wall time", id="wall"),
    Binding("M", "app.model", "model", show=False, tooltip="run a model's step with these files", id="model"),
    Binding("b", "app.baseline", "baseline", tooltip="choose the baseline", id="baseline"),
    Binding("T", "app.tasks", "tasks", tooltip="switch to another task", id="tasks"),
    Binding("S", "app.sweep", "sweep", show=False, tooltip="try values of constants; ends the sweep", id="sweep"),
    Binding("u", "app.undo", "undo", show=False, tooltip="undo the last restore or drop", id="undo"),
    Binding("t", "app.traceback", "traceback", show=False, tooltip="show the traceback", id="traceback"),
    Binding("1", "pane('results')", "results", show=False, tooltip="show the results", id="pane.results"),
    Binding("2", "pane('gpu')", "GPU", show=False, tooltip="show the GPU and host meters", id="pane.gpu"),
    Binding("3", "pane('profile')", "profile", show=False, tooltip="show the row's profile", id="pane.profile"),
    Binding("4", "pane('iterations')", "iterations", show=False, tooltip="show the iterations", id="pane.iterations"),
    Binding("5", "pane('output')", "output", show=False, tooltip="show the output", id="pane.output"),
    Binding("tab", "step_pane(1)", "next pane", show=False, tooltip="next pane"),
    Binding("shift+tab", "step_pane(-1)", "previous pane", show=False, tooltip="previous pane"),
    Binding("plus", "whole", "maximize", show=False, key_display="+", tooltip="maximize this pane", id="maximise"),
    Binding("escape", "restore", "all panes", show=False, tooltip="show all panes and rows; back to the results"),
    Binding("question_mark", "app.help", "help", key_display="?", tooltip="list all keys", id="help"),
    Binding("q", "app.quit", "quit", tooltip="quit (results are kept)", id="quit"),
    Binding("ctrl+q", "app.quit", "quit now", show=False, tooltip="quit (not while typing)"),
    Binding("ctrl+l", "redraw", "redraw", show=False, tooltip="redraw the screen"),
    Binding("ctrl+c", "screen.copy_text", "copy selection", show=False, tooltip="copy text selected with the mouse"),
]
