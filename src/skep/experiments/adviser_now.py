"""What would let a job start now: each change is made on a copy, and the policy in charge decides once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.experiments.fixes import FixCase, PossibleFix
from skep.experiments.samples import SampleFailed, cpu_seconds, in_fork
from skep.experiments.trial import NOTHING, RESTART_S, Making, StateTrial, TrialOutcome
from skep.service.advice import Fix
from skep.service.book import owner_of
from skep.service.copy import KeptCopy

NOW_CPU_S = 0.4
"""So much CPU time is spent on changes that let the job start now."""
WRITE = msgspec.msgpack.encode
READ = msgspec.msgpack.Decoder(TrialOutcome).decode


class TriedNow(msgspec.Struct):
    fixes: list[Fix] = []
    left: list[int] = []
    """Those that did not let it start now, or were not tried, by their numbers."""
    count: int = 0
    is_cut: bool = False


READ_NOW = msgspec.msgpack.Decoder(TriedNow).decode


def try_now(case: FixCase, asked: Sequence[PossibleFix], cpu_s: float) -> TriedNow:
    """One decision each. Without a change, the job may be about to start anyway."""
    found, done = TriedNow(), set[str]()
    until_s = cpu_seconds() + cpu_s
    trials = NowTrials(case.kept, case.at_s, case.members[0].id)
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

    def __init__(self, kept: KeptCopy, now_s: float, target: str) -> None:
        self.trial = StateTrial(kept, now_s)
        self.target = target
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
