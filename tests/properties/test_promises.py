"""Singularity in random worlds: every promised job that is taken gets its part of every hour while nodes stay up."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import SharedWorld, shared_worlds
from test_elastic import elastic
from tests.support import World, cluster, job, node, snapshot, trace
from tests.support.world import WorldCourse, use
from worlds import examples, fork_of, policy_specs, with_promise, worlds

from skep.core.events import Event
from skep.core.job import Job, JobState
from skep.core.share import Share
from skep.traces.trace import TraceJob

HOUR_S = 3600.0
TIERS = {"premium": 0.95, "standard": 0.7, "basic": 0.0}


class Meter:
    """Adds up, event by event, what every job holds in each of its hours; knows nothing of the policy's book."""

    def __init__(self, course: WorldCourse) -> None:
        self.state = course.state
        self.since_s: dict[str, float] = {}
        """When each job was first ready."""
        self.held_s: dict[str, list[float]] = {}
        """Seconds with all its GPUs, or the part of them that it has, in each of its hours."""
        self.used_s: dict[str, list[float]] = {}
        """The same without restarts."""
        self.last: dict[str, tuple[float, float, float]] = {}
        """Since when it holds what part, and when it makes progress."""

    def __call__(self, at_s: float, events: list[Event]) -> None:
        for each in self.state.jobs.values():
            if each.is_ready and each.state is not JobState.UNRUNNABLE:
                self.since_s.setdefault(each.id, at_s)
            before = self.last.pop(each.id, None)
            if before is not None:
                since_s, part, begins_s = before
                self.add(self.held_s, each.id, since_s, at_s, part)
                self.add(self.used_s, each.id, max(since_s, begins_s), at_s, part)
            if each.held_gpus:
                self.last[each.id] = (at_s, each.held_gpus / each.spec.shapes[0].gpus, each.progress_since_s)

    def add(self, book: dict[str, list[float]], job_id: str, from_s: float, to_s: float, part: float) -> None:
        hours = book.setdefault(job_id, [])
        from_s, to_s = from_s - self.since_s[job_id], to_s - self.since_s[job_id]
        while from_s < to_s - 1e-9:
            hour = int((from_s + 1e-9) // HOUR_S)
            end_s = min((hour + 1) * HOUR_S, to_s)
            hours += [0.0] * (hour + 1 - len(hours))
            hours[hour] += (end_s - from_s) * part
            from_s = end_s

    def full_hours(self, each: Job) -> int:
        """In which the job was there to the end."""
        end_s = self.state.now_s if each.finish_s is None else each.finish_s
        return int((end_s - self.since_s[each.id] + 1e-6) // HOUR_S) if each.id in self.since_s else 0


def promise_of(each: Job) -> float:
    share = each.spec.share
    return 0.0 if share is None else share.promise_milli / 1000 or TIERS[share.tier]


def check_promises(world: World) -> tuple[int, int]:
    """How many promises were taken, and how many hours were looked at."""
    course = world.begin()
    meter, checker = Meter(course), world.checker(course.state)

    def observe(at_s: float, events: list[Event]) -> None:
        checker(at_s, events)
        meter(at_s, events)

    course.finish(observe, batches_max=200_000)
    taken = hours = 0
    for each in course.state.jobs.values():
        if promise_of(each) and each.state is not JobState.UNRUNNABLE:
            taken += 1
            for book in (meter.held_s, meter.used_s):
                got = [seconds / HOUR_S for seconds in book.get(each.id, [])]
                got += [0.0] * (meter.full_hours(each) - len(got))
                for hour in range(meter.full_hours(each)):
                    assert got[hour] >= promise_of(each) - 1e-6, (each.id, hour, got)
            hours += meter.full_hours(each)
    return taken, hours


PROMISES = st.sampled_from(
    [None, None, Share(tier="premium"), Share(tier="standard"), Share(promise_milli=400), Share(promise_milli=150)]
)


@st.composite
def promised_jobs(draw: st.DrawFn) -> TraceJob:
    return job(
        draw(st.sampled_from([1, 1, 2, 3, 4, 8])),
        work=draw(st.sampled_from([50.0, 600.0, 3000.0, 9000.0, 20_000.0])),
        at=draw(st.integers(0, 12_000)) / draw(st.sampled_from([1, 3, 7])),
        priority=draw(st.sampled_from([0, 0, 1])),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        share=draw(PROMISES),
        cpu=draw(st.sampled_from([0.0, 0.0, 2.0])),
    )


@st.composite
def promised_worlds(draw: st.DrawFn) -> World:
    sizes = draw(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4))
    cpu = draw(st.sampled_from([None, 8]))
    jobs = draw(st.lists(promised_jobs(), min_size=1, max_size=16))
    knobs = draw(st.sampled_from(["", ":cool_down=0", ":depth=1", ":place=best-fit", ":place=any,cool_down=0"]))
    restart_s = draw(st.sampled_from([0.0, 30.0, 60.0]))
    nodes = [node(size, cpu=cpu) for size in sizes]
    return World(trace(*jobs), cluster(nodes), f"singularity{knobs}", restart_s=restart_s)


@examples(60)
@given(world=promised_worlds())
def test_every_promise_that_is_taken_is_kept_in_every_hour(world: World) -> None:
    check_promises(world)


@examples(20)
@given(world=promised_worlds())
def test_also_where_decisions_are_made_once_a_minute(world: World) -> None:
    """Hours begin with a round here: a job is looked at when the round ends in which it came."""
    jobs = [msgspec.structs.replace(each, submit_s=each.submit_s // 60 * 60) for each in world.trace.jobs]
    check_promises(msgspec.structs.replace(world, trace=trace(*jobs), round_s=60.0))


@examples(30)
@given(data=st.data())
def test_a_fork_keeps_the_same_promises(data: st.DataObject) -> None:
    world = data.draw(promised_worlds())
    original = world.begin()
    for _ in range(data.draw(st.integers(0, 120), label="batches before the fork")):
        if not original.advance():
            break
    fork = original.fork(world.planner())
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


IN_VCS = ("singularity:restart=0", "singularity:restart=0,premium=0.98,cool_down=0")


@st.composite
def promised_vcs(draw: st.DrawFn) -> SharedWorld:
    """Virtual clusters in which jobs are promised something; some borrow, nodes are lost now and then."""
    world = draw(shared_worlds(policies=IN_VCS, rounds=draw(st.booleans())))
    jobs = tuple(with_promise(draw, entry) for entry in world.trace.jobs)
    return msgspec.structs.replace(world, trace=trace(*jobs))


@examples(60)
@given(world=promised_vcs())
def test_virtual_clusters_stay_sound(world: SharedWorld) -> None:
    world.run()


@examples(30)
@given(data=st.data())
def test_in_virtual_clusters_a_fork_goes_on_alike(data: st.DataObject) -> None:
    original, fork = fork_of(data, data.draw(promised_vcs()))
    original.finish()
    fork.finish()
    assert snapshot(fork.state) == snapshot(original.state)


OTHERS = ("gandiva", "antman", "afs-l", "tiresias-l", "lucid:nodes=1", "kubeshare", "singularity:restart=0")


@examples(40)
@given(data=st.data())
def test_policies_change_while_jobs_run(data: st.DataObject) -> None:
    """From any policy to any: jobs that share GPUs, are resized, suspended or spliced are taken over as they are."""
    world, own = data.draw(worlds("singularity").flatmap(elastic)), data.draw(policy_specs("singularity"))
    course = msgspec.structs.replace(world, policy=data.draw(st.sampled_from(OTHERS))).begin()
    checker = world.checker(course.state)
    for _ in range(3):
        for _ in range(data.draw(st.integers(0, 15), label="batches")):
            if not course.advance(checker):
                break
        policy = data.draw(st.sampled_from([own, own, *OTHERS]))
        use(course, msgspec.structs.replace(world, policy=policy), checker)
    course.finish(checker)
    checker.check_done()
