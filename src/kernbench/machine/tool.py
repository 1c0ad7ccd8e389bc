"""Runs a tool to its end and returns what it printed. A tool that hangs is killed, together with what it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from harness.shared import format as fmt
from harness.shared.errors import UserError


class ToolError(UserError):
    """The tool gave no answer; one sentence."""


def run(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Raises ToolError if the tool is missing or takes longer. Bytes that are not text come back as os.fsdecode has
    them, so that a name can be handed to the next tool."""
    done = run_bytes(command, seconds, environment)
    return subprocess.CompletedProcess(command, done.returncode, _text(done.stdout), _text(done.stderr))


def _text(output: bytes) -> str:
    return os.fsdecode(output).replace("\r\n", "\n").replace("\r", "\n")


def run_bytes(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None, given: bytes | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The same, with the output as it is; `given` is what the tool reads."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as problem:
        raise ToolError(f"cannot start {command[0]}: {problem.strerror or problem}") from None
    with process:
        try:
            output, errors = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            raise ToolError(f"{command[0]} did not finish within {fmt.seconds(seconds)}") from None
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def answer(command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> str:
    """The tool's output; raises ToolError also if the tool fails."""
    done = run(command, seconds, environment)
    if done.returncode != 0:
        raise ToolError(f"{command[0]} failed: {last_line(done)}")
    return done.stdout


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The end of its complaint, else its exit code."""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
