"""`skep simulate`: what is wrong is said in one line before any work, and nothing is left half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.solving import SOLVING

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


OWN = """
import math
from skep.core.cluster import Allocation, Slice
from skep.policies import Order

class Good(Order):
    def key(self, job, now_s):
        return job.seq

class NoKey(Order):
    preemptive = True

class NotANumber(Order):
    def key(self, job, now_s):
        return (0, math.nan)

class Now(Good):
    jumps = True

    def changes_at(self, job, now_s):
        return now_s

class Divides(Order):
    def key(self, job, now_s):
        return 1 / 0

class Planner:
    def attach(self, view, memory): ...
    def explain(self, view, memory, job): ...
    def plan(self, view, memory, trigger):
        plan = view.new_plan()
        self.decide(view, plan)
        return plan

class NeverWakes(Planner):
    def decide(self, view, plan):
        plan.wake(math.nan)

class Creeps(Planner):
    def decide(self, view, plan):
        plan.wake(view.now_s + 1e-7)

class Flips(Planner):
    def decide(self, view, plan):
        job = next(iter(view.jobs.values()))
        if job.state == "pending":
            plan.start(job, Allocation((Slice(0, 1),), 1))
        else:
            plan.stop(job, "again")
        plan.wake(view.now_s)

class Mixed(Order):
    def key(self, job, now_s):
        return (job.seq, job.id if job.seq else job.submit_s)

class Quits(Order):
    def key(self, job, now_s):
        raise SystemExit(3)

class NoPlan(Planner):
    def plan(self, view, memory, trigger):
        return None

class NoAttach:
    def plan(self, view, memory, trigger):
        return None

class StartsTwice(Planner):
    def decide(self, view, plan):
        for job in view.jobs.values():
            plan.start(job, Allocation((Slice(0, 1),), 1))
"""
LINE = {text: number for number, text in enumerate(OWN.splitlines(), start=1)}
RAISES = LINE["        return 1 / 0"]
QUITS = LINE["        raise SystemExit(3)"]
BREAKS = max(number for text, number in LINE.items() if "plan.start(job" in text)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("NoKey", "mine.py: NoKey has no method key"),
        ("NotANumber", "NotANumber: the key of job a is not a number"),
        ("Mixed", "Mixed: the key of job b is (1, 'b'), which cannot be compared with (0, 0.0), that of another job"),
        ("Now", "Now: changes_at of job a is 0 at 0 s, expected a later time"),
        ("Divides", f"mine.py:{RAISES}: ZeroDivisionError: division by zero"),
        ("NeverWakes", "NeverWakes: its wake-up time is not a number"),
        ("Creeps", "Creeps: it asks to be woken at once, again and again, at 0.0001"),
        ("Flips", "Flips: it asks to be woken at once, again and again, at 0 s"),
        ("Quits", f"mine.py:{QUITS}: SystemExit: 3"),
        ("NoPlan", "NoPlan: AttributeError: 'NoneType' object has no attribute 'wake_s'"),
        ("NoAttach", "NoAttach: AttributeError: 'NoAttach' object has no attribute 'attach'"),
        ("StartsTwice", f"mine.py:{BREAKS}: InvariantBroken"),
    ],
)
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_the_fault_of_an_own_policy_is_one_line_and_ends(
    jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str, relative: bool
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    result = run(jobs, "--policy", f"{'.' if relative else tmp_path}/mine.py:{name}")
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


@pytest.mark.parametrize("parallel", ["1", "2"])
def test_one_policy_that_fails_does_not_cost_the_others(jobs: str, tmp_path: Path, parallel: str) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    own = f"{tmp_path}/mine.py"
    policies = ["fifo", f"{own}:Divides", "srtf", f"{own}:Creeps", f"{own}:Good"]
    options = [word for policy in policies for word in ("--policy", policy)]
    result = run(jobs, *options, "--parallel", parallel, "--json", "--out", str(tmp_path / "out"))
    assert [found["policy"] for found in json.loads(result.stdout)] == ["fifo", "srtf", f"{own}:Good"]
    kept = sorted(each.name for each in (tmp_path / "out").iterdir())
    assert kept == sorted(folder_names(["fifo", "srtf", f"{own}:Good"]))
    assert isinstance(result.exception, InputError)
    assert "woken at once" in str(result.exception)
    assert f"error: {own}:Divides: {own}:{RAISES}: ZeroDivisionError" in result.stderr


def test_a_traceback_shows_the_policys_own_frames(jobs: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    result = run(jobs, "--policy", f"{tmp_path}/mine.py:Divides", "--traceback")
    assert "return 1 / 0" in result.stderr


def test_seeds_and_clusters_are_lists(jobs: str, tmp_path: Path) -> None:
    options = ["--policy", "fifo", "--policy", "srtf", "--seed", "1", "--seed", "2", "--cluster", "1x2"]
    found = json.loads(run(jobs, *options, "--json", "--out", str(tmp_path / "out")).stdout)
    assert [(each["policy"], each["cluster"], each["seed"]) for each in found] == [
        (policy, cluster, seed) for cluster in ("1x2", "2x4") for seed in (1, 2) for policy in ("fifo", "srtf")
    ]
    assert len(list((tmp_path / "out").iterdir())) == 8
    assert (tmp_path / "out" / "srtf_on_2x4_seed=2" / "jobs.csv").is_file()
    table = run(jobs, *options, "--html", str(tmp_path / "page.html")).stdout
    rows = [line.replace("†", "").split()[:2] for line in table.splitlines() if line.startswith((" fifo", " srtf"))]
    assert rows == 2 * [["fifo", "1x2"], ["srtf", "1x2"], ["fifo", "2x4"], ["srtf", "2x4"]]  # in both tables
    assert "means over 2 seeds" in table
    assert "srtf on 2x4 seed=2" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("policy", "column", "cell", "words"),
    [
        ("antman", "claim", "opportunistic", "a claim to what others leave"),
        ("salus", "gpu_mem_gib", "4", "one GPU and its memory"),
        ("kubeshare", "gpu_milli", "500", "a part of a GPU (gpu_milli)"),
        ("singularity", "tier", "premium", "a promise (tier, or promise_milli)"),
    ],
)
def test_a_policy_that_finds_nothing_to_act_on_says_so(
    jobs: str, tmp_path: Path, policy: str, column: str, cell: str, words: str
) -> None:
    assert f"note: {policy}: no job of the trace has {words}" in run(jobs, "--policy", policy).stderr
    other = tmp_path / "other.csv"
    other.write_text(f"job_id,submit_s,duration_s,gpus,{column}\na,0,10,1,{cell}\n")
    assert "no job of the trace" not in run(str(other), "--policy", policy).stderr


def test_elastic_jobs_without_a_profile_are_said_to_scale_linearly(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_s,duration_s,gpus,min_gpus,max_gpus\na,0,10,2,1,4\n")
    said = run(str(file), "--policy", "afs-l").stderr
    assert "note: 1 elastic jobs and no --profile: their speed is taken to grow linearly" in said


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("submit_s", "--map: 'submit_s' is not COLUMN=NAME"),
        ("submit=Submit", "--map: 'submit' is not a column of a trace, did you mean submit_s?"),
        ("submit_s=Nowhere", "no column Nowhere, which --map names for submit_s"),
    ],
)
def test_a_bad_map_is_one_line(jobs: str, option: str, says: str) -> None:
    result = run(jobs, "--policy", "fifo", "--map", option)
    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)


@pytest.mark.parametrize("knobs", ["", ":compat=true"])
def test_a_solver_that_crashes_stops_nothing(jobs: str, monkeypatch: pytest.MonkeyPatch, knobs: str) -> None:
    def crash(problem: object) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("skep.core.step.solve_here", crash)
    result = run(jobs, "--policy", f"gavel-las{knobs}", "--json")
    assert [found["finished"] for found in json.loads(result.stdout)] == [2]
    assert "the solver failed: ZeroDivisionError: a bug); the answer before stayed in force" in result.stderr


def test_a_solver_that_never_answers_ends_with_a_line(jobs: str) -> None:
    result = run(jobs, "--policy", f"{SOLVING}:fails_every=-1")
    assert isinstance(result.exception, InputError)
    assert "no answer to 1,000 questions in a row: the solver failed: ZeroDivisionError" in str(result.exception)
