"""Processes forked from one that has imported torch: a test does not pay three seconds of CPU for each of them.

`Forked` is used like `subprocess.Popen` with three pipes. The process it starts runs `code` as `python -c` would, with
the environment, the arguments and the additions to sys.path it is given.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

SERVER = """
import atexit, importlib, json, os, signal, socket, sys, traceback, types

for module in sys.argv[2:]:
    importlib.import_module(module)

def serve(connection):
    while True:
        request, files, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if not request:
            sys.exit()
        if not os.fork():
            return json.loads(request), files
        for file in files:
            os.close(file)

def watch(child, status):
    os.write(status, b"%d\\n" % child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(status, b"%d\\n" % code)
    os._exit(0)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
connection = socket.socket(fileno=int(sys.argv[1]))
request, (*streams, status) = serve(connection)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
connection.close()
if child := os.fork():
    for stream in streams:
        os.close(stream)
    watch(child, status)
os.close(status)
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
os.environ.clear()
os.environ.update(request["environment"])
sys.argv[:] = ["-c", *request["words"]]
sys.path[:0] = request["path"]
sys.modules["__main__"] = main = types.ModuleType("__main__")
code = 0
try:
    exec(compile(request["code"], "<string>", "exec"), vars(main))
except SystemExit as left:
    code = left.code if isinstance(left.code, int) else int(left.code is not None)
except BaseException:
    traceback.print_exc()
    code = 1
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # taking torch apart would cost a second
"""


class Forked:
    """One process; `imports` are what the process it is forked from has imported, under `interpreted` Triton or not."""

    def __init__(
        self,
        code: str,
        words: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        path: Sequence[str] = (),
        imports: Sequence[str] = ("torch",),
        interpreted: bool = False,
    ) -> None:
        given = dict(os.environ if environment is None else environment)
        request = {"code": code, "words": list(words), "environment": given, "path": list(path)}
        pipes = [os.pipe() for _ in range(4)]
        theirs = [pipes[0][0], *(end for _, end in pipes[1:])]
        self.stdin = os.fdopen(pipes[0][1], "w")
        self.stdout = os.fdopen(pipes[1][0])
        self.stderr = os.fdopen(pipes[2][0])
        self._status = os.fdopen(pipes[3][0])
        self.returncode: int | None = None
        try:
            socket.send_fds(_server(tuple(imports), interpreted), [json.dumps(request).encode()], theirs)
        finally:
            for end in theirs:
                os.close(end)
        self.pid = int(self._status.readline())

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote; at most a pipeful goes to the second stream."""
        self.stdin.close()
        try:
            said = self.stdout.read(), self.stderr.read()
            self.wait(timeout)
        except BaseException:
            self.kill()
            raise
        finally:
            self.stdout.close()
            self.stderr.close()
        return said

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 9)
            self.wait()


@functools.cache
def _server(imports: tuple[str, ...], interpreted: bool) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    settings = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    settings["CUDA_VISIBLE_DEVICES"] = ""
    if interpreted:
        settings["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-c", SERVER, str(theirs.fileno()), *imports]
    with theirs:
        process = subprocess.Popen(command, env=settings, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.wait()
