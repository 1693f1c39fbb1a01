"""How many examples a property is tried on: a seeded sample, or as many fresh ones as EXAMPLES says.

The whole search is one command: `EXAMPLES=20000 python -m pytest tests/test_render.py tests/test_markers.py`.
"""

from __future__ import annotations

import os
import random
from typing import Final

from hypothesis import settings

CHOSEN: Final = os.environ.get("EXAMPLES")

sampled = settings(deadline=None, max_examples=int(CHOSEN or 200), derandomize=CHOSEN is None)


def seeded() -> tuple[random.Random, int]:
    """A generator for tests that strew things themselves, and how many times they do."""
    return random.Random(0 if CHOSEN is None else None), int(CHOSEN or 60)
