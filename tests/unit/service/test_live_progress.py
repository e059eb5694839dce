"""What jobs report through `skep.train`, in the log and in what planners know."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.cluster import Allocation, Cluster, Slice
from skep.core.events import ProgressReported, TasksExited
from skep.core.job import Job
from skep.core.knowledge import ProfileFigures, SpeedKey
from skep.core.progress import Tally
from skep.core.record import decode
from skep.core.reports import Exited, Progressed
from skep.experiments.estimates import Estimate, estimate_all
from skep.experiments.fork import forecast
from skep.experiments.known import Known
from skep.experiments.seen import Seen
from skep.jobs.request import Request, TaskRole
from skep.profiles.native import read_native
from skep.service.copy import read_copy
from skep.service.progress import read_report

PROFILE = read_native("reference: v100\nmodels: {bert: {steps_per_s: 10}}", "profile.yaml")


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster="1x2")


def running(world: LiveWorld, **fields: object) -> Job:
    (job_id,) = world.submit(request("a", 1, **fields))
    world.settle()
    return world.writer.state.jobs[job_id]


def half(name: str) -> Request:
    return Request(name=name, tasks={"task": TaskRole(gpus=1, gpu_milli=500, command="true")}, user="ann")


def report(world: LiveWorld, job: Job, **values: float) -> None:
    """A second later."""
    world.tell(Progressed(job.id, job.held_launch, {**values, "at_s": world.now_s + 1}))


def train(world: LiveWorld, job: Job, seconds: int, per_s: float = 10.0, begin: float = 0.0) -> float:
    for second in range(seconds):
        report(world, job, step=begin + per_s * second, steps=100_000.0, loss=1.0 / (1 + second))
    return begin + per_s * (seconds - 1)


def events_of(world: LiveWorld, kind: type) -> list[ProgressReported]:
    return [event for data in world.store.entries() for event in decode(data).events if isinstance(event, kind)]


def test_a_report_a_second_is_an_entry_a_minute(world: LiveWorld) -> None:
    job = running(world)
    before = world.store.log_seq
    train(world, job, 181)
    assert world.store.log_seq - before == 4  # at once, and after one, two and three minutes
    progress = world.writer.state.knowledge.progress[job.id]
    assert progress.report.step == 1800.0
    assert progress.speed is not None
    assert (progress.speed.count, progress.speed.mean) == (3, pytest.approx(10.0))
    assert progress.spread_of("loss") is not None


def test_a_rate_is_unknown_until_the_first_exclusive_minute_is_over(world: LiveWorld) -> None:
    job = running(world, expect_s=1000.0)
    assert job.known_rate is None
    train(world, job, 60)
    assert job.known_rate is None
    step = train(world, job, 61, begin=600.0)
    assert job.known_rate == pytest.approx(1.0)
    assert job.work_at(world.now_s) == pytest.approx(step / 10.0, abs=60)
    train(world, job, 61, per_s=5.0, begin=step)
    assert job.known_rate == pytest.approx(0.5, rel=0.1)


def test_the_profile_is_the_reference_where_there_is_one(tmp_path: Path) -> None:
    class Measuring(LiveWorld):
        def open(self) -> None:
            super().open()
            self.writer.figures.measure = measured
            self.writer.figures.see(self.writer.state.cluster)

    def measured(cluster: Cluster) -> ProfileFigures:
        return Known(PROFILE.speed, cluster)

    world = Measuring(tmp_path, cluster="1x2:v100")
    job = running(world, model="bert")
    train(world, job, 62, per_s=2.5)
    assert job.known_rate == pytest.approx(0.25)
    assert job.work_at(world.now_s) == pytest.approx(2.5 * 61 / 10, abs=1)
    there = world.writer.state.knowledge.throughput("bert", "v100", 1)
    assert there is not None
    assert there.mean == pytest.approx(2.5)


def test_beside_others_there_is_no_exclusive_minute(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster="1x1")
    first, second = world.submit(half("a"), half("b"))
    world.settle()
    job = world.writer.state.jobs[first]
    train(world, job, 122)
    assert job.known_rate is None
    world.end(second)
    train(world, job, 122, begin=1210.0)
    assert job.known_rate == pytest.approx(1.0)


def test_the_last_report_is_logged_before_the_exit(world: LiveWorld) -> None:
    job = running(world)
    step = train(world, job, 100)
    launch = job.held_launch
    world.tell(Exited(job.id, launch, 0))
    last = events_of(world, ProgressReported)[-1]
    assert last.report is not None
    assert last.report.step == step
    assert last.work_s == pytest.approx(99.0)
    assert events_of(world, TasksExited)[-1].work_s == last.work_s
    assert job.id not in world.writer.state.knowledge.progress
    assert world.writer.state.knowledge.history.count == 1


def test_a_failure_keeps_what_was_saved(world: LiveWorld) -> None:
    job = running(world, retries=1)
    for second in range(62):
        report(world, job, step=10.0 * second, checkpoint_step=200.0)
    world.tell(Exited(job.id, job.held_launch, 137, cause="node-lost"))
    assert job.work_s == pytest.approx(20.0)


def test_what_is_late_or_of_a_job_that_is_gone_changes_nothing(world: LiveWorld) -> None:
    job = running(world)
    before = world.store.log_seq
    world.tell(Progressed(job.id, job.held_launch - 1, {"step": 5}), Progressed("nobody", 1, {"step": 5}))
    world.tell(Progressed(job.id, job.held_launch, {"loss": 0.1}))
    assert world.store.log_seq == before


def test_a_replay_knows_the_same_and_a_new_server_goes_on(world: LiveWorld) -> None:
    job = running(world, model="bert")
    train(world, job, 100)
    known = snapshot(world.writer.state)["knowledge"]
    world.crash()
    assert snapshot(world.writer.state)["knowledge"] == known
    before = world.store.log_seq
    again = world.writer.state.jobs[job.id]
    train(world, again, 15, begin=1000.0)
    assert world.store.log_seq == before  # the minute is not over


def test_a_clock_that_is_set_makes_no_speed(world: LiveWorld) -> None:
    job = running(world)
    train(world, job, 70)
    world.now_s += 86400.0
    world.writer.turn([], [], world.now_s, stepped_s=86400.0)
    train(world, job, 70, begin=700.0)
    speed = world.writer.state.knowledge.progress[job.id].speed
    assert speed is not None
    assert speed.mean == pytest.approx(10.0, rel=0.05)


def test_a_forecast_goes_by_what_the_job_reports(world: LiveWorld) -> None:
    job = running(world, expect_s=50.0)
    for second in range(62):
        report(world, job, step=10.0 * second, steps=6100.0)
    estimates = estimate_all(world.writer.state)
    assert estimates[job.id] == Estimate(pytest.approx(610.0), "progress")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"step": "7"},
        {"step": True},
        {"step": -1},
        {"step": float("nan")},
        {"step": 1e300},
        {"step": 10**400},
        {"step": None, "loss": 1.0},
    ],
)
def test_what_is_no_number_of_steps_is_no_report(values: dict[str, object]) -> None:
    assert read_report(values, 0.0) is None  # type: ignore[arg-type]


def test_names_and_numbers_that_nobody_can_read_are_left_out() -> None:
    series: dict[str, object] = {f"s{number:03}": 1.0 for number in range(100)}
    odd: dict[str, object] = {"\ud800": 1.0, "x" * 65: 1.0, "a b": 1.0, "aa": float("inf"), "ab": "text", "ok": 2}
    said = read_report({"step": 1, "at_s": 9e9, **odd, **series}, 5.0)  # type: ignore[arg-type]
    assert said is not None
    assert said.at_s == 5.0
    assert len(said.report.series) == 32
    assert said.report.series["ok"] == 2.0


def test_a_forecast_goes_on_at_the_speed_that_was_measured(world: LiveWorld) -> None:
    """Ten steps a second are its reference; then it is half as fast, and what is left takes twice as long."""
    job = running(world, model="bert")
    step = train(world, job, 121)
    train(world, job, 181, per_s=5.0, begin=step)
    progress = world.writer.state.knowledge.progress[job.id]
    assert progress.reference == pytest.approx(10.0, rel=0.01)
    assert job.known_rate == pytest.approx(0.5, rel=0.05)
    (found,) = forecast(read_copy(world.folder)).jobs
    assert found.estimate == "progress"
    left = 100_000 - progress.report.step
    assert found.end_s == pytest.approx(progress.at_s + left / 5.0, rel=0.05)


def test_elsewhere_jobs_go_as_fast_as_others_of_their_model_reported(world: LiveWorld) -> None:
    job = running(world, model="bert")
    train(world, job, 121)
    state = world.writer.state
    seen = Seen(state)
    there = Allocation((Slice(0, 0b10),), 1)
    held = job.held
    assert held is not None
    other = msgspec.structs.replace(job.spec, id="other", model="bert", shapes=job.spec.shapes)
    assert seen.rate(job.spec, held, (), 0.0)[0] == job.known_rate
    assert seen.rate(other, there, (), 0.0)[0] == pytest.approx(1.0)
    state.knowledge.speeds[SpeedKey("bert", "", 1, ("gpt",))] = Tally(1, 4.0, 0.0)
    beside = msgspec.structs.replace(job.spec, id="third", model="gpt")
    assert seen.rate(other, there, (beside,), 0.0)[0] == pytest.approx(0.4, rel=0.01)
    assert seen.rate(beside, there, (), 0.0)[0] == 1.0  # nothing is known of it
