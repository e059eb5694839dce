"""Every format: what one small file of it becomes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.core.model import JobSpec, gpu_shape
from skep.traces.read import FORMATS, read_trace
from skep.traces.trace import Trace, TraceJob


class TwoStepsPerSecond:
    """A profile that knows every model but one."""

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        assert gpu_type == "v100"
        return None if model == "Unknown" else 2.0 * gpus

    def run_s(self, model: str, gpus: int, batch_size: int) -> float | None:
        return None if model == "Unknown" else 3600.0 / gpus

    def gpus_max(self, model: str) -> int | None:
        return None if model == "Unknown" else 16

    def batches(self, model: str) -> tuple[int, int] | None:
        return None if model == "Unknown" else (8, 512)


def read(folder: Path, text: str, format: str | None = None) -> Trace:
    path = folder / "file"
    path.write_text(text, encoding="utf-8")
    return read_trace(path, format=format, profile=TwoStepsPerSecond())


def job(id: str, submit_s: float, work_s: float, shape: object = 1, **more: object) -> TraceJob:
    shapes = (gpu_shape(shape) if isinstance(shape, int) else shape,)
    expect_s = work_s if work_s < math.inf else None
    return TraceJob(submit_s, work_s, JobSpec(id, shapes, expect_s=expect_s, **more))  # type: ignore[arg-type]


GAVEL_ROW = "{}\tpython main.py\tcwd\t--steps\t0\t{}\t{}\t1\t{}\t{}"

PHILLY_JSON = """[
 {"status": "Pass", "vc": "a", "jobid": "j1", "user": "u1",
  "submitted_time": "2017-10-01 00:01:00", "attempts": [
   {"start_time": "2017-10-01 00:02:00", "end_time": "2017-10-01 00:03:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]},
   {"start_time": "2017-10-01 01:00:00", "end_time": "2017-10-01 01:00:30", "detail": []},
   {"start_time": "2017-10-01 02:00:00", "end_time": null, "detail": []}]},
 {"status": "Killed", "vc": "b", "jobid": "j2", "user": "u2", "submitted_time": "2017-10-01 00:00:00",
  "attempts": [{"start_time": "2017-10-01 00:00:10", "end_time": "2017-10-01 00:00:15",
                "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}]},
 {"status": "Killed", "vc": "b", "jobid": "j3", "user": "u2", "submitted_time": "2017-10-01 00:00:00",
  "attempts": []},
 {"status": "Pass", "vc": "b", "jobid": "j4", "user": "u2", "submitted_time": null, "attempts": []},
 {"status": "Pass", "vc": "b", "jobid": "j5", "submitted_time": "2017-10-01 00:00:00", "attempts": [
   {"start_time": null, "end_time": null, "detail": []}]},
 {"status": "Pass", "vc": "b", "jobid": "j6", "submitted_time": "2017-10-01 00:00:00", "attempts": [
   {"start_time": "2017-10-01 00:00:10", "end_time": "2017-10-01 00:00:15", "detail": []}]},
 {"status": "Pass", "vc": "b", "jobid": "j7", "submitted_time": "2017-10-01 00:00:00", "attempts": [
   {"start_time": "2017-10-01 00:00:10", "end_time": "2017-10-01 00:00:05", "detail": []}]},
 {"status": "Killed", "vc": "b", "jobid": "j2", "user": "u2", "submitted_time": "2017-10-01 00:00:00",
  "attempts": [{"start_time": "2017-10-01 00:00:10", "end_time": "2017-10-01 00:00:15",
                "detail": [{"ip": "m1", "gpus": ["gpu7"]}]}]},
 17
]"""

CASES = {
    "native": (
        "job_id,submit_s,duration_s,gpus\na,5,10.5,2\nb,0,0,1\n",
        [job("b", 0, 0), job("a", 5, 10.5, 2)],
        {},
    ),
    "philly-json": (
        PHILLY_JSON,
        [job("j2", 0, 5, vc="b", user="u2"), job("j1", 60, 90, 3, vc="a", user="u1")],
        {
            "never ran": 1,
            "submitted_time is not a date YYYY-MM-DD HH:MM:SS": 1,
            "no attempt with a start and an end": 1,
            "no attempt held GPUs": 1,
            "an attempt ends before it starts": 1,
            "jobid is used twice": 1,
            "not an object": 1,
        },
    ),
    "philly-csv": (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,x\n"
        "soon,66.0,1,66.0,x\n"
        "2017-10-08 07:01:55,-1,1,66.0,x\n"
        "2017-10-08 07:01:55,7,0,66.0,x\n"
        "2017-10-08 07:01:55,7,1\n"
        "2017-10-09 07:01:50,3,4,12.0,\n"
        "\n",
        [job("5", 0, 3, 4), job("0", 5, 66, vc="x")],
        {
            "timestamp is not a date YYYY-MM-DD HH:MM:SS": 1,
            "duration is not a number of seconds >= 0": 1,
            "num_gpus is not a whole number >= 1": 1,
            "wrong number of cells": 1,
        },
    ),
    "helios": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,v1,8,16,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10\n"
        "2,u2,v2,0,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:07,7,0\n"
        "3,u2,v2,0,0,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:07,7,0\n"
        "1,u1,v1,8,16,1,CANCELLED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,10\n",
        [
            job("2", 0, 7, gpu_shape(0, cpu=4), vc="v2", user="u2"),
            job("1", 10, 60, gpu_shape(8, cpu=16), vc="v1", user="u1"),
        ],
        {"asks for neither GPUs nor CPUs": 1, "job_id is used twice": 1},
    ),
    "acme": (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
        "a,u1,2,16,32,Pretrain,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:30+08:00,2023-03-01 00:19:30+08:00,"
        "60,8,960\n"
        "b,u2,1,0,4,Other,COMPLETED,2023-02-28 16:18:20+00:00,2023-02-28 16:18:20+00:00,2023-02-28 16:18:27+00:00,"
        "7,0,0\n"
        "c,u2,1,1,4,Debug,CANCELLED,2023-03-01 00:18:22+08:00,,,,0,0\n",
        [
            job("b", 0, 7, gpu_shape(0, cpu=4), user="u2", model="Other"),
            job("a", 2, 60, gpu_shape(16, cpu=32), user="u1", model="Pretrain"),
        ],
        {"never ran": 1},
    ),
    "alibaba-2023": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,460,V100M16|T4,LS,Running,100,400,150\n"
        "p1,4000,1024,0,0,,BE,Running,0,50,10\n"
        "p2,4000,1024,8,1000,,BE,Running,20,,30\n"
        "p3,4000,1024,1,1000,,BE,Pending,20,30,\n"
        "p4,4000,1024,1,1000,,BE,Failed,20,30,30\n"
        "p5,4000,1024,2,500,,BE,Running,20,40,30\n",
        [
            job("p1", 0, 40, gpu_shape(0, cpu=4, memory_gib=1)),
            job("p2", 20, math.inf, gpu_shape(8, cpu=4, memory_gib=1)),
            job(
                "p0",
                100,
                250,
                gpu_shape(1, gpu_types=("v100m16", "t4"), gpu_milli=460, cpu=12, memory_gib=16),
            ),
        ],
        {"never scheduled": 1, "deleted before it ran": 1, "shares of several GPUs": 1},
    ),
    "alibaba-2020": (
        "job_id,num_gpu,num_cpu,num_inst,duration,submit_time,user\n"
        "a,2,6,3,100,7,u1\n"
        "b,0.25,1,1,50,3,u2\n"
        "c,,8,,20,5,u3\n"
        "d,1.5,1,1,20,5,u3\n",
        [
            job("b", 3, 50, gpu_shape(1, gpu_milli=250, cpu=1), user="u2"),
            job("c", 5, 20, gpu_shape(0, cpu=8), user="u3"),
            job("a", 7, 100, gpu_shape(6, cpu=18), user="u1"),
        ],
        {"num_gpu is not a whole number >= 0": 1},
    ),
    "gavel": (
        "\n".join(
            [
                GAVEL_ROW.format("LM (batch size 5)", 800, 4, "-1.000000", 12.5),
                GAVEL_ROW.format("CycleGAN", 100, 1, 1.5, 0),
                GAVEL_ROW.format("Unknown", 100, 1, -1, 0),
            ]
        ),
        [
            job("1", 0, 50, model="CycleGAN", steps=100, deadline_s=75.0),
            job("0", 12.5, 100, 4, model="LM (batch size 5)", steps=800),
        ],
        {"no throughput of its job type and GPUs on v100": 1},
    ),
    "tiresias": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "1,4,10,1000,vgg16,600,5\n2,1,0,,resnet50,60,5\n3,1,0,many,resnet50,60,5\n",
        [job("2", 0, 60, model="resnet50"), job("1", 10, 600, 4, model="vgg16", steps=1000)],
        {"iterations is not a whole number >= 0": 1},
    ),
    "blox": (
        "job_id,num_gpu,arrival_s,duration_s\n7,2,30,40\n8,1,30,nan\n9,1,30,5\n",
        [job("7", 30, 40, 2), job("9", 30, 5)],
        {"duration_s is not a number of seconds >= 0": 1},
    ),
    "slurm": (
        "JobID|Submit|Start|End|AllocTRES\n"
        "1|2026-01-05T08:00:00|2026-01-05T08:01:00|2026-01-05T08:02:00|cpu=4,gres/gpu=2,mem=8G\n"
        "1.batch|2026-01-05T08:00:00|2026-01-05T08:01:00|2026-01-05T08:02:00|cpu=4\n",
        [job("1", 0, 60, gpu_shape(2, cpu=4.0, memory_gib=8.0))],
        {"a step of a job": 1},
    ),
    "workload": (
        "name,time,application,num_replicas,batch_size\nb,60,bert,4,96\na,30,ncf,1,32768\nc,90,Unknown,1,8\n",
        [
            job("a", 30, 3600, 1, model="ncf", min_gpus=1, max_gpus=16, batch_size=32768, min_batch=8, max_batch=512),
            job("b", 60, 900, 4, model="bert", min_gpus=1, max_gpus=16, batch_size=96, min_batch=8, max_batch=512),
        ],
        {"the profile has no training run of its application": 1},
    ),
}


def test_there_is_a_case_for_every_format() -> None:
    assert tuple(CASES) == FORMATS


@pytest.mark.parametrize("name", CASES)
def test_a_format_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    text, jobs, dropped = CASES[name]
    assert read(tmp_path, text) == Trace(name="file", format=name, jobs=jobs, dropped=dropped)


@pytest.mark.parametrize("name", CASES)
def test_a_format_can_be_named(tmp_path: Path, name: str) -> None:
    text, jobs, _ = CASES[name]
    assert read(tmp_path, text, format=name).jobs == jobs


@pytest.mark.parametrize("name", CASES)
def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path, name: str) -> None:
    text, jobs, _ = CASES[name]
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read_trace(path, profile=TwoStepsPerSecond()).jobs == jobs


def test_pods_without_times_are_all_there_at_zero_and_never_end(tmp_path: Path) -> None:
    found = read(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,1024,1,300\n")
    shape = gpu_shape(1, gpu_milli=300, cpu=1, memory_gib=1)
    assert (found.format, found.jobs) == ("alibaba-2023", [job("p0", 0, math.inf, shape)])


def test_a_part_of_a_gpu_per_instance_is_a_part_for_each_task(tmp_path: Path) -> None:
    header = "job_id,num_gpu,num_cpu,num_inst,duration,submit_time,user\n"
    found = read(tmp_path, header + "a,0.5,2,4,100,0,u\n")
    assert found.jobs[0].spec.shapes == (gpu_shape(4, gpu_milli=500, cpu=8, is_apart=False),)


def test_dates_with_a_zone_are_compared_in_one_zone(tmp_path: Path) -> None:
    header = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    rows = "2017-10-09 07:00:00+02:00,1,1,1,x\n2017-10-09 06:00:00+00:00,2,1,2,x\n"
    assert [job.submit_s for job in read(tmp_path, header + rows).jobs] == [0, 3600]


def test_equal_requests_share_one_shape(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus,cpu\na,0,1,2,4\nb,0,1,2,4\nc,0,1,2,5\n"
    a, b, c = (job.spec.shapes[0] for job in read(tmp_path, text).jobs)
    assert a is b
    assert a is not c


def test_jobs_of_one_instant_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,gpus\nz,5,1,1\ny,0,1,1\nx,5,1,1\na,5,1,1\n"
    assert [job.spec.id for job in read(tmp_path, text).jobs] == ["y", "z", "x", "a"]


@pytest.mark.parametrize(
    ("text", "format", "message"),
    [
        pytest.param("a,b,c\n1,2,3\n", None, "is not in a trace format", id="columns that nobody knows"),
        pytest.param("hello\n", None, "is not in a trace format", id="a sentence"),
        pytest.param("[1, 2", None, "is not JSON", id="half a JSON file"),
        pytest.param("[" * 100_000, None, "is not JSON", id="JSON without bottom"),
        pytest.param("Job_ID,submit_s,Duration_S,GPUS\na,0,5,1\n", None, "no column job_id", id="capital letters"),
        pytest.param('{"a": 1}', None, "expected a JSON list of jobs", id="a JSON object"),
        pytest.param("[]", None, "has no jobs", id="a JSON list of nothing"),
        pytest.param(
            "job_id,user,vc,submit_time,duration\n1,u,v,2020-01-01,5\n",
            None,
            "no column gpu_num",
            id="a Helios log that lacks a column",
        ),
        pytest.param(
            "job_id,num_gpu,arrival_s,duration_s\n1,1,x,1\n2,1,x,1\n3,0,1,1\n",
            None,
            "has no usable job: arrival_s is not a number of seconds >= 0 (2), num_gpu is not",
            id="a list with only bad rows",
        ),
        pytest.param(CASES["blox"][0], "helios", "no column gpu_num", id="a list named as another format"),
        pytest.param(CASES["blox"][0], "phily", "unknown trace format phily", id="a format nobody knows"),
        pytest.param("a\tb\tc\td\te\tf\n", None, "wrong number of cells", id="too few tabs for Gavel"),
    ],
)
def test_an_unusable_file_is_one_line(tmp_path: Path, text: str, format: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, format)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_gavel_trace_without_a_profile_says_that_it_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text(CASES["gavel"][0])
    with pytest.raises(InputError, match="needs --profile"):
        read_trace(path)
