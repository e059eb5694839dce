from __future__ import annotations

import threading

from skep.server.kept import KEPT_S, Kept


def test_an_answer_is_worked_out_again_when_it_is_old() -> None:
    now = [100.0]
    kept: Kept[int] = Kept(lambda: now[0])
    answers = iter(range(10))
    assert kept.get("all", lambda: next(answers)) == 0
    now[0] += KEPT_S / 2
    assert kept.get("all", lambda: next(answers)) == 0
    assert kept.get("other", lambda: next(answers)) == 1
    now[0] += KEPT_S
    assert kept.get("all", lambda: next(answers)) == 2


def test_those_who_ask_at_once_wait_for_one_answer() -> None:
    kept: Kept[int] = Kept()
    asked: list[int] = []
    go = threading.Event()

    def make() -> int:
        asked.append(1)
        go.wait(10)
        return 7

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(kept.get("all", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert (found, len(asked)) == ([7] * 4, 1)
