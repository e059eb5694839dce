"""Compares the result of a step with the expected one.

A hand-written scenario is compared in full. A recorded case is compared as HiveD's `check.py` does: only the steps that
depend on no tie, and only what any correct scheduler must agree on; if ours is clearly better (a gang placed that HiveD
lets wait, fewer nodes, fewer victims, …) the case is *better* and not compared further, because later steps start from
another state.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from skep.core.cells.layout import Layout
from skep.core.errors import InputError
from skep.scenarios.read import Scenario, Step, refuse_unknown
from skep.scenarios.replay import Outcome

RESULTS = ("bind", "preempt", "wait", "error")
COMPARED = ("result", "node", "leafCells", "cellChain", "affinity", "groupAffinity", "waitClass", "victims", "groups")
INFORMATIVE = ("error", "groupPlacement", "victimsByNode", "vcHealth", "groupDetails")
"""In recorded cases too; of `error` only the class is compared."""
UNCOMPARED_OPS = ("inspect", "listGroups")


class Comparison(enum.StrEnum):
    OK = "ok"
    DIFFERS = "differs"
    BETTER = "better"
    QUIRK = "quirk"
    """HiveD's answer is recorded as an error of its own, and ours differs."""
    UNJUDGED = "-"
    """Nothing is expected."""


class Difference(msgspec.Struct, frozen=True):
    step: int
    """0: the configuration."""
    what: str
    expected: str
    seen: str
    is_better: bool = False

    def __str__(self) -> str:
        return f"{self.what} expected {self.expected}, seen {self.seen}"


def check_expectation(step: Step) -> None:
    """A typing error in what is expected would otherwise be an expectation that always holds."""
    expect = step.expect
    if expect is None or step.op in UNCOMPARED_OPS:
        return
    refuse_unknown(expect, (*COMPARED, *INFORMATIVE), f"{step.where}: expect", "key")
    if "result" in expect and expect["result"] not in RESULTS:
        problem = f"{step.where}: expect.result is {expect['result']!r}, expected one of {', '.join(RESULTS)}"
        raise InputError(problem)
    if step.op != "schedule" and expect.keys() - {"groups", *INFORMATIVE}:
        raise InputError(f"{step.where}: of a {step.op} only groups can be expected")
    for key, kind in (("victims", list), ("leafCells", list), ("groups", dict)):
        if key in expect and not isinstance(expect[key], kind):
            raise InputError(f"{step.where}: expect.{key} is not a {'list' if kind is list else 'mapping'}")


def judge(scenario: Scenario, outcomes: list[Outcome]) -> tuple[Comparison, list[Difference]]:
    if scenario.kind != "schedule" or scenario.refused:
        return judge_configuration(scenario)
    differences = list(compare_steps(scenario, outcomes))
    if not differences:
        is_judged = any(step.expect for step in scenario.steps if step.op not in UNCOMPARED_OPS)
        return (Comparison.OK if is_judged else Comparison.UNJUDGED), []
    if differences[0].is_better:
        return Comparison.BETTER, differences
    return (Comparison.QUIRK if scenario.source == "quirk" else Comparison.DIFFERS), differences


def judge_configuration(scenario: Scenario) -> tuple[Comparison, list[Difference]]:
    """HiveD crashes on a chain that no VC uses; accepting it is better."""
    is_refused, should_be = bool(scenario.refused), scenario.kind == "config-error"
    if is_refused == should_be or scenario.expect_refused == "hived-bug-chain-without-vc":
        return (Comparison.OK if is_refused == should_be else Comparison.BETTER), []
    expected = f"refused ({scenario.expect_refused})" if should_be else "accepted"
    seen = scenario.refused or "accepted"
    return Comparison.DIFFERS, [Difference(0, "the configuration is", expected, seen)]


def compare_steps(scenario: Scenario, outcomes: list[Outcome]) -> Iterator[Difference]:
    """All differences of a scenario; of a recorded case the first."""
    levels = level_of_types(scenario.layout) if scenario.layout is not None else {}
    is_recorded = scenario.robust is not None
    for step, outcome in zip(scenario.steps[: scenario.robust], outcomes, strict=False):
        if step.expect is None or step.op in UNCOMPARED_OPS:
            continue
        wanted = robust_view(step) if is_recorded else step.expect
        for key, expected, seen in unequal(wanted, outcome, is_recorded=is_recorded):
            is_better = is_recorded and is_improved(key, expected, seen, step.expect, outcome, levels)
            yield Difference(step.number, key, show(expected), show(seen), is_better)
            if is_recorded:
                return


def robust_view(step: Step) -> dict[str, Any]:
    """What any correct scheduler must agree on."""
    expect = step.expect or {}
    wanted: dict[str, Any] = {}
    if step.op == "schedule":
        wanted["result"] = expect.get("result")
        keys = {"bind": ("cellChain", "affinity", "groupAffinity"), "preempt": ("victims",), "error": ("error",)}
        wanted |= {key: expect[key] for key in keys.get(str(wanted["result"]), ()) if key in expect}
        if wanted["result"] == "bind" and "groupPlacement" in expect:
            pods = (pod for size in expect["groupPlacement"].values() for pod in size)
            wanted["groupNodes"] = len({pod["node"] for pod in pods})
    if "groups" in expect:
        wanted["groups"] = expect["groups"]
    return wanted


def unequal(wanted: dict[str, Any], outcome: Outcome, *, is_recorded: bool) -> Iterator[tuple[str, Any, Any]]:
    """(what, expected, seen), the result first."""
    for key in sorted(wanted, key=lambda key: (key != "result", key)):
        expected, seen = wanted[key], outcome.get(key)
        if key == "error":
            expected, seen = (expected or {}).get("class"), outcome.get("errorClass")
            if expected is None:
                continue
        elif key in INFORMATIVE:
            continue
        elif key in ("victims", "leafCells") and seen is not None:
            expected, seen = sorted(expected, key=str), sorted(seen, key=str)
        elif key == "groups" and is_recorded:
            expected, seen = settled(expected), settled(seen or {})
        if expected != seen:
            yield key, expected, seen


def settled(groups: dict[str, str]) -> dict[str, str]:
    """HiveD never takes BeingPreempted back after a cancelled preemption (its quirk 3)."""
    return {name: state.replace("BeingPreempted", "Allocated") for name, state in groups.items()}


def is_improved(
    key: str, expected: Any, seen: Any, expect: dict[str, Any], outcome: Outcome, levels: dict[str, int]
) -> bool:
    """True if this is a difference where ours is clearly better."""
    if outcome.get("result") == "bind" and expect.get("result") in ("wait", "preempt"):
        return True
    if seen is None:
        return False
    if key == "groupNodes":
        return bool(seen < expected)
    if key in ("affinity", "groupAffinity"):
        return levels.get(seen, 99) < levels.get(expected, 99)
    if key == "victims":
        return set(seen) < set(expected)
    if key == "groups" and seen.keys() == expected.keys():
        return all(expected[name] in (state, f"{state}/lazyPreempted") for name, state in seen.items())
    return False


def level_of_types(layout: Layout) -> dict[str, int]:
    chains = (layout.chain_types(cell.type) for cell in layout.cells)
    return {kind.name: level for types in chains for level, kind in enumerate(types, start=1)}


def show(value: Any) -> str:
    """Within a message of one line."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name}={state}" for name, state in sorted(value.items())) or "none"
    return str(value)
