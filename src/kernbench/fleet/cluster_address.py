"""Where the cluster is: `auto` finds the one that this machine belongs to, and a cluster that is gone is noticed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from harness.shared.errors import UserError

AUTO = "auto"
ANSWERS_S = 5.0
START = "`ray start --head` starts one, `--ray HOST:PORT` names another"


def current_cluster() -> Path:
    """Ray's note of the cluster that this machine joined last; it stays when the cluster is gone."""
    return Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"


def resolve(given: str) -> str:
    """HOST:PORT of a cluster that answers; raises UserError if there is none."""
    address, source = given, ""
    if given == AUTO:
        address, source = os.environ.get("RAY_ADDRESS", ""), "RAY_ADDRESS"
        if not address:
            note = current_cluster()
            source = str(note)
            address = note.read_text(encoding="utf-8").strip() if note.is_file() else ""
        if not address:
            raise UserError(f"--ray auto: no Ray cluster on this machine; {START}")
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--ray {address}: expected HOST:PORT of the head, such as 10.0.0.1:6379; run this on a node")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWERS_S).close()
    except OSError as problem:
        said = f" ({source} names it)" if source else ""
        reason = problem.strerror or str(problem)
        raise UserError(f"--ray {given}: nothing answers at {address}{said}: {reason}; {START}") from None
    return address
