"""kernbench: a terminal workbench for live-editing GPU kernels.

In a notebook, `kernbench.history("rms_norm")` returns every run of a task as a pandas DataFrame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernbench.version import __version__ as __version__

if TYPE_CHECKING:
    from kernbench.export.history import history as history


def __getattr__(name: str) -> Any:
    """Import `history` on first use, because it needs pandas."""
    if name == "history":
        from kernbench.export.history import history

        return history
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
