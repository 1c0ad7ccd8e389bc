"""The version of kernbench: in entries, exports and the wheel."""

__version__ = "0.1.0"
