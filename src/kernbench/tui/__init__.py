"""The terminal screen: everything that imports Textual lives here.

Textual reads these settings once, on import: 30 frames per second answer a key within 50 ms over SSH, and animations
are off.
"""

from __future__ import annotations

import os

os.environ.setdefault("TEXTUAL_FPS", "30")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
