"""The daily cap that all processes of a user share."""

import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import daily
import pytest

from orchestrator.daily import DailyCap, spent_today
from orchestrator.errors import LimitExceeded
from orchestrator.settings import Options


def test_a_run_gets_what_the_day_has_left_and_gives_back_what_it_did_not_spend(tmp_path: Path) -> None:
    cap = DailyCap(tmp_path / "daily.sqlite3", 1.0)
    with cap.reserve("one", 0.7, 0.05) as first:
        assert first.usd == 0.7
        with cap.reserve("two", 0.7, 0.05) as second:
            assert second.usd == pytest.approx(0.3)
            second.record_spent(0.1)
        first.record_spent(0.2)
    day = cap.today()
    assert (day.spent, day.reserved, day.running) == (pytest.approx(0.3), 0, 0)


def test_a_run_is_refused_when_the_day_cannot_pay_the_least_it_needs(tmp_path: Path) -> None:
    cap = DailyCap(tmp_path / "daily.sqlite3", 0.10)
    with (
        cap.reserve("one", None, 0.05),
        pytest.raises(LimitExceeded, match="--daily-usd") as caught,
        cap.reserve("two", 0.5, 0.05),
    ):
        pass
    assert caught.value.limit == "daily_usd"
    assert caught.value.status == "budget"


def _hold(path: Path, ready: Connection) -> None:
    with DailyCap(path, 1.0).reserve("killed", 0.9, 0.05) as reservation:
        reservation.record_spent(0.25)
        ready.send("holding")
        signal.pause()


def test_a_process_killed_in_the_middle_gives_its_unused_reservation_back(tmp_path: Path) -> None:
    """What it had spent or booked by then stays spent."""
    path = tmp_path / "daily.sqlite3"
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(path, there))
    process.start()
    assert here.poll(30)
    assert DailyCap(path, 1.0).today().reserved == pytest.approx(0.65)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    day = DailyCap(path, 1.0).today()
    assert (day.spent, day.reserved, day.running) == (pytest.approx(0.25), 0, 0)
    here.close()
    there.close()
    process.close()


def test_many_runs_at_once_never_hold_more_than_the_cap(tmp_path: Path) -> None:
    """Case I004: reservation and admission are one atomic step."""
    cap = DailyCap(tmp_path / "daily.sqlite3", 1.0)

    def one(at: int) -> float:
        try:
            with cap.reserve(f"run-{at}", 0.09, 0.09) as reservation:
                day = cap.today()
                assert day.spent + day.reserved <= 1.0 + 1e-9
                reservation.record_spent(0.05)
                return 0.05
        except LimitExceeded:
            return 0.0

    with ThreadPoolExecutor(16) as pool:
        spent = sum(pool.map(one, range(60)))
    assert 0.5 < spent <= 1.0 + 1e-9
    assert cap.today().spent == pytest.approx(spent)


def test_a_run_that_is_killed_before_it_said_anything_counts_as_its_first_request(tmp_path: Path) -> None:
    """A request may be under way then; a run that ends by itself counts as what it spent."""
    cap = DailyCap(tmp_path / "daily.sqlite3", 1.0)
    with cap.reserve("quiet", 0.5, 0.05):
        day = cap.today()
        assert (day.spent, day.reserved) == (pytest.approx(0.05), pytest.approx(0.45))
    assert cap.today().spent == 0


def test_no_lock_file_outlives_its_run(tmp_path: Path) -> None:
    cap = DailyCap(tmp_path / "daily.sqlite3", 0.10)
    with cap.reserve("one", None, 0.05), pytest.raises(LimitExceeded), cap.reserve("refused", 0.5, 0.05):
        pass
    assert list(tmp_path.glob("*.lock")) == []


def test_runs_in_several_processes_share_one_day_and_a_killed_one_gives_back_what_it_held() -> None:
    """Cases I004, I007 and I010: real runs, one bill; the bench plays two hundred of them."""
    outcome = daily.play(runs=9, processes=3, usd=0.6)
    assert daily.broken(outcome, 0.6) == []
    assert outcome.held > 0
    assert outcome.statuses["done"] > 0


def test_the_day_is_shown_and_offline_runs_have_a_day_of_their_own() -> None:
    ledger = DailyCap(Options(daily_usd=1.0).daily_file, 1.0)
    with ledger.reserve("one", 0.5, 0.05) as held:
        held.record_spent(0.2)
        assert str(ledger.today()) == "today: $0.2000 spent, $0.3000 held by 1 running"
    day = spent_today(Options(daily_usd=1.0).daily_file)
    assert str(day) == "today: $0.2000 spent"
    assert spent_today(Options(daily_usd=1.0, offline=True).daily_file) is None
