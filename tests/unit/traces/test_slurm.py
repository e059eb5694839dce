"""What sacct prints becomes a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.core.model import gpu_shape
from skep.traces.read import read_slurm, read_trace
from skep.traces.trace import Trace

HEADER = "JobID|Submit|Start|End|AllocTRES|User|Account|Partition"
DAY = "2026-01-05T"


def row(
    id: str = "7", start: str = "08:00:10", end: str = "09:00:10", tres: str = "cpu=1", submit: str = "08:00:00"
) -> str:
    times = (moment if moment == "Unknown" else DAY + moment for moment in (submit, start, end))
    return "|".join([id, *times, tres, "ann", "vision", "long"])


def read(folder: Path, *rows: str, vc_from: str = "account") -> Trace:
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return read_slurm(path, vc_from=vc_from)


def test_a_job_has_its_time_gpus_and_owners(tmp_path: Path) -> None:
    (job,) = read(tmp_path, row(tres="billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1")).jobs
    assert (job.submit_s, job.work_s) == (0.0, 3600.0)
    assert (job.spec.id, job.spec.vc, job.spec.user) == ("7", "vision", "ann")
    assert job.spec.shapes == (gpu_shape(4, gpu_types=("a100",), cpu=8.0, memory_gib=64.0),)


def test_the_partition_can_be_the_vc(tmp_path: Path) -> None:
    assert read(tmp_path, row(), vc_from="partition").jobs[0].spec.vc == "long"


@pytest.mark.parametrize(
    ("tres", "gib"), [("cpu=1,mem=512M", 0.5), ("cpu=1,mem=2T", 2048.0), ("cpu=1,mem=2048", 2.0), ("cpu=1", 0.0)]
)
def test_memory_has_units(tmp_path: Path, tres: str, gib: float) -> None:
    assert read(tmp_path, row(tres=tres)).jobs[0].spec.shapes[0].roles[0].memory_gib == gib


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row("7.batch"), "a step of a job"),
        (row("8", start="Unknown", end="Unknown"), "never ran"),
        (row("8", end="Unknown"), "still runs"),
        (row("8", start="07:00:00"), "times out of order"),
        (row("8", tres=""), "asks for neither GPUs nor CPUs"),
        (row("8", tres="cpu=1,mem=lots"), "mem is not an amount such as 64G"),
        (row("7"), "job_id is used twice"),
    ],
)
def test_what_was_no_run_is_dropped_and_counted(tmp_path: Path, bad: str, reason: str) -> None:
    found = read(tmp_path, row("7"), bad)
    assert len(found.jobs) == 1
    assert found.dropped == {reason: 1}


def test_times_may_be_seconds_since_1970(tmp_path: Path) -> None:
    rows = ["7|1000|1010|1070|cpu=1|ann|vision|long", "8|1005|1010|1070|cpu=1|ann|vision|long"]
    assert [(job.submit_s, job.work_s) for job in read(tmp_path, *rows).jobs] == [(0.0, 60.0), (5.0, 60.0)]


def test_the_format_is_recognised_and_a_trailing_bar_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"{HEADER}|\n{row()}|\n", encoding="utf-8")
    assert read_trace(path).format == "slurm"


def test_another_file_is_refused_by_the_missing_column(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,1,1\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column JobID"):
        read_slurm(path, vc_from="account")


def test_columns_come_in_any_order_and_elapsed_and_reqtres_serve_too(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    lines = [
        "State|ReqTRES|Elapsed|JobID|Start|Submit|AllocTRES|NNodes",
        f"COMPLETED|cpu=8,gres/gpu=8|1-00:00:10|123_7|{DAY}08:00:10|{DAY}08:00:00||1",
        f"COMPLETED|cpu=8,gres/gpu=8|00:30:00|124|{DAY}08:00:10|{DAY}08:00:00|cpu=8,gres/gpu=4|1",
        f"PENDING|cpu=8,gres/gpu=8|00:00:00|125|Unknown|{DAY}08:00:00||1",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_trace(path)
    seen = [(job.spec.id, job.work_s, job.spec.shapes[0].gpus) for job in found.jobs]
    assert seen == [("123_7", 86410.0, 8), ("124", 1800.0, 4)]
    assert found.dropped == {"never ran": 1}


def test_a_table_without_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|Submit|Start|AllocTRES\n1|1|2|cpu=1\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column End or Elapsed"):
        read_trace(path)
