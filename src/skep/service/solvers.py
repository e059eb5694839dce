"""Solves the problems of planners in other processes, one process for each problem.

A process has limits of memory and of time, which only kill it: an answer never depends on how fast the machine is. If
it fails, is killed or takes too long, the reason is the answer, and the last answer stays in force.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from skep.core.errors import SkepError
from skep.core.events import Solved
from skep.core.memory import At
from skep.core.solving import solve_encoded

WALL_S = 600.0
MEMORY_MAX = 4 << 30
AT_ONCE = 2
"""The number of processes at the same time: each VC may have a policy that solves."""
UNSOLVED = 3
"""The exit code of a process whose problem has no solution."""
ERROR_MAX = 300


class Question(msgspec.Struct, frozen=True):
    """An encoded problem, and who has asked."""

    number: int
    at: At
    solver: str
    problem: bytes


class Solvers:
    """`tell` gets the answers, from another thread."""

    def __init__(self, tell: Callable[[Solved], None], wall_s: float = WALL_S, memory: int = MEMORY_MAX) -> None:
        self.tell = tell
        self.wall_s = wall_s
        self.memory = memory
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._latest: dict[At, Question] = {}
        """What each planner asked last: its earlier questions need no answer any more."""
        self._processes: dict[subprocess.Popen[bytes], Question] = {}
        self._is_closed = False
        self._threads: list[threading.Thread] = []

    def ask(self, question: Question) -> None:
        """Solve it soon, instead of an earlier question of the same planner: the policy has changed. The first question
        starts the threads: most servers have no policy that solves."""
        with self._lock:
            self._latest[question.at] = question
            for process, other in self._processes.items():
                if other.at == question.at:
                    process.kill()
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._run, name=f"solver-{number}", daemon=True)
                    for number in range(AT_ONCE)
                ]
                for thread in self._threads:
                    thread.start()
        self._questions.put(question)

    def processes(self) -> list[int]:
        """Those that solve at this moment."""
        with self._lock:
            return [process.pid for process in self._processes]

    def close(self) -> None:
        """Kill what still solves: the next start asks again."""
        with self._lock:
            self._is_closed = True
            for process in self._processes:
                process.kill()
            threads = self._threads
        for _ in threads:
            self._questions.put(None)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (question := self._questions.get()) is not None and not self._is_closed:
            solved = self._solve(question) if self._is_latest(question) else None
            if solved is not None and self._is_latest(question) and not self._is_closed:
                self.tell(solved)

    def _is_latest(self, question: Question) -> bool:
        with self._lock:
            return self._latest[question.at] is question

    def _solve(self, question: Question) -> Solved:
        try:
            answer, error = self._in_process(question)
        except OSError as failed:
            answer, error = None, f"no process could be started: {failed.strerror or failed}"
        return Solved(question.number, question.at, answer, error[:ERROR_MAX])

    def _in_process(self, question: Question) -> tuple[bytes | None, str]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "skep.service.solvers", question.solver, str(self.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with self._lock:
            self._processes[process] = question
            if self._is_closed or self._latest[question.at] is not question:
                process.kill()
        try:
            answer, said = process.communicate(question.problem, self.wall_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, f"the solver took more than {self.wall_s:g} s and was killed"
        finally:
            with self._lock:
                self._processes.pop(process, None)
        if process.returncode == 0:
            return answer, ""
        return None, why_failed(process.returncode, said.decode(errors="replace"))


def why_failed(code: int, said: str) -> str:
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if code == UNSOLVED:
        return last or "the problem has no solution"
    if code < 0:
        return f"the solver was killed ({signal.Signals(-code).name})"
    return f"the solver failed: {last or f'exit code {code}'}"


def main(solver: str, memory: int) -> int:
    """The process: an encoded problem on standard input, the encoded answer on standard output. What a library prints
    there goes to standard error."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(5)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))
    try:
        answer = solve_encoded(solver, sys.stdin.buffer.read())
    except MemoryError:
        print(f"it needs more than {memory / (1 << 30):.1f} GiB of memory", file=sys.stderr)
        return 1
    except SkepError as error:
        print(str(error), file=sys.stderr)
        return UNSOLVED
    with open(answers, "wb") as file:
        file.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
