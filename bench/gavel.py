"""How long do the policies of Gavel take? CPU time of whole simulations, imports included, and of single decisions.

    python -m bench.gavel                         a minute; needs ../shared/data/gavel
    python -m bench.gavel throughputs.json        with Gavel's table elsewhere

A simulation has 1,000 jobs like those of Gavel's published traces (`skep trace synth --profile`) on 12 GPUs of each of
three types. A decision has 2,000 jobs on the same cluster: what happened, the question, the answer, and who runs where.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from bench import words

from skep.clusters.read import read_cluster
from skep.core.state import State
from skep.core.step import Scheduler
from skep.experiments.simulate import Experiment, Options
from skep.profiles.profile import Profile
from skep.profiles.read import read_profile
from skep.traces.synth import synthesize_gavel
from skep.traces.trace import Trace
from skep.traces.write import write_native

TABLE = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "gavel" / "simulation_throughputs.json"
CLUSTER = "3x4:v100+3x4:p100+3x4:k80"
JOBS, LOAD, ACTIVE = 1000, 0.8, 2000
RUNS = 3
DECISIONS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gavel", description=__doc__.split("\n", 1)[0])
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    given = parser.parse_args()
    if not given.table.is_file():
        print(f"{given.table} is not there: nothing to measure with")
        return 0
    here = words.machine()
    print(f"{here['cpu']}, {here['cores']} cores, load {here['load']:.1f}; CPU time, the least of {RUNS}")
    profile = read_profile(given.table)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "jobs.csv"
        write_native(synthesize_gavel(profile, jobs=JOBS, load=LOAD, seed=0, gpus=36), trace)
        fifo_s = command(trace, given.table, "fifo")
        print(f"| {JOBS:,} jobs, fifo | {fifo_s:.2f} s | 1 |")
        for policy in ("gavel-las", "gavel-ftf", "gavel-makespan"):
            took_s = command(trace, given.table, policy)
            print(f"| {JOBS:,} jobs, {policy} | {took_s:.2f} s | {took_s / fifo_s:.1f} × fifo |", flush=True)
    for policy in ("gavel-las", "gavel-ftf", "gavel-makespan"):
        print(f"| a decision for {ACTIVE:,} jobs, {policy} | {1e3 * decision(profile, policy):.0f} ms | |", flush=True)
    return 0


def command(trace: Path, table: Path, policy: str) -> float:
    """Seconds of CPU of `skep simulate`, all of it."""
    given = ["--profile", str(table), "--cluster", CLUSTER, "--policy", policy, "--restart-s", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = [sys.executable, "-m", "skep.cli.main", "simulate", str(trace), *given]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def decision(profile: Profile, policy: str) -> float:
    """Seconds of the least decision with a question, after the first, which imports."""
    jobs = synthesize_gavel(profile, jobs=ACTIVE + 200, load=LOAD, seed=0, gpus=36).jobs
    waiting = [msgspec.structs.replace(job, submit_s=0.0) for job in jobs[:ACTIVE]]
    later = [msgspec.structs.replace(job, submit_s=100.0 * at) for at, job in enumerate(jobs[ACTIVE:], 1)]
    trace = Trace(name="active", format="synth", jobs=[*waiting, *later])
    experiment = Experiment(trace, read_cluster(CLUSTER), Options(restart_s=0.0), profile.speed)
    return min(decisions(experiment, policy)[1:])


def decisions(experiment: Experiment, policy: str) -> list[float]:
    """Seconds of CPU of the first decisions with a question."""
    state = State(experiment.cluster.blank(), experiment.measured())
    planner = experiment.planner(policy)
    scheduler = Scheduler(state, planner)
    engine = experiment.engine(state.cluster, policy, planner.round_s)
    found: list[float] = []
    while len(found) <= DECISIONS and (batch := engine.observe(state.next_timer_s)) is not None:
        events, has_asked, took_s = batch.events, False, 0.0
        while True:
            began_s = time.process_time()
            actions = scheduler.step(batch.at_s, events)
            solved = scheduler.take_solved()
            took_s += time.process_time() - began_s
            has_asked |= bool(solved)
            if not actions and not solved:
                break
            events = [*engine.execute(batch.at_s, actions), *solved]
        found += [took_s] if has_asked else []
    return found


if __name__ == "__main__":
    sys.exit(main())
