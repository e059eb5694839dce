"""Random worlds: clusters, traces and policy specs that hypothesis can shrink."""

from __future__ import annotations

import os

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from tests.support import World, cluster, job, node, role, trace
from tests.support.world import WorldCourse

from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.events import (
    Event,
    JobHeld,
    NodeChanged,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeUndrained,
    PriorityChanged,
    StopRequested,
)
from skep.core.group import FIRST_SUCCEEDED, NEVER, EndsWhen, Enough, GroupKind, GroupSpec
from skep.core.job import JobState
from skep.core.model import GroupRef, Role
from skep.core.refusal import Refusal
from skep.core.share import Share
from skep.core.why import why
from skep.policies.adjust.named import ADJUSTERS
from skep.policies.registry import Knob, Setting, build_planner, policies
from skep.traces.trace import TraceJob


def examples(count: int) -> settings:
    """So many worlds; SKEP_EXAMPLES=20 with --hypothesis-profile=search looks at twenty times as many new ones."""
    return settings(max_examples=max(int(count * float(os.environ.get("SKEP_EXAMPLES", "1"))), 1))


def fork_of(data: st.DataObject, world: World) -> tuple[WorldCourse, WorldCourse]:
    """A run up to some moment, and its fork there."""
    original = world.begin()
    for _ in range(data.draw(st.integers(0, 25), label="batches before the fork")):
        if not original.advance():
            break
    return original, original.fork(world.planner())


def finish_explaining(course: WorldCourse) -> None:
    """To the end, with every pending job asked at every moment why it waits."""
    state, planner = course.state, course.scheduler.planner

    def explain(at_s: float, events: list[Event]) -> None:
        for each in state.jobs.values():
            if each.state is JobState.PENDING:
                refusal = why(state, planner, each)
                assert isinstance(refusal, Refusal)
                assert refusal.reason
                assert refusal.remedy

    course.finish(explain)


TYPES = ("", "k80", "v100")

KNOBS: dict[str, list[str]] = {
    # Thresholds above what a restart costs the largest job: below, jobs only restart and nobody gets anywhere.
    "queues": ["300", "300+1000", "none", "500+900+2000"],
    "las lead": ["60", "200", "3600"],
    "e-las lead": ["0.1", "0.5"],
    "e-las scale": ["7200", "60000"],
    "patience": ["none", "40", "0+60", "30+30"],
    "promote": ["0", "1", "4"],
    "take_back": ["0", "0.5", "0.9", "2"],
    "weight": ["0", "0.3", "1"],
    "scale": ["100", "7200"],
    "samples": ["finished"],
    "compat": ["false"],
    "height": ["1", "2", "3"],
    "quantum": ["60", "5"],
    "trial": ["30", "300"],
    "threshold": ["0.75", "0.5"],
    "cool_down": ["0", "40", "600"],
    "per_gpu": ["0", "1", "2"],
    "busy": ["0.8", "2"],
    "nodes": ["0", "1", "2"],
    "limit": ["40", "80"],
    "gpus": ["1", "4"],
    "singularity restart": ["0", "60"],
    "depth": ["1", "2", "4"],
    "gandiva adjust": ["deflate", "throttle"],
    "adjust": ["slices+pack", "migrate+slices+rebalance", "grow+deflate", "throttle", "+".join(ADJUSTERS)],
    "standard": ["0.7", "0.4"],
    "lend": ["60", "900"],
    "lease": ["50", "400"],
    "left_out": ["0", "0.5", "0.8"],
    "fraction": ["0.4", "1"],
    "window": ["1", "100"],
    "price": ["0", "1.5"],
    "gap": ["0", "0.5"],
    "probe": ["0", "40"],
}
NOT_FOR = {("tiresias-l", "none"), ("tiresias-g", "none")}


@st.composite
def policy_specs(draw: st.DrawFn, name: str, **fixed: str) -> str:
    """The policy with random knobs, whatever knobs it has."""
    chosen = dict(fixed)
    for knob in policies()[name].knobs:
        values = [value for value in values_of(name, knob) if not (knob.name == "queues" and (name, value) in NOT_FOR)]
        if knob.name not in chosen and values and draw(st.booleans()):
            chosen[knob.name] = draw(st.sampled_from(values))
    spec = spec_of(name, chosen)
    if not builds(spec) and "share" in chosen:
        del chosen["share"]  # gavel does not share with every knob
        spec = spec_of(name, chosen)
    if not builds(spec):
        chosen["walk"] = "skip"  # easy is not for those that preempt
        spec = spec_of(name, chosen)
    if not builds(spec):
        chosen.pop("mode", None)  # other modes are not pipelines
        spec = spec_of(name, chosen)
    return spec


def values_of(policy: str, knob: Knob) -> list[str]:
    for name in (f"{policy} {knob.name}", knob.name):
        if name in KNOBS:
            return KNOBS[name]
    if isinstance(knob.default, bool):
        return ["true", "false"]
    return [choice for choice in knob.choices if choice != "FILE"]


def spec_of(name: str, knobs: dict[str, str]) -> str:
    return f"{name}:{','.join(f'{key}={value}' for key, value in knobs.items())}" if knobs else name


def builds(spec: str) -> bool:
    try:
        build_planner(spec, Setting(cluster("1x1"), vcs=("a",)))
    except InputError:
        return False
    return True


@st.composite
def clusters(draw: st.DrawFn, *, plain: bool = False) -> Cluster:
    """Up to three pools; nodes of several sizes, some without gpus, some with limits, in racks or not."""
    if plain:
        sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=5))
        return cluster([node(size) for size in sizes])
    racks = draw(st.sampled_from([("",), ("r0", "r1")]))
    limited = draw(st.booleans())
    nodes = []
    for _ in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from([4, 8, 2, 1, 3, 0]))
        nodes.append(
            node(
                gpus,
                draw(st.sampled_from(TYPES)),
                rack=draw(st.sampled_from(racks)),
                cpu=draw(st.sampled_from([8, 3])) if limited else None,
                memory_gib=draw(st.sampled_from([64, 10])) if limited else None,
                gpu_mem_gib=draw(st.sampled_from([16, 8])) if limited else None,
                inner=(("switch", 2),) if gpus == 8 else (),
            )
        )
    return cluster(nodes)


SIZES = st.sampled_from([1, 1, 2, 3, 4, 5, 8, 12])
WORKS = st.integers(0, 300).map(float) | st.sampled_from([100.0, 33.3, 1000.0 / 3])
ARRIVALS = st.integers(0, 300).map(float) | st.sampled_from([0.0, 100.0, 100.0, 66.6])


@st.composite
def plain_jobs(draw: st.DrawFn) -> TraceJob:
    """Whole gpus, and whole seconds, so that two jobs never differ by rounding alone."""
    return job(
        draw(SIZES),
        work=float(draw(st.integers(0, 300))),
        at=float(draw(st.integers(0, 300))),
        vc=draw(st.sampled_from(["a", "b", "c"])),
        user=draw(st.sampled_from(["", "ann", "bob"])),
        model=draw(st.sampled_from(["", "vgg16", "resnet50"])),
    )


@st.composite
def jobs(draw: st.DrawFn) -> TraceJob:
    """Any kind of job that a trace or a job file can ask for."""
    kind = draw(st.sampled_from(["plain", "plain", "typed", "share", "cpu", "books", "roles"]))
    common = {
        "work": draw(WORKS),
        "at": draw(ARRIVALS),
        "vc": draw(st.sampled_from(["a", "b"])),
        "user": draw(st.sampled_from(["", "ann"])),
        "model": draw(st.sampled_from(["", "vgg16"])),
        "priority": draw(st.sampled_from([0, 0, 0, 1, -1])),
        "epochs": draw(st.sampled_from([None, 3])),
    }
    if draw(st.sampled_from([False, False, True])):
        common["expect"] = draw(st.sampled_from([None, 10.0, 200.0]))
    if kind == "typed":
        types = draw(st.sampled_from(["k80", "v100", "k80|v100", ""]))
        return job(draw(SIZES), gpu_type=types, spans_types=draw(st.booleans()), **common)
    if kind == "share":
        milli = draw(st.sampled_from([500, 250, 700, 333]))
        gpus = draw(st.sampled_from([1, 1, 2, 5]))
        return job(gpus, gpu_milli=milli, gpu_mem_gib=draw(st.sampled_from([0.0, 4.0, 9.5])), **common)
    if kind == "cpu":
        return job(0, cpu=draw(st.sampled_from([1.0, 2.5])), memory_gib=draw(st.sampled_from([0.0, 5.0])), **common)
    if kind == "books":
        gpus = draw(SIZES)
        return job(gpus, cpu=gpus * draw(st.sampled_from([0.5, 1.0])), memory_gib=gpus * 2.0, **common)
    if kind == "roles":
        return job(roles=tuple(draw(st.lists(roles(), min_size=1, max_size=3))), **common)
    return job(draw(SIZES), **common)


@st.composite
def roles(draw: st.DrawFn) -> Role:
    count = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["whole", "share", "cpu"]))
    if kind == "cpu":
        return role(count, cpu=1.0)
    if kind == "share":
        gpus, milli = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([400, 500]))
        return role(count, gpus, gpu_milli=milli, gpu_mem_gib=2.0, is_apart=draw(st.booleans()))
    return role(count, draw(st.integers(1, 2)), memory_gib=1.0)


@st.composite
def worlds(
    draw: st.DrawFn, name: str, *, plain: bool = False, calm: bool = False, eventful: bool = False, **knobs: str
) -> World:
    """A world under the named policy. `plain`: whole gpus of one pool; `calm`: no failures, rounds or restart costs;
    `eventful`: time limits too, and what owners and admins do."""
    drawn = draw(st.lists(plain_jobs() if plain else jobs(), min_size=1, max_size=12))
    entries = list(trace(*drawn).jobs)
    where = draw(clusters(plain=plain))
    if not plain:
        entries = [with_needs(draw, entry, entries) for entry in entries]
    if name == "antman":
        entries = [with_claim(draw, entry) for entry in entries]
    if name == "singularity":
        entries = [with_promise(draw, entry) for entry in entries]
    policy = draw(policy_specs(name, **knobs))
    if calm:
        return World(trace(*entries), where, policy)
    groups = draw(st.sampled_from([(), GROUPS]))
    if groups:
        entries = [with_group(draw, entry) for entry in entries]
    if eventful:
        entries = [with_time_limit(draw, entry) for entry in entries]
    round_s = draw(st.sampled_from([0.0, 0.0, 60.0, 47.5]))
    world = World(
        trace(*entries, groups=groups),
        where,
        policy,
        restart_s=draw(st.sampled_from([0.0, 7.0, 30.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 25.0, 600.0])),
        round_s=round_s,
        finish_at_boundary=bool(round_s) and draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
        outages=draw(outages(len(where.nodes))) if draw(st.booleans()) else (),
    )
    return msgspec.structs.replace(world, script=draw(scripts(world))) if eventful else world


def taken_up(name: str) -> st.SearchStrategy[World]:
    """Worlds in which another planner takes up the state in the middle of a run."""
    return worlds(name, eventful=True)


def with_claim(draw: st.DrawFn, entry: TraceJob) -> TraceJob:
    share = draw(st.sampled_from([None, Share(claim="auto"), Share(claim="opportunistic")]))
    return msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, share=share))


def with_promise(draw: st.DrawFn, entry: TraceJob) -> TraceJob:
    """Some jobs may not be stopped, some not be spliced."""
    shares = [None, Share(tier="standard"), Share(tier="premium"), Share(promise_milli=100), Share(mode="exclusive")]
    share, preemptible = draw(st.sampled_from(shares)), draw(st.sampled_from([True, True, True, False]))
    return msgspec.structs.replace(
        entry, spec=msgspec.structs.replace(entry.spec, share=share, preemptible=preemptible)
    )


def with_time_limit(draw: st.DrawFn, entry: TraceJob) -> TraceJob:
    limit_s = draw(st.sampled_from([None, None, None, 40.0, 90.0]))
    return msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, time_limit_s=limit_s))


@st.composite
def scripts(draw: st.DrawFn, world: World) -> tuple[tuple[float, Event], ...]:
    """Jobs that back off, get another priority or are stopped; nodes that join, change, leave, or are drained for a
    while. Nodes that are away now and then are none of those: what is not there cannot be lost."""
    found: list[tuple[float, Event]] = []
    for entry in draw(st.lists(st.sampled_from(world.trace.jobs), max_size=6)):
        at_s, name = entry.submit_s + draw(st.integers(1, 100)), entry.spec.id  # requests are about known jobs
        what = st.sampled_from(
            [JobHeld(name, "backs off", at_s + 45.0), PriorityChanged(name, 1), StopRequested(name, "stop")]
        )
        found.append((at_s, draw(what)))
    away = {world.cluster.nodes[number].name for number, *_ in world.outages}
    for spec in draw(st.lists(st.sampled_from(world.cluster.specs), max_size=2, unique_by=lambda spec: spec.name)):
        at_s, later_s = draw(st.integers(0, 200)) + 0.5, draw(st.integers(10, 150))
        larger = msgspec.structs.replace(spec, gpus=spec.gpus + 1, inner=())
        new = msgspec.structs.replace(spec, name=f"new {spec.name}")
        ways = [(NodeJoined(new), NodeLeft(new.name)), (NodeDrained(spec.name), NodeUndrained(spec.name))]
        ways += [(NodeChanged(larger), NodeChanged(spec))] if spec.name not in away else []
        first, then = draw(st.sampled_from(ways))
        found += [(at_s, first), (at_s + later_s, then)]
    return tuple(sorted(found, key=lambda each: each[0]))


def with_needs(draw: st.DrawFn, entry: TraceJob, entries: list[TraceJob]) -> TraceJob:
    """Now and then a job waits for others that were submitted before it."""
    before = entries[: entries.index(entry)]
    if not before or draw(st.integers(0, 7)):
        return entry
    needs = tuple({draw(st.sampled_from(before)).spec.id: None for _ in range(2)})
    return msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, needs=needs))


GROUPS = (
    GroupSpec("first", GroupKind.SWEEP, ends_when=FIRST_SUCCEEDED),
    GroupSpec("two of b", weight=2.0, ends_when=EndsWhen((Enough("b", succeeded=2), Enough(failed=1)))),
    GroupSpec("inner", within=GroupRef("first")),
    GroupSpec("open", ends_when=NEVER),
)
"""And `plain`, of which nothing is said."""


def with_group(draw: st.DrawFn, entry: TraceJob) -> TraceJob:
    name = draw(st.sampled_from(["", "", "plain", *(group.id for group in GROUPS)]))
    needs = ("first",) if name not in ("first", "inner") and not draw(st.integers(0, 7)) else ()
    ref = GroupRef(name, draw(st.sampled_from(["a", "b"]))) if name else None
    spec = msgspec.structs.replace(entry.spec, group=ref, needs_groups=needs)
    return msgspec.structs.replace(entry, spec=spec)


@st.composite
def outages(draw: st.DrawFn, node_count: int) -> tuple[tuple[int, float, float], ...]:
    """Every node is away at most twice."""
    found = []
    for index in range(node_count):
        at_s = 0.0
        for _ in range(draw(st.integers(0, 2))):
            at_s += draw(st.sampled_from([10.0, 100.0, 37.5]))
            back_s = at_s + draw(st.sampled_from([5.0, 200.0]))
            found.append((index, at_s, back_s))
            at_s = back_s
    return tuple(found)
