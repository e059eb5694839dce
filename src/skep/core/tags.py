"""Tags: what a node has and a role may need.

A node has tags of the forms `key=value`, `key` and, for a taint, `~key` or `~key=value`. A role needs expressions:
`key=a|b` (one of these values), `key!=a|b` (none of them), `key`, `!key`, `key>5`, `key<5`, and `~a|b=c`, which means
no taint but these. ` & ` joins expressions into one, ` or ` lists alternatives.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

Tags = frozenset[str]
Test = Callable[[Tags], bool]

NO_TAGS: Tags = frozenset()
TAINT = "~"
UNTAINTED = "~"
"""The expression of a role that tolerates no taint."""

_TEST = re.compile(r"(?P<not>!?)(?P<key>[^\s=!<>|&~]+)(?:(?P<how>!=|=|<|>)(?P<values>[^\s=!<>&~]*))?")
_TAINTS = re.compile(r"~[^\s!<>&~]*")


def check_expression(text: str) -> bool:
    """True if it has the form of an expression."""
    return all(map(_is_test, (test for way in text.split(" or ") for test in way.split(" & "))))


def _is_test(text: str) -> bool:
    found = _TEST.fullmatch(text)
    if found is None:
        return _TAINTS.fullmatch(text) is not None
    if found["how"] in ("<", ">"):
        return not found["not"] and _number(found["values"]) is not None
    return not (found["not"] and found["how"]) and (found["how"] is None or bool(found["values"]))


@functools.lru_cache(4096)
def compiled(expression: str) -> Test:
    """Each distinct expression is compiled once."""
    ways = [[_test(text) for text in way.split(" & ")] for way in expression.split(" or ")]
    return lambda tags: any(all(test(tags) for test in way) for way in ways)


def _test(text: str) -> Test:
    if text.startswith(TAINT):
        return _tolerates(frozenset(text[1:].split("|")))
    found = _TEST.fullmatch(text)
    assert found is not None, text
    key, how, values = found["key"], found["how"], (found["values"] or "").split("|")
    if how in ("<", ">"):
        return _compares(key, float(values[0]), -1 if how == "<" else 1)
    wanted = frozenset(f"{key}={value}" for value in values)
    if how == "=":
        return lambda tags: not wanted.isdisjoint(tags)
    if how == "!=":
        return lambda tags: wanted.isdisjoint(tags)
    is_wanted = not found["not"]
    return lambda tags: any(tag == key or tag.startswith(f"{key}=") for tag in tags) == is_wanted


def _tolerates(those: frozenset[str]) -> Test:
    """A taint is tolerated by its key, or by its key and value."""

    def test(tags: Tags) -> bool:
        taints = (tag[1:] for tag in tags if tag.startswith(TAINT))
        return all(taint in those or taint.partition("=")[0] in those for taint in taints)

    return test


def _compares(key: str, limit: float, sign: int) -> Test:
    def test(tags: Tags) -> bool:
        numbers = (_number(tag[len(key) + 1 :]) for tag in tags if tag.startswith(f"{key}="))
        return any(number is not None and (number - limit) * sign > 0 for number in numbers)

    return test


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,9})?", text) else None


def has_tags(tags: Tags, needed: tuple[str, ...]) -> bool:
    return all(compiled(expression)(tags) for expression in needed)
