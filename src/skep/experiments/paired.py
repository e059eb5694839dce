"""What would let a job start sooner: the same drawn lengths, with a change and without it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from statistics import median

import msgspec

from skep.core.state import State
from skep.core.step import answer_at_once
from skep.experiments.estimates import Experience
from skep.experiments.fixes import FixCase, PossibleFix
from skep.experiments.lengths import draw_all
from skep.experiments.samples import SampleFailed, in_fork
from skep.experiments.trial import NOTHING, Making, StateTrial, TrialCourse
from skep.service.advice import Fix
from skep.service.copy import KeptCopy

SAMPLES = 16
MISSES_MAX = 1
"""A change is offered if the job starts sooner in 90 % of the samples."""
LEAST_S = 1.0
"""By less it is not sooner."""

READ = msgspec.msgpack.Decoder(TrialCourse).decode


class Pair(msgspec.Struct):
    """A change and what it brought so far."""

    candidate: PossibleFix
    gains_s: list[float] = []
    delays_s: list[float] = []
    misses: int = 0


class SampledFixes(msgspec.Struct):
    fixes: list[Fix]
    count: int
    is_cut: bool


def sample_all(
    case: FixCase,
    left: list[PossibleFix],
    past: Experience,
    names: Mapping[str, str],
    within_s: float,
    by_s: float,
) -> SampledFixes:
    """In a fork. Changes that do not help are given up after a few samples."""
    target = case.members[0].id
    sampler = Sampler(case.kept, case.at_s, target, past, names)
    pairs = [Pair(each) for each in left]
    count = 0
    while count < SAMPLES and pairs and time.monotonic() < by_s:
        without = sampler.course(NOTHING, count, case.at_s + within_s)
        until_s = without.starts.get(target, case.at_s + within_s)
        for pair in pairs:
            if time.monotonic() >= by_s:
                return SampledFixes([], count, is_cut=True)
            try:
                changed = sampler.course(pair.candidate.making, count, until_s)
                compare(pair, target, without, changed, until_s)
            except SampleFailed:  # with this change the policy fails
                pair.misses = SAMPLES
        pairs = [pair for pair in pairs if pair.misses <= MISSES_MAX]
        count += 1
    is_cut = count < SAMPLES and bool(pairs)
    return SampledFixes([] if is_cut else [fix_sooner(pair) for pair in first_of_groups(pairs)], count, is_cut)


class Sampler:
    """Simulates onwards from what the policy in charge has decided, each time in a fork."""

    def __init__(self, kept: KeptCopy, at_s: float, target: str, past: Experience, names: Mapping[str, str]) -> None:
        self.trial = StateTrial(kept, at_s, answer_at_once)
        self.target = target
        self.past, self.names = past, names

    def course(self, making: Making, seed: int, until_s: float) -> TrialCourse:
        """Without a change, until the job starts."""

        def draw(state: State) -> dict[str, float]:
            return {name: each.work_s for name, each in draw_all(state, self.past, self.names, seed).items()}

        until = self.target if making == NOTHING else ""
        return READ(in_fork(lambda: msgspec.msgpack.encode(self.trial.simulate(making, draw, until_s, until))))


def compare(pair: Pair, target: str, without: TrialCourse, changed: TrialCourse, until_s: float) -> None:
    """Up to the time at which the job would have started anyway, if that is within the forecast."""
    gain_s = until_s - changed.starts.get(target, until_s)
    if gain_s < LEAST_S:
        pair.misses += 1
    pair.gains_s.append(gain_s)
    pair.delays_s.append(sum(later(without, changed, until_s, {target}).values()))


def later(without: TrialCourse, changed: TrialCourse, until_s: float, but: Collection[str]) -> dict[str, float]:
    """By how much each job starts later, as far as that is simulated; other jobs than these."""
    names = {*without.starts, *changed.starts} - set(but)
    starts = {name: [min(course.starts.get(name, until_s), until_s) for course in (without, changed)] for name in names}
    return {name: after_s - before_s for name, (before_s, after_s) in starts.items()}


def first_of_groups(pairs: list[Pair]) -> list[Pair]:
    found: dict[str, Pair] = {}
    for number, pair in enumerate(pairs):
        found.setdefault(pair.candidate.group or str(number), pair)
    return list(found.values())


def fix_sooner(pair: Pair) -> Fix:
    made, gain_s, delay_s = pair.candidate, median(pair.gains_s), median(pair.delays_s)
    sooner = sum(gain_s >= LEAST_S for gain_s in pair.gains_s)
    return Fix(
        kind=made.kind,
        when="sooner",
        text=made.text,
        effect=f"the job starts about {in_words(gain_s)} sooner ({sooner} of {len(pair.gains_s)} samples)",
        command=made.command,
        change=made.change,
        lost_gpu_s=round(made.lost_gpu_s, 1),
        delay_s=round(delay_s, 1),
        gain_s=round(gain_s, 1),
    )


def in_words(seconds: float) -> str:
    for unit_s, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} seconds"
