"""Tables of goodput: a small set of them, worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.support import cluster

from skep.core.actions import Launch, Move, Tune
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InputError
from skep.core.events import ProgressReported, TasksMoved, TasksStarted
from skep.core.model import JobSpec, gpu_shape
from skep.engines.sim.engine import Simulator
from skep.engines.sim.rates import on_tick
from skep.profiles.goodput import Micro, read_models
from skep.profiles.read import read_profile
from skep.traces.read import read_trace
from skep.traces.trace import TraceJob

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,1.0,0.0
1,20,2.0,0.0
2,10,1.5,0.5
2,20,2.5,0.5
11,10,2.0,1.0
11,20,3.0,1.0
4,10,1.75,0.75
4,20,2.75,0.75
22,10,2.5,1.5
22,20,3.5,1.5
"""
CURVE = """progress,iteration,metric,grad_sqr,grad_var
{0},{0},0.5,1.0,{1}
{2},{2},0.6,1.0,{1}
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    model = tmp_path / "tables" / "net"
    model.mkdir(parents=True)
    (model / "placements-aws.csv").write_text(PLACEMENTS)
    # With a variance of 3 twice the batch makes 4 / (3 / 2 + 1) = 1.6 times the progress of a step.
    (model / "validation-20.csv").write_text(CURVE.format(100, 3.0, 200))
    (model / "validation-40.csv").write_text(CURVE.format(60, 3.0, 120))
    return tmp_path / "tables"


def test_a_batch_is_divided_among_the_gpus(tables: Path) -> None:
    model = read_models(tables)["net"]
    assert model.micro(20, 1, "aws") == Micro(20, 1)
    assert model.micro(40, 1, "aws") == Micro(20, 2)
    assert model.micro(40, 2, "aws") == Micro(20, 1)
    assert model.micro(20, 1, "aws", least=2) == Micro(10, 2)


def test_step_times_lie_on_a_line_and_rotations_are_equal(tables: Path) -> None:
    model = read_models(tables)["net"]
    assert model.kinds["aws"].at((1,), 15).step_s == pytest.approx(1.5)
    assert model.step_s(40, (1,), "aws") == pytest.approx(4.0)
    assert model.step_s(40, (2,), "aws") == pytest.approx(2.5)
    assert model.step_s(20, (1, 1), "aws") == pytest.approx(2.0)


def test_a_placement_that_was_not_measured_is_between_those_that_were(tables: Path) -> None:
    times = read_models(tables)["net"].kinds["aws"]
    assert times.at((3,), 10).step_s == pytest.approx(1.625)
    assert not math.isnan(times.at((4, 4, 4, 4), 10).step_s)


def test_the_work_of_a_job_is_its_time_at_its_reference(tables: Path) -> None:
    profile = read_profile(tables)
    # The epochs end at the smallest progress of both batch sizes: 60 and 120. Two GPUs do 1.6 of it in 2.5 s.
    assert profile.run_s("net", 2, 40) == pytest.approx(120 / 1.6 * 2.5)
    speed = profile.speed(cluster("2x4:aws"))
    job = JobSpec("a", (gpu_shape(2),), model="net", batch_size=40)
    here = Allocation((Slice(0, 0b11, tasks=2),), 2)
    rate, until_s = speed.rate(job, here, (), 0.0)
    assert (rate, until_s) == (pytest.approx(1.0), pytest.approx(60 / 1.6 * 2.5))
    apart = Allocation((Slice(0, 1), Slice(1, 1)), 2)
    assert speed.rate(job, apart, (), until_s) == (pytest.approx(2.5 / 3.0), math.inf)


def test_a_simulated_job_runs_at_the_batch_size_it_is_tuned_to_until_it_moves(tables: Path) -> None:
    here, there = (Allocation((Slice(node, 0b11, tasks=2),), 2) for node in range(2))
    nodes = cluster("2x4:aws")
    job = TraceJob(0.0, 187.5, JobSpec("a", (gpu_shape(2),), model="net", batch_size=40))
    world = Simulator([job], nodes, speed=read_profile(tables).speed(nodes), restart_s=0.0)
    world.observe(0.0)
    started = world.execute(0.0, [Launch("a", here, 1)])[0]
    assert isinstance(started, TasksStarted)
    assert started.rate == pytest.approx(1.0)
    (told,) = world.execute(10.0, [Tune("a", 1, {"batch_size": 20, "lr": 0.1})])
    # 1 in 1.5 s instead of 1.6 in 2.5 s.
    assert isinstance(told, ProgressReported)
    assert told.work_s == pytest.approx(10.0)
    assert told.rate == pytest.approx(2.5 / 1.6 / 1.5)
    assert world.execute(20.0, [Tune("a", 1, {"lr": 0.2})]) == []
    moved = world.execute(20.0, [Move("a", there, 2)])[0]
    assert isinstance(moved, TasksMoved)
    assert moved.rate == pytest.approx(1.0)


def test_the_training_of_a_job(tables: Path) -> None:
    speed = read_profile(tables).speed(cluster("2x4:aws"))
    training = speed.training(JobSpec("a", (gpu_shape(2),), model="net", batch_size=40))
    assert training is not None
    assert training.step_s(1, "aws") == pytest.approx(4.0)
    assert training.step_s(4, "aws") == pytest.approx(1.75)
    assert training.step_s(5, "aws") is None
    assert (training.steps_left(0.0), training.steps_left(150.0)) == (60.0, 1.0)
    assert speed.training(JobSpec("b", (gpu_shape(2),), model="other")) is None


def test_a_workload_is_timed_by_the_profile(tables: Path, tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("name,time,application,num_replicas,batch_size\na,5,net,2,40\nb,6,other,1,8\n")
    trace = read_trace(file, profile=read_profile(tables))
    (job,) = trace.jobs
    assert (job.submit_s, job.work_s, job.spec.gpu_range) == (5.0, pytest.approx(187.5), (1, 4))
    assert trace.dropped == {"the profile has no training run of its application": 1}
    with pytest.raises(InputError, match="needs --profile"):
        read_trace(file)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("placements-aws.csv", "placement,local_bsz,step_time\n1,10,1.0\n", "column sync_time is missing"),
        ("placements-aws.csv", PLACEMENTS + "1,30,x,0\n", "placements-aws.csv:12: step_time: expected a number"),
        ("placements-aws.csv", PLACEMENTS + "0,30,1,0\n", "expected GPUs on each node as digits"),
        ("placements-aws.csv", "placement,local_bsz,step_time,sync_time\n1,10,1.0,0\n", "at least two numbers"),
        ("validation-20.csv", "progress,iteration,grad_sqr,grad_var\n", "has no epochs"),
        ("placements-aws.csv", PLACEMENTS + "1,30,0,0\n", "placements-aws.csv:12: expected local_bsz and step_time"),
        ("validation-20.csv", CURVE.format(0, 3.0, 200), "validation-20.csv:2: expected progress, and grad_sqr"),
    ],
)
def test_a_bad_table_is_one_clear_line(tables: Path, name: str, text: str, message: str) -> None:
    (tables / "net" / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_profile(tables)


def test_a_folder_without_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no tables of goodput"):
        read_profile(tmp_path)


@pytest.mark.parametrize(
    ("at_s", "expected"), [(59.6, 60.0), (60.0, 60.0), (60.3, 60.0 + 4e-7), (60.5, 60.0 + 4e-7), (61.5, 62.0)]
)
def test_what_is_rounded_down_comes_after_the_tick(at_s: float, expected: float) -> None:
    assert on_tick(at_s, 1.0) == pytest.approx(expected, abs=1e-9)
