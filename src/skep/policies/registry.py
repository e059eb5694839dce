"""All named policies: description, needs, knobs, and the function that builds each.

A policy is named on the command line as `NAME:key=value,key=value`, lists with `+`; a policy in the user's own file as
`./file.py:Class:key=value`.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from skep.core.errors import InputError, did_you_mean
from skep.core.fragments import Typical
from skep.core.model import JobSpec
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.view import ClusterView
from skep.core.weights import EQUAL, Weights
from skep.files.text import Texts

ZOO = (
    "fifo",
    "shortest",
    "las",
    "tiresias",
    "elas",
    "yarn_cs",
    "drf",
    "afs",
    "optimus",
    "pollux",
    "sia",
    "slaq",
    "allox",
    "themis",
    "gandiva_fair",
    "gavel",
    "kubeshare",
    "gandiva",
    "salus",
    "antman",
    "lucid",
    "singularity",
)
"""The modules that hold named policies."""


Knobs = Mapping[str, Any]  # by name; `parse_value` has converted each to the type of its default


class Knob(msgspec.Struct, frozen=True):
    """`default` determines the type: a number, a flag, a tuple of numbers, a word (of `choices`, if there are any)."""

    name: str
    default: Any  # of the types that the docstring names
    help: str
    choices: tuple[str, ...] = ()
    is_file: bool = False
    """It may name a file instead of one of the choices. Only values of such knobs can be read: a server refuses them
    where users have no access to its files."""
    least: float = 0.0
    """Of a number: below it hardly any time would pass between two decisions, or a turn would be lost in its switch."""

    @property
    def shown_choices(self) -> tuple[str, ...]:
        return (*self.choices, "FILE") if self.is_file else self.choices


class Setting(msgspec.Struct, frozen=True):
    """What a policy may know about its environment."""

    cluster: ClusterView
    seed: int = 0
    round_s: float = 0.0
    vcs: tuple[str, ...] = ()
    """Virtual clusters that are known at the start: those of the trace. Others become known through their jobs."""
    typical: Typical | None = None
    """Typical requests of jobs, used by `place=fgd`. None: it uses the requests of the latest jobs."""
    offers: frozenset[Need] = frozenset(Need)
    """What the engine offers; a policy decides without the rest."""
    weights: Weights = EQUAL
    """Of users and virtual clusters."""
    texts: Texts = msgspec.field(default_factory=Texts)
    """If given, collects the files that policies are made of."""


ROUND = Knob("round_s", 0.0, "decide only at multiples of so many seconds; 0: whenever something happens")
"""Every policy has this knob; a policy made for rounds declares it with another default."""

ROUND_MIN_S = 0.1


Assumes = frozenset[Need] | Callable[[Knobs], frozenset[Need]]
"""The needs of a policy: always, or with these knobs."""


class ActsOn(msgspec.Struct, frozen=True):
    """The jobs without which a policy is another one: a trace that has none shows nothing of it."""

    words: str
    """What such a job has, and the columns of a trace that give it."""
    has: Callable[[JobSpec], bool]
    without: str
    """What the policy does if there are none."""


class Policy(msgspec.Struct, frozen=True):
    name: str
    title: str
    paper: str
    build: Callable[[Knobs, Setting], Planner]
    assumes: Assumes = frozenset()
    knobs: tuple[Knob, ...] = ()
    acts_on: ActsOn | None = None

    def needs(self, knobs: Knobs | None = None) -> frozenset[Need]:
        """The needs with these knobs, or with the defaults. A policy that needs true durations is an oracle: a bound
        for comparison only."""
        if knobs is None:
            knobs = {knob.name: knob.default for knob in self.knobs}
        found = self.assumes(knobs) if callable(self.assumes) else self.assumes
        return found | common_needs(knobs)


def common_needs(knobs: Knobs) -> frozenset[Need]:
    """The needs by knobs of every policy: those of adjusters and of the placement; backfilling needs the expected ends
    of running jobs."""
    from skep.policies.adjust.named import NONE, named_adjusters, needs_of_adjusters
    from skep.policies.place import PLACES

    found = needs_of_adjusters(named_adjusters(knobs.get("adjust", NONE)))
    if "place" in knobs:
        found |= PLACES[knobs["place"]].needs
    return found | {Need.ORACLE} if knobs.get("walk") == "easy" else found


def shown_needs(needs: frozenset[Need]) -> str:
    return ", ".join(need for need in Need if need in needs) or "nothing"


@functools.cache
def policies() -> dict[str, Policy]:
    found = {}
    for module in ZOO:
        for policy in importlib.import_module(f"skep.policies.zoo.{module}").POLICIES:
            found[policy.name] = policy
    return found


def build_planner(spec: str, setting: Setting) -> Planner:
    """The planner that a policy spec names."""
    if ".py:" in spec:
        from skep.policies.own import build_own

        return build_own(spec, setting)
    policy, knobs = parse_policy(spec)
    round_s = round_of(spec, setting, knobs["round_s"])
    texts = setting.texts.only(files_in(policy, knobs))
    planner = policy.build(knobs, msgspec.structs.replace(setting, round_s=round_s, texts=texts))
    planner.round_s = round_s
    planner.declared = policy.needs(knobs)
    return planner


def round_of(spec: str, setting: Setting, default: float) -> float:
    """From the policy's spec, else from the setting, else the policy's default."""
    text = spec.partition(".py:")[2] if ".py:" in spec else spec
    given = split_knobs(spec, text.partition(":")[2]).get(ROUND.name)
    if given is None:
        return setting.round_s or default
    round_s = float(parse_value(spec, ROUND, given))
    if not (round_s == 0 or ROUND_MIN_S <= round_s < math.inf):
        raise InputError(f"policy '{spec}': round_s={given}: expected 0, or at least {ROUND_MIN_S:g}")
    return round_s


def needs_of(spec: str, texts: Texts | None = None) -> frozenset[Need]:
    """The needs of the policy that a spec names."""
    if ".py:" in spec:
        from skep.policies.own import own_needs

        return own_needs(spec, texts or Texts())
    policy, knobs = parse_policy(spec)
    return policy.needs(knobs)


def idle_on(spec: str, jobs: Iterable[JobSpec]) -> str:
    """A sentence if this policy finds nothing in these jobs to act on; empty otherwise."""
    acts_on = None if ".py:" in spec else parse_policy(spec)[0].acts_on
    if acts_on is None or any(map(acts_on.has, jobs)):
        return ""
    return f"no job of the trace has {acts_on.words}; {acts_on.without}"


def parse_policy(spec: str) -> tuple[Policy, Knobs]:
    name, _, text = spec.partition(":")
    policy = policies().get(name)
    if policy is None:
        raise InputError(
            f"policy '{name}' is not known", hint=did_you_mean(name, policies(), most=3) or "`skep policies` lists them"
        )
    return policy, parse_knobs(spec, text, (ROUND, *policy.knobs))


def files_of(spec: str) -> list[str]:
    """The files that a policy spec names."""
    if ".py:" in spec:
        return [f"{spec.partition('.py:')[0]}.py"]
    return files_in(*parse_policy(spec))


def files_in(policy: Policy, knobs: Knobs) -> list[str]:
    return [knobs[knob.name] for knob in policy.knobs if knob.is_file and knobs[knob.name] not in knob.choices]


def split_knobs(spec: str, text: str) -> dict[str, str]:
    given = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InputError(f"policy '{spec}': '{part}' is not key=value", hint="for example fifo:walk=skip")
        if key in given:
            raise InputError(f"policy '{spec}': knob '{key}' is given twice")
        given[key] = value
    return given


def parse_knobs(spec: str, text: str, knobs: tuple[Knob, ...]) -> Knobs:
    known = {knob.name: knob for knob in knobs}
    values = {knob.name: knob.default for knob in knobs}
    for key, value in split_knobs(spec, text).items():
        if key not in known:
            hint = did_you_mean(key, known) or f"it has {', '.join(known)}"
            raise InputError(f"policy '{spec}': no knob '{key}'", hint=hint)
        values[key] = parse_value(spec, known[key], value)
    return values


# Of the type of its default.
def parse_value(spec: str, knob: Knob, text: str) -> Any:
    """By the type of the default."""
    where = f"policy '{spec}': {knob.name}={text}"
    if isinstance(knob.default, bool):
        if text not in ("true", "false"):
            raise InputError(f"{where}: expected true or false")
        return text == "true"
    if isinstance(knob.default, tuple):
        return () if text == "none" else tuple(parse_number(where, part) for part in text.split("+"))
    if isinstance(knob.default, float):
        number = parse_number(where, text)
        if number < knob.least:
            raise InputError(f"{where}: expected at least {knob.least:g}")
        return number
    if knob.choices and text not in knob.choices and not looks_like_file(knob, text):
        choices = ", ".join(knob.choices) + (" or a file" if knob.is_file else "")
        raise InputError(f"{where}: expected one of {choices}", hint=did_you_mean(text, knob.choices))
    return text


NUMBER_MIN, NUMBER_MAX = 1e-6, 1e12
"""Beyond what a knob can mean: times would overflow, or no time would pass."""


def looks_like_file(knob: Knob, text: str) -> bool:
    return knob.is_file and ("/" in text or "." in text)


def parse_number(where: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 0:
        raise InputError(f"{where}: expected a number >= 0")
    if number and not NUMBER_MIN <= number <= NUMBER_MAX:
        raise InputError(f"{where}: expected 0, or a number from {NUMBER_MIN:g} to {NUMBER_MAX:g}")
    return number


def shown_value(value: object) -> str:
    """A knob's value in the form in which it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "+".join(f"{part:g}" for part in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
