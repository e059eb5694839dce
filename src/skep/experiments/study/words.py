"""A study in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence

from skep.experiments.study.analyse import PairedTest, Side, compare_pairs
from skep.experiments.study.outcome import MEASURES
from skep.experiments.study.recommend import LEVEL, Recommendation, Rival, rank_of
from skep.experiments.study.study import Study
from skep.report.columns import Column
from skep.report.units import format_percent

COSTS = ("jct_p99_s", "first_wait_avg_s", "queue_avg_s", "slowdown_avg", "makespan_s", "fre", "ftf_max", "jain")
"""What the best policy is also compared by."""
COST_LEAST = 0.1
NAMED_MOST = 4

NAMES = {
    "jct_avg_s": "average JCT",
    "jct_p50_s": "median JCT",
    "jct_p99_s": "p99 JCT",
    "first_wait_avg_s": "average wait for the first start",
    "queue_avg_s": "average waiting",
    "slowdown_avg": "average slowdown",
    "makespan_s": "makespan",
    "utilization": "GPU time held",
    "busy": "GPU time busy",
    "fre": "useful GPU time",
    "ftf_avg": "average unfairness ρ",
    "ftf_max": "highest unfairness ρ",
    "jain": "Jain's index",
    "deadline_misses": "jobs after their deadline",
    "preemptions": "preemptions",
    "migrations": "migrations",
    "resizes": "resizes",
    "finished": "finished jobs",
}


def verdict_on(found: Recommendation) -> str:
    """The answer in one sentence."""
    best, measure = found.best, found.measure
    if best is None:
        return "No policy can be recommended: none that could be used finished its jobs."
    value = f"{NAMES[measure.key]} {shown_interval(best, measure)}"
    if not found.rivals:
        return f"{best.policy} is the only policy that could be used here: {value}."
    if found.is_sure:
        return f"Use {best.policy}: {value}."
    names = listed([best.policy, *(rival.side.policy for rival in found.equals)])
    least = f" {found.choice.policy} needs the least." if found.choice is not None and found.choice is not best else ""
    return f"Cannot tell {names} apart: the differences may be chance. The first has {value}.{least}"


def how_sure(found: Recommendation) -> str:
    best = found.best
    if best is None or not found.rivals:
        return ""
    nearest = found.rivals[0]
    if nearest.test.pairs < 3:
        return "One run cannot show what is chance."
    worse = [rival for rival in found.rivals if rival.is_worse]
    if not worse:
        return f"Not at all: no difference between these policies is more than chance. {against(nearest, found)}"
    if found.is_sure:
        return f"The next, {against(nearest, found)}"
    return f"{against(nearest, found)} Of the others, the nearest that is really worse: {against(worse[0], found)}"


def against(rival: Rival, found: Recommendation) -> str:
    """`las has 6.1% more (3.2% to 9.1%), p < 0.001, and was behind in 10 of 11 runs.`"""
    test, policy = rival.test, rival.side.policy
    if test.effect == 0.0 and test.low == test.high:
        return f"{policy} did exactly the same in every run."
    behind = test.wins if found.measure.better == "low" else test.pairs - test.wins
    more = "more" if test.effect >= 0 else "less"
    effect = f"{shown_effect(test, more)}, {shown_chance(rival.chance)}"
    return f"{policy} has {effect}; it was behind in {behind} of {test.pairs} runs."


def needs_of_choice(found: Recommendation) -> str:
    if found.choice is None:
        return ""
    return "; ".join(found.needs) + "." if found.needs else "Nothing that a cluster does not have."


def costs_in_words(found: Recommendation) -> str:
    costs = costs_of(found)
    return "; ".join(costs) + "." if costs else ""


def bound_in_words(found: Recommendation) -> str:
    """What knowing durations would bring."""
    if found.bound is None:
        return ""
    value = shown_interval(found.bound, found.measure)
    return f"With durations known, {found.bound.policy} has {value}: a bound, not a rival."


def advice(found: Recommendation) -> list[tuple[str, str]]:
    """A heading and a text each; the answer first."""
    said = [
        ("Recommendation", verdict_on(found)),
        ("How sure", how_sure(found)),
        (f"What {found.choice.policy} needs" if found.choice is not None else "", needs_of_choice(found)),
        ("What it costs", costs_in_words(found)),
        ("The bound", bound_in_words(found)),
        ("Not compared", excluded(found)),
    ]
    return [(heading, text) for heading, text in said if heading and text]


def excluded(found: Recommendation) -> str:
    if not found.excluded or found.best is None:
        return ""
    return f"Fewer jobs finished under {listed([side.policy for side in found.excluded])}: averages of other jobs."


def advice_text(study: Study) -> str:
    """recommendation.txt: the advice for every cluster."""
    parts = []
    for found in study.recommendations:
        lines = [f"{heading}: {text}" for heading, text in advice(found)]
        parts.append("\n".join([f"{study.trace.name} on {found.cluster}", *lines]))
    return "\n\n".join(parts) + f"\n\nMethod: {study.method}; intervals of 95%, paired tests with Holm's correction.\n"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    if len(names) > NAMED_MOST:
        names = [*names[:NAMED_MOST], f"{len(names) - NAMED_MOST} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def costs_of(recommendation: Recommendation) -> list[str]:
    """Where the chosen policy is really worse than another one that could be used: by much, and not by chance."""
    choice = recommendation.choice
    if choice is None:
        return []
    others = [side for side in (recommendation.best, *(r.side for r in recommendation.rivals)) if side is not choice]
    found = []
    for key in COSTS:
        column = MEASURES[key]
        rated = [side for side in others if side is not None and side.value(key) is not None]
        if key == recommendation.measure.key or not rated:
            continue
        top = min(rated, key=lambda side: rank_of(side, column))
        test = compare_pairs(choice, top, key)
        is_worse = test.effect > 0 if column.better == "low" else test.effect < 0
        if is_worse and abs(test.effect) >= 0.1 and test.chance < LEVEL:
            found.append(
                f"{NAMES[key]} {column.show(choice.value(key))}, {column.show(top.value(key))} under {top.policy}"
            )
    return found


def shown_interval(side: Side, column: Column) -> str:
    """`4.1 h (3.8 h to 4.5 h)`."""
    found = side.interval(column.key)
    if found is None:
        return column.show(None)
    if found.low == found.high:
        return column.show(found.value)
    return f"{column.show(found.value)} ({column.show(max(found.low, 0.0))} to {column.show(found.high)})"


def shown_effect(test: PairedTest, more: str) -> str:
    """As it reads in a sentence: with the sign in the word."""
    sign = 1 if more == "more" else -1
    ends = sorted([sign * test.low, sign * test.high])
    return f"{format_percent(sign * test.effect)} {more} ({format_percent(ends[0])} to {format_percent(ends[1])})"


def shown_chance(chance: float) -> str:
    return "p < 0.001" if chance < 0.001 else f"p = {chance:.2g}"
