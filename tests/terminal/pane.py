"""A tmux server of its own with one pane: typed into, and read like a person reads it."""

from __future__ import annotations

import re
import subprocess
import time


class Pane:
    def __init__(self, socket: str, width: int, height: int, *command: str) -> None:
        self.socket = socket
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), *command)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self.socket, "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, pattern: str, seconds: float = 90.0) -> str:
        """The screen, once the pattern is on it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            if re.search(pattern, screen, re.MULTILINE):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} did not come up; the screen shows:\n{self.screen()}")

    def modes(self) -> str:
        """Whether the program in it has the alternate screen, and whether it gets the mouse."""
        return self._tmux("display-message", "-p", "#{alternate_on} #{mouse_any_flag}").strip()

    def buffer(self) -> str:
        return self._tmux("show-buffer")

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], capture_output=True, check=False, timeout=20)
