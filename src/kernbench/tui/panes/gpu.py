"""The GPU pane: meters of the machine. A line is sent only when a figure in it changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.shared.run_request import Environment
from kernbench.machine.telemetry import Sample
from kernbench.tui.text.gpu_text import Meters
from kernbench.tui.text.spans import Span
from kernbench.tui.widgets.row_view import RowView


def looks_present(devices: Path = Path("/dev")) -> bool:
    """Whether a GPU device file exists: a quick guess, since the worker takes seconds to report its GPU."""
    return any(devices.glob("nvidia[0-9]*")) or (devices / "dxg").exists()


class Gpu(RowView):
    HEADER = 0
    HAS_CURSOR = False

    def __init__(self, ascii_only: bool) -> None:
        super().__init__(id="gpu", ascii_only=ascii_only)
        self.meters = Meters(ascii_only)
        self._shown: list[list[Span]] = self.meters.lines(1)

    def on_mount(self) -> None:
        self.reshape()

    def on_resize(self) -> None:
        self._shown = self.meters.lines(self.line_width)
        self.reshape()

    def take(self, sample: Sample, environment: Environment | None) -> None:
        """`environment` names the worker's GPU, once known."""
        self.meters.device = environment.device if environment else None
        self.meters.uuid = environment.uuid if environment else None
        self.meters.take(sample)
        before, self._shown = self._shown, self.meters.lines(self.line_width)
        if len(before) != len(self._shown):
            self.reshape()
            return
        for index, (old, new) in enumerate(zip(before, self._shown, strict=True)):
            if old != new:
                self.refresh_row(index)

    def count(self) -> int:
        return len(self._shown)

    def line(self, index: int, width: int) -> Sequence[Span]:
        return self._shown[index]
