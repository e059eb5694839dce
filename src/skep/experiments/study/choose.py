"""What a study compares: the policies that a trace and a profile can serve, sizes of a cluster, values of a knob."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from skep.core.errors import InputError
from skep.core.model import deadline_of
from skep.core.needs import Need
from skep.experiments.owners import knows_durations
from skep.experiments.simulate import Experiment
from skep.policies.registry import idle_on, needs_of, parse_policy, policies

MORE = {"fifo": ("fifo:walk=skip",)}
"""Settings that are policies of their own to most people."""
SIZES_MOST = 7
RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?x(.+)")

NOTHING, KNOWING, STOPPING, CHANGING, ORACLES = (
    "nothing of jobs but their requests",
    "what past jobs took, or measured speeds",
    "jobs that can be stopped and continue later",
    "jobs that share, move or change their size",
    "durations, which no real cluster knows",
)
GROUPS = (NOTHING, KNOWING, STOPPING, CHANGING, ORACLES)
"""What policies assume, the least first."""

IN_WORDS = {
    Need.HISTORY: "the history of finished jobs, which a server keeps by itself",
    Need.PROGRESS: "jobs that report their progress (`skep.train`)",
    Need.DEADLINE: "deadlines in the job files",
    Need.THROUGHPUT: "measured speeds: a profile, or jobs that report theirs",
    Need.ORACLE: "good estimates of durations from the owners of jobs (`expect_s`)",
    Need.CHECKPOINT: "jobs that save checkpoints: one that is stopped continues where it was",
    Need.SUSPEND: "an engine that can suspend jobs",
    Need.RESIZE: "jobs that can continue with another number of GPUs",
    Need.SHARE: "jobs that bear to share a GPU",
    Need.MIGRATE: "jobs that can be moved while they run",
    Need.TUNE: "jobs that take another batch size while they run (`skep.train`)",
    Need.INSTANT: "switching within milliseconds, which is only simulated",
}
"""What a cluster must have for a policy to do there what it does here."""


class Candidate(msgspec.Struct, frozen=True):
    policy: str
    needs: frozenset[Need]
    group: str
    """One of `GROUPS`."""


def candidates(experiment: Experiment, chosen: Sequence[str]) -> tuple[list[Candidate], dict[str, str]]:
    """Those that are chosen, else all that can be served; and why the others are left out."""
    if chosen:
        return [candidate(experiment, policy) for policy in dict.fromkeys(chosen)], {}
    named = [spec for name in policies() for spec in (name, *MORE.get(name, ()))]
    reasons = {policy: why_not(experiment, policy) for policy in named}
    found = [candidate(experiment, policy) for policy, why in reasons.items() if not why]
    return sorted(found, key=lambda each: GROUPS.index(each.group)), {p: why for p, why in reasons.items() if why}


def candidate(experiment: Experiment, policy: str) -> Candidate:
    needs = needs_of(policy, experiment.texts)
    is_oracle = knows_durations(needs, experiment.trace, experiment.options.estimate_error)
    return Candidate(policy, needs, ORACLES if is_oracle else group_of(needs))


def group_of(needs: frozenset[Need]) -> str:
    if needs & {Need.SUSPEND, Need.RESIZE, Need.SHARE, Need.MIGRATE, Need.TUNE, Need.INSTANT}:
        return CHANGING
    if Need.CHECKPOINT in needs:
        return STOPPING
    return KNOWING if needs else NOTHING


def why_not(experiment: Experiment, policy: str) -> str:
    """Why a trace and a profile cannot serve a policy; empty if they can."""
    jobs = [job.spec for job in experiment.trace.jobs]
    if why := idle_on(policy, jobs):
        return why
    needs = needs_of(policy)
    if Need.THROUGHPUT in needs and experiment.speed is None:
        return "it decides by measured speeds, and there is no profile"
    if Need.DEADLINE in needs and not any(deadline_of(spec) is not None for spec in jobs):
        return "no job of the trace has a deadline"
    return ""


def clusters_of(specs: Sequence[str]) -> list[str]:
    """`8..20x8` is a range of sizes: seven at most, evenly spaced; `8..20..4x8` names the step."""
    found: list[str] = []
    for spec in specs:
        match = RANGE.fullmatch(spec)
        found += [spec] if match is None else [f"{size}x{match[4]}" for size in sizes(spec, match)]
    return list(dict.fromkeys(found))


def sizes(spec: str, match: re.Match[str]) -> list[int]:
    low, high, step = int(match[1]), int(match[2]), int(match[3] or 0)
    if not 1 <= low < high or (match[3] and not step):
        raise InputError(f"cluster '{spec}': expected LOW..HIGHxGPUS", hint="for example 8..20x8, or 8..20..4x8")
    if step:
        return [*range(low, high + 1, step)]
    count = min(SIZES_MOST, high - low + 1)
    return list(dict.fromkeys(round(low + (high - low) * index / (count - 1)) for index in range(count)))


class Variation(msgspec.Struct, frozen=True):
    """One policy with several values of one knob."""

    knob: str
    """With its policy: `tiresias-l:queues`."""
    policies: dict[str, str]
    """Specs → the value of each."""


def variation(text: str) -> Variation:
    """`tiresias-l:place=any,queues=1000,3250,3250+7200`: what has no `=` is another value of the knob before it."""
    name, _, rest = text.partition(":")
    knobs: dict[str, list[str]] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if equals:
            knobs[key] = [value]
        elif knobs:
            knobs[list(knobs)[-1]].append(part)
    several = [key for key, values in knobs.items() if len(values) > 1]
    if len(several) != 1:
        raise InputError(
            f"--vary '{text}': expected one knob with several values", hint="for example tiresias-l:queues=1000,3250"
        )
    knob = several[0]
    fixed = [f"{key}={values[0]}" for key, values in knobs.items() if key != knob]
    found = {f"{name}:{','.join([*fixed, f'{knob}={value}'])}": value for value in knobs[knob]}
    for spec in found:
        parse_policy(spec)
    return Variation(f"{name}:{knob}", found)
