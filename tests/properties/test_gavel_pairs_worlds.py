"""Gavel with pairs in random worlds: runs are sound, pairs are really made, and a log leads to the state."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from bench.random_traces import Draw, Look
from tests.support import check, cluster, job, node, snapshot, trace
from tests.support.solving import Logged

from skep.core.events import Event
from skep.core.record import fold
from skep.core.state import State
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.experiments.simulate import Experiment, Options
from skep.profiles.native import Factors, NativeProfile
from skep.service.loop import run

POLICIES = ("gavel-las", "gavel-ftf", "gavel-makespan", "gavel-throughput", "gavel-hierarchical", "gavel-fifo")
MODELS = ("a", "b", "c")


def draw(seed: int) -> Draw:
    """More jobs than GPUs, of sizes and models that often go together."""
    chance = random.Random(seed)
    models = {
        model: Factors(
            {"v100": 1.0, "k80": chance.choice((0.2, 0.6))},
            {1: 1.0, 2: 0.9},
            {},
            {other: chance.choice((0.3, 0.55, 0.7, 0.9)) for other in MODELS},
        )
        for model in MODELS
    }
    gib = chance.choice((None, 16))
    nodes = [
        node(chance.choice((2, 4)), kind, gpu_mem_gib=gib, cpu=8)
        for kind in ("v100", "k80", "v100")[: chance.randint(1, 3)]
    ]
    jobs = [
        job(
            chance.choice((1, 1, 1, 2, 2, 4)),
            work=round(chance.uniform(100, 4000)),
            at=round(chance.uniform(0, 3000)),
            model=chance.choice(MODELS),
            gpu_mem_gib=chance.choice((0.0, 5.0, 9.0)) if gib else 0.0,
            cpu=chance.choice((0.0, 1.0, 2.0)),
            priority=chance.choice((0, 0, 0, 1)),
            vc=chance.choice(("a", "b")),
            preemptible=chance.random() < 0.9,
        )
        for _ in range(chance.randint(4, 16))
    ]
    lost = [(chance.uniform(0, 4000), 0, True)] if chance.random() < 0.4 else []
    outages = [*lost, *((at_s + 500.0, number, False) for at_s, number, _ in lost)]
    options = Options(restart_s=chance.choice((0.0, 30.0)), checkpoint_s=chance.choice((0.0, 600.0)), seed=seed)
    knobs = {"": f":share=true,round_s={chance.choice((60, 200, 360))}"}
    return Draw(
        trace(*jobs),
        cluster(nodes),
        NativeProfile("v100", Factors({}, {1: 1.0}, {}, {}), models),
        options,
        outages,
        knobs,
    )


def play(seed: int, policy: str) -> int:
    """Runs to the end, checked after every step; in how many of the moments did two jobs run together?"""
    made = draw(seed)
    assert made.profile is not None
    experiment = Experiment(made.trace, made.cluster, made.options, made.profile.speed)
    state = State(made.cluster.blank(), experiment.measured())
    scheduler = Logged(state, experiment.planner(policy + made.knobs[""]))
    engine = Simulator(
        made.trace.jobs,
        state.cluster,
        speed=made.profile.speed(state.cluster),
        restart_s=made.options.restart_s,
        checkpoint_s=made.options.checkpoint_s,
        outages=Outages(sorted(made.outages)) if made.outages else Outages.none(),
    )
    engine.idle_timers_max = 200
    look, together = Look(made, scheduler), 0

    def watch(at_s: float, events: list[Event]) -> None:
        nonlocal together
        look(at_s, events)
        held = Counter(each.held.masks() for each in state.held_jobs.values() if each.held is not None)
        together += max(held.values(), default=0) == 2

    run(scheduler, engine, watch)
    look.checker.check_done()
    assert all(each.state.is_final for each in state.jobs.values())
    again = State(made.cluster.blank(), experiment.measured())
    for entry in scheduler.log:
        fold(again, entry)
    check(again)
    assert snapshot(again) == snapshot(state)
    return together


@pytest.mark.parametrize("policy", POLICIES)
def test_runs_are_sound_and_jobs_share(policy: str) -> None:
    together = [play(seed, policy) for seed in range(8)]
    assert sum(each > 0 for each in together) >= 3, together
