"""`skep fill`: bad input is one line before any work; the list on stdout is JSON and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.cli.fill import fill
from skep.core.errors import InputError

JOBS = "job_id,submit_s,duration_s,gpus,gpu_milli\na,0,10,1,500\nb,5,10,2,1000\nc,9,10,1,1000\n"


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.csv"
    file.write_text(JOBS)
    return str(file)


def run(*given: str, options: str = "") -> Result:
    return CliRunner().invoke(fill, [*given, *options.split()])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--cluster 2x4 --place fdg", "there is no placement 'fdg'"),
        ("--cluster 2x4 --demand 0", "the demand is 0, expected above 0 and at most 10"),
        ("--cluster 2x4 --demand -1", "the demand is -1, expected above 0"),
        ("--cluster 2x4 --demand nan", "the demand is nan, expected above 0"),
        ("--cluster 2x4 --demand inf", "the demand is inf, expected above 0"),
        ("--cluster 2x4 --demand 11", "the demand is 11, expected above 0"),
        ("--cluster 0x0", "0x0"),
        ("--cluster /nowhere.yaml", "/nowhere.yaml"),
        ("--cluster 2x4 --format nosuch", "unknown trace format nosuch"),
        ("--cluster 2x4 --html /nowhere/page.html", "/nowhere is not a folder"),
    ],
)
def test_bad_options_are_one_line(jobs: str, options: str, says: str) -> None:
    result = run(jobs, *options.split())
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"job_id,submit_s,duration_s,gpus\n", "no"),
        (b"\x00\x01\x02\xff\xfe" * 50, "trace"),
        (b"job_id,submit_s,duration_s,gpus,cpu\na,0,10,0,4\n", "has no pod that asks for GPUs"),
        (b"job_id,submit_s,duration_s,gpus,gpu_milli\na,0,10,1,1\n", "expected at most 5,000,000"),
    ],
    ids=["an empty file", "no rows", "a binary file", "no pod with GPUs", "pods so small that there is no end"],
)
def test_bad_lists_are_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "pods.csv"
    file.write_bytes(content)
    result = run(str(file), "--cluster", "1000x8")
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_folder_or_nothing_is_no_list(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.csv"):
        assert isinstance(run(str(path), "--cluster", "2x4").exception, InputError)


def test_json_is_a_list_of_a_result_for_each_placement_and_seed(jobs: str) -> None:
    result = run(jobs, options="--cluster 2x4 --place fgd --place random --seed 1 --seed 2 --seed 1 --json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [(each["place"], each["seed"]) for each in found] == [("fgd", 1), ("fgd", 2), ("random", 1), ("random", 2)]
    for each in found:
        assert each["gpus"] == 8
        assert each["allocated_percent"] == pytest.approx(100 * (8 - each["unallocated_gpus"]) / 8)
        assert each["curve"][0]["demand_percent"] == 0
        assert each["curve"][-1]["demand_percent"] == 130
        assert each["curve"][-1]["allocated_percent"] == each["allocated_percent"]
    again = run(jobs, options="--cluster 2x4 --place fgd --seed 2 --json")
    assert again.stdout == json.dumps([found[1]], indent=2) + "\n"


def test_the_page_names_every_placement_and_is_replaced_only_with_force(jobs: str, tmp_path: Path) -> None:
    page = tmp_path / "fill.html"
    shown = run(jobs, "--cluster", "2x4", "--html", str(page))
    assert shown.exit_code == 0
    assert f"report: {page}" in shown.stdout
    text = page.read_text()
    for place in ("fgd", "best-fit", "dot-product", "gpu-packing", "gpu-clustering", "random"):
        assert place in shown.stdout
        assert place in text
    assert text.count("<svg viewBox") >= 2
    assert isinstance(run(jobs, "--cluster", "2x4", "--html", str(page)).exception, InputError)
    assert run(jobs, "--cluster", "2x4", "--html", str(page), "--force").exit_code == 0
