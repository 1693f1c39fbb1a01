"""The engine's session files: where a run's conversation is found again, and how large it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from orchestrator.backends.messages import mapping, size
from orchestrator.events import Checkpoint


def checkpoint(run: str, session: str) -> Checkpoint:
    """Where this run's conversation is found again."""
    return Checkpoint(backend="agent-sdk", blocks=({"run": run, "session_id": session},))


def find(folder: Path | None, earlier: Sequence[Checkpoint]) -> Path | None:
    """The session file to carry on for the run that keeps its files in `folder`; None when it is gone.

    The folders of all runs stand side by side, each with its run's name.
    """
    if folder is None or not earlier:
        return None
    last = earlier[-1].blocks[-1]
    kept = folder.parent / str(last.get("run")) / "projects"
    return next(kept.glob(f"*/{last.get('session_id')}.jsonl"), None)


def fetch(file: Path, home: Path) -> tuple[str, int]:
    """Copy a session into this run's home; returns its id and the bytes that the model reads again."""
    here = home / "projects" / "earlier"
    here.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, here)
    lines = file.read_text(encoding="utf-8").splitlines()
    contents = (mapping(mapping(json.loads(line)).get("message")).get("content") for line in lines)
    return file.stem, sum(size(json.dumps(content, ensure_ascii=False)) for content in contents if content)
