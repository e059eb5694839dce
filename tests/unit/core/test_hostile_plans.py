"""Random plans of moves, exchanges, starts and stops, most of which are impossible: what is refused changes nothing, a
replay leads to the same state, and a job gets one action."""

from __future__ import annotations

import contextlib
import random

import pytest
from tests.support import check, job, snapshot
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.errors import InvariantBroken
from skep.core.plan import Plan
from skep.core.record import decode_plan, encode_plan, replay
from skep.core.snapshot import fork
from skep.core.state import State

SEATS = [gpus(0, 0b01), gpus(0, 0b10), gpus(1, 0b01), gpus(1, 0b10)]


def take_a_step(chance: random.Random, state: State, plan: Plan) -> None:
    jobs = [state.jobs[name] for name in "abc"]
    match chance.randrange(6):
        case 3:
            plan.move(chance.choice(jobs), chance.choice(SEATS))
        case 4:
            plan.start(state.jobs["d"], chance.choice(SEATS))
        case 5:
            plan.stop(chance.choice(jobs), "to see")
        case _:
            plan.move_all([(each, chance.choice(SEATS)) for each in chance.sample(jobs, chance.randint(1, 3))])


@pytest.mark.parametrize("tenth", range(10))
def test_a_random_plan_is_sound(tenth: int) -> None:
    for seed in range(tenth, 200, 10):
        chance = random.Random(seed)
        world = ByHand(*(job(id=name) for name in "abcd"))
        for name, seat in zip("abc", SEATS, strict=False):
            world.start(name, seat)
        state, twin = world.state, fork(world.state)
        plan, before = state.new_plan(), snapshot(state)
        for _ in range(chance.randint(1, 6)):
            mark = plan.mark()
            with contextlib.suppress(InvariantBroken):
                take_a_step(chance, state, plan)
                if chance.random() < 0.3:
                    plan.rollback(mark)
        if chance.random() < 0.2:
            plan.rollback(0)
            assert snapshot(state) == before
            continue
        logged = decode_plan(encode_plan(plan))
        state.commit(plan)
        twin.commit(replay(twin, logged))
        actions = state.send()
        assert actions == twin.send()
        assert len({each.job_id for each in actions}) == len(actions)
        assert snapshot(state) == snapshot(twin)
        check(state)
