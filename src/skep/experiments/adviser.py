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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from skep.core.errors import SkepError
from skep.experiments.fixes import FixCase, PossibleFix, candidates, case_of
from skep.experiments.lengths import learn
from skep.experiments.measure import measure_of
from skep.experiments.paired import SampledFixes, sample_all
from skep.experiments.samples import SampleFailed, cpu_seconds, import_policy, in_fork
from skep.experiments.trial import NOTHING, RESTART_S, Making, Trial, TrialOutcome
from skep.jobs.request import Request
from skep.service.advice import Fix, FixQuestion, Line, Tried
from skep.service.book import owner_of
from skep.service.followed import Followed
from skep.service.foreseen import Setup

NOW_CPU_S = 0.4
"""So much CPU time is spent on changes that let the job start now."""
EACH_MAX = 3
"""Of each kind of change so many are sampled."""
IDLE_S = 600.0
NICE = 5

WRITE = msgspec.msgpack.encode
READ = msgspec.msgpack.Decoder(TrialOutcome).decode


class Adviser:
    def __init__(self, setup: Setup) -> None:
        self.followed = Followed(Path(setup.data), measure_of(setup.profile), setup.offers, setup.weights)
        self.within_s = setup.within_s

    def answer(self, question: FixQuestion) -> Iterator[Line]:
        """The changes that help now, and then those that help later, each time those first that cost others least."""
        try:
            yield from self._answer(question)
        except SampleFailed as error:
            yield Tried(changes=0, seconds=0.0, error=str(error))

    def _answer(self, question: FixQuestion) -> Iterator[Line]:
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


class TriedNow(msgspec.Struct):
    fixes: list[Fix] = []
    left: list[int] = []
    """Those that did not let it start now, or were not tried, by their numbers."""
    count: int = 0
    is_cut: bool = False


READ_NOW = msgspec.msgpack.Decoder(TriedNow).decode
READ_SOONER = msgspec.msgpack.Decoder(SampledFixes).decode


def try_now(case: FixCase, asked: Sequence[PossibleFix], cpu_s: float) -> TriedNow:
    """One decision each. Without a change, the job may be about to start anyway."""
    found, done = TriedNow(), set[str]()
    until_s = cpu_seconds() + cpu_s
    trials = NowTrials(case)
    if trials.before.starts:
        return found
    for number, each in enumerate(asked):
        if each.group in done:
            continue
        is_late = cpu_seconds() > until_s
        outcome = TrialOutcome(False) if is_late else trials.of(each.making)
        found.is_cut |= is_late
        found.count += not is_late
        if outcome.starts:
            done |= {each.group} - {""}
            found.fixes.append(fix_now(case, each, outcome, trials.before))
        else:
            found.left.append(number)
    found.left = [number for number in found.left if asked[number].group not in done]
    return found


class NowTrials:
    """The outcomes of changes, each on a copy of what the policy in charge has decided without them."""

    def __init__(self, case: FixCase) -> None:
        self.trial = Trial(case.kept, case.at_s)
        self.target = case.members[0].id
        self.before = self.of(NOTHING)

    def of(self, making: Making) -> TrialOutcome:
        """A change with which the policy fails lets nothing start."""
        try:
            return READ(in_fork(lambda: WRITE(self.trial.decide(self.target, making))))
        except SampleFailed:
            return TrialOutcome(False)


def fix_now(case: FixCase, made: PossibleFix, outcome: TrialOutcome, before: TrialOutcome) -> Fix:
    state = case.kept.state
    stopped = [
        name
        for name in outcome.stopped
        if name not in before.stopped and owner_of(state, name) != made.change.get("job")
    ]
    lost_gpu_s = made.lost_gpu_s + sum(RESTART_S * state.jobs[name].gpu_count for name in stopped)
    return Fix(
        kind=made.kind,
        when="now",
        text=made.text,
        effect=effect_now(case, made, outcome, stopped),
        command=made.command,
        change=made.change,
        lost_gpu_s=round(lost_gpu_s, 1),
    )


def effect_now(case: FixCase, made: PossibleFix, outcome: TrialOutcome, stopped: list[str]) -> str:
    when = f"with the next round, in {outcome.in_s:,.0f} s," if outcome.in_s else "at once"
    if made.kind in ("wait", "stop"):
        when = "then" if made.kind == "wait" else "as soon as it has left"
    said = f"the job starts {when} on {', '.join(outcome.nodes)}"
    owners = list(dict.fromkeys(owner_of(case.kept.state, name) for name in stopped))
    seen = [f"job {owner}" for owner in owners if case.asker.may_see(case.kept.rows[owner].vc)]
    hidden = len(owners) - len(seen)
    others = [f"{hidden} job{'s' if hidden > 1 else ''} of other VCs"] if hidden else []
    return f"{said}; {', '.join([*seen, *others])} must make room" if owners else said


def serve(answers: Callable[[Line], None], lines: int, adviser: Adviser) -> None:
    with open(lines, "rb", closefd=False) as asked:
        while select.select([lines], [], [], IDLE_S)[0]:
            line = asked.readline()
            if not line:
                return
            for each in adviser.answer(msgspec.json.decode(line, type=FixQuestion)):
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
