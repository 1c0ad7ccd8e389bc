"""kernbench: a terminal workbench for live-editing GPU kernels.

In a notebook, `kernbench.history("rms_norm")` gives every run of a task as a pandas frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernbench.version import __version__ as __version__

if TYPE_CHECKING:
    from kernbench.export.history import history as history


def __getattr__(name: str) -> Any:
    """`history` brings pandas along, so it is fetched when somebody asks for it."""
    if name == "history":
        from kernbench.export.history import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
