"""The main screen: status lines, panes, hint and keys, arranged to fit (layout.py).

Events change the board at once and are painted at most fifteen times per second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.getters import query_one

from harness.shared.errors import UserError
from kernbench import render
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Confirmed,
    Event,
    LogLine,
    Notice,
    ProfileFailed,
    ProfileReady,
    ProfileStarted,
    Progress,
    RunFinished,
    RunStarted,
    Summary,
    TaskLoaded,
)
from kernbench.machine.telemetry import Sample
from kernbench.tui import bindings
from kernbench.tui.actions.editor import Editor
from kernbench.tui.actions.iterations import IterationActions
from kernbench.tui.actions.rows import RowActions
from kernbench.tui.pages.dialogs import RowPage
from kernbench.tui.pane_screen import PaneScreen
from kernbench.tui.panes import trajectory
from kernbench.tui.panes.gpu import Gpu
from kernbench.tui.panes.heat_map import HeatMap
from kernbench.tui.panes.iterations import Iterations
from kernbench.tui.panes.output import Output
from kernbench.tui.panes.plot import Plot
from kernbench.tui.panes.profile import ProfilePane
from kernbench.tui.panes.results import Results
from kernbench.tui.state.bench import Bench
from kernbench.tui.state.board import Board, Change, Row
from kernbench.tui.text import headline, status_text
from kernbench.tui.text.sort_filter import SORT_WORDS
from kernbench.tui.text.spans import clip
from kernbench.tui.widgets.delays import call_after
from kernbench.tui.widgets.filter_line import FilterLine
from kernbench.tui.widgets.key_line import KeyLine
from kernbench.tui.widgets.row_view import RowView
from kernbench.tui.widgets.status_line import StatusLine
from kernbench.tui.widgets.tab_line import TabLine

FILTER_WORDS = "filter by id, label, model, verdict, finding or 64x*; -word excludes; enter: keep, esc: show all"
LOOK_SECONDS = 3.0
PAINT_SECONDS = 1 / 15


class MainScreen(PaneScreen, inherit_bindings=False):
    AUTO_FOCUS = "#results"
    BINDINGS: ClassVar[list[BindingType]] = bindings.KEYS

    results = query_one("#results", Results)
    iterations = query_one("#iterations", Iterations)
    output = query_one("#output", Output)
    gpu = query_one("#gpu", Gpu)
    profile = query_one("#profile", ProfilePane)
    heat = query_one("#heat", HeatMap)
    filter_line = query_one("#filter", FilterLine)
    line_one = query_one("#line-one", StatusLine)
    line_two = query_one("#line-two", StatusLine)
    hint = query_one("#hint", StatusLine)

    def __init__(
        self, bench: Bench, rows: RowActions, past: IterationActions, editor: Editor, now: Callable[[], datetime]
    ) -> None:
        super().__init__()
        self._bench, self._now = bench, now
        self._rows, self._past, self._editor = rows, past, editor
        self.board = bench.board
        self.ascii_only = bench.ascii_only
        self._change = Change()
        self._paint_due = False
        self._more = False
        """Something changed since the last paint."""
        self._turning = False
        """The panes of one task are gone and those of the next do not exist yet."""
        self._looking = False
        self._log_problem = ""
        """The problem shown when the log was last read."""
        self.set_class(self.ascii_only, "-ascii")

    def compose(self) -> ComposeResult:
        yield StatusLine(id="line-one")
        yield StatusLine(id="line-two")
        with Horizontal(id="body"):
            with Vertical(id="main"):
                yield Results(self.board, self.ascii_only)
                yield HeatMap(self.ascii_only)
                yield Plot("wide-plot", self.ascii_only)
            with Vertical(id="side"):
                yield TabLine(id="side-tabs")
                yield Gpu(self.ascii_only)
                yield ProfilePane(self._now, self.ascii_only)
                yield Iterations(self._now, self.ascii_only)
                yield Plot("plot", self.ascii_only)
                yield Output(self.board, self.ascii_only)
        yield TabLine(id="tabs")
        yield StatusLine(id="hint")
        yield FilterLine(FILTER_WORDS)
        yield KeyLine()

    def on_mount(self) -> None:
        self._begin()
        self.set_interval(1, self._count_on)
        self.set_interval(LOOK_SECONDS, self._look_soon)

    def _look_soon(self) -> None:
        """In a worker: keys must not wait for a slow disk."""
        if not self._looking:
            self._looking = True
            self.run_worker(self._look_elsewhere(), exit_on_error=False)

    async def _look_elsewhere(self) -> None:
        """Show entries that a shell or an editor added."""
        found = ""
        try:
            changed = self.ready and not self.board.reading and await self._bench.engine.changed_elsewhere()
            if changed and self.ready:
                self.show_iterations()
        except (UserError, OSError) as problem:  # e.g. a network disk; the next read may succeed
            found = f"cannot re-read the log: {problem}"
        finally:
            self._looking = False
        if found and found != self._log_problem:
            self._bench.say(found, "warning")
        self._log_problem = found
        if self.ready:
            self.paint()  # another workbench may have opened or closed

    def _count_on(self) -> None:
        """Count seconds during a run that hangs and sends no events."""
        if self._bench.engine.running:
            self.paint_soon()

    async def switch_task(self, board: Board) -> None:
        """Show another task on the same screen."""
        self.board = board
        self._turning = True
        self.reset_panes()
        self._change = Change()
        await self.recompose()
        self._turning = False
        self._begin()
        self.set_focus(self.results, scroll_visible=False)

    def _begin(self) -> None:
        self.show_titles()
        self.show_iterations()
        self._show_kept_profiles()
        self.arrange_panes()

    def on_resize(self, event: events.Resize) -> None:
        if not self._turning:
            self.arrange_panes(event.size)

    # -- events of the engine

    def show_event(self, event: Event) -> None:
        """Apply an event to the board; the caller paints after the last one."""
        if isinstance(event, LogLine):
            self.output.add(event.text)
            return
        if isinstance(event, Notice):
            self._bench.tell(event.text, event.severity)
            return
        if isinstance(event, ProfileStarted | ProfileReady | ProfileFailed):
            self.profile.hear(event)
            self.share_height()
            return
        if isinstance(event, Progress) and not self.board.continues(event):
            self.board.progress_at = self._now()
        change = self.board.apply(event)
        self._change = Change(self._change.cases | change.cases, self._change.rows or change.rows)
        if isinstance(event, RunStarted):
            self.output.begin_run(event)
            self.board.usual_seconds = status_text.usual_seconds(
                self._bench.engine.logbook.iterations(), len(event.cases)
            )
        if isinstance(event, RunStarted | BuildFailed | TaskLoaded) or _is_failure(event):
            self.output.show()
        if isinstance(event, RunFinished):
            self.board.history.take(event.summary, self.board.landed())
        if isinstance(event, RunFinished | Confirmed):
            self.show_iterations()
        if isinstance(event, Confirmed):
            said = render.confirmation(event, self._bench.engine.logbook.summary(event.run))
            self._bench.tell(said, "information" if event.confirmed else "warning")
        if isinstance(event, CaseLanded) and isinstance(self.app.screen, RowPage):
            self.app.screen.follow(self.board, event)

    def show_sample(self, sample: Sample) -> None:
        """Show a new sample of the machine."""
        if not self.ready:
            return
        lines = self.gpu.lines()
        self.gpu.take(sample, self.board.environment)
        if self.gpu.lines() != lines:
            self.share_height()
        warning = self.gpu.meters.warning()
        if warning != self.board.warning:
            self.board.warning = warning
            self.paint_soon()

    def remember(self) -> None:
        """Show earlier results once the log is read."""
        engine = self._bench.engine
        self._change = self.board.remember(engine.last_results(), engine.last_summary())
        self.show_iterations()
        self._show_kept_profiles()
        self.paint()

    @property
    def ready(self) -> bool:
        """Whether all panes exist: not on exit, where they go one after the other, or while switching tasks."""
        return not self._turning and self.app.is_running and bool(self.query("#output"))

    @property
    def selected_row(self) -> Row | None:
        return self.results.selected

    @property
    def shown_rows(self) -> list[Row]:
        return [self.board.row(case) for case in self.results.cases]

    @property
    def selected_entry(self) -> Summary | None:
        return self.iterations.selected

    @property
    def marked_entries(self) -> Sequence[Summary]:
        return self.iterations.marked

    def mark_entry(self) -> None:
        self.iterations.mark()

    def show_iterations(self) -> None:
        self.iterations.reading, self.iterations.usual = self.board.reading, self.board.task.baseline
        logbook = self._bench.engine.logbook
        iterations = [] if self.board.reading else logbook.iterations()
        self.board.best_now = None if self.board.reading else logbook.best_now()
        self.iterations.show(iterations)
        self.heat.follow(self.board, trajectory.comparable(iterations), self._bench.engine.archive)
        self.share_height()
        rows = self.board.rows()
        for plot in self.query(Plot):
            plot.show(iterations, rows)

    def _show_kept_profiles(self) -> None:
        if not self.board.reading:
            self.profile.remember(self._bench.engine.archive.profiles())
        self._show_profile()

    def _show_profile(self) -> None:
        self.profile.show(self.results.selected, self.board.source)

    def paint_soon(self) -> None:
        """Paint now, or with the next tick if the last paint was just now."""
        self._more = self._paint_due
        if not self._paint_due:
            self._paint_due = True
            self.paint()
            call_after(PAINT_SECONDS, self, self._tick)

    @property
    def settled(self) -> bool:
        """Whether everything is painted."""
        return not (self._paint_due or self.output.flush_due or self.heat.is_reading)

    def _tick(self) -> None:
        self._paint_due = False
        if self._more and self.ready:
            self.paint_soon()

    def paint(self) -> None:
        """Send what changed on the screen."""
        change, self._change = self._change, Change()
        if change != Change():
            self.results.apply(change)
            self._show_profile()
        self.heat.keep_to(self.results.cases)
        self.share_main_column()
        width = max(self.size.width - 2, 1)
        engine = self._bench.engine
        self.line_one.show(headline.line_one(self.board, engine, width, self.ascii_only, self._now()))
        self.line_two.show(status_text.line_two(self.board, engine, width))
        hidden = {case.id for case in self.board.cases} - {case.id for case in self.results.cases}
        self.hint.show([(clip(status_text.hint(self.board, engine, hidden), width), "")])
        if self.board.run is None:
            named = status_text.failing_row(self.board, hidden)
            self.results.point_to(named.case.id if named is not None else None)
        failed = self.board.failure is not None or bool(self.board.failed_rows())
        if failed != self.is_failed:
            self.is_failed = failed
            self.share_height()
        self.show_tabs({"output": failed, "gpu": bool(self.board.warning)})
        self.query_one(KeyLine).reword({"pause": "resume"} if engine.paused else {})

    # -- panes

    def action_whole(self) -> None:
        if not self.is_wide:
            self._bench.say("this pane already fills the screen")
            return
        self.set_single_pane(not self.single_pane)

    def action_restore(self) -> None:
        if self.single_pane:
            self.set_single_pane(False)
        elif self.active == "results" and self.results.filter_text:
            self.results.show_only("")
            self.paint()  # the hint may name a row that shows again
        else:
            self.action_pane("results")

    def action_plot(self) -> None:
        self.turn_plots()

    def action_wall(self) -> None:
        if self.board.task.device == "cpu":
            self._bench.say("this task runs on the CPU: there is only wall time")
            return
        self.results.toggle_wall()

    def action_sort(self) -> None:
        self.results.next_sort()
        self.paint()  # the hint may name a row that was somewhere else
        self._bench.say(f"sorted: {SORT_WORDS[self.results.sort]}")

    # -- the filter

    def action_filter(self) -> None:
        self.action_pane("results")
        self.filter_line.display = True
        self.filter_line.value = self.results.filter_text
        self.arrange_panes()
        self.set_focus(self.filter_line, scroll_visible=False)

    @on(FilterLine.Changed)
    def filter_rows(self, event: FilterLine.Changed) -> None:
        self.results.show_only(event.value.strip())
        self.paint()  # the hint may name a row that is hidden now

    @on(FilterLine.Left)
    def leave_filter(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self.results.show_only("")
        self.filter_line.display = False
        self.arrange_panes()
        self.set_focus(self.results, scroll_visible=False)

    @on(Results.Selected)
    def select_case(self, event: Results.Selected) -> None:
        self._bench.engine.selected = event.case_id
        self.heat.keep_to(self.results.cases)
        self._show_profile()

    @on(Output.Clicked)
    async def open_place(self, event: Output.Clicked) -> None:
        await self._editor.open(event.where)

    @on(RowView.Opened)
    def open_row(self, event: RowView.Opened) -> None:
        if isinstance(event.view, Results):
            self._rows.show_row()
        elif isinstance(event.view, Iterations):
            self._past.show_entry()


def _is_failure(event: Event) -> bool:
    return isinstance(event, CaseLanded) and event.result.failed
