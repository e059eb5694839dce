"""`skep demo --simulate`: what it tells is true, what it proposes works, and it leaves alone what is not its own."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.demo import simulated as module
from skep.cli.main import main, skep
from skep.metrics.run import Run
from skep.traces.read import read_trace


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    experiment = module.make_experiment()
    return {policy: experiment.run(policy) for policy in module.COMPARED}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def status(monkeypatch: pytest.MonkeyPatch, *args: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["skep", *args])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_it_tells_shows_and_writes_only_the_report(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, "demo", "--simulate") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(f"\n  {policy} " in out for policy in module.COMPARED)
    assert "Best is srsf" in out
    assert (here / "skep-demo.html").as_uri() in out
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("  file:"))
    assert [file.name for file in here.iterdir()] == ["skep-demo.html"]
    assert "A synthetic week on 16x8" in (here / "skep-demo.html").read_text()


def test_a_report_of_before_is_replaced(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(monkeypatch, "demo", "--simulate", "--html", "mine.html") == 0
    first = (here / "mine.html").read_bytes()
    (here / "mine.html").write_bytes(first.replace(b"A synthetic week", b"Another week"))
    assert status(monkeypatch, "demo", "--simulate", "--html", "mine.html") == 0
    assert b"Another week" not in (here / "mine.html").read_bytes()


def test_srsf_is_best_and_fifo_far_behind(runs: dict[str, Run]) -> None:
    jct_s = {policy: run.summary.jct_avg_s or 0.0 for policy, run in runs.items()}
    assert min(jct_s, key=jct_s.__getitem__) == "srsf"
    assert jct_s["fifo"] > 2 * jct_s["srsf"]
    assert jct_s["tiresias-l"] < 1.1 * jct_s["srsf"]
    assert runs["tiresias-l"].summary.preemptions > 0


def test_the_small_wait_under_fifo_the_large_when_they_are_passed(runs: dict[str, Run]) -> None:
    fifo, skip = runs["fifo"], runs["fifo:walk=skip"]
    assert module.waited(skip, module.is_small) < module.waited(fifo, module.is_small) / 2
    assert module.waited(skip, module.is_large) > module.waited(fifo, module.is_large)
    assert module.idle_while_waiting(fifo) > module.idle_while_waiting(skip) > 0


def test_every_job_ends_under_every_policy(runs: dict[str, Run]) -> None:
    assert {run.summary.finished for run in runs.values()} == {module.JOBS}


def test_the_proposed_commands_work_on_the_same_jobs(here: Path) -> None:
    commands = [shlex.split(line) for line in module.next_lines(Path("x.html")) if line.startswith("  skep ")]
    for command in commands[:2]:
        found = CliRunner().invoke(skep, command[1:])
        assert found.exit_code == 0, found.output
    assert read_trace(here / "week.csv").jobs == module.make_experiment().trace.jobs
    for command in commands[2:]:
        assert CliRunner().invoke(skep, [command[1], "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("file", "said"),
    [("missing/demo.html", "missing is not a folder"), (".", ". is a folder"), ("notes.html", "not a report of ours")],
)
def test_where_it_cannot_write_it_says_so_before_it_runs(
    file: str, said: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "notes.html").write_text("<p>mine")
    assert status(monkeypatch, "demo", "--simulate", "--html", file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.splitlines()[0]
    assert "--force" not in err
    assert [found.name for found in here.iterdir()] == ["notes.html"]


@pytest.mark.usefixtures("here")
def test_a_folder_that_is_read_only_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Who runs the tests may be root, whom no permission stops.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert status(monkeypatch, "demo", "--simulate") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "error: skep-demo.html cannot be written: its folder is read-only"
