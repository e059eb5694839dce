"""Random traces of jobs with tiers, shares, memory, models, priorities, VCs and sizes, under every policy that shares.

    python -m bench.random_traces [--first 0] [--count 10000] [--policy P] [--processes 1]

A seed determines a trace, its cluster, its speeds and the knobs. Each is run to its end under each of the policies,
with every invariant checked after every step that changed something, and two more rules: no job holds GPUs on which it
makes no progress, and no two homes (`singularity`) claim the same part of a GPU at the same time. Prints the seeds that
failed, with the error of each; exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import sys
import time
import traceback

import msgspec
from tests.support import Checker, cluster, job, node, trace

from skep.core.cluster import WHOLE, Cluster, NodeSpec, bits
from skep.core.errors import InvariantBroken
from skep.core.events import Event, TimerDue
from skep.core.job import Job, JobState
from skep.core.needs import Need
from skep.core.share import EXCLUSIVE, MIG_PARTS, MODES, SHARED, Share
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.experiments.simulate import Experiment, Options
from skep.policies.order.promises import EPSILON, HOUR_S
from skep.policies.registry import needs_of
from skep.policies.tiers import TierPipeline
from skep.profiles.gavel import GavelProfile, Row, Table
from skep.profiles.native import Factors, NativeProfile
from skep.profiles.profile import Profile
from skep.service.loop import run
from skep.traces.trace import Trace, TraceJob

POLICIES = ("singularity", "gandiva", "antman", "lucid", "kubeshare", "salus", "gavel-las", "gavel-ftf")
MODELS = ("", "resnet", "vgg", "bert", "lstm")
TYPES = ("v100", "k80")
BATCHES_MAX = 60_000

KNOBS: dict[str, list[str]] = {
    "singularity": ["", "", ":restart=0", ":cool_down=0", ":depth=1", ":place=best-fit", ":lend=60,restart=0"],
    "gandiva": ["", "", ":height=3", ":cool_down=0,trial=30", ":migrate=false", ":pack=false,grow=false"],
    "antman": ["", "", ":per_gpu=2,busy=2"],
    "lucid": ["", ":nodes=1", ":nodes=0", ":nodes=2,limit=40"],
    "kubeshare": ["", "", ":walk=strict"],
    "salus": ["", "", ":walk=strict"],
    "gavel-las": [":share=true", ":share=true,round_s=60", ":share=true,aware=false", ":share=true,place=any"],
    "gavel-ftf": [":share=true,round_s=60", ":share=true"],
}


class Draw(msgspec.Struct):
    """Everything that a seed determines, apart from the policy."""

    trace: Trace
    cluster: Cluster
    profile: Profile | None
    options: Options
    outages: list[tuple[float, int, bool]]
    knobs: dict[str, str]


def draw(seed: int) -> Draw:
    chance = random.Random(seed)
    hours = chance.choice((0.2, 1.0, 5.0))
    specs = draw_nodes(chance)
    jobs = [draw_job(chance, hours) for _ in range(chance.randint(2, 10))]
    round_s = chance.choice((0.0, 0.0, 0.0, 60.0))
    return Draw(
        trace(*jobs),
        cluster(specs),
        chance.choice((None, draw_native(chance), draw_table(chance))),
        Options(
            restart_s=chance.choice((0.0, 7.0, 30.0)),
            checkpoint_s=chance.choice((0.0, 25.0, 600.0)),
            seed=seed,
            round_s=round_s,
            finish_at_boundary=bool(round_s) and chance.random() < 0.5,
        ),
        draw_outages(chance, len(specs), hours) if chance.random() < 0.3 else [],
        {policy: chance.choice(knobs) for policy, knobs in KNOBS.items()},
    )


def draw_nodes(chance: random.Random) -> list[NodeSpec]:
    types = chance.choice((("",), ("",), TYPES, TYPES, ("k80",)))
    cpu, gib = chance.choice((None, None, 8)), chance.choice((None, 16, 16))
    size = chance.choice((1, 2, 4, 8))
    sizes = [chance.choice((size, size, 2, 4)) for _ in range(chance.randint(1, 4))]
    return [node(gpus, chance.choice(types), cpu=cpu, gpu_mem_gib=gib) for gpus in sizes]


def draw_job(chance: random.Random, hours: float) -> TraceJob:
    mode = chance.choice(("", "", "", "", *sorted(SHARED)))
    gpus = chance.choice((1, 1, 1, 2, 2, 4, 8))
    milli = chance.choice((1000, 1000, 1000, 500, 300, 250, 700))
    if mode == "mig":
        milli = chance.choice(MIG_PARTS)
    kept, more = chance.choice(((0.0, 0.0), (0.0, 0.0), (1.0, 4.0), (2.0, 6.0), (1.0, 9.0)))
    is_elastic = milli == 1000 and chance.random() < 0.2
    return job(
        gpus,
        work=round(chance.choice((60.0, 600.0, 3600.0 * hours)) * chance.uniform(0.1, 2.0)),
        at=round(chance.uniform(0, 3600.0 * hours), chance.choice((-2, 0, 2))),
        gpu_milli=milli,
        gpu_mem_gib=kept + more,
        cpu=chance.choice((0.0, 0.0, 1.0)),
        gpu_type=chance.choice(("", "", "", "v100", "k80", "v100|k80")),
        model=chance.choice(MODELS),
        priority=chance.choice((0, 0, 0, 0, -1, 1, 50)),
        vc=chance.choice(("a", "b")),
        user=chance.choice(("ann", "bob")),
        preemptible=chance.random() < 0.9,
        min_gpus=max(gpus // 2, 1) if is_elastic else None,
        max_gpus=gpus * 2 if is_elastic else None,
        share=draw_share(chance, mode, milli, kept, more) if chance.random() < 0.8 else None,
    )


def draw_share(chance: random.Random, mode: str, milli: int, kept: float, more: float) -> Share:
    may_exceed = not mode or MODES[mode].may_exceed
    return Share(
        mode,
        limit_milli=chance.choice((0, milli, 1000 if may_exceed else milli)),
        weight=chance.choice((1, 1, 3)),
        affinity=chance.choice(("", "", "", "x")),
        anti_affinity=chance.choice(("", "", "", "y")),
        exclusion=chance.choice(("", "", "", "z")),
        persistent_gib=kept,
        ephemeral_gib=more,
        claim=chance.choice(("guaranteed", "opportunistic", "auto")),
        tier=chance.choice(("basic", "basic", "standard", "premium")),
        promise_milli=chance.choice((0, 0, 0, 0, 150, 400)),
    )


def draw_native(chance: random.Random) -> Profile:
    """Factors of each model: types, neighbours."""
    models = {}
    for model in MODELS[1:]:
        types = {"v100": 1.0, "k80": chance.choice((0.2, 0.5))}
        sharing = {other: chance.choice((0.3, 0.6, 0.9, 1.0)) for other in MODELS[1:]}
        models[model] = Factors(types, {1: 1.0, 2: 0.9, 8: 0.7}, {}, sharing, steps_per_s=10.0)
    return NativeProfile("v100", Factors({}, {1: 1.0}, {}, {}), models)


def draw_table(chance: random.Random) -> Profile:
    """A table as Gavel's, in which models do not run on some types, in some sizes and beside some others."""
    table: Table = {}
    for gpu_type, speed in (("v100", 10.0), ("k80", 2.0)):
        for model in MODELS[1:]:
            zeros = 0.0 if gpu_type == "v100" else 0.3
            rows = {
                gpus: Row(0.0 if chance.random() < zeros else speed * gpus**0.9, draw_pairs(chance, speed))
                for gpus in (1, 2, 4)
            }
            table.setdefault(gpu_type, {})[model] = rows
    return GavelProfile(table)


def draw_pairs(chance: random.Random, speed: float) -> dict[tuple[str, int], float]:
    return {(other, 1): chance.choice((0.0, 0.4, 0.6, 0.9)) * speed for other in MODELS[1:]}


def draw_outages(chance: random.Random, nodes: int, hours: float) -> list[tuple[float, int, bool]]:
    """Every node is away once at most."""
    found = []
    for number in range(nodes):
        if chance.random() < 0.5:
            lost_s = chance.uniform(0, 3600.0 * hours)
            found += [(lost_s, number, True), (lost_s + chance.choice((5.0, 200.0, 4000.0)), number, False)]
    return found


# One run ------------------------------------------------------------------------------------------------------------


def run_one(made: Draw, name: str) -> State:
    """Run to the end, checked at every step; raises at the first fault."""
    policy = name + made.knobs[name]
    experiment = Experiment(made.trace, made.cluster, made.options, made.profile.speed if made.profile else None)
    state = State(made.cluster.blank(), experiment.measured())
    scheduler = Scheduler(state, experiment.planner(policy))
    speed = made.profile.speed(state.cluster) if made.profile else None
    engine = Simulator(
        made.trace.jobs,
        state.cluster,
        speed=speed,
        restart_s=made.options.restart_s,
        checkpoint_s=made.options.checkpoint_s,
        outages=Outages(sorted(made.outages)) if made.outages else Outages.none(),
        finish_round_s=made.options.round_s if made.options.finish_at_boundary else 0.0,
        reports=Need.PROGRESS in needs_of(policy),
    )
    engine.idle_timers_max = 200
    look = Look(made, scheduler)
    run(scheduler, engine, look)
    look.checker.check_done()
    return state


class Look:
    """Checks a run after every step. Three steps of four are timers after which every job is as it was: they are not
    counted anew."""

    def __init__(self, made: Draw, scheduler: Scheduler) -> None:
        work_s = {each.spec.id: each.work_s for each in made.trace.jobs}
        self.checker = Checker(scheduler.state, checkpoint_s=made.options.checkpoint_s, work_s=work_s, rate_max=100.0)
        self.scheduler = scheduler
        self.batches = 0
        self.seen: list[object] = []

    def __call__(self, at_s: float, events: list[Event]) -> None:
        self.batches += 1
        if self.batches > BATCHES_MAX:
            raise InvariantBroken(f"no end after {BATCHES_MAX} batches")
        state, planner = self.scheduler.state, self.scheduler.planner
        seen: list[object] = [(each.state, each.bound, each.held) for each in state.jobs.values()]
        if seen != self.seen or not all(isinstance(event, TimerDue) for event in events):
            self.checker(at_s, events)
        self.seen = seen
        for each in state.held_jobs.values():
            check_progress(state, each)
        if isinstance(planner, TierPipeline):
            check_homes(planner)


def check_progress(state: State, each: Job) -> None:
    """A job that has its GPUs, or parts of them, to itself makes progress; in share modes it may have to wait."""
    if each.state is not JobState.RUNNING or each.held is None or not each.is_rate_known:
        return
    modes = {MODES[piece.mode or EXCLUSIVE].rate for piece in each.held.slices}
    if not each.rate and modes <= {"alone", "together", "lanes"}:
        raise InvariantBroken(f"{each!r} runs on {each.held} and makes no progress")


def check_homes(planner: TierPipeline) -> None:
    """When a slot begins, the slots that have begun on the same GPUs add up to no more than these."""
    order = planner.promises
    kept = [(promise, order.lengths_s[id]) for id, promise in order.book.items() if promise.home is not None]
    for promise, _ in kept:
        begins_s = promise.hour_s + promise.offset_s
        milli: dict[tuple[int, int], int] = {}
        for other, length_s in kept:
            assert other.home is not None
            if (begins_s - other.hour_s - other.offset_s) % HOUR_S < length_s - EPSILON:
                for piece in other.home.slices:
                    for gpu in bits(piece.gpus):
                        milli[piece.node, gpu] = milli.get((piece.node, gpu), 0) + piece.milli
        if any(booked > WHOLE for booked in milli.values()):
            raise InvariantBroken(f"homes claim the same GPUs at the same time: {milli}")


def failures_of(seed: int, policies: tuple[str, ...] = POLICIES) -> list[str]:
    """The errors of one seed, one line each."""
    made, found = draw(seed), []
    for policy in policies:
        try:
            run_one(made, policy)
        except Exception as error:  # every kind of error is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
            found.append(f"seed {seed} {policy}{made.knobs[policy]}: {type(error).__name__} at {place}: {error}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--policy", action="append", choices=POLICIES)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    policies = tuple(asked.policy or POLICIES)
    began_s = time.perf_counter()
    seeds = range(asked.first, asked.first + asked.count)
    failed = 0
    with multiprocessing.Pool(asked.processes) as pool:
        found = pool.imap(functools.partial(failures_of, policies=policies), seeds, chunksize=20)
        for number, lines in enumerate(found, start=1):
            failed += bool(lines)
            for line in lines:
                print(line[:1000], flush=True)
            if number % 500 == 0:
                print(f"{number} of {asked.count}: {failed} failed", flush=True)
    took_s = time.perf_counter() - began_s
    print(f"seeds {seeds.start} to {seeds.stop - 1} under {', '.join(policies)}: {failed} failed, {took_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
