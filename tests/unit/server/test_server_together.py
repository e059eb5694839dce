from __future__ import annotations

import asyncio
import functools
import itertools
import threading
from collections.abc import Callable, Coroutine

from skep.server.together import Together


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


@on_a_loop
async def test_who_asks_later_gets_a_newer_answer() -> None:
    together: Together[int] = Together()
    answers = iter(range(10))
    assert [await together.get("all", lambda: next(answers)) for _ in range(3)] == [0, 1, 2]
    assert await together.get("other", lambda: next(answers)) == 3


@on_a_loop
async def test_those_who_ask_at_once_share_answers_that_are_not_older_than_their_questions() -> None:
    together: Together[int] = Together()
    made = itertools.count()
    begun: list[int] = []
    found: list[tuple[int, int]] = []

    def make() -> int:
        begun.append(next(made))
        return begun[-1]

    async def ask() -> None:
        for _ in range(50):
            before = len(begun)
            found.append((before, await together.get("all", make)))

    await asyncio.gather(*(ask() for _ in range(8)))
    assert len(found) == 8 * 50
    assert all(answer >= before for before, answer in found)


@on_a_loop
async def test_those_who_wait_share_one_answer_and_hold_no_thread() -> None:
    together: Together[int] = Together()
    go, made = threading.Event(), itertools.count()

    def make_slowly() -> int:
        go.wait(60)
        return next(made)

    first = asyncio.create_task(together.get("all", make_slowly))
    await asyncio.sleep(0)
    others = [asyncio.create_task(together.get("all", lambda: next(made))) for _ in range(200)]
    await asyncio.sleep(0)
    # With the pool full of those who wait this would not return.
    assert await asyncio.wait_for(together.get("other", lambda: 7), 60) == 7
    go.set()
    assert await first == 0
    assert await asyncio.gather(*others) == [1] * 200
