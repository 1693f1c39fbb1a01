"""What all tests share: an empty environment, a home of their own, and the stand-ins at the network seam."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import offline
from orchestrator.offline import StandIns

_FOREIGN = ("ANTHROPIC_", "PARALLEL_", "ORCHESTRATOR_", "CLAUDE", "EXA_", "XDG_")


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No key, setting or file of the machine reaches a test; returns the test's home."""
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    working = tmp_path_factory.mktemp("work")
    monkeypatch.chdir(working)
    return home


@pytest.fixture(scope="session")
def running_stand_ins() -> Iterator[StandIns]:
    """One set of stand-ins for the whole session: starting them is the slow part."""
    with offline.serving() as running:
        yield running


@pytest.fixture
def stand_ins(running_stand_ins: StandIns) -> Iterator[StandIns]:
    """Healthy stand-ins with an empty bill and log; a script that was not played to its end is a failure."""
    running_stand_ins.reset()
    running_stand_ins.configure(call_delay=0.005)
    yield running_stand_ins
    running_stand_ins.settle()
    left = running_stand_ins.reset()
    if left:
        pytest.fail(f"{left} scripted passes were never played")


@pytest.fixture
def client(stand_ins: StandIns) -> Iterator[Any]:
    """The real SDK's client on the stand-in; it does not retry, so that a test sees each answer."""
    import anthropic

    with anthropic.Anthropic(
        base_url=stand_ins.anthropic_base_url, api_key="offline", max_retries=0, timeout=20
    ) as opened:
        yield opened
