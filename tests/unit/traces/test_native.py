"""The native format: every optional column, and one clear line for everything that can be wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.core.model import GroupRef, JobSpec, Role, Shape, gpu_shape
from skep.core.share import Share
from skep.traces.read import read_trace
from skep.traces.trace import TraceJob

HEADER = "job_id,submit_s,duration_s,gpus"


def read(folder: Path, content: str | bytes) -> list[TraceJob]:
    path = folder / "jobs.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_trace(path, format="native").jobs


def test_all_columns_in_any_order(tmp_path: Path) -> None:
    text = (
        "needs,group,epochs,steps,deadline_s,memory_gib,cpu,gpu_mem_gib,gpu_milli,max_gpus,min_gpus,"
        "priority,gpu_type,model,user,vc,gpus,duration_s,submit_s,job_id\n"
        "b c|d,g,3,1000,90,32,8,10.5,500,4,1,-2,V100|t4|V100,vgg,u,v,1,60,1.5,a\n"
        ",,,,,,,,,,,,,,,,2,inf,2,b\n"
        ",,,,,,,,,,,,,,,,2.0,1e3,3,c\n"
        ",,,,,,16,,,,,,,,,,0,0,4,d\n"
    )
    shape = gpu_shape(1, gpu_types=("v100", "t4"), gpu_milli=500, gpu_mem_gib=10.5, cpu=8, memory_gib=32)
    spec = JobSpec(
        id="a",
        shapes=(shape,),
        vc="v",
        user="u",
        model="vgg",
        priority=-2,
        min_gpus=1,
        max_gpus=4,
        expect_s=60,
        deadline_s=90,
        steps=1000,
        epochs=3,
        group=GroupRef("g"),
        needs=("b", "c", "d"),
    )
    assert read(tmp_path, text) == [
        TraceJob(1.5, 60, spec),
        TraceJob(2, math.inf, JobSpec("b", (gpu_shape(2),))),
        TraceJob(3, 1000, JobSpec("c", (gpu_shape(2),), expect_s=1000)),
        TraceJob(4, 0, JobSpec("d", (gpu_shape(0, cpu=16),), expect_s=0)),
    ]


def test_blank_lines_and_spaces_do_not_matter(tmp_path: Path) -> None:
    jobs = read(tmp_path, "\n job_id, submit_s ,duration_s,gpus\n\n a , 0, 5 ,1\n  \n\n")
    assert jobs == [TraceJob(0, 5, JobSpec("a", (gpu_shape(1),), expect_s=5))]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,0,-5,1", "duration_s is -5, expected a number of seconds >= 0"),
        ("a,0,nan,1", "duration_s is nan, expected a number of seconds >= 0"),
        ("a,0,,1", "duration_s is empty, expected a number of seconds >= 0"),
        ("a,0,1_000,1", "duration_s is 1_000, expected a number of seconds >= 0"),
        ("a,0,1e999,1", "duration_s is 1e999, expected a number of seconds >= 0"),
        ("a,1600000000000,5,1", "submit_s is 1600000000000, expected a number of seconds from 0 to 1e12"),
        ("a,-1,5,1", "submit_s is -1, expected a number of seconds >= 0"),
        ("a,inf,5,1", "submit_s is inf, expected a number of seconds >= 0"),
        ("a,noon,5,1", "submit_s is noon, expected a number of seconds >= 0"),
        (" ,0,5,1", "job_id is empty, expected a name"),
        ("a,0,5,1.5", "gpus is 1.5, expected a whole number >= 0"),
        ("a,0,5,-1", "gpus is -1, expected a whole number >= 0"),
        ("a,0,5,nan", "gpus is nan, expected a whole number >= 0"),
        ("a,0,5,inf", "gpus is inf, expected a whole number >= 0"),
        ("a,0,5,1e30", "gpus is 1e30, expected a whole number from 0 to 1000000000"),
        ("a,0,5,two", "gpus is two, expected a whole number >= 0"),
        ("a,0,5,0", "gpus is 0 and cpu is 0, expected one of them above 0"),
        ("a,0,5", "3 cells, expected 4"),
        ("a,0,5,1,9", "5 cells, expected 4"),
        ("first,0,5,1", "job_id first is already in line 2"),
        (f"a,0,{'x' * 99},1", f"duration_s is {'x' * 40}…, expected a number of seconds >= 0"),
        ("a,0,\x1b[31m,1", "duration_s is '\\x1b[31m', expected a number of seconds >= 0"),
    ],
)
def test_a_bad_row_names_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, f"{HEADER}\nfirst,0,1,1\n{row}\n")
    assert str(caught.value) == f"{tmp_path / 'jobs.csv'}:3: {message}"


@pytest.mark.parametrize(
    ("columns", "cells", "message"),
    [
        ("spans_types", "yes", "spans_types is yes, expected true or false"),
        ("gpu_milli", "0", "gpu_milli is 0, expected a whole number from 1 to 1000"),
        ("gpu_milli", "1001", "gpu_milli is 1001, expected a whole number from 1 to 1000"),
        ("min_gpus,max_gpus", "4,2", "min_gpus is 4, expected at most max_gpus 2"),
        ("min_gpus", "0", "min_gpus is 0, expected a whole number >= 1"),
        ("min_batch,max_batch", "64,32", "min_batch is 64, expected at most max_batch 32"),
        ("priority", "high", "priority is high, expected a whole number >= -1000000000"),
        ("or_cpu", "-1", "or_cpu is -1, expected a number >= 0"),
        ("cpu", "-1", "cpu is -1, expected a number >= 0"),
        ("memory_gib", "inf", "memory_gib is inf, expected a number >= 0"),
        ("deadline_s", "-1", "deadline_s is -1, expected a number of seconds >= 0"),
        ("steps", "1.5", "steps is 1.5, expected a whole number >= 0"),
        ("gpu_milli,share", "300,mig", "gpu_milli is 300, expected one of 142, 285, 428, 571, 1000 in mode mig"),
        (
            "gpu_milli,share,limit_milli",
            "300,mps,600",
            "limit_milli is 600, expected gpu_milli 300: mode mps gives no more",
        ),
        (
            "gpu_mem_gib,persistent_gib,ephemeral_gib",
            "4,2,6",
            "gpu_mem_gib is 4, expected at least persistent_gib and ephemeral_gib together, 8",
        ),
        ("needs", "a", "needs is a, expected other jobs than itself"),
        ("needs", "b", "needs is b, expected a job_id of this trace"),
    ],
)
def test_a_bad_optional_cell_names_its_line(tmp_path: Path, columns: str, cells: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, f"{HEADER},{columns}\na,0,5,1,{cells}\n")
    assert str(caught.value) == f"{tmp_path / 'jobs.csv'}:2: {message}"


def test_a_part_of_several_gpus_is_of_different_ones(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER},gpu_milli\na,0,5,2,500\n")
    assert found[0].spec.shapes == (Shape((Role(count=2, gpus=1, gpu_milli=500, is_apart=True),)),)


def test_a_job_may_span_gpu_types(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER},spans_types\na,0,5,2,true\nb,0,5,2,false\nc,0,5,2,\n")
    assert [entry.spec.shapes[0].spans_types for entry in found] == [True, False, False]


def test_a_part_of_no_gpu_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs\.csv:2: gpus is 0, expected at least 1 where gpu_milli is 500"):
        read(tmp_path, f"{HEADER},gpu_milli,cpu\na,0,5,0,500,1\n")


def test_jobs_that_need_each_other_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs go in a circle: "):
        read(tmp_path, f"{HEADER},needs\na,0,5,1,b\nb,0,5,1,c\nc,0,5,1,a\nd,0,5,1,a\n")


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        pytest.param("", "is empty", "starts with job_id", id="an empty file"),
        pytest.param(" \n\n", "is empty", "starts with job_id", id="a blank file"),
        pytest.param(b"PK\x03\x04\0\0", "is not a text file", "UTF-8", id="a binary file"),
        pytest.param(b"job_id\xff\xfe", "is not a text file", "UTF-8", id="not UTF-8"),
        pytest.param(b"\x1f\x8b\x08", "is compressed", "unpack", id="a compressed file"),
        pytest.param(f"{HEADER}\n", "has no jobs", "below the header", id="only a header"),
        pytest.param("job_id,submit_s,gpus\na,0,1\n", ":1: no column duration_s", "", id="a missing column"),
        pytest.param(
            "job_id,submit_s,duration_s,gpu\na,0,1,1\n",
            ":1: no column gpus, expected job_id,submit_s,duration_s,gpus",
            "--map gpus=NAME says which column of the file it is (did you mean gpu?)",
            id="a misspelt column",
        ),
        pytest.param(f"{HEADER},gpus\n", ":1: column gpus is given twice", "", id="a repeated column"),
        pytest.param(f'{HEADER}\n"{"x" * 200_000}', ":2: is not CSV", "", id="a quote that never ends"),
    ],
)
def test_an_unusable_file_is_one_line(tmp_path: Path, content: str | bytes, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path / 'jobs.csv'}")
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "absent.csv")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_trace(tmp_path)


def test_a_misspelt_header_is_still_taken_for_native(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,gpu\na,0,1,1\n")
    with pytest.raises(InputError, match=r"no column gpus"):
        read_trace(path)


def test_other_columns_are_ignored_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER},zzz,gpu_typ,\na,0,1,1,x,y,z\n")
    found = read_trace(path)
    assert [job.spec.id for job in found.jobs] == ["a"]
    assert found.ignored == (
        "column zzz is ignored",
        "column gpu_typ is ignored; did you mean gpu_type?",
        "column empty is ignored",
    )


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("Job,Submit,Elapsed,N\na,2024-03-01 10:00:00,01:30:00,2\nb,2024-03-01 10:00:30,1-00:00:01.5,1\n")
    renamed = {"Job": "job_id", "Submit": "submit_s", "Elapsed": "duration_s", "N": "gpus"}
    jobs = read_trace(path, renamed=renamed).jobs
    assert [(job.submit_s, job.work_s, job.spec.shapes[0].gpus) for job in jobs] == [
        (0.0, 5400.0, 2),
        (30.0, 86401.5, 1),
    ]
    with pytest.raises(InputError, match="no column Begin, which --map names for submit_s") as caught:
        read_trace(path, renamed={"Begin": "submit_s"})
    assert "it has Job, Submit, Elapsed, N" in caught.value.hint


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("2024-03-01 10:00:00", "2024-03-01 10:00:30Z", "without"),
        ("2024-03-01T10:00+01:00", "2024-03-01T10:00", "with"),
    ],
)
def test_dates_with_and_without_a_zone_are_not_mixed(tmp_path: Path, first: str, second: str, kind: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"{HEADER}\na,{first},1,1\nb,{second},1,1\n")
    with pytest.raises(InputError, match=f":3: submit_s is .* expected a date {kind} a zone, as in the rows before"):
        read_trace(path)


def test_priorities_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,priority\na,0,1,1,prod\nb,0,1,1,test\nc,0,1,1,oppo\nd,0,1,1,7\n")
    assert [job.spec.priority for job in read_trace(path).jobs] == [100, 10, -1, 7]


def test_submissions_may_be_dates_and_the_first_becomes_0(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER}\na,2026-01-05 08:01:00,10,1\nb,2026-01-05T08:00:00,10,1\n")
    assert [(job.spec.id, job.submit_s) for job in found] == [("b", 0.0), ("a", 60.0)]


def test_dates_know_zones(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER}\na,2026-01-05T08:00:00+00:00,10,1\nb,2026-01-05T10:00:00+01:00,10,1\n")
    assert [job.submit_s for job in found] == [0.0, 3600.0]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("2026-01-05", "60", r"jobs\.csv:3: submit_s is 60, expected a date YYYY-MM-DD HH:MM:SS"),
        ("60", "2026-01-05", r"jobs\.csv:3: submit_s is 2026-01-05, expected a number of seconds >= 0"),
        ("2026-13-05", "2026-01-05", r"jobs\.csv:2: submit_s is 2026-13-05, expected a date"),
    ],
)
def test_a_file_has_dates_or_seconds(tmp_path: Path, first: str, second: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, f"{HEADER}\na,{first},10,1\nb,{second},10,1\n")


def test_a_row_says_how_its_job_shares(tmp_path: Path) -> None:
    columns = "job_id,submit_s,duration_s,gpus,gpu_milli,gpu_mem_gib,share,limit_milli,claim,promise_milli"
    text = f"{columns}\na,0,1,1,300,4,token,600,,\nb,0,1,1,,,,,auto,950\nc,0,1,1,,,,,,\n"
    first, second, third = read(tmp_path, text)
    assert first.spec.share == Share("token", 600)
    assert first.spec.shapes[0].roles[0].gpu_milli == 300
    assert second.spec.share == Share(claim="auto", promise_milli=950)
    assert third.spec.share is None


def test_persistent_and_ephemeral_memory_is_the_memory_of_a_row_that_names_none(tmp_path: Path) -> None:
    head = "job_id,submit_s,duration_s,gpus,gpu_mem_gib,persistent_gib,ephemeral_gib\n"
    jobs = read(tmp_path, f"{head}a,0,1,1,,2,6\nb,0,1,1,9,2,6\nc,0,1,1,,,\n")
    assert [job.spec.shapes[0].roles[0].gpu_mem_gib for job in jobs] == [8.0, 9.0, 0.0]


def test_a_row_names_a_tier_or_a_promise(tmp_path: Path) -> None:
    head = "job_id,submit_s,duration_s,gpus,tier,promise_milli\n"
    first, second, third = read(tmp_path, f"{head}a,0,1,1,Premium,\nb,0,1,1,basic,250\nc,0,1,1,,\n")
    assert first.spec.share == Share(tier="premium")
    assert second.spec.share == Share(promise_milli=250)
    assert third.spec.share is None
    for cells, says in (
        ("gold,", "tier is gold, expected one of basic, standard, premium"),
        ("premium,500", "tier is premium, expected basic or nothing where promise_milli is given"),
    ):
        with pytest.raises(InputError, match=says):
            read(tmp_path, f"{head}a,0,1,1,{cells}\n")


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("1,half,", "expected one of exclusive"),
        ("1,token,600", "at least gpu_milli 1000"),
        ("0,token,", "at least 1 where the row says how to share"),
    ],
)
def test_a_row_that_shares_in_no_way_is_an_error(tmp_path: Path, cells: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, f"job_id,submit_s,duration_s,gpus,share,limit_milli,cpu\na,0,1,{cells},1\n")


def test_a_job_may_run_on_cpus_instead(tmp_path: Path) -> None:
    found = read(tmp_path, f"{HEADER},or_cpu,memory_gib\na,0,5,2,16,6\nb,0,5,1,,\n")
    assert [job.spec.shapes for job in found] == [
        (gpu_shape(2, memory_gib=6), gpu_shape(0, cpu=16, memory_gib=6)),
        (gpu_shape(1),),
    ]
    with pytest.raises(InputError, match="gpus is 0, expected at least 1 where or_cpu is given"):
        read(tmp_path, f"{HEADER},cpu,or_cpu\na,0,5,0,1,16\n")
