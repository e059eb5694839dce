"""Forecasts of many samples, from the store of a server that goes on writing."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.experiments import samples
from skep.experiments.calibration import Calibration, holds
from skep.experiments.follower import Forecaster
from skep.experiments.samples import SampleFailed, cpu_seconds, foresee, in_fork, likely
from skep.service.commands import hold, stop
from skep.service.followed import Followed
from skep.service.foreseen import Foreseen, Foresight, Likely, Setup


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster="1x2")


def learned(world: LiveWorld, count: int = 5) -> None:
    """Owners have shown that they know how long their jobs take."""
    for number in range(count):
        job_id = world.submit(request(f"past{number}", expect_s=1.0))[0]
        world.settle()
        world.end(job_id)  # a second later


def foreseen(world: LiveWorld, followed: Followed | None = None, count: int = 5) -> Foresight:
    followed = followed or Followed(world.folder)
    return foresee(followed.catch_up(), followed.names, now_s=world.now_s, count=count)


def exactly(at_s: float) -> Likely:
    return Likely(at_s, at_s, at_s)


def test_owners_who_were_right_give_exact_times(world: LiveWorld) -> None:
    learned(world)
    first, second = world.submit(request("first", 2, expect_s=100.0), request("second", 2, expect_s=50.0))
    world.settle()
    begun_s = world.now_s
    found = foreseen(world)
    assert (found.made_s, found.until_s, found.samples) == (begun_s, begun_s + 86400.0, 5)
    assert found.jobs == {
        first: Foreseen(None, exactly(begun_s + 100.0), "owner"),
        second: Foreseen(exactly(begun_s + 100.0), exactly(begun_s + 150.0), "owner"),
    }


def test_estimates_without_experience_have_a_spread(world: LiveWorld) -> None:
    first, second = world.submit(request("first", 2, expect_s=100.0), request("second", 2, expect_s=50.0))
    world.settle()
    found = foreseen(world, count=12)
    end, start = found.jobs[first].end, found.jobs[second].start
    assert start == end
    assert end.p10_s is not None
    assert end.p50_s is not None
    assert end.p90_s is not None
    assert world.now_s < end.p10_s < end.p50_s < end.p90_s < world.now_s + 1000.0
    assert foreseen(world, count=12).jobs == found.jobs


def test_nothing_known_is_shown_as_that(world: LiveWorld) -> None:
    first, second = world.submit(request("first", 2), request("second", 1, expect_s=10.0))
    world.settle()
    found = foreseen(world, count=12).jobs
    assert (found[first].lengths, found[first].end.poor) == ("none", True)
    assert found[second].start is not None
    assert (found[second].start.poor, found[second].end.poor) == (True, True)


def test_what_is_certain_is_not_poor_whatever_runs_beside_it(world: LiveWorld) -> None:
    learned(world)
    world.submit(request("unknown", 1), request("known", 1, expect_s=10.0))
    last = world.submit(request("last", 1, expect_s=10.0))[0]
    world.settle()
    start = foreseen(world).jobs[last].start
    assert start is not None
    assert not start.poor


def test_later_than_a_day_and_jobs_that_are_held(world: LiveWorld) -> None:
    learned(world)
    long, behind, held = world.submit(
        request("long", 2, expect_s=200_000.0), request("behind", 2, expect_s=5.0), request("held", 2, expect_s=5.0)
    )
    world.ask(hold(held, True, "ann"))
    world.settle()
    found = foreseen(world).jobs
    later = Likely(None, None, None)
    assert found == {long: Foreseen(None, later, "owner"), behind: Foreseen(later, later, "owner")}


def test_the_follower_goes_on_from_where_it_was_and_equals_one_that_starts_anew(world: LiveWorld) -> None:
    followed = Followed(world.folder)
    first = world.submit(request("first", 2, expect_s=100.0))[0]
    world.settle()
    before = followed.seq, foreseen(world, followed).jobs[first].end
    second = world.submit(request("second", 2, expect_s=50.0))[0]
    world.end(first)
    world.settle()
    found = foreseen(world, followed)
    assert followed.seq > before[0]
    assert set(found.jobs) == {second}
    assert found.jobs == foreseen(world).jobs
    world.writer.save_snapshot()
    world.crash()
    assert foreseen(world, followed).jobs == foreseen(world).jobs


def test_the_store_is_not_written(world: LiveWorld) -> None:
    world.submit(request("a", expect_s=100.0))
    before = {path.name: path.read_bytes() for path in world.folder.iterdir() if not path.name.endswith("-shm")}
    foreseen(world)
    assert {path.name: path.read_bytes() for path in world.folder.iterdir() if path.name in before} == before


def test_a_sample_that_fails_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> bytes:
        raise ValueError("of the policy")

    def end_itself() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(SampleFailed, match="ValueError: of the policy"):
        in_fork(fail)
    with pytest.raises(SampleFailed, match="ended by signal 9"):
        in_fork(end_itself)
    assert in_fork(lambda: b"x" * 1_000_000) == b"x" * 1_000_000
    assert capfd.readouterr().err == ""


def test_a_policy_that_waits_in_a_sample_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "SAMPLE_S", 1)

    def wait() -> bytes:
        time.sleep(60)
        return b""

    with pytest.raises(SampleFailed, match="ended by signal 14"):
        in_fork(wait)


def test_the_next_sample_lies_between_the_ranks_in_four_of_five_cases() -> None:
    found = likely([float(n) for n in range(1, 33)], math.inf)
    assert (found.p10_s, found.p50_s, found.p90_s) == (3.0, 16.0, 30.0)
    assert pytest.approx(0.8, abs=0.02) == (30 - 3) / 33
    assert likely([5.0, None, 7.0, 9.0], 8.0) == Likely(5.0, 7.0, None)


def test_an_eta_follows_what_has_happened_since(world: LiveWorld) -> None:
    first, second = world.submit(request("first", 2, expect_s=100.0), request("second", 2, expect_s=50.0))
    world.settle()
    found = foreseen(world)
    rows = {str(row.seq): row for row, _ in world.store.open_requests()}
    eta = found.eta(rows[second], world.now_s)
    assert eta is not None
    assert eta["start"] is not None
    assert eta["lengths"] == "owner"
    rows[second].state = "running"
    eta = found.eta(rows[second], world.now_s)
    assert eta is not None
    assert eta["start"] is None
    assert eta["end"] is not None
    assert found.eta(rows[first], found.until_s + 1) is None
    rows[first].finish_s = world.now_s
    assert found.eta(rows[first], world.now_s) is None


# What became of them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "came_s", "held"),
    [
        ((10.0, 20.0, 30.0), 10.0, True),
        ((10.0, 20.0, 30.0), 31.0, False),
        ((10.0, 20.0, 30.0), 9.0, False),
        ((10.0, 20.0, 30.0), None, False),
        ((10.0, None, None), 99.0, True),
        ((10.0, None, None), None, True),
        ((None, None, None), 50.0, False),
        ((None, None, None), 101.0, True),
    ],
)
def test_when_a_forecast_holds(times: tuple[float | None, ...], came_s: float | None, held: bool) -> None:
    assert holds(Likely(*times), 100.0, came_s) is held  # type: ignore[arg-type]


def test_forecasts_are_judged_when_jobs_start_and_end(world: LiveWorld) -> None:
    learned(world)
    first, second, third = world.submit(*(request(name, 2, expect_s=100.0) for name in ("first", "second", "third")))
    world.settle()
    nothing, server = os.pipe()
    follower = Forecaster(Setup(str(world.folder), cpu=1.0, samples=5), nothing)
    try:
        assert follower.forecast(world.now_s).judged == []
        world.now_s += 99.0
        world.end(first)  # when it was expected
        world.settle()
        world.end(second)  # much too early
        world.settle()
        found = {(each.what, each.lengths): each for each in follower.forecast(world.now_s).judged}
        assert (found["end", "owner"].count, found["end", "owner"].held) == (2, 1)
        assert found["start", "owner"].count == 2
        error = found["end", "owner"].error
        assert error is not None
        assert 0.3 < error < 0.6
        world.end(third)
        assert follower.forecast(world.now_s).judged[0].count == 3
    finally:
        os.close(nothing)
        os.close(server)
        follower.calibration.close()
        follower.followed.store.close()


def test_it_rests_for_all_the_time_that_it_has_used(world: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(request("first", 2, expect_s=100.0), request("second", 2, expect_s=50.0))
    rests: list[float] = []

    def select(readers: list[int], writers: list[int], others: list[int], wait_s: float) -> tuple[list[int], ...]:
        rests.append(wait_s)
        return [], [], []

    monkeypatch.setattr("skep.experiments.follower.select.select", select)
    follower = Forecaster(Setup(str(world.folder), cpu=0.2, samples=5), 0)
    before_s = cpu_seconds()
    follower.forecast(world.now_s)
    used_s = cpu_seconds() - before_s
    follower.calibration.close()
    follower.followed.store.close()
    assert len(rests) == 6
    assert sum(rests) == pytest.approx(4 * used_s, rel=0.1)


def test_a_start_that_never_came_is_not_judged_and_the_table_is_bounded(
    world: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = world.submit(request("first", 2, expect_s=100.0), request("second", 2, expect_s=50.0))
    world.settle()
    calibration = Calibration(world.folder)
    followed = Followed(world.folder)
    found = foreseen(world, followed)
    calibration.keep(found)
    calibration.keep(found)  # not twice within an hour
    count = "SELECT count(*) FROM forecasts"
    assert calibration.db.execute(count).fetchone()[0] == 3
    world.ask(stop(second, "ann", ""))
    calibration.judge(followed.store, world.now_s)
    assert [(each.what, each.count) for each in calibration.judged()] == [("end", 1)]
    assert calibration.db.execute(count).fetchone()[0] == 2
    calibration.judge(followed.store, found.until_s + 1)
    assert [(each.what, each.count) for each in calibration.judged()] == [("end", 2)]
    monkeypatch.setattr("skep.experiments.calibration.ROWS_MAX", 1)
    later = Foresight(found.made_s + 4000.0, found.until_s + 4000.0, 5, 0.0, "fifo", {first: found.jobs[first]}, [])
    calibration.keep(later)
    assert calibration.db.execute(count).fetchone()[0] == 1
    calibration.close()
    followed.store.close()
