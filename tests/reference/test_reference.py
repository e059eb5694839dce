"""What other simulators really answered, on the inputs they were given: start, finish and preemptions of every job."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

import pytest

from skep.clusters.read import read_cluster
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import JobRow, Run
from skep.profiles.read import read_profile
from skep.traces.read import read_trace
from skep.traces.trace import Trace

REFERENCE = Path(__file__).parents[3] / "shared" / "reference"

pytestmark = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the recorded results of other simulators are not beside the project"
)

TIRESIAS = REFERENCE / "tiresias"
SAMPLES = TIRESIAS / "input" / "yarn-gput1000.csv"
QUEUES = "queues=3250+7200,place=any"

TIRESIAS_INPUTS = {"60n4g4": ("60_job.csv", "4x4"), "philly480n8g4": ("philly_480_job.csv", "8x4")}

TIRESIAS_POLICIES = {
    "fifo-count": "fifo:walk=strict,place=any",
    "fjf-count": "fifo:walk=skip,place=any",
    "sjf-count": "smallest:place=any,compat=true",
    "shortest-count": "srtf:place=any,compat=true",
    "shortest-gpu-count": "srsf:place=any,compat=true",
    "dlas-count": f"las:service=seconds,{QUEUES},compat=true",
    "dlas-gpu-count": f"tiresias-l:{QUEUES},compat=true",
    "dlas-gpu-1-count": f"tiresias-l:{QUEUES},compat=true,promote=1",
    "dlas-gpu-8-count": f"tiresias-l:{QUEUES},compat=true,promote=8",
    "dlas-gpu-gittins-count": f"tiresias-g:{QUEUES},samples={SAMPLES},compat=true",
    "fifo-yarn": "fifo:walk=strict,place=first-fit",
    "fjf-yarn": "fifo:walk=skip,place=first-fit",
}

CLOSE = {
    "dlas-count": f"las:service=seconds,{QUEUES}",
    "dlas-gpu-count": f"tiresias-l:{QUEUES}",
}
"""What must come within 1 % of the average without imitating to the letter."""


@functools.cache
def trace_of(file: Path) -> Trace:
    return read_trace(file)


def simulate(file: Path, cluster: str, policy: str, **options: float | bool) -> Run:
    given = Options(restart_s=0.0, **options)  # type: ignore[arg-type]
    return Experiment(trace_of(file), read_cluster(cluster), given).run(policy)


def recorded(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def differences(run: Run, rows: list[dict[str, str]]) -> list[str]:
    ours = {row.job_id: row for row in run.rows}
    return [text for row in rows if (text := difference(ours[row["job_id"]], row))]


def difference(ours: JobRow, row: dict[str, str]) -> str:
    wanted = [float(row["start_s"]), float(row["finish_s"])]
    seen = [ours.start_s, ours.finish_s]
    if "preemptions" in row:
        wanted.append(float(row["preemptions"]))
        seen.append(ours.preemptions)
    return "" if seen == pytest.approx(wanted, abs=1e-6) else f"job {ours.job_id}: expected {wanted}, seen {seen}"


def average_jct_s(run: Run, rows: list[dict[str, str]]) -> float:
    names = {row["job_id"] for row in rows}
    jcts = [row.jct_s for row in run.rows if row.job_id in names]
    return sum(jcts) / len(jcts)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", TIRESIAS_POLICIES)
@pytest.mark.parametrize("name", TIRESIAS_INPUTS)
def test_tiresias_exactly(name: str, policy: str) -> None:
    file, cluster = TIRESIAS_INPUTS[name]
    run = simulate(TIRESIAS / "input" / file, cluster, TIRESIAS_POLICIES[policy])
    assert differences(run, recorded(TIRESIAS / "results" / f"{name}-{policy}.csv")) == []


@pytest.mark.parametrize("policy", CLOSE)
@pytest.mark.parametrize("name", TIRESIAS_INPUTS)
def test_tiresias_average_without_compat(name: str, policy: str) -> None:
    file, cluster = TIRESIAS_INPUTS[name]
    rows = recorded(TIRESIAS / "results" / f"{name}-{policy}.csv")
    run = simulate(TIRESIAS / "input" / file, cluster, CLOSE[policy])
    wanted = sum(float(row["jct_s"]) for row in rows) / len(rows)
    assert average_jct_s(run, rows) == pytest.approx(wanted, rel=0.01)


@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_alibaba_exactly(policy: str) -> None:
    folder = REFERENCE / "alibaba-gpu-v2020"
    run = simulate(folder / "input" / "philly_480_alibaba.csv", "1x128", f"{policy}:walk=skip,place=any")
    assert differences(run, recorded(folder / "results" / f"philly480-128gpu-{policy}.csv")) == []


@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_lucid_exactly(policy: str) -> None:
    spec = f"{policy}:walk=strict,place=consolidate"
    run = simulate(TIRESIAS / "input" / "philly_480_job.csv", "4x8", spec)
    assert differences(run, recorded(REFERENCE / "lucid" / "results" / f"philly480n4g8-{policy}.csv")) == []


@pytest.mark.parametrize(
    ("name", "policy"),
    [("fifo", "fifo:walk=strict"), ("las", "las:service=seconds,walk=strict"), ("srtf", "srtf:walk=strict")],
)
def test_blox_exactly(name: str, policy: str) -> None:
    file = REFERENCE / "blox" / "input" / "blox-jobs-load2.csv"
    run = simulate(file, "10x4", policy, round_s=300.0, finish_at_boundary=True)
    assert differences(run, recorded(REFERENCE / "blox" / "results" / f"10x4-load2-jobs0-150-{name}.csv")) == []


POLLUX = REFERENCE / "pollux"
GOODPUT = REFERENCE.parent / "data" / "goodput"


def pollux_run(name: str, policy: str, seed: int = 0) -> tuple[Run, dict[str, float]]:
    if not GOODPUT.is_dir():
        pytest.skip("the tables of goodput are not beside the project")
    profile = read_profile(GOODPUT)
    trace = read_trace(POLLUX / "input" / f"{name}.csv", profile=profile)
    options = Options(restart_s=30.0, round_s=60.0, seed=seed)
    run = Experiment(trace, read_cluster("16x4:aws"), options, profile.speed).run(policy)
    result = "tiresias" if policy.startswith("tiresias") else policy.partition(":")[0]
    rows = recorded(POLLUX / "results" / f"{name}-{result}.csv")
    return run, {row["job"]: float(row["jct_s"]) for row in rows}


@pytest.mark.parametrize("name", ["load1.0-2", "load1.0-6"])
def test_pollux_optimus_exactly(name: str) -> None:
    run, wanted = pollux_run(name, "optimus:compat=true")
    assert {row.job_id: row.jct_s for row in run.rows} == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("name", ["load1.0-2", "load1.0-6"])
def test_pollux_tiresias_on_average(name: str) -> None:
    run, wanted = pollux_run(name, "tiresias-l:queues=57600,place=worst-fit")
    average = sum(row.jct_s or 0.0 for row in run.rows) / len(run.rows)
    assert average == pytest.approx(sum(wanted.values()) / len(wanted), rel=0.1)


@pytest.mark.slow
def test_pollux_on_average() -> None:
    run, wanted = pollux_run("load1.0-6", "pollux")
    average = sum(row.jct_s or 0.0 for row in run.rows) / len(run.rows)
    assert average == pytest.approx(sum(wanted.values()) / len(wanted), rel=0.1)
