"""How a screen leaves when it failed: with a sentence, not with Textual's page of local variables."""

from __future__ import annotations

from textual.app import App, ReturnType

from kernbench import mistakes


class LeavesWithASentence(App[ReturnType]):
    """Textual ends an app at the first exception that nobody caught: the part that raised it hears nothing more."""

    mistake = ""
    """For whoever started the app to say, when the terminal is its own again."""

    def _fatal_error(self) -> None:
        if mistakes.is_asked_for() or self._exception is None:
            super()._fatal_error()
            return
        self.mistake = self.mistake or mistakes.sentence(self._exception)  # what fails next is its consequence
        self._close_messages_no_wait()
