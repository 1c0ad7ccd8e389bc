"""Actions on the selected row: details, traceback, profile. An action that cannot run shows why."""

from __future__ import annotations

from kernbench.tui.pages.dialogs import RowPage, TracebackPage
from kernbench.tui.state.bench import Bench
from kernbench.tui.text import failure_text


class RowActions:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def show_row(self) -> None:
        bench, row = self._bench, self._bench.main.selected_row
        if row is None:
            bench.say("no row selected: the filter matches none" if bench.board.cases else "the task has no rows")
            return
        bench.push_screen(RowPage(row, bench.board, bench.ascii_only))

    def show_traceback(self) -> None:
        bench, board = self._bench, self._bench.board
        found = failure_text.traceback(board, bench.main.selected_row)
        if found is None:
            failed = board.failure is not None or board.failed_rows()
            bench.say("no traceback: nothing was raised" if failed else "no traceback: nothing failed")
            return
        bench.push_screen(TracebackPage(*found))

    def profile(self, full: bool) -> None:
        bench = self._bench
        row, environment = bench.main.selected_row, bench.board.environment
        if row is None or environment is None:
            bench.say("no row to profile" if row is None else "the worker is still starting")
        elif bench.board.sweep:
            bench.say("a sweep is running: S ends it")
        elif not environment.device.startswith("cuda"):
            bench.say("Nsight Compute profiles GPUs; this run is on the CPU")
        else:
            bench.main.reveal("profile")
            bench.run_worker(bench.engine.profile(row.case.id, None, full), exit_on_error=False)
