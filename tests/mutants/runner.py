"""Runs tests against one mutant after the other, each in a fork of a process that has collected all tests.

First every test runs once as it is, in a fork of its own, and the lines of the mutated modules that it runs are noted
(`coverage`). A mutant is then shown to the tests that run its line, the quick and specific ones first, until one of
them fails. A fork replaces the code of the mutated function in memory: no file is written, and no module is imported
again. A test that takes far more CPU time than it did unchanged counts as failed: the kernel ends the fork (SIGPROF).
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest
from tests.mutants.mutations import Mutant, mutated

ROOT = Path(__file__).parents[2]
MEMORY_MAX = 4 << 30
"""Of the address space of a fork: a mutant that never stops growing fails with a `MemoryError`."""
TIMEOUT = "timeout"


class OutsideTests(Exception):
    """A fork failed, and not by a test: the files have changed meanwhile, or the driver has a fault."""


@dataclass(frozen=True)
class Trace:
    """What a test does with the unchanged code."""

    cpu_s: float
    lines: dict[str, set[int]]
    """By file: those of the mutated modules that it runs."""


@dataclass
class Map:
    """Which tests run which lines, and how much CPU time each takes."""

    tests: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    line_count: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Tests that fail as they are, or take too long to be of use here."""

    def add(self, name: str, traced: Trace | None) -> None:
        if traced is None:
            self.left_out.append(name)
            return
        self.cpu_s[name] = traced.cpu_s
        self.line_count[name] = sum(map(len, traced.lines.values()))
        for path, numbers in traced.lines.items():
            for number in numbers:
                self.tests.setdefault((path, number), []).append(name)

    def covering(self, mutant: Mutant, cpu_max_s: float) -> list[str]:
        """The tests that run the line: quick and specific ones first, as many as fit into the time."""
        found = self.tests.get((mutant.path, mutant.line), [])
        chosen, spent_s = [], 0.0
        for name in sorted(found, key=lambda name: (self.cpu_s[name] + 0.02) * (self.line_count[name] + 50)):
            spent_s += self.cpu_s[name]
            if chosen and spent_s > cpu_max_s:
                break
            chosen.append(name)
        return chosen


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str
    """A test, `TIMEOUT`, or nothing: the mutant survived."""
    test_count: int


class Session:
    """A pytest plugin: in place of running the tests that were collected, it hands them to `work`."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self.work = work
        self.items: dict[str, pytest.Item] = {}
        self.failed = False
        self.tracer: coverage.Coverage | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def fails(self, name: str, following: str | None) -> bool:
        item = self.items[name]
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following and self.items[following])
        return self.failed

    # The unchanged code -----------------------------------------------------------------------------------------

    def trace(self, name: str, files: dict[str, str], cpu_max_s: float) -> Trace | None:
        """None if the test fails or takes too long."""
        if self.tracer is None:  # half a second to begin with; a fork gets it for nothing
            self.tracer = coverage.Coverage(data_file=None, include=list(files), config_file=False)
            self.tracer.start()
            self.tracer.stop()
        tracer = self.tracer

        def run(answer: Callable[[object], None]) -> None:
            signal.setitimer(signal.ITIMER_PROF, cpu_max_s)
            tracer.start()
            begun_s = time.process_time()
            failed = self.fails(name, None)
            took_s = time.process_time() - begun_s
            tracer.stop()
            with warnings.catch_warnings(action="ignore"):  # many tests run none of these lines
                data = tracer.get_data()
            lines = {files[path]: set(data.lines(path) or ()) for path in data.measured_files() if path in files}
            answer(None if failed else Trace(took_s, lines))

        traced = in_fork(run, wall_max_s=20 * cpu_max_s)
        return traced if isinstance(traced, Trace) else None

    # Mutants ----------------------------------------------------------------------------------------------------

    def judge(self, mutant: Mutant, lines: Map, cpu_max_s: float) -> Verdict:
        names = [name for name in lines.covering(mutant, cpu_max_s) if name in self.items]

        def first_failing(answer: Callable[[object], None]) -> None:
            for at, name in enumerate(names):
                signal.setitimer(signal.ITIMER_PROF, 3.0 + 5 * lines.cpu_s[name])
                if self.fails(name, names[at + 1] if at + 1 < len(names) else None):
                    return answer(name)
            answer("")

        def run(answer: Callable[[object], None]) -> None:
            replace_code(ROOT / mutant.path, mutant, mutated(ROOT / mutant.path, mutant))
            first_failing(answer)

        wall_max_s = 20 * (cpu_max_s + 10)
        killed_by = in_fork(run, wall_max_s)
        test_count = len(names)
        if killed_by in names:  # the same tests in the same order must pass without the mutant
            names = names[: names.index(killed_by) + 1]
            if failing := in_fork(first_failing, wall_max_s):
                raise OutsideTests(f"{failing} fails without a mutant after {', '.join(names[:-1])}")
        return Verdict(mutant, str(killed_by), test_count)


def replace_code(path: Path, mutant: Mutant, code: CodeType) -> None:
    """Give every function that has the code of the mutated one the new code."""
    found = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_qualname == mutant.function
        and each.__code__.co_firstlineno == mutant.function_line
        and Path(each.__code__.co_filename) == path
    ]
    assert found, f"{mutant.function} is not loaded"
    for function in found:
        function.__code__ = code


def in_fork(run: Callable[[Callable[[object], None]], None], wall_max_s: float) -> object:
    """What a function answers in a fork of this process; `TIMEOUT` if a limit of time ended the fork before."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        prepare_fork()
        with os.fdopen(writing, "wb") as pipe:
            try:
                run(lambda value: pickle.dump(value, pipe))
            except BaseException as error:
                pickle.dump(OutsideTests(f"{type(error).__name__}: {error}"), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        is_over = not select.select([pipe], [], [], wall_max_s)[0]
        if is_over:
            os.kill(pid, signal.SIGKILL)
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if is_over or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF):
        return TIMEOUT
    found = pickle.loads(answer) if answer else OutsideTests(f"a fork ended without an answer, with status {status}")
    if isinstance(found, OutsideTests):
        raise found
    return found


def prepare_fork() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
