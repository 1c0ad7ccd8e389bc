"""The terminal screen: everything that imports Textual lives here.

Textual reads these settings once, when it is imported: thirty frames a second keep a key under 50 ms over SSH, and
nothing is animated.
"""

from __future__ import annotations

import os

os.environ.setdefault("TEXTUAL_FPS", "30")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
