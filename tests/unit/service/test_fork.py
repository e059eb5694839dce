"""`skep fork`: a store, copied and simulated onwards."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from live_world import LiveWorld, request
from tests.support import job

from skep.cli.fork import fork
from skep.cli.main import main
from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.job import Job, JobState
from skep.core.state import State
from skep.experiments.estimates import Estimate, estimate_all
from skep.experiments.fork import Expected, forecast, write_forecast
from skep.jobs.request import Request, TaskRole
from skep.service.commands import hold
from skep.service.copy import read_copy

Screen = pytest.CaptureFixture[str]


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path, cluster="1x2")


def foreseen(world: LiveWorld, **options: object) -> dict[str, Expected]:
    found = forecast(read_copy(world.folder), **options)  # type: ignore[arg-type]
    return {each.name: each for each in found.jobs}


def times(found: dict[str, Expected]) -> dict[str, tuple[float | None, float | None]]:
    return {name: (each.start_s, each.end_s) for name, each in found.items()}


def test_running_and_waiting_jobs_are_foreseen(world: LiveWorld) -> None:
    world.submit(
        request("first", 2, expect_s=100.0), request("next", 1, expect_s=50.0), request("last", 2, expect_s=5.0)
    )
    world.settle()
    begun_s = world.now_s
    found = foreseen(world)
    assert times(found) == {
        "first": (begun_s, begun_s + 100.0),
        "next": (begun_s + 100.0, begun_s + 150.0),
        "last": (begun_s + 150.0, begun_s + 155.0),
    }
    assert [(each.state, each.estimate, each.note) for each in found.values()] == [
        ("running", "owner", ""),
        ("pending", "owner", ""),
        ("pending", "owner", ""),
    ]


def test_the_store_is_not_touched_and_may_be_in_use(world: LiveWorld) -> None:
    world.submit(request("a", expect_s=100.0))
    before = {path.name: path.read_bytes() for path in world.folder.iterdir() if not path.name.endswith("-shm")}
    foreseen(world, policy="srtf")
    assert {path.name: path.read_bytes() for path in world.folder.iterdir() if path.name in before} == before
    world.settle()
    assert world.state("1") == "running"


def test_a_store_at_rest_gets_no_journal(world: LiveWorld) -> None:
    world.submit(request("a", expect_s=100.0))
    world.store.close()
    names = sorted(os.listdir(world.folder))
    assert "a" in foreseen(world)
    assert sorted(os.listdir(world.folder)) == names == ["skep.db"]


def test_another_policy_may_take_over(world: LiveWorld) -> None:
    world.submit(request("long", 2, expect_s=1000.0))
    world.settle()
    world.submit(request("short", 2, expect_s=10.0))
    assert times(foreseen(world))["short"] == (world.now_s + 999.0, world.now_s + 1009.0)
    found = foreseen(world, policy="srtf", restart_s=5.0)
    assert times(found)["short"] == (world.now_s, world.now_s + 10.0)
    done_s = 1.0
    assert found["long"].end_s == world.now_s + 10.0 + 5.0 + 1000.0 - done_s


def test_time_that_has_passed_since_the_last_entry_counts(world: LiveWorld) -> None:
    world.submit(request("late", expect_s=100.0))
    world.settle()
    found = foreseen(world, now_s=world.now_s + 500.0)
    assert (found["late"].estimate, found["late"].end_s) == ("none", None)
    found = foreseen(world, now_s=world.now_s + 50.0)
    assert found["late"].end_s == world.now_s + 100.0


def test_a_job_of_which_nothing_is_known_runs_for_ever_and_so_others_wait(world: LiveWorld) -> None:
    world.submit(request("unknown", 2), request("behind", expect_s=10.0))
    world.settle()
    found = foreseen(world)
    assert [(each.start_s is None, each.end_s, each.estimate, each.note) for each in found.values()] == [
        (False, None, "none", "assumed to run forever"),
        (True, None, "owner", "waits for resources that never become free"),
    ]


def test_it_can_be_cut_off(world: LiveWorld) -> None:
    world.submit(*(request(name, 2, expect_s=100.0) for name in ("a", "b", "c")))
    world.settle()
    found = foreseen(world, within_s=150.0)
    assert [each.end_s is not None for each in found.values()] == [True, False, False]
    assert [each.note for each in found.values()] == [
        "",
        "still runs at the end of the forecast",
        "still waits at the end of the forecast",
    ]


def test_a_held_job_says_so(world: LiveWorld) -> None:
    world.submit(request("a", 2, expect_s=10.0), request("b", expect_s=10.0))
    world.ask(hold("2", True, "ann"))
    assert foreseen(world)["b"].note.startswith("held")


def test_a_time_limit_ends_a_job_of_which_nothing_is_known(world: LiveWorld) -> None:
    world.submit(request("a", time_limit_s=60.0))
    world.settle()
    found = foreseen(world)["a"]
    assert found.end_s == world.now_s + 60.0
    assert "time limit" in found.note


def test_tasks_that_start_one_by_one_are_one_job(world: LiveWorld) -> None:
    tasks = {"task": TaskRole(count=3, gpus=1, command="true")}
    world.submit(Request(name="sweep", tasks=tasks, user="ann", gang=False, expect_s=100.0))
    world.settle()
    found = foreseen(world)["sweep"]
    assert (found.start_s, found.end_s) == (world.now_s, world.now_s + 200.0)


def test_virtual_clusters_and_what_is_under_way(tmp_path: Path) -> None:
    """`borrows` was told to make room for `owner`; it goes on there when that one has ended, after its restart."""
    world = LiveWorld(tmp_path, cluster="nodes: [{count: 2, name: n, gpus: 2}]\nvcs: {a: 1 nodes, b: 1 nodes}\n")
    world.submit(*(request(name, 2, expect_s=100.0, vc="a") for name in ("owns", "borrows")))
    world.settle()
    world.submit(request("owner", 2, expect_s=10.0, vc="b"))
    found = foreseen(world, restart_s=30.0)
    assert [each.state for each in found.values()] == ["running", "stopping", "launching"]
    begun_s = world.now_s - 1.0
    assert found["owns"].end_s == begun_s + 100.0
    assert (found["owner"].start_s, found["owner"].end_s) == (world.now_s, world.now_s + 10.0)
    assert found["borrows"].end_s == world.now_s + 10.0 + 30.0 + 99.0


def test_an_error_in_a_policy_of_ones_own_is_one_line(world: LiveWorld, tmp_path: Path) -> None:
    world.submit(request("a", expect_s=10.0))
    methods = ("    def attach(self, view, memory): ...", "    def plan(self, view, memory, trigger):", "        1 / 0")
    (tmp_path / "mine.py").write_text("\n".join(("class Mine:", *methods)))
    with pytest.raises(InputError, match=r"mine\.py:4: ZeroDivisionError"):
        foreseen(world, policy=f"{tmp_path}/mine.py:Mine")


def test_what_is_written(world: LiveWorld, tmp_path: Path) -> None:
    world.submit(request("a", 2, expect_s=100.0), request("b"))
    world.settle()
    found = forecast(read_copy(world.folder))
    write_forecast(found, tmp_path / "out")
    with (tmp_path / "out/jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["end_s"], row["estimate"]) for row in rows] == [
        ("a", f"{world.now_s + 100.0:g}", "owner"),
        ("b", "", "none"),
    ]
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary == {
        "at_s": world.now_s,
        "policy": "fifo",
        "until_s": None,
        "jobs": 2,
        "without_estimate": 1,
        "ended": 1,
    }
    with pytest.raises(InputError, match="exists already"):
        write_forecast(found, tmp_path / "out")


# The command -------------------------------------------------------------------------------------------------------


def ask(*args: object) -> Result:
    return CliRunner().invoke(fork, [str(arg) for arg in args])


def test_the_table_and_what_it_is_worth(world: LiveWorld) -> None:
    world.submit(request("known", 2, expect_s=100.0), request("unknown"))
    world.settle()
    done = ask(world.folder)
    assert done.exit_code == 0
    head, first, second = done.stdout.rstrip().splitlines()
    assert head.split() == ["JOB", "NAME", "USER", "VC", "GPUS", "STATE", "START", "END", "ESTIMATE", "NOTE"]
    assert first.split()[1] == "known"
    assert second.rstrip().endswith("none      assumed to run forever")
    assert "under fifo: 2 open jobs, 1 without an estimate" in done.stderr


def test_as_json_and_as_files(world: LiveWorld, tmp_path: Path) -> None:
    world.submit(request("a", expect_s=100.0))
    world.settle()
    done = ask(world.folder, "--policy", "srtf", "--until", "30s", "-o", "json", "--out", tmp_path / "out")
    (found,) = json.loads(done.stdout)
    assert (found["id"], found["start_s"], found["end_s"]) == ("1", world.now_s, None)
    assert json.loads((tmp_path / "out/summary.json").read_text())["policy"] == "srtf"
    assert "under srtf: 1 open job" in done.stderr


def test_of_a_backup(world: LiveWorld, tmp_path: Path) -> None:
    world.submit(request("a", expect_s=100.0))
    world.store.backup(tmp_path / "monday.db")
    assert ask(tmp_path / "monday.db", "-o", "name").stdout == "1\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "nonsense"], "policy 'nonsense' is not known"),
        (["--until", "soon"], "'soon' is not a duration"),
        (["--restart-s", "-1"], "-1.0 is not in the range"),
        (["--out", "/nowhere/out"], "/nowhere is not a folder"),
    ],
)
def test_what_the_command_refuses(
    world: LiveWorld, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: Screen
) -> None:
    """In one line and a hint, with exit code 2."""
    monkeypatch.setattr("sys.argv", ["skep", "fork", str(world.folder), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert message in said.err.splitlines()[0]
    assert not said.out


# What cannot be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file, expected the data folder"),
        (b"", "is empty, expected the data folder"),
        (b"root:x:0:0", "cannot be read as a store"),
    ],
)
def test_what_is_no_store(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read_copy(path)
    assert str(path) in str(raised.value)


def test_another_sqlite_file_is_not_taken_for_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE jobs (id)")
    db.close()
    with pytest.raises(InputError, match=r"other\.db is not a store of Skep"):
        read_copy(tmp_path / "other.db")


# Estimates ---------------------------------------------------------------------------------------------------------


def known(*jobs: tuple[str, int, float | None, float]) -> State:
    """(user, GPUs, expected, work done): without a user's wish, of 10, 20 and 60 s that have finished."""
    state = State(Cluster([]))
    ended = [("ann", 1, None, 10.0), ("ann", 1, None, 20.0), ("ann", 2, None, 60.0)]
    for number, (user, gpus, expect_s, done_s) in enumerate((*ended, *jobs)):
        each = Job(job(gpus, id=f"j{number}", user=user, expect=expect_s).spec, number, 0.0)
        each.work_s = done_s
        each.state = JobState.SUCCEEDED if number < len(ended) else JobState.PENDING
        state.jobs[each.id] = each
        if each.state is JobState.SUCCEEDED:
            state.knowledge.note_end(each)
    return state


@pytest.mark.parametrize(
    ("open_job", "expected"),
    [
        pytest.param(("ann", 1, 300.0, 0.0), Estimate(300.0, "owner"), id="its owner says"),
        pytest.param(("ann", 1, None, 0.0), Estimate(15.0, "history"), id="same user and size"),
        pytest.param(("ann", 4, None, 0.0), Estimate(30.0, "history"), id="same user"),
        pytest.param(("bob", 2, None, 0.0), Estimate(60.0, "history"), id="same size"),
        pytest.param(("bob", 4, None, 0.0), Estimate(30.0, "history"), id="all"),
        pytest.param(("ann", 1, None, 15.0), Estimate(20.0, "history"), id="only those that took longer"),
        pytest.param(("ann", 1, None, 20.0), Estimate(60.0, "history"), id="of its size none took longer"),
        pytest.param(("ann", 1, 30.0, 40.0), Estimate(60.0, "history"), id="longer than its owner expected"),
        pytest.param(("ann", 1, None, 60.0), None, id="nobody took longer"),
    ],
)
def test_where_estimates_come_from(open_job: tuple[str, int, float | None, float], expected: Estimate | None) -> None:
    assert estimate_all(known(open_job)).get("j3") == expected
