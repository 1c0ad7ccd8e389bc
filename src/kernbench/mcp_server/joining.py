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
    """Until the server ends; the end of stdin is passed on, too."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except OSError as problem:
        raise UserError(f"no server listens at {address} ({problem.strerror or problem})") from None
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    with contextlib.suppress(OSError):  # the client or the server has left
        while data := connection.recv(AT_ONCE):
            while data:
                data = data[os.write(1, data) :]
    os._exit(0)  # the thread may wait for a line that never comes


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, AT_ONCE):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
