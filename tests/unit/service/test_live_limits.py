"""Limits of users and VCs: what is refused, who waits, and that the counts are exact whatever happens."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from live_world import LiveWorld

from skep.core.errors import Conflict
from skep.core.job import JobState
from skep.core.refusal import End
from skep.core.reports import Exited
from skep.jobs.request import LimitReached, LimitRules, Limits, Request, TaskRole
from skep.service import commands
from skep.service.book import LIMIT, PENDING
from skep.service.limits import Limiter, Used, counts_of, need_of


def job(name: str = "job", user: str = "ann", *, count: int = 1, **fields: Any) -> Request:
    """Without GPUs, unless a role says otherwise."""
    mine = ("gpus", "cpu", "memory_gib", "ports", *(() if fields.get("gang", True) else ("retries",)))
    of_role = {key: fields.pop(key) for key in mine if key in fields}
    return Request(name=name, user=user, tasks={"w": TaskRole(count=count, command="true", **of_role)}, **fields)


def world(folder: Path, *, vcs: dict[str, Limits] | None = None, **default: Any) -> LiveWorld:
    return LiveWorld(folder, limits=LimitRules(Limits(**default), {"root": Limits()}, vcs or {}))


def refused(made: LiveWorld, *requests: Request) -> LimitReached:
    before = made.writer.next_job
    with pytest.raises(LimitReached) as caught:
        made.submit(*requests)
    assert made.writer.next_job == before
    return caught.value


def not_held(made: LiveWorld) -> list[str]:
    return [each.id for each in made.writer.state.jobs.values() if not each.state.is_final and not each.hold]


@pytest.mark.parametrize(
    ("limits", "fits", "more"),
    [
        ({"jobs": 3}, [job(), job(), job()], job()),
        ({"pending": 2}, [job(hold=True), job(hold=True)], job()),
        ({"tasks": 5}, [job(count=4), job()], job()),
        ({"tasks": 5}, [job(count=4, gang=False), job()], job()),
        ({"ports": 4}, [job(count=2, ports={"a": 2})], job(ports={"b": 1})),
    ],
    ids=["jobs", "pending jobs", "tasks", "tasks one by one", "ports"],
)
def test_a_submission_over_a_limit_is_refused_whole(
    tmp_path: Path, limits: dict[str, int], fits: list[Request], more: Request
) -> None:
    name, most = next(iter(limits.items()))
    made = world(tmp_path, **limits)
    error = refused(made, *fits, more)
    assert error.code == f"limit-{name}"
    assert f"user ann may have {most}" in str(error)
    made.submit(*fits)
    refused(made, more)
    made.submit(*(Request(name="x", user="root", tasks=more.tasks),) * 20)  # has limits of its own: none


def test_an_ended_job_makes_room_and_a_started_one_is_not_pending(tmp_path: Path) -> None:
    made = world(tmp_path, jobs=2, pending=1)
    first = made.submit(job())[0]
    made.settle()
    made.submit(job(hold=True))
    assert refused(made, job()).code == "limit-jobs"
    made.end(first)
    assert refused(made, job()).code == "limit-pending"


def test_a_vc_has_limits_for_all_its_users_together(tmp_path: Path) -> None:
    made = world(tmp_path, vcs={"default": Limits(jobs=2)})
    made.submit(job(user="ann"), job(user="bob"))
    assert "VC default may have 2 jobs" in str(refused(made, job(user="root")))


def test_a_job_that_could_never_run_within_the_limit_is_refused(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=4, memory_gib=8)
    assert refused(made, job(count=5)).code == "limit-cpus"
    assert refused(made, job(memory_gib=8.5)).code == "limit-memory_gib"
    made.submit(job(count=5, gang=False), job(count=1, gpus=1, memory_gib=100))


@pytest.mark.parametrize("gang", [True, False])
def test_jobs_without_gpus_wait_for_cpus_with_a_reason(tmp_path: Path, gang: bool) -> None:
    made = world(tmp_path, cpus=4)
    if gang:
        made.submit(*[job(str(number)) for number in range(20)])
    else:
        made.submit(job(count=20, gang=False))
    made.settle()
    assert len(not_held(made)) == 4
    with_gpus = made.submit(job(gpus=1))[0]
    made.settle()
    assert made.state(with_gpus) == "running"
    waiting = [each for each in made.writer.state.jobs.values() if each.hold]
    assert waiting[0].hold == "limit: user ann has 4 of 4 CPUs of jobs without GPUs at once"
    refusal = made.writer.limits.refusal(waiting[0], made.writer.state)
    assert refusal is not None
    assert (refusal.code, str(refusal.cause)) == ("limit", "quota")
    for number in range(20):
        made.end(not_held(made)[0] if not_held(made)[0] != with_gpus else not_held(made)[1])
        assert len(not_held(made)) == 1 + min(4, 19 - number)


def test_the_first_is_the_one_with_the_highest_priority(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=1)
    first, low, later, high = made.submit(job(), job(priority=1), job(), job(priority=50))
    made.settle()
    made.ask(commands.reprioritise(low, 60, "ann"))
    ended = []
    for _ in range(4):
        ended += not_held(made)
        made.end(ended[-1])
    assert ended == [first, low, high, later]


def test_a_job_that_backs_off_gives_its_part_away_and_waits_for_it_again(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=1)
    first, second = made.submit(job(retries=-1), job())
    made.settle()
    launch = made.writer.state.jobs[first].held_launch
    made.tell(Exited(first, launch, 1, log_tail=""))
    job_1 = made.writer.state.jobs[first]
    assert job_1.hold.startswith("back-off")
    made.settle()
    assert not_held(made) == [second]
    made.now_s += 10_000
    made.tell()
    assert job_1.hold.startswith(LIMIT)
    made.end(second)
    assert not_held(made) == [first]


def test_needs_do_not_hold_what_they_wait_for(tmp_path: Path) -> None:
    """Many that wait for one another must not use up what that one needs."""
    made = world(tmp_path, cpus=1)
    base = job("base")
    ids = made.submit(job("before"), base, *[job(str(number), needs=("base",)) for number in range(5)])
    made.settle()
    for expected in ids:
        assert not_held(made) == [expected]
        made.end(expected)
    assert not_held(made) == []


def test_release_does_not_pass_a_limit(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=1)
    first, waiting, held = made.submit(job(), job(), job(hold=True))
    made.settle()
    with pytest.raises(Conflict, match="waits for a limit"):
        made.ask(commands.hold(waiting, False, "ann"))
    made.ask(commands.hold(held, False, "ann"))
    assert not_held(made) == [first]
    made.ask(commands.hold(waiting, True, "ann"))
    made.end(first)
    assert not_held(made) == [held]
    made.end(held)
    made.ask(commands.hold(waiting, False, "ann"))
    assert not_held(made) == [waiting]


def test_after_a_restart_the_counts_are_the_same_and_a_raised_limit_counts(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=2, jobs=6)
    made.submit(*[job() for _ in range(5)])
    made.settle()
    made.crash()
    made.tell()
    assert len(not_held(made)) == 2
    made.submit(job())
    assert refused(made, job()).code == "limit-jobs"
    made.limits = LimitRules(Limits(cpus=4))
    made.crash()
    made.tell()
    assert len(not_held(made)) == 4


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_exact_through_anything(tmp_path: Path, seed: int) -> None:
    """Against a recount of everything after every step, restarts and lost nodes included."""
    draw = random.Random(seed)
    made = LiveWorld(
        tmp_path, limits=LimitRules(Limits(cpus=3, memory_gib=4), vcs={"default": Limits(cpus=5, jobs=40)})
    )
    for _ in range(100):
        act(made, draw)
        recount(made)


def act(made: LiveWorld, draw: random.Random) -> None:
    state, records = made.writer.state, list(made.writer.book.records)
    kind = draw.random()
    if kind < 0.35 or not records:
        shape = {"count": draw.choice((1, 1, 2, 3)), "gang": draw.random() < 0.6, "hold": draw.random() < 0.15}
        needs = (draw.choice(records),) if records and draw.random() < 0.2 else ()
        asked = job(
            user=draw.choice("ab"),
            gpus=draw.choice((0, 0, 1)),
            memory_gib=draw.choice((0, 1.5)),
            retries=draw.choice((0, 9)),
            needs=needs,
            **shape,
        )
        try:
            made.submit(*[asked] * draw.choice((1, 1, 4)))
        except (LimitReached, Conflict):
            return
    elif kind < 0.75:
        running = [each.id for each in state.jobs.values() if each.state is JobState.RUNNING]
        if running:
            made.end(draw.choice(running), draw.choice((0, 0, 1, 137)))
    elif kind < 0.85:
        made.ask(commands.stop(draw.choice(records), "ann", ""))
    elif kind < 0.93:
        try:
            made.ask(commands.hold(draw.choice(records), draw.random() < 0.4, "ann"))
        except Conflict:
            return
    elif kind < 0.96:
        made.now_s += 5000
        made.tell()
    else:
        made.crash()
    made.settle()


def recount(made: LiveWorld) -> None:
    state, book, limiter = made.writer.state, made.writer.book, made.writer.limits
    users: dict[str, Used] = {}
    vc = Used()
    for record in book.records.values():
        counted = counts_of(record.request)
        counted.pending = int(record.row.state == PENDING)
        for name in record.members:
            each = state.jobs[name]
            need = need_of(each.spec)
            if need is not None and not each.state.is_final and not each.hold and not each.needs_left:
                counted.add(need)
        users.setdefault(record.request.user, Used()).add(counted)
        vc.add(counted)
    assert {name: used for name, used in limiter.users.items() if used != Used()} == users
    assert limiter.vcs.get("default", Used()) == vc
    assert vc.cpu_milli <= 5000
    assert all(used.cpu_milli <= 3000 and used.memory_mib <= 4096 for used in users.values())
    fresh = Limiter(made.limits)
    fresh.restore(book, state)
    assert fresh.vcs.get("default", Used()) == vc


def test_the_job_that_a_limit_names_makes_room_when_it_ends(tmp_path: Path) -> None:
    made = world(tmp_path, cpus=2)
    *_, waiting = made.submit(job(), job(), job())
    made.settle()
    refusal = made.writer.limits.refusal(made.writer.state.jobs[waiting], made.writer.state)
    assert refusal is not None
    [change] = refusal.changes
    assert isinstance(change, End)
    assert len(change.jobs) == 1
    assert f"job {change.jobs[0]} holds it" in refusal.reason
    assert waiting not in not_held(made)
    made.end(change.jobs[0])
    assert waiting in not_held(made)
