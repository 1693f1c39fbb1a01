"""How many examples a property is tried on: a seeded sample, or as many fresh ones as EXAMPLES says.

The whole search is one command: `EXAMPLES=20000 python -m pytest tests/test_render.py tests/test_markers.py`.
"""

from __future__ import annotations

import os

from hypothesis import settings

_CHOSEN = os.environ.get("EXAMPLES")

sampled = settings(deadline=None, max_examples=int(_CHOSEN or 200), derandomize=_CHOSEN is None)
