"""The known source that a wrong URL was probably meant to name: one that lost or gained a few characters."""

from __future__ import annotations

from bisect import bisect_left
from difflib import SequenceMatcher
from typing import Final

from orchestrator.events import Source
from orchestrator.sources import Registry
from orchestrator.text.urls import canonical

_NEIGHBOURS: Final = 6
_ALIKE: Final = 0.85
_LONGEST: Final = 600
"""Characters of a URL that are compared."""


class Nearest:
    """Finds neighbours by the longest common beginning or end, so that each look-up is logarithmic."""

    def __init__(self, registry: Registry) -> None:
        known = [(canonical(source.url), source) for source in registry]
        self._forward = sorted(known, key=lambda entry: entry[0])
        self._backward = sorted(((url[::-1], source) for url, source in known), key=lambda entry: entry[0])

    def __call__(self, url: str) -> Source | None:
        """Return the source whose URL is most like this one, None when none is alike."""
        if "://" not in url or len(url) > _LONGEST:
            return None
        wanted = canonical(url)
        near = self._around(self._forward, wanted) + self._around(self._backward, wanted[::-1])
        rated = [(_likeness(wanted, canonical(source.url)), source) for source in near]
        best = max(rated, key=lambda entry: entry[0], default=(0.0, None))
        return best[1] if best[0] >= _ALIKE else None

    @staticmethod
    def _around(known: list[tuple[str, Source]], wanted: str) -> list[Source]:
        at = bisect_left(known, wanted, key=lambda entry: entry[0])
        return [source for _, source in known[max(at - _NEIGHBOURS, 0) : at + _NEIGHBOURS]]


def _likeness(left: str, right: str) -> float:
    matcher = SequenceMatcher(None, left, right[:_LONGEST], autojunk=False)
    return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0
