"""A policy in the user's own file: `./mine.py:Mine`, with knobs as `./mine.py:Mine:key=value`.

`Mine` is either an order (it has `key`), which becomes a pipeline with the knobs of every pipeline, or a planner (it
has `plan`). Other knobs are passed to its constructor, as numbers if they look like numbers.
"""

from __future__ import annotations

import linecache
import pathlib
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from skep.core.errors import InputError, did_you_mean
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.view import JobView
from skep.files.text import Texts
from skep.policies.adjust.preempt import ByPriority, Preempt
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.base import Key, Order
from skep.policies.registry import ROUND, Setting, common_needs, parse_value, round_of, split_knobs

OWN_MODULE = "skep_own_"
"""The prefix of the module names of such files."""
OWN_FILES: set[str] = set()
"""The files that were loaded, as they were named."""
NOTEBOOK = "notebook.py"
"""Stands for the file of classes that this process has defined itself."""
NAMED: dict[str, type] = {}
"""Such classes by the name in their spec."""

PLANNER_DEFAULTS: dict[str, object] = {"name": "", "round_s": 0.0, "drifts": False, "why_never": lambda view, job: ""}
"""What a planner in a user's file may leave out, beside its needs."""


def build_own(spec: str, setting: Setting) -> Planner:
    file, _, rest = spec.partition(".py:")
    name, _, text = rest.partition(":")
    found = load_class(f"{file}.py", name, setting.texts)
    own = OwnKnobs(spec, text)
    declared = declared_by(found, f"{file}.py", own)
    try:
        made = found(**own.for_class)
    except (Exception, SystemExit) as error:
        raise InputError(f"{file}.py: {name}({own.for_class}) failed: {type(error).__name__}: {error}") from error
    if hasattr(made, "plan"):
        for attribute, default in PLANNER_DEFAULTS.items():
            if not hasattr(made, attribute):
                setattr(made, attribute, default)
        made.name = made.name or name
        made.round_s = round_of(spec, setting, made.round_s)
        made.declared = declared
        made.needs_in = lambda vc: declared
        return made  # type: ignore[no-any-return]  # a user's class: only `plan` is known
    if not isinstance(made, Order):
        raise InputError(
            f"{file}.py: {name} is neither an order nor a planner",
            hint="derive it from skep.policies.Order and give it key(job, now_s)",
        )
    check_order(made, f"{file}.py", name)
    preempt = Preempt() if made.preemptive else ByPriority()
    planner = make_pipeline(name, own.for_pipeline, setting, order=made, preempt=preempt)
    planner.round_s = round_of(spec, setting, 0.0)
    planner.declared = declared
    return planner


def name_class(given: type) -> str:
    """The spec of a class of this process. A class that replaces another one of its name gets a number: results of both
    may be compared."""
    name, number = given.__name__, 2
    while NAMED.setdefault(name, given) is not given:
        name, number = f"{given.__name__}-{number}", number + 1
    OWN_FILES.update(each.__code__.co_filename for each in vars(given).values() if isinstance(each, types.FunctionType))
    return f"{NOTEBOOK}:{name}"


def check_order(order: Order, file: str, name: str) -> None:
    """Have its keys and times checked: NaN is neither before nor after anything, keys of different types cannot be
    sorted, and a time that has passed would wake the policy for ever."""
    if type(order).key is Order.key:
        raise InputError(
            f"{file}: {name} has no method key",
            hint="`def key(self, job, now_s)`: the job with the smallest goes first",
        )
    key, changes_at = order.key, order.changes_at
    first: list[tuple[Key, ...]] = []
    """The first key: all others must be comparable with it, value by value."""

    def checked_key(job: JobView, now_s: float) -> Key:
        found = key(job, now_s)
        values = found if isinstance(found, tuple) else (found,)
        if any(each != each for each in values):
            raise ValueError(f"the key of job {job.id} is not a number")
        if not first:
            first.append(values)
        try:
            for one, other in zip(values, first[0], strict=False):
                bool(one < other)
        except (TypeError, ValueError):
            text = f"the key of job {job.id} is {values}, which cannot be compared with {first[0]}, that of another job"
            raise ValueError(text) from None
        return found

    def checked_change(job: JobView, now_s: float) -> float:
        at_s = changes_at(job, now_s)
        if not at_s > now_s:
            raise ValueError(f"changes_at of job {job.id} is {at_s:g} at {now_s:g} s, expected a later time")
        return at_s

    checked: dict[str, Callable[[JobView, float], Key]] = {"key": checked_key}
    if order.jumps:
        checked["changes_at"] = checked_change
    for name, method in checked.items():
        setattr(order, name, method)


def own_line(error: BaseException) -> tuple[str, int] | None:
    """The file and the line of a user's policy in which this error arose, if it did in one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in OWN_FILES:
            return frame.filename, frame.lineno or 0
    return None


def own_needs(spec: str, texts: Texts) -> frozenset[Need]:
    file, _, rest = spec.partition(".py:")
    name, _, text = rest.partition(":")
    return declared_by(load_class(f"{file}.py", name, texts), f"{file}.py", OwnKnobs(spec, text))


def declared_by(found: type, file: str, own: OwnKnobs) -> frozenset[Need]:
    """The needs that its class declares; a policy that preempts needs checkpoints."""
    said = getattr(found, "needs", ())
    try:
        needs = frozenset(map(Need, (said,) if isinstance(said, str) else said))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{file}: {found.__name__}.needs is {said!r}", hint=f"expected a set of {', '.join(Need)}"
        ) from error
    preempts = frozenset({Need.CHECKPOINT} if getattr(found, "preemptive", False) else ())
    return needs | preempts | common_needs(own.for_pipeline)


class OwnKnobs:
    """Split the knobs into those of the pipeline and those of the class."""

    def __init__(self, spec: str, text: str) -> None:
        known = {knob.name: knob for knob in (*common_knobs(walk="skip"), ROUND)}
        self.for_pipeline = {name: knob.default for name, knob in known.items()}
        self.for_class: dict[str, float | str] = {}
        for key, value in split_knobs(spec, text).items():
            if key in known:
                self.for_pipeline[key] = parse_value(spec, known[key], value)
            else:
                self.for_class[key] = number_or_text(value)


def number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# A user's class.
def load_class(file: str, name: str, texts: Texts) -> Any:
    if file == NOTEBOOK and name in NAMED:
        return NAMED[name]
    path = pathlib.Path(file)
    if file not in texts.by_path and not path.is_file():
        raise InputError(f"policy file {file} does not exist", hint="expected ./file.py:Class")
    text = texts.load(file, what="a policy in Python")
    module = types.ModuleType(f"{OWN_MODULE}{path.stem}")
    module.__file__ = file
    OWN_FILES.add(file)
    sys.modules[module.__name__] = module  # dataclasses and pickling look it up there
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # tracebacks read it there
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise InputError(f"policy file {file} is broken: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise InputError(f"policy file {file} has no class '{name}'", hint=did_you_mean(name, classes))
    return found
