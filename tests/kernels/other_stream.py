"""A call on another stream: a kernel launched on the default one would read its input too early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

CYCLES = 20_000_000
"""About 10 ms: longer than a launch takes to reach the GPU."""


def on_another_stream(function: Callable[..., Any], inputs: Mapping[str, Any], late: str = "x") -> Any:
    """What the function returns there; the input called `late` is zero until just before the call."""
    function(**inputs)  # compiled now: while it compiles later, `late` would be written
    given = {**inputs, late: torch.zeros_like(inputs[late])}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        given[late].copy_(inputs[late])
        results = function(**given)
    stream.synchronize()
    return results
