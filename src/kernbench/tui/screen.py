"""The one screen of the workbench: status, panes, hint, keys, arranged by the room there is (layout.py).

Events change the board at once and are painted at most fifteen times a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.getters import query_one
from textual.screen import Screen

from harness.shared.errors import UserError
from kernbench.events import (
    BuildFailed,
    CaseLanded,
    Event,
    LogLine,
    Notice,
    ProfileFailed,
    ProfileReady,
    ProfileStarted,
    Progress,
    RunFinished,
    RunStarted,
    TaskLoaded,
)
from kernbench.machine.telemetry import Sample
from kernbench.tui import bindings, layout
from kernbench.tui.layout import PANES, SIDE, STACKED, WIDE
from kernbench.tui.pages.dialogs import Page
from kernbench.tui.panes.gpu import Gpu
from kernbench.tui.panes.iterations import Iterations
from kernbench.tui.panes.output import Log
from kernbench.tui.panes.plot import Trajectory
from kernbench.tui.panes.profile import ProfilePane
from kernbench.tui.panes.results import Results
from kernbench.tui.state.board import Board, Change
from kernbench.tui.text import row_detail, status_text
from kernbench.tui.text.sort_filter import SORT_WORDS
from kernbench.tui.text.spans import clip
from kernbench.tui.widgets.filter_line import FilterLine
from kernbench.tui.widgets.key_line import KeyLine
from kernbench.tui.widgets.row_view import RowView
from kernbench.tui.widgets.status_line import StatusLine
from kernbench.tui.widgets.tab_line import TabLine

if TYPE_CHECKING:
    from kernbench.tui.app import Workbench

FILTER_WORDS = "filter: words of id, label, model, verdict, finding, or 64x*; -word leaves out; enter keeps, esc: all"
LOOK_SECONDS = 3.0
PAINT_SECONDS = 1 / 15
REASONS = {"open": "opened", "save": "save", "key": "run again", "command": "command"}
"""Why a run began, as the log heads its lines."""


class MainScreen(Screen[None], inherit_bindings=False):
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (STACKED, "-stacked")]
    AUTO_FOCUS = "#results"
    BINDINGS: ClassVar[list[BindingType]] = bindings.KEYS

    results = query_one("#results", Results)
    iterations = query_one("#iterations", Iterations)
    log_pane = query_one("#log", Log)
    gpu = query_one("#gpu", Gpu)
    profile = query_one("#profile", ProfilePane)
    plot = query_one("#plot", Trajectory)
    filter_line = query_one("#filter", FilterLine)
    line_one = query_one("#line-one", StatusLine)
    line_two = query_one("#line-two", StatusLine)
    hint = query_one("#hint", StatusLine)

    def __init__(self, board: Board, ascii_only: bool) -> None:
        super().__init__()
        self.board = board
        self.ascii_only = ascii_only
        self.active = "results"
        self._side = "iterations"
        self._whole = False
        self._change = Change()
        self._paint_due = False
        self._more = False
        """Something changed since the last paint."""
        self._turning = False
        """The panes of one task are gone and those of the next are not there yet."""
        self._log_problem = ""
        """What was said when the log was last looked at."""
        self.set_class(ascii_only, "-ascii")

    @property
    def bench(self) -> Workbench:
        return cast("Workbench", self.app)

    def compose(self) -> ComposeResult:
        yield StatusLine(id="line-one")
        yield StatusLine(id="line-two")
        with Horizontal(id="body"):
            yield Results(self.board, self.ascii_only)
            with Vertical(id="side"):
                yield TabLine(id="side-tabs")
                yield Gpu(self.ascii_only)
                yield ProfilePane(self.bench.now, self.ascii_only)
                yield Iterations(self.bench.now, self.ascii_only)
                yield Trajectory(self.ascii_only)
                yield Log(self.board, self.ascii_only)
        yield TabLine(id="tabs")
        yield StatusLine(id="hint")
        yield FilterLine(FILTER_WORDS)
        yield KeyLine()

    def on_mount(self) -> None:
        self._begin()
        self.set_interval(60, lambda: self.iterations.refresh())
        self.set_interval(1, self._count_on)
        self.set_interval(LOOK_SECONDS, self._look_elsewhere)

    def _look_elsewhere(self) -> None:
        """Entries that a shell or an editor makes appear here too."""
        found = ""
        try:
            if self.ready and not self.board.reading and self.bench.engine.changed_elsewhere():
                self._show_iterations()
        except (UserError, OSError) as problem:  # of a network's disk, say; the next look may succeed
            found = f"the log could not be read again: {problem}"
        if found and found != self._log_problem:
            self.bench.say(found, "warning")
        self._log_problem = found
        if self.ready:
            self.paint()  # another workbench may have come or gone

    def _count_on(self) -> None:
        """A run that hangs sends no events; its seconds go by all the same."""
        if self.bench.engine.running:
            self.paint_soon()

    async def turn_to(self, board: Board) -> None:
        """The same screen for another task."""
        self.board = board
        self._turning = True
        self.active, self._side, self._whole = "results", "iterations", False
        self._change = Change()
        await self.recompose()
        self._turning = False
        self._begin()
        self.set_focus(self.results)

    def _begin(self) -> None:
        for name, title in SIDE:
            self.query_one(f"#{name}").border_title = title
        self._show_iterations()
        self._show_kept_profiles()
        self.arrange_panes()

    def on_resize(self, event: events.Resize) -> None:
        if not self._turning:
            self.arrange_panes(event.size.width, event.size.height)

    # -- events of the engine

    def take(self, event: Event) -> None:
        """Fold an event into the board; who calls paints when all are in."""
        if isinstance(event, LogLine):
            self.log_pane.add(event.text)
            return
        if isinstance(event, Notice):
            self.bench.tell(event.text, event.severity)
            return
        if isinstance(event, ProfileStarted | ProfileReady | ProfileFailed):
            self.profile.hear(event)
            return
        if isinstance(event, Progress) and event != self.board.progress:
            self.board.progress_at = self.bench.now()
        change = self.board.take(event)
        self._change = Change(self._change.cases | change.cases, self._change.rows or change.rows)
        if isinstance(event, RunStarted):
            self.log_pane.separate(f"{event.at[11:19]} {REASONS[event.reason]}, source {event.source[:8]}")
            self.board.usual_seconds = status_text.usual_seconds(
                self.bench.engine.logbook.iterations(), len(event.cases)
            )
        if isinstance(event, RunStarted | BuildFailed | TaskLoaded) or _is_failure(event):
            self.log_pane.show()
        if isinstance(event, RunFinished):
            self._show_iterations()
        if isinstance(event, CaseLanded):
            self._update_page(event)

    def feel(self, sample: Sample) -> None:
        """The machine, a second later."""
        if not self.ready:
            return
        environment = self.board.environment
        meters = self.gpu.meters
        meters.device = environment.device if environment else None
        meters.uuid = getattr(environment, "uuid", None)
        self.gpu.take(sample)
        warning = meters.warning()
        if warning != self.board.warning:
            self.board.warning = warning
            self.paint_soon()

    def remember(self) -> None:
        """The log was read."""
        engine = self.bench.engine
        self._change = self.board.remember(engine.last_results(), engine.last_summary())
        self._show_iterations()
        self._show_kept_profiles()
        self.paint()

    @property
    def ready(self) -> bool:
        """Its panes are there: not while the program leaves or turns to another task."""
        return not self._turning and bool(self.query("#log"))

    def _show_iterations(self) -> None:
        self.iterations.reading, self.iterations.usual = self.board.reading, self.board.task.baseline
        iterations = [] if self.board.reading else self.bench.engine.logbook.iterations()
        self.iterations.show(iterations)
        self.plot.show(iterations)

    def _show_kept_profiles(self) -> None:
        if not self.board.reading:
            self.profile.remember(self.bench.engine.archive.profiles())
        self._show_profile()

    def _show_profile(self) -> None:
        self.profile.show(self.results.selected, self.board.source)

    def paint_soon(self) -> None:
        """Paint now if nothing was painted lately, else with the next tick."""
        self._more = self._paint_due
        if not self._paint_due:
            self._paint_due = True
            self.paint()
            self.set_timer(PAINT_SECONDS, self._tick)

    @property
    def settled(self) -> bool:
        """Nothing waits to be painted."""
        return not self._paint_due and not self.log_pane.flush_due

    def _tick(self) -> None:
        self._paint_due = False
        if self._more and not self._turning:
            self.paint_soon()

    def paint(self) -> None:
        """Send what differs from what is on the screen."""
        change, self._change = self._change, Change()
        if change != Change():
            self.results.apply(change)
            self._show_profile()
        width = max(self.size.width - 2, 1)
        engine = self.bench.engine
        self.line_one.show(status_text.line_one(self.board, engine, width, self.ascii_only, self.bench.now()))
        self.line_two.show(status_text.line_two(self.board, engine, width, self.ascii_only))
        hidden = {case.id for case in self.board.cases} - {case.id for case in self.results.cases}
        self.hint.show([(clip(status_text.hint(self.board, engine, hidden), width), "")])
        self._show_tabs()
        self.query_one(KeyLine).reword({"pause": "go on"} if engine.paused else {})

    def _update_page(self, event: CaseLanded) -> None:
        """A row that is being read changes under the reader's eyes."""
        page = self.app.screen
        if not isinstance(page, Page) or page.about != event.result.id:
            return
        for row in self.board.rows():
            if row.case.id == page.about:
                page.show(row_detail.lines(row, self.board.task, self.ascii_only))

    # -- panes

    def arrange_panes(self, width: int | None = None, height: int | None = None) -> None:
        """Show the panes that fit."""
        width, height = width or self.size.width, height or self.size.height
        if self.active != "results":
            self._side = self.active
        filtering = bool(self.filter_line.display)
        found = layout.choose(width, height, self._whole, self.active, self._side, filtering)
        self.set_class(found.one, "-one")
        self.set_class(found.stacked, "-stack")
        self.set_class(filtering, "-filtering")
        for name, shown in found.display.items():
            self.query_one(f"#{name}").display = shown
        self.paint()

    def _show_tabs(self) -> None:
        log = "Log !" if self.board.failure or self.board.failed_rows() else "Log"
        gpu = "GPU !" if self.board.warning else "GPU"
        titles = {"log": log, "gpu": gpu}
        panes = [(name, titles.get(name, title)) for name, title in PANES]
        self.query_one("#tabs", TabLine).show(panes, self.active)
        self.query_one("#side-tabs", TabLine).show(panes[1:], self._side)

    def action_pane(self, name: str) -> None:
        self.active = name
        self.arrange_panes()
        # At once, so that a key typed right after belongs to the new pane.
        self.set_focus(self.query_one(f"#{name}"))

    def bring(self, name: str) -> None:
        """Show a pane, if it is not in view, without taking the keys to it."""
        pane = self.query_one(f"#{name}")
        if not pane.display and self.size.width >= WIDE and not self._whole:
            self._side = name
            self.arrange_panes()
        elif not pane.display or not pane.parent or not self.query_one("#side").display:
            self.action_pane(name)

    def action_step_pane(self, step: int) -> None:
        names = [name for name, _ in PANES]
        self.action_pane(names[(names.index(self.active) + step) % len(names)])

    def action_whole(self) -> None:
        if self.size.width < WIDE:
            self.bench.say("the pane already has the whole screen")
            return
        self._whole = not self._whole
        self.arrange_panes()

    def action_restore(self) -> None:
        if self._whole:
            self._whole = False
            self.arrange_panes()
        elif self.active == "results" and self.results.filter_text:
            self.results.show_only("")
            self.paint()  # the hint may name a row that is there again
        else:
            self.action_pane("results")

    def action_wall(self) -> None:
        if self.board.task.device == "cpu":
            self.bench.say("this task runs on the CPU: wall time is all there is")
            return
        self.results.toggle_wall()

    def action_sort(self) -> None:
        self.results.next_sort()
        self.bench.say(f"rows: {SORT_WORDS[self.results.sort]}")

    # -- the filter

    def action_filter(self) -> None:
        self.action_pane("results")
        self.filter_line.display = True
        self.filter_line.value = self.results.filter_text
        self.arrange_panes()
        self.set_focus(self.filter_line)

    @on(FilterLine.Changed)
    def filter_rows(self, event: FilterLine.Changed) -> None:
        self.results.show_only(event.value.strip())

    @on(FilterLine.Left)
    def leave_filter(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self.results.show_only("")
        self.filter_line.display = False
        self.arrange_panes()
        self.set_focus(self.results)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget.id in dict(PANES) and event.widget.id != self.active:
            self.active = event.widget.id or self.active
            self.arrange_panes()

    @on(TabLine.Picked)
    def pick_tab(self, event: TabLine.Picked) -> None:
        self.action_pane(event.pane)

    @on(Results.Selected)
    def select_case(self, event: Results.Selected) -> None:
        self.bench.engine.selected = event.case_id
        self._show_profile()

    @on(Log.Clicked)
    async def open_place(self, event: Log.Clicked) -> None:
        await self.bench.open_editor(event.where)

    @on(RowView.Opened)
    def open_row(self, event: RowView.Opened) -> None:
        if isinstance(event.view, Results):
            self.bench.show_row()
        elif isinstance(event.view, Iterations):
            self.bench.past.show_entry()


def _is_failure(event: Event) -> bool:
    return isinstance(event, CaseLanded) and event.result.failed
