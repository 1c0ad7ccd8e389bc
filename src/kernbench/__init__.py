"""kernbench: a terminal workbench for live-editing GPU kernels."""

__version__ = "0.1.0"
