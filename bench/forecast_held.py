"""How often forecasts hold where it can be known: made worlds in which all jobs were submitted at the beginning.

    python -m bench.forecast_held [--worlds 12]

Each world has 160 jobs of 8 users on 32 GPUs. Owners are wrong by a log-normal factor with a deviation of 30 %: of each
job for itself, or half of it in common to the jobs of a user. When half of the jobs have ended the rest is forecast,
from what these have shown, and compared with what then happened. Prints how many starts and ends were between P10 and
P90, and the median error of P50 in parts of the time until then. Nothing is submitted meanwhile, so this says nothing
about arrivals.
"""

from __future__ import annotations

import argparse
import math
import statistics
from statistics import NormalDist

import msgspec

from skep.core.chance import draw
from skep.core.events import ClusterChanged, PolicyChanged
from skep.core.model import JobSpec, gpu_shape
from skep.core.snapshot import fork
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.calibration import holds
from skep.experiments.fork import Starts
from skep.experiments.samples import foresee
from skep.service.copy import KeptCopy
from skep.service.loop import run
from skep.service.planning import Ground
from skep.service.store import StoredJob
from skep.traces.trace import TraceJob

JOBS, USERS, DEVIATION = 160, 8, 0.3
POLICIES = ("fifo", "tiresias-l", "yarn-cs", "srsf")


def normal(*identity: int) -> float:
    return NormalDist().inv_cdf((draw(*identity) >> 11) * 2.0**-53 + 2.0**-54)


def made(world: int, common: float) -> list[TraceJob]:
    """`common`: the part of the variance of errors that the jobs of a user share."""
    rows = []
    for number in range(JOBS):
        user = number % USERS
        expect_s = 3600.0 * math.exp(normal(world, 1, number))
        error = common**0.5 * normal(world, 2, user) + (1 - common) ** 0.5 * normal(world, 3, number)
        gpus = (1, 1, 2, 4)[draw(world, 4, number) % 4]
        spec = JobSpec(str(number + 1), (gpu_shape(gpus),), user=f"user{user}", expect_s=expect_s)
        rows.append(TraceJob(0.0, expect_s * math.exp(DEVIATION * error), spec))
    return rows


class Half:
    """A run, and a copy of its state when half of the jobs had ended."""

    def __init__(self, policy: str, jobs: list[TraceJob]) -> None:
        self.ground = Ground()
        cluster = self.ground.follow([ClusterChanged("made", "4x8"), PolicyChanged(policy)])
        assert cluster is not None
        self.state = State(cluster)
        self.kept: KeptCopy | None = None
        self.next = Starts({})
        run(Scheduler(self.state, self.ground.planner(cluster)), Simulator(jobs, cluster), self.observe, self.settled)

    def observe(self, at_s: float, events: list) -> None:  # type: ignore[type-arg]
        if self.kept is not None:
            self.next(at_s, events)

    def settled(self, at_s: float) -> None:
        if self.kept is None and len(self.state.open_jobs) <= JOBS // 2:
            rows = {
                job.id: StoredJob(int(job.id), "", job.spec.user, "", job.state, 0, job.gpus, 0.0)
                for job in self.state.open_jobs.values()
            }
            self.kept = KeptCopy(fork(self.state), msgspec.structs.replace(self.ground), rows)


def judge(policy: str, jobs: list[TraceJob], held: dict[str, list[bool]], errors: dict[str, list[float]]) -> None:
    run = Half(policy, jobs)
    assert run.kept is not None
    found = foresee(run.kept, {}, now_s=run.kept.state.now_s)
    for job_id, job in found.jobs.items():
        came = {"start": (job.start, run.next.by_job.get(job_id)), "end": (job.end, run.state.jobs[job_id].finish_s)}
        for what, (times, came_s) in came.items():
            if times is not None and came_s is not None:
                held[what].append(holds(times, found.until_s, came_s))
                if times.p50_s is not None and came_s > found.made_s:
                    errors[what].append(abs(times.p50_s - came_s) / (came_s - found.made_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=12)
    worlds = parser.parse_args().worlds
    print(f"{'policy':12} {'errors':12} {'starts':>7} {'held':>5} {'error':>6} {'ends':>7} {'held':>5} {'error':>6}")
    for policy in POLICIES:
        for name, common in (("of jobs", 0.0), ("half of users", 0.5)):
            held: dict[str, list[bool]] = {"start": [], "end": []}
            errors: dict[str, list[float]] = {"start": [], "end": []}
            for world in range(worlds):
                judge(policy, made(world, common), held, errors)
            told = [
                f"{len(held[what]):7,} {statistics.mean(held[what]):5.0%} {statistics.median(errors[what]):6.0%}"
                for what in ("start", "end")
            ]
            print(f"{policy:12} {name:13}", *told, flush=True)


if __name__ == "__main__":
    main()
