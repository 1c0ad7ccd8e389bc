"""The worker of `kernbench transfer`: builds a model, and times its step for every request.

A separate process: a model takes gigabytes, and a save never waits for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.shared.lines import PROTOCOL, decode
from harness.shared.model_step import ModelFile, StepRequest
from harness.transfer.sites import ModelProblem
from harness.worker import Channel, prepare, private_channel

if TYPE_CHECKING:
    from harness.transfer.loaded_model import LoadedModel


def main(device: str) -> None:
    channel = private_channel()
    channel.emit("hello", protocol=PROTOCOL)
    channel.start_reading()
    device = prepare(channel, device)
    import torch

    from harness.device import environment as machine
    from harness.device.gpu import Gpu

    torch.set_grad_enabled(False)
    gpu = None if device == "cpu" else Gpu(device)
    channel.emit("ready", environment=machine.environment(device, gpu))
    models = _Models(device, gpu)
    while True:
        message, _read_at = channel.next()
        if message.get("request") == "step":
            models.serve(channel, message)


class _Models:
    """The model of the last request stays loaded for the next."""

    def __init__(self, device: str, gpu: Any) -> None:
        self._device, self._gpu = device, gpu
        self._key = ""
        self._model: LoadedModel | None = None

    def serve(self, channel: Channel, message: dict[str, Any]) -> None:
        run = str(message.get("run"))

        def tell(text: str) -> None:
            channel.emit("progress", run=run, text=text)

        try:
            request = decode(StepRequest, message)
            from harness.transfer.step_run import StepRun

            result = StepRun(self._loaded(request.model, request.seed, tell), request, self._gpu, tell).go()
            channel.emit("step", result=result, run=run)
        except ModelProblem as problem:
            channel.emit("failed", run=run, message=str(problem), place="")
        except BaseException as problem:  # the workbench says what happened
            from harness.transfer.wired import fault

            said, place = fault(problem, message["patches"], str(message["model"]["folder"]))
            channel.emit("failed", run=run, message=said, place=place)

    def _loaded(self, about: ModelFile, seed: int, tell: Callable[[str], None]) -> LoadedModel:
        from harness.transfer.loaded_model import LoadedModel

        key = json.dumps([about.folder, about.hash, about.config_name, seed])
        if self._model is None or key != self._key:
            self._model = None  # never two models at once
            tell(f"building {about.name}")
            self._key, self._model = key, LoadedModel(about, self._device, seed)
        return self._model
