"""`skep study` as it is typed: what it prints and writes, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.study import study
from skep.core.errors import InputError

JOBS = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{number},{30 * number},{20 + 300 * (number % 9 == 0)},{1 + number % 2}\n" for number in range(300)
)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    file.write_text(JOBS)
    return file


def test_it_prints_a_recommendation_and_writes_a_page(jobs: Path, tmp_path: Path) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out"
    args = [str(jobs), "--cluster", "1x2", "--policy", "fifo", "--policy", "las", "--seeds", "2", "--parallel", "1"]
    args += ["--out", str(out)]
    ran = CliRunner().invoke(study, [*args, "--html", str(page)], catch_exceptions=False)
    assert "Recommendation: " in ran.stdout
    assert page.read_text().startswith("<!doctype html>")
    rows = json.loads(CliRunner().invoke(study, [*args, "--json"], catch_exceptions=False).stdout)
    assert [row["policy"] for row in rows] == ["fifo", "las"]
    with pytest.raises(InputError, match="exists"):
        CliRunner().invoke(study, [*args, "--html", str(page)], catch_exceptions=False)
    with pytest.raises(InputError, match="parallel"):
        CliRunner().invoke(study, [*args[:-4], "--parallel", "0"], catch_exceptions=False)


@pytest.mark.slow
def test_ctrl_c_loses_no_run_and_leaves_no_process(jobs: Path, tmp_path: Path) -> None:
    def command(out: str) -> list[str]:
        given = ["--cluster", "1x2", "--policy", "fifo", "--policy", "las", "--seeds", "100", "--parallel", "2"]
        return [sys.executable, "-m", "skep.cli.main", "study", str(jobs), *given, "--out", str(tmp_path / out)]

    journal = tmp_path / "broken" / "journal.jsonl"
    process = subprocess.Popen(command("broken"), stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= 10):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    kept = journal.read_bytes().count(b"\n")
    assert 10 <= kept < 202
    assert "the same command goes on" in said
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    subprocess.run(command("broken"), check=True, capture_output=True)
    subprocess.run(command("whole"), check=True, capture_output=True)
    assert journal.read_bytes().count(b"\n") == 202
    for name in ("runs.csv", "summary.csv", "tests.csv", "recommendation.txt"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
