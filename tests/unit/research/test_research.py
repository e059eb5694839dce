"""Simulations from Python give what the command line gives."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import skep
from skep.cli.simulate import simulate as simulate_command
from skep.core.errors import InputError
from skep.core.view import JobView
from skep.experiments.output import jobs_csv
from skep.policies import Order
from skep.research import frames

ROWS = [
    {"job_id": f"j{number}", "submit_s": 10 * number, "duration_s": 100 + 37 * (number % 5), "gpus": 1 + number % 3}
    for number in range(30)
]


class Largest(Order):
    """Most GPUs first."""

    def key(self, job: JobView, now_s: float) -> float:
        return -job.gpus


class Broken(Order):
    def key(self, job: JobView, now_s: float) -> float:
        return job.nosuch  # type: ignore[attr-defined, no-any-return]


def written(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    with file.open("w", newline="") as to:
        writer = csv.DictWriter(to, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)
    return file


@pytest.fixture(params=["rows", "pandas"])
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "rows":
        monkeypatch.setattr(frames, "LIBRARIES", ())
    else:
        pytest.importorskip(request.param)


def records(frame: Any) -> list[dict[str, Any]]:
    return frames.rows_of(frame)


def test_rows_and_a_file_give_what_the_command_line_gives(tmp_path: Path) -> None:
    file = written(tmp_path)
    ran = CliRunner().invoke(
        simulate_command, [str(file), "--cluster", "2x4", "--policy", "srsf", "--json"], catch_exceptions=False
    )
    said = json.loads(ran.stdout)[0]
    for source in (ROWS, file, str(file), skep.trace(ROWS)):
        run = skep.simulate(source, cluster="2x4", policy="srsf")
        same = {"jct_avg_s", "makespan_s", "utilization", "preemptions", "decisions", "finished"}
        assert {name: getattr(run.summary, name) for name in same} == pytest.approx(
            {name: said[name] for name in same}, abs=1e-6
        )


@pytest.mark.usefixtures("_library")
def test_frames_are_the_rows_of_the_files() -> None:
    run = skep.simulate(ROWS, cluster="2x4", policy="fifo")
    in_file = list(csv.DictReader(jobs_csv(run.run.rows).splitlines()))
    assert [list(row) for row in records(run.jobs)] == [list(row) for row in in_file]
    for ours, theirs in zip(records(run.jobs), in_file, strict=True):
        assert all(str(value) == theirs[name] or float(value) == float(theirs[name]) for name, value in ours.items())
    timeline = records(run.timeline)
    assert timeline[0]["at_s"] == 0
    assert timeline[-1]["busy_gpus"] == 0
    assert len(records(run.decisions)) == len([row for row in records(run.decisions) if row["kind"] == "start"]) == 30


def test_decisions_say_who_was_preempted_where() -> None:
    jobs = [
        {"job_id": "long", "submit_s": 0, "duration_s": 1000, "gpus": 4},
        {"job_id": "short", "submit_s": 10, "duration_s": 10, "gpus": 4},
    ]
    frame = records(skep.simulate(jobs, cluster="1x4", policy="srtf", restart_s=0).decisions)
    assert [(row["at_s"], row["job_id"], row["kind"], row["gpus_after"]) for row in frame] == [
        (0, "long", "start", 4),
        (10, "long", "preempt", 0),
        (10, "short", "start", 4),
        (20, "long", "start", 4),
    ]


def test_a_class_is_a_policy_and_its_errors_name_the_line() -> None:
    compared = skep.compare(ROWS, cluster="2x4", policies=["fifo", Largest, Broken])
    assert list(compared) == ["fifo", "notebook.py:Largest"]
    line = Broken.key.__code__.co_firstlineno + 1
    assert str(compared.failed["notebook.py:Broken"]).startswith(f"{__file__}:{line}: AttributeError")
    with pytest.raises(InputError, match=f"{Path(__file__).name}:{line}"):
        skep.simulate(ROWS, cluster="2x4", policy=Broken)


def test_a_class_that_replaces_another_does_not_change_results_of_the_first() -> None:
    first = skep.simulate(ROWS, cluster="1x4", policy=Largest)
    again = type("Largest", (Order,), {"key": lambda self, job, now_s: job.gpus})
    second = skep.simulate(ROWS, cluster="1x4", policy=again)
    assert second.policy == "notebook.py:Largest-2"
    assert msgspec.structs.astuple(first.run.rows[3]) == msgspec.structs.astuple(first.with_history.rows[3])
    assert first.run.rows != second.run.rows


def test_several_clusters_and_seeds_are_labelled() -> None:
    compared = skep.compare(ROWS, cluster=["2x4", "4x4"], policies=["fifo:place=random"], seeds=(1, 2), parallel=2)
    assert list(compared) == [
        f"fifo:place=random on {cluster} seed={seed}" for cluster in ("2x4", "4x4") for seed in (1, 2)
    ]
    assert records(compared.summary)[3]["cluster"] == "4x4"


def test_a_plot_is_a_page_in_a_frame_of_its_own(tmp_path: Path) -> None:
    compared = skep.compare(ROWS, cluster="2x4", policies=["fifo", "srsf"])
    shown = compared.plot()._repr_html_()
    assert shown.startswith("<iframe sandbox")
    assert shown.count('"') == 6, "everything inside is escaped"
    compared.save(tmp_path / "report.html")
    assert "srsf" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restart_s": -1}, "restart_s is -1, expected a number of seconds >= 0"),
        ({"round_finish": "boundary"}, "round_finish boundary needs round_s"),
        ({"round_finish": "soon"}, "round_finish is 'soon', expected exact or boundary"),
        ({"restart": 3}, "unknown option restart, did you mean restart_s?"),
        ({"policy": "nosuch"}, "policy 'nosuch' is not known"),
        ({"cluster": "8by8"}, "8by8"),
    ],
)
def test_wrong_arguments_get_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        skep.simulate(ROWS, **({"cluster": "2x4", "policy": "fifo"} | options))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bad_row_is_named() -> None:
    with pytest.raises(InputError, match=r"rows:3: .*gpus"):
        skep.trace([ROWS[0], {**ROWS[1], "gpus": "many"}])


def test_importing_skep_costs_nothing() -> None:
    import subprocess

    check = "import sys, skep; sys.exit(any(name.startswith('skep.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
