from __future__ import annotations

import itertools
import threading

from skep.server.together import Together


def test_who_asks_later_gets_a_newer_answer() -> None:
    together: Together[int] = Together()
    answers = iter(range(10))
    assert [together.get("all", lambda: next(answers)) for _ in range(3)] == [0, 1, 2]
    assert together.get("other", lambda: next(answers)) == 3


def test_those_who_ask_at_once_share_answers_that_are_not_older_than_their_questions() -> None:
    together: Together[int] = Together()
    made = itertools.count()
    begun: list[int] = []
    all_ask = threading.Barrier(8)
    found: list[tuple[int, int]] = []

    def make() -> int:
        begun.append(next(made))
        return begun[-1]

    def ask() -> None:
        all_ask.wait(60)
        for _ in range(200):
            before = len(begun)
            found.append((before, together.get("all", make)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 * 200
    assert all(answer >= before for before, answer in found)


def test_one_that_waits_takes_the_answer_that_was_begun_after_its_question() -> None:
    together: Together[int] = Together()
    made: list[int] = []

    def make_while_another_asks() -> int:
        made.append(len(made))
        if len(made) == 2:
            asking.start()
        return made[-1]

    asking = threading.Thread(target=lambda: together.get("all", make_while_another_asks))
    assert together.get("all", make_while_another_asks) == 0
    assert together.get("all", make_while_another_asks) == 1
    asking.join()
    assert made == [0, 1, 2]


class Key:
    """Counts how often it is looked up: the first look of a question comes before it waits."""

    def __init__(self) -> None:
        self.looks = threading.Semaphore(0)

    def __hash__(self) -> int:
        self.looks.release()
        return 1


def test_two_that_wait_share_one_answer() -> None:
    together: Together[int] = Together()
    key, made = Key(), itertools.count()
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(together.get(key, lambda: next(made)))) for _ in range(2)]

    def make_until_both_wait() -> int:
        while key.looks.acquire(blocking=False):
            pass
        for thread in threads:
            thread.start()
        for _ in threads:
            assert key.looks.acquire(timeout=60)
        return next(made)

    assert together.get(key, make_until_both_wait) == 0
    for thread in threads:
        thread.join()
    assert found == [1, 1]
