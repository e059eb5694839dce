"""Runs a scenario from its first step to its last: the answers, and whether they are the expected ones.

After every step the invariants are checked: no GPU is used twice, a gang is placed as a whole, guaranteed work lies
inside cells of its VC, every VC could still be given everything it owns, and nothing new was put on a bad node.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skep.core.cells.tree import PhysicalCell
from skep.core.errors import InvariantBroken
from skep.scenarios.compare import Comparison, Difference, check_expectation, judge
from skep.scenarios.gangs import Gang
from skep.scenarios.read import Scenario
from skep.scenarios.replay import Outcome, Replay
from skep.scenarios.scheduler import GangScheduler


class Played(msgspec.Struct):
    """A scenario with what came of it."""

    scenario: Scenario
    outcomes: list[Outcome]
    verdict: Comparison
    differences: list[Difference]

    def answer(self) -> dict[str, Any]:
        """As HiveD's `check.py` reads it."""
        scenario = self.scenario
        if scenario.kind != "schedule" or scenario.refused:
            return {"id": scenario.id, "configError": bool(scenario.refused)}
        return {"id": scenario.id, "steps": self.outcomes}


def play(scenario: Scenario) -> Played:
    outcomes: list[Outcome] = []
    if scenario.kind == "schedule" and scenario.layout is not None:
        if scenario.robust is None:
            for step in scenario.steps:
                check_expectation(step)
        outcomes = play_steps(scenario, Replay(scenario.layout, scenario.nodes))
    return Played(scenario, outcomes, *judge(scenario, outcomes))


def play_steps(scenario: Scenario, replay: Replay) -> list[Outcome]:
    outcomes = []
    for step in scenario.steps:
        before = set(replay.cells.gangs)
        given = step.given if step.layout is None else {**step.given, "layout": step.layout}
        try:
            outcomes.append(replay.play(given))
            is_asked = step.op == "schedule"
            check_always(replay.cells, [gang for gang in replay.cells.gangs if is_asked and gang not in before])
        except Exception as error:  # a bug: it must not lose the answers of other scenarios
            raise InvariantBroken(f"{step.where}: {type(error).__name__}: {error}") from error
    return outcomes


def check_always(cells: GangScheduler, new: list[str]) -> None:
    """The invariants after every step; `new` are the gangs that this step has placed."""
    for chain in cells.chains.values():
        if not cells.books.is_safe(chain):
            raise InvariantBroken(f"{chain.name}: too few cells are left for what the VCs have not used")
    holders: dict[int, Gang] = {}
    for gang in cells.gangs.values():
        if [len(pod) for pod in gang.physical] != gang.request.sizes:
            raise InvariantBroken(f"{gang!r} is placed in part")
        for leaf, virtual in gang.pairs():
            is_leaving = cells.on(leaf).reserver not in (None, gang)
            if not is_leaving and holders.setdefault(id(leaf), gang) is not gang:
                raise InvariantBroken(f"{leaf!r} is held by {gang!r} and {holders[id(leaf)]!r}")
            if virtual is not None and not is_leaving and not is_within(leaf, gang.request.vc):
                raise InvariantBroken(f"{gang!r} is guaranteed {leaf!r}, which its VC does not have")
    for name in new:
        if any(not leaf.is_healthy for leaf, _ in cells.gangs[name].pairs()):
            raise InvariantBroken(f"gang {name} was placed on a bad node")


def is_within(leaf: PhysicalCell, vc: str) -> bool:
    return leaf.virtual is not None and leaf.virtual.vc == vc
