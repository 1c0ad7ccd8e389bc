"""An agent that plays a script: a list of tries for its task, each a text for solution.py that is then run.

It speaks the protocol's lines itself: importing the SDK would take longer than all its calls. Some tries are words:
`kill` ends the process that started the campaign, as `kill -9` would, the first time; `fail` ends the agent with exit
code 3; `hang` sleeps; `tamper` changes the task; `escape` reports what a sandbox lets it do. A run whose confirmation
is refused, as happens on a busy machine, is repeated up to $PATIENCE times.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


class Tools:
    def __init__(self) -> None:
        settings = json.loads(Path(os.environ["KERNBENCH_MCP_CONFIG"]).read_text())["mcpServers"]["kernbench"]
        command = [settings["command"], *settings["args"]]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._count = 0
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "script", "version": "1"}}
        self._ask("initialize", about)
        self._send({"method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self._ask("tools/call", {"name": tool, "arguments": arguments})
        return answer.get("structuredContent") or {"sentence": answer["content"][0]["text"]}

    def close(self) -> None:
        with self._server:
            assert self._server.stdin is not None
            self._server.stdin.close()

    def _ask(self, method: str, about: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        self._send({"id": self._count, "method": method, "params": about})
        assert self._server.stdout is not None
        for line in self._server.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._count:
                result: dict[str, Any] = answer["result"]
                return result
        raise EOFError(method)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._server.stdin.flush()


def main(folder: Path, tries: list[str]) -> int:
    tools = Tools()
    for text in tries:
        if text == "fail":
            return 3
        if text == "kill":
            if not (mark := folder.parent / "killed").exists():
                mark.touch()
                os.kill(int(os.environ["CAMPAIGN_PID"]), signal.SIGKILL)
                time.sleep(60)
        elif text == "hang":
            time.sleep(60)
        elif text == "tamper":
            (folder / "reference.py").write_text("def make_inputs(case, seed, device): return 0\ndef toy(): ...\n")
        elif text == "escape":
            print(json.dumps(escape(folder)), flush=True)
        else:
            own = text if "def " in text else f"def toy(): ...\n{text}\n"
            tools.call("write_source", path="solution.py", text=own)
            for _again in range(int(os.environ.get("PATIENCE", "1"))):
                answer = tools.call("run", hypothesis=text.splitlines()[-1])
                print(answer.get("outcome", ""), answer["sentence"], answer.get("budget"), flush=True)
                if answer.get("outcome") != "refused":
                    break
    tools.close()
    return 0


def escape(folder: Path) -> dict[str, bool]:
    """What it can do: write the worktree, the log and the user's files, and reach a server on this machine."""

    def can(what: str) -> bool:
        try:
            if what == "network":
                socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), timeout=5).close()
            else:
                Path(what).write_text("x")
        except OSError:
            return False
        return True

    places = {
        "worktree": folder / "notes.md",
        "log": folder / ".kernbench" / "forged",
        "user": os.environ["USERS_FILE"],
        "tmp": "/tmp/kernbench-escape",
    }
    return {name: can(str(place)) for name, place in places.items()} | {"network": can("network")}


if __name__ == "__main__":
    task = Path(os.environ["KERNBENCH_TASK"])
    sys.exit(main(task, json.loads(os.environ["SCRIPT"])[task.name]))
