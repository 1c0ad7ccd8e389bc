"""`kernbench mcp --join`: passes lines between a client and a server that listens on a socket, as a campaign's does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import NoReturn

from harness.shared.errors import UserError

AT_ONCE = 1 << 16


def pass_on(address: str) -> NoReturn:
    """Until the server ends; the end of stdin is passed on, too. Raises UserError if nothing was answered."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except OSError as problem:
        raise UserError(f"no server listens at {address} ({problem.strerror or problem})") from None
    has_left, is_answered = threading.Event(), False
    threading.Thread(target=_send, args=(connection, has_left), daemon=True).start()
    with contextlib.suppress(OSError):  # the client or the server has left
        while data := connection.recv(AT_ONCE):
            is_answered = True
            while data:
                data = data[os.write(1, data) :]
    if not is_answered and not has_left.is_set():
        connection.close()
        raise UserError(
            f"the server at {address} answers nothing: it serves one client at a time, so end the other one"
        )
    os._exit(0)  # the thread may wait for a line that never comes


def _send(connection: socket.socket, has_left: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, AT_ONCE):
            connection.sendall(data)
        has_left.set()
        connection.shutdown(socket.SHUT_WR)
