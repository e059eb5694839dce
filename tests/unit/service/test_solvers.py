"""Problems are solved in other processes; whatever happens to these, there is an answer or a reason."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from live_world import request
from test_live_service import Quiet
from tests.support.solving import SOLVING, OrderAnswer, OrderProblem

from skep.core.events import Solved
from skep.service.live import Live
from skep.service.solvers import Question, Solvers
from skep.service.store import Store

SOLVER = "tests.support.solving:solve"


class Asked:
    def __init__(self, **limits: float) -> None:
        self.answers: queue.SimpleQueue[Solved] = queue.SimpleQueue()
        self.solvers = Solvers(self.answers.put, **limits)

    def ask(
        self, *, fails_every: int = 0, sleep_s: float = 0.0, solver: str = SOLVER, number: int = 7, vc: str = "v"
    ) -> None:
        problem = OrderProblem([("a", 1), ("b", 2)], fails_every, sleep_s)
        self.solvers.ask(Question(number, (vc, ""), solver, msgspec.msgpack.encode(problem)))

    def answer(self) -> Solved:
        return self.answers.get(timeout=60.0)


@pytest.fixture(autouse=True)
def where_tests_are(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.solvers.close()


def test_the_answer_is_that_of_the_function(asked: Asked) -> None:
    asked.ask()
    solved = asked.answer()
    assert (solved.number, solved.at, solved.error) == (7, ("v", ""), "")
    assert msgspec.msgpack.decode(solved.answer, type=OrderAnswer).order == ["b", "a"]


def test_each_failure_has_its_reason(asked: Asked) -> None:
    asked.ask(fails_every=2)
    assert asked.answer().error == "no order for 2 jobs"
    asked.ask(fails_every=-1)
    assert asked.answer().error == "the solver failed: ZeroDivisionError: a bug of the solver"
    asked.ask(solver="tests.support.solving:nosuch")
    assert "has no attribute 'nosuch'" in asked.answer().error


def test_a_killed_process_is_a_reason_and_the_next_question_is_answered(asked: Asked) -> None:
    asked.ask(sleep_s=60.0)
    until_s = time.monotonic() + 60.0
    while not asked.solvers.processes() and time.monotonic() < until_s:
        time.sleep(0.01)
    os.kill(asked.solvers.processes()[0], signal.SIGKILL)
    assert asked.answer().error == "the solver was killed (SIGKILL)"
    asked.ask()
    assert asked.answer().error == ""


def test_a_new_question_of_a_planner_replaces_its_earlier_one(asked: Asked) -> None:
    for number in (1, 2, 3):
        asked.ask(sleep_s=600.0, number=number)
    asked.ask(number=4)
    assert (solved := asked.answer()).number == 4
    assert solved.error == ""
    asked.ask(number=5, vc="other")
    assert asked.answer().number == 5
    assert asked.answers.empty(), "nobody is told of questions that were replaced"


def test_the_limits_only_kill() -> None:
    slow = Asked(wall_s=0.2)
    slow.ask(sleep_s=60.0)
    assert slow.answer().error == "the solver took more than 0.2 s and was killed"
    slow.solvers.close()


def test_closing_ends_what_still_solves() -> None:
    asked = Asked()
    asked.ask(sleep_s=60.0)
    time.sleep(0.1)
    began_s = time.monotonic()
    asked.solvers.close()
    assert time.monotonic() - began_s < 30.0
    assert asked.solvers.processes() == []
    assert asked.answers.empty()


def settled(live: Live, is_so: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 60.0
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.02)
    return is_so()


def test_a_server_decides_by_answers_and_says_when_there_is_none(tmp_path: Path) -> None:
    policy = f"{SOLVING}:fails_every=2"
    live = Live(Store(tmp_path / "skep.db"), lambda live: Quiet(), lambda: 1000.0, cluster=("t", "1x1"), policy=policy)
    live.submit([request()], "ann").result(60)
    assert settled(live, lambda: bool(live.writer.state.orders.dirty or live.writer.state.jobs["1"].bound))
    (status,) = live.stats()["solvers"]
    assert (status.answered_s, status.error) == (1000.0, "")
    live.submit([request()], "ann").result(60)  # two jobs: no solution
    assert settled(live, lambda: live.stats()["solver_failures"] == 1)
    assert live.writer.ground.policy == policy, "the policy stays"
    sentence = "the solver of the policy gave no answer (no order for 2 jobs); that of 0 s ago is in force"
    assert live.policy()["problems"] == [sentence]
    assert "no order for 2 jobs" in live.explain("2")["reason"]
    live.close()
    again = Live(Store(tmp_path / "skep.db"), lambda live: Quiet(), lambda: 1000.0)
    assert again.policy()["problems"] == [sentence]
    again.close()


def test_a_question_that_a_server_took_along_is_asked_again(tmp_path: Path) -> None:
    policy = f"{SOLVING}:sleep_s=60"
    live = Live(Store(tmp_path / "skep.db"), lambda live: Quiet(), lambda: 1000.0, cluster=("t", "1x1"), policy=policy)
    live.submit([request()], "ann").result(60)
    assert settled(live, lambda: bool(live.solvers.processes()))
    live.close()
    again = Live(Store(tmp_path / "skep.db"), lambda live: Quiet(), lambda: 1000.0)
    (status,) = again.stats()["solvers"]
    assert status.error == "the server was restarted before there was an answer"
    again.close()
