"""One file, many trials: `search` has ranges or lists of values, and a rule by which trials are stopped early.

The trials are drawn here, once, from the seed of the search: every reader of the file draws the same ones.
"""

from __future__ import annotations

import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping

import msgspec

from skep.core.chance import draw
from skep.core.search import MODES, RULES, SearchSpec
from skep.files.document import Field, Raw
from skep.jobs import fields
from skep.jobs.sweep import combination, refuse_too_many, refuse_unknown
from skep.jobs.table import JobField, Kind, Table, choice, duration, mapping, read_fields, whole

TRIALS_MAX = 1000
STEPS_MAX = 1e12
HOURS_MAX = 1e6
VALUE_MAX = 1e100
"""The largest end of a range."""
DRAWS_PER_TRIAL = 100
SERIES = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
"""A name under which jobs report."""

Draw = Callable[[float], str]
"""A value from a number that is evenly drawn from 0 to 1."""


def _metric(field: Field) -> str:
    return fields.word(field, SERIES, "a series that the job reports: letters, digits and _.:/-, at most 64")


def _above(least: float, most: float) -> Callable[[Field], float]:
    def read(field: Field) -> float:
        found = fields.number(field, most)
        if found <= least:
            raise field.fault(f"a number above {least:g}, at most {most:g}")
        return found

    return read


NUMBER = {"type": ["number", "null"]}
RULE: Table = {
    "metric": JobField(
        Kind("letters, digits, `_.:/-`", {"type": "string"}, _metric, reads_null=True),
        "The reported series to compare by.",
        "required",
    ),
    "mode": JobField(choice(MODES), "Which values are better.", "`min`"),
    "rule": JobField(
        choice(RULES),
        "Who goes on: `none` all, `median` those not worse than the median, `asha` and `hypersched` the best 1/`eta`.",
        "`none`",
    ),
    "first": JobField(
        Kind("above 0", NUMBER, _above(0, STEPS_MAX)),
        "Steps before trials are compared for the first time.",
        "required with a rule",
    ),
    "eta": JobField(
        Kind("above 1, at most 100", NUMBER, _above(1, 100)),
        "Of this many trials one goes on, and the next comparison is after this many times the steps.",
        "3; 4 with `hypersched`",
    ),
    "deadline_s": JobField(duration(can_be_zero=False), "When the search ends, after its submission.", "none"),
    "gpu_hours": JobField(
        Kind("above 0", NUMBER, _above(0, HOURS_MAX)), "GPU time of all trials, after which the search ends.", "none"
    ),
}
PROPOSE: Table = {
    "parameters": JobField(
        mapping({}, fields.VARIABLE.pattern, "names, each with a list or a range", None, fields.PARAMETERS_MAX),
        "What to try: a list of values, or one of `{uniform: [low, high]}`, `{log: [low, high]}`, "
        "`{int: [low, high]}`, `{choice: [...]}`.",
        "required",
    ),
    "propose": JobField(
        choice(("grid", "random")),
        "`grid`: every combination; `random`: `trials` of them.",
        "`grid`, with `trials` `random`",
    ),
    "trials": JobField(whole(1, TRIALS_MAX), "How many; the most with `grid`.", "all"),
    "seed": JobField(whole(0, 2**31), "Of the random draws.", "0"),
}
SEARCH: Table = {**RULE, **PROPOSE}


class Proposal(msgspec.Struct):
    """Which combinations are tried."""

    propose: str = ""
    trials: int | None = None
    seed: int = 0

    @property
    def is_grid(self) -> bool:
        return (self.propose or ("grid" if self.trials is None else "random")) == "grid"


class Parameter(msgspec.Struct):
    draw: Draw
    choices: list[str] | None = None
    """None for a range."""


def read_rule(field: Field) -> SearchSpec:
    given = field.fields(tuple(RULE), required=("metric",))
    values = read_fields(given, RULE)
    rule = values.get("rule", "none")
    if rule != "none" and "first" not in values:
        raise field.trouble(f"{field.path}.first is missing: the steps before trials are compared for the first time")
    if rule == "hypersched" and "deadline_s" not in values:
        raise field.trouble(f"{field.path}.deadline_s is missing: hypersched divides the time until then")
    values.setdefault("eta", 4.0 if rule == "hypersched" else 3.0)
    return SearchSpec(**values)


def trials(document: Field) -> Iterator[Field]:
    """The jobs of a document with a search: one for each trial."""
    search = _alone(document)
    if search.is_null:
        yield document
        return
    given = search.fields(tuple(SEARCH), required=("metric", "parameters"))
    entries = zip(search.raw.content[::2], search.raw.content[1::2], strict=True)
    rule = Raw([raw for pair in entries if pair[0].content in RULE for raw in pair], search.raw.line, is_map=True)
    read_rule(Field(document.file, search.path, rule))
    parameters = _parameters(given["parameters"])
    refuse_unknown(document, parameters, "search")
    for number, values in enumerate(_proposed(document, given, parameters), start=1):
        yield combination(document, values, number, rule)


def _alone(document: Field) -> Field:
    given = document.fields()
    for other in ("sweep", "parameters"):
        if other in given:
            raise given[other].trouble(f"{other} and search are both given", hint="a search sets the parameters")
    return given["search"]


def _proposed(
    document: Field, given: Mapping[str, Field], parameters: Mapping[str, Parameter]
) -> Iterator[dict[str, str]]:
    search = document.fields()["search"]
    asked = Proposal(**read_fields({name: given[name] for name in given if name in PROPOSE}, PROPOSE))
    ranges = [name for name, each in parameters.items() if each.choices is None]
    size = math.prod(len(each.choices) for each in parameters.values() if each.choices is not None)
    if asked.is_grid:
        if ranges:
            problem = f"{search.path}.parameters.{ranges[0]} is a range, which no grid has"
            raise given["parameters"].trouble(problem, hint="say how many trials to draw, or give a list")
        refuse_too_many(search, size, document, asked.trials or TRIALS_MAX)
        return grid(parameters)
    if asked.trials is None:
        raise search.trouble(f"{search.path}.trials is missing: how many are drawn")
    if not ranges and asked.trials > size:
        raise given["trials"].trouble(f"{search.path}.trials is {asked.trials}, and there are {size:,} combinations")
    refuse_too_many(search, asked.trials, document, TRIALS_MAX)
    return drawn(parameters, asked.trials, asked.seed)


def grid(parameters: Mapping[str, Parameter]) -> Iterator[dict[str, str]]:
    for values in itertools.product(*(each.choices or [] for each in parameters.values())):
        yield dict(zip(parameters, values, strict=True))


def drawn(parameters: Mapping[str, Parameter], count: int, seed: int) -> Iterator[dict[str, str]]:
    """Different ones; fewer if there are not as many."""
    seen: set[tuple[str, ...]] = set()
    for number in range(count * DRAWS_PER_TRIAL):
        values = {name: each.draw(chance(seed, name, number)) for name, each in parameters.items()}
        if len(seen) < count and tuple(values.values()) not in seen:
            seen.add(tuple(values.values()))
            yield values


def chance(seed: int, name: str, number: int) -> float:
    """From 0 to 1, and never 1."""
    return draw(seed, zlib.crc32(name.encode()), number) / 2**64


def _parameters(field: Field) -> dict[str, Parameter]:
    found = {}
    for name, values in fields.mapping(field, most=fields.PARAMETERS_MAX).items():
        if fields.VARIABLE.fullmatch(name) is None:
            raise values.trouble(f"{values.path[:200]!r}: expected a name of letters, digits and underscores")
        found[name] = _parameter(values)
    if not found:
        raise field.fault("at least one, such as lr: {log: [1e-4, 0.1]}")
    return found


def _parameter(field: Field) -> Parameter:
    if not field.is_mapping:
        return _choices(field)
    given = field.fields(("choice", *RANGES))
    if len(given) != 1:
        raise field.fault(f"one of choice, {', '.join(RANGES)}")
    kind, ends = next(iter(given.items()))
    return _choices(ends) if kind == "choice" else Parameter(_range(kind, ends))


def _choices(field: Field) -> Parameter:
    choices = [fields.label(value, most=fields.PARAMETER_MAX) for value in field.items()]
    if not choices:
        raise field.fault("a list of values")
    return Parameter(lambda part: choices[int(part * len(choices))], choices)


def _range(kind: str, field: Field) -> Draw:
    items = field.items()
    if len(items) != 2:
        raise field.fault("two numbers, [low, high]")
    low, high = (_end(item) for item in items)
    if not low < high:
        raise field.trouble(f"{field.path}: {low:g} is not below {high:g}, expected [low, high]")
    if kind == "log" and low <= 0:
        raise field.trouble(f"{field.path}: a log range begins above 0, and this one at {low:g}")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise field.trouble(f"{field.path}: expected two whole numbers")
    return RANGES[kind](low, high)


def _end(field: Field) -> float:
    text = field.text("a number")
    try:
        found = float(text) if len(text) <= fields.NUMBER_MAX else math.nan
    except ValueError:
        found = math.nan
    if not abs(found) <= VALUE_MAX:
        raise field.fault("a number")
    return found


def uniform(low: float, high: float) -> Draw:
    return lambda part: f"{low + part * (high - low):.6g}"


def log(low: float, high: float) -> Draw:
    return lambda part: f"{low * (high / low) ** part:.6g}"


def integer(low: float, high: float) -> Draw:
    return lambda part: str(int(low) + int(part * (int(high) - int(low) + 1)))


RANGES: dict[str, Callable[[float, float], Draw]] = {"uniform": uniform, "log": log, "int": integer}
