"""The judge: a process that never loads a solution. It makes the inputs of a confirmation itself, alone knows the exact
results, and compares with them what the confirming worker hands over.

Events go out on a private copy of fd 1, like the worker's. `listening` gives the address at which the worker hands over
its calls; `judged` follows for every case once the worker has sent all of them, then `finished`. The judge computes
nothing before the first call arrives, which is after the last one was timed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

from harness.shared.lines import PROTOCOL, decode
from harness.shared.run_request import Environment, RunRequest
from harness.worker import Channel, prepare, private_channel


def main(device: str, waits: str = "") -> None:
    channel = private_channel()
    channel.emit("hello", protocol=PROTOCOL)
    channel.start_reading()
    device = prepare(channel, device, waits)
    importlib.import_module("harness.judging.cases")  # before the first request
    importlib.import_module("harness.judging.handover")
    channel.emit("ready", environment=Environment(device=device))
    while True:
        message, _read_at = channel.next()
        if message.get("request") == "judge":
            _serve(channel, message, device)


def _serve(channel: Channel, message: Mapping[str, Any], device: str) -> None:
    from harness.device import environment

    run = str(message["run"])
    problem = _judged(channel, message, device)
    channel.emit("finished", run=run, problem=problem)
    channel.forget(run)
    environment.give_back_gpu_memory()


def _judged(channel: Channel, message: Mapping[str, Any], device: str) -> str:
    """Judges what the worker hands over; returns why it could not."""
    from harness.judging.cases import Judging
    from harness.judging.handover import Receiver

    run = str(message["run"])
    try:
        judging = Judging(decode(RunRequest, dict(message)), device)
        with contextlib.closing(Receiver(device, lambda: not channel.cancelled(run))) as receiver:
            channel.emit("listening", run=run, address=receiver.address)
            for header, tensors in receiver.calls():
                judging.take(header, tensors)
        for case, (calls, found) in judging.results().items():
            channel.emit("judged", run=run, case=case, calls=calls, problem=found)
    except EOFError:
        return "the worker left before it had handed over its results"
    except BaseException as error:  # the workbench says what happened
        from harness.load.failure import Paths, describe

        return describe(error, Paths(str(message["task"]["folder"]))).message
    return ""
