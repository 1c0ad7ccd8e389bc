"""Where the checkout is, for tests that read its files or start programs from it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAKE = ROOT / "tests" / "fake" / "harness"
"""A harness without torch: the solution's text says what each run does."""
