"""The adviser: a process beside the server that tries out what would let a waiting job start now or sooner.

It reads a `Setup` and then, for each line with a `FixQuestion`, folds what the server has logged since, tries every
change in a fork of itself, and writes the answer as lines: a `Fix` for each change that helps, and `Tried` at the end.
It ends when the server closes its input, or after a while without a question.
"""

from __future__ import annotations

import os
import select
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from skep.core.errors import SkepError
from skep.experiments.adviser_now import NOW_CPU_S, READ_NOW, WRITE, try_now
from skep.experiments.fixes import FixCase, PossibleFix, candidates, case_of
from skep.experiments.lengths import learn
from skep.experiments.measure import measure_of
from skep.experiments.paired import SAMPLES, SampledFixes, sample_all
from skep.experiments.planned import plan
from skep.experiments.samples import SampleFailed, import_policy, in_fork
from skep.jobs.request import Request
from skep.service.advice import Fix, FixQuestion, Line, Planned, PlanQuestion, Question, Tried
from skep.service.followed import Followed
from skep.service.foreseen import Setup

EACH_MAX = 3
"""Of each kind of change so many are sampled."""
IDLE_S = 600.0
NICE = 5

READ_SOONER = msgspec.msgpack.Decoder(SampledFixes).decode
READ_PLAN = msgspec.msgpack.Decoder(tuple[Planned, list[Fix]]).decode


class Adviser:
    def __init__(self, setup: Setup) -> None:
        self.followed = Followed(Path(setup.data), measure_of(setup.profile), setup.offers, setup.weights)
        self.within_s = setup.within_s

    def answer(self, question: Question) -> Iterator[Line]:
        """The changes that help now, and then those that help later, each time those first that cost others least."""
        try:
            yield from self._fixes(question) if isinstance(question, FixQuestion) else self._plan(question)
        except SampleFailed as error:
            yield Tried(changes=0, seconds=0.0, error=str(error))

    def _plan(self, question: PlanQuestion) -> Iterator[Line]:
        began_s = time.monotonic()
        kept, names = self.followed.catch_up(), self.followed.names
        import_policy(kept)
        past, by_s = learn(kept.state, names), began_s + question.within_s
        planned, fixes = READ_PLAN(in_fork(lambda: WRITE(plan(kept, question, past, names, self.within_s, by_s))))
        yield planned
        yield from sorted(fixes, key=cost)
        is_cut = planned.samples < SAMPLES
        yield Tried(changes=1, seconds=round(time.monotonic() - began_s, 3), samples=planned.samples, cut=is_cut)

    def _fixes(self, question: FixQuestion) -> Iterator[Line]:
        began_s = time.monotonic()
        kept = self.followed.catch_up()
        found = self.followed.store.job(int(question.job))
        request = msgspec.json.decode(found[1], type=Request) if found is not None else None
        case = None if request is None else case_of(kept, question.job, request, question.asker, question.now_s)
        if case is None:
            yield Tried(changes=0, seconds=0.0)
            return
        import_policy(kept)
        asked = list(candidates(case))
        tried = READ_NOW(in_fork(lambda: WRITE(try_now(case, asked, NOW_CPU_S))))
        yield from sorted(tried.fixes, key=cost)
        sampled = SampledFixes([], 0, is_cut=False)
        if question.within_s:
            left = some_of_each([asked[number] for number in tried.left if asked[number].kind != "wait"])
            sampled = self._sampled(case, left, began_s + question.within_s)
            yield from sorted(sampled.fixes, key=cost)
        seconds = round(time.monotonic() - began_s, 3)
        is_cut = tried.is_cut or sampled.is_cut
        yield Tried(changes=tried.count, seconds=seconds, samples=sampled.count, cut=is_cut)

    def _sampled(self, case: FixCase, left: list[PossibleFix], by_s: float) -> SampledFixes:
        names = self.followed.names
        past = learn(case.kept.state, names)
        return READ_SOONER(in_fork(lambda: WRITE(sample_all(case, left, past, names, self.within_s, by_s))))


def some_of_each(left: list[PossibleFix]) -> list[PossibleFix]:
    """Each sample takes as long as a forecast."""
    counts: Counter[str] = Counter()
    found = []
    for each in left:
        counts[each.kind] += 1
        if counts[each.kind] <= EACH_MAX:
            found.append(each)
    return found


def cost(fix: Fix) -> tuple[float, float]:
    return fix.lost_gpu_s, fix.delay_s or 0.0


def serve(answers: Callable[[Line], None], lines: int, adviser: Adviser) -> None:
    with open(lines, "rb", closefd=False) as asked:
        while select.select([lines], [], [], IDLE_S)[0]:
            line = asked.readline()
            if not line:
                return
            for each in adviser.answer(msgspec.json.decode(line, type=Question)):
                answers(each)


def main() -> None:
    """What a policy prints goes to standard error."""
    to = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(NICE)
    asked = sys.stdin.fileno()
    with open(to, "wb") as answers, open(asked, "rb", buffering=0, closefd=False) as first:

        def answer(line: Line) -> None:
            answers.write(msgspec.json.encode(line) + b"\n")
            answers.flush()

        try:
            serve(answer, asked, Adviser(msgspec.json.decode(first.readline(), type=Setup)))
        except (SkepError, sqlite3.Error) as error:
            print(f"no advice: {error}", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
