"""`skep simulate`: what is wrong is said in one line before any work, and nothing is left half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.cli.simulate import simulate
from skep.core.errors import InputError
from skep.experiments.output import folder_names

JOBS = "job_id,submit_s,duration_s,gpus\na,0,10,1\nb,5,10,2\n"


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.csv"
    file.write_text(JOBS)
    return str(file)


def run(*given: str) -> Result:
    return CliRunner().invoke(simulate, [*given, "--cluster", "2x4"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "no --policy is given"),
        ("--policy fifo --restart-s -1", "--restart-s is -1.0, expected a number of seconds >= 0"),
        ("--policy fifo --round-s 1e-9", "--round-s is 1e-09, expected at least 0.1 s"),
        ("--policy fifo --round-finish boundary", "--round-finish boundary needs --round-s"),
        ("--policy fifo --parallel 0", "--parallel is 0, expected 1 or more"),
        ("--policy fifo --vc-map a=b", "the trace has no VC 'a'"),
        ("--policy fifo --out /proc/nowhere", "/proc/nowhere"),
        ("--policy fifo --out /nowhere/out", "/nowhere is not a folder"),
    ],
)
def test_bad_options_are_one_line(jobs: str, options: str, says: str) -> None:
    result = run(jobs, *options.split())
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


def test_results_are_written_whole(jobs: str, tmp_path: Path) -> None:
    long = f"tiresias-g:samples={tmp_path}/{'x' * 90}/../{'y' * 90}/../samples.txt"
    for name in ("x", "y"):
        (tmp_path / (name * 90)).mkdir()
    (tmp_path / "samples.txt").write_text("10\n20\n")
    before = {entry.name for entry in tmp_path.iterdir()}
    result = run(jobs, "--policy", "fifo", "--policy", long, "--out", str(tmp_path / "out"), "--json")
    assert [found["finished"] for found in json.loads(result.stdout)] == [2, 2]
    assert {entry.name for entry in tmp_path.iterdir()} - before == {"out"}
    for name in folder_names(["fifo", long]):
        assert (tmp_path / "out" / name / "jobs.csv").read_text().startswith("job_id,vc,gpus,submit_s,")
