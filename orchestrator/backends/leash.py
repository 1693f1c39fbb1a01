"""A child that dies with us, also when we are killed: alone it would go on for passes that nobody counts."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_TIE_AND_BECOME: Final = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):  # else it came too late
    os.execv(sys.argv[2], sys.argv[2:])
"""


def launcher(folder: Path) -> Path | None:
    """An executable in `folder` that becomes the engine's command line and dies with this process.

    None where that cannot be had (other systems than Linux, a folder that nothing may be started from):
    there the engine ends when it notices that nobody listens.
    """
    cli = _bundled()
    if sys.platform != "linux" or not sys.executable or cli is None:
        return None
    tied = shlex.join([sys.executable, "-ISc", _TIE_AND_BECOME, str(os.getpid()), str(cli)])
    path = folder / "claude"
    path.write_text(f'#!/bin/sh\nexec {tied} "$@"\n', encoding="utf-8")
    path.chmod(0o700)
    return path if os.access(path, os.X_OK) else None


def _bundled() -> Path | None:
    """The command line inside the SDK's package."""
    spec = find_spec("claude_agent_sdk")
    places = (spec.submodule_search_locations if spec else None) or ()
    found = (Path(place) / "_bundled" / "claude" for place in places)
    return next((path for path in found if path.is_file()), None)
