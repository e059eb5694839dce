"""Scheduling specs from anybody: what is wrong is an `error` outcome of class user_error, and nothing is held."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from scenario_files import CONFIG

from skep.clusters.hived import parse_layout
from skep.scenarios.replay import Replay

GOOD = {"virtualCluster": "a", "leafCellNumber": 1}
GANG = {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 1}]}


def replay() -> Replay:
    return Replay(parse_layout(CONFIG))


def schedule(**given: Any) -> dict[str, Any]:
    return replay().play({"op": "schedule", "pod": "p", **given})


WRONG: dict[str, Any] = {
    "no mapping": [],
    "text": "virtualCluster: a",
    "nothing": None,
    "empty": {},
    "an unknown VC": {**GOOD, "virtualCluster": "nobody"},
    "a VC that is a mapping": {**GOOD, "virtualCluster": {"a": 1}},
    "a VC that is a list": {**GOOD, "virtualCluster": ["a"]},
    "a VC with a name of a megabyte": {**GOOD, "virtualCluster": "a" * 1_000_000},
    "a VC of another alphabet": {**GOOD, "virtualCluster": "名前"},
    "half a character": {**GOOD, "virtualCluster": "\ud800"},
    "a priority below": {**GOOD, "priority": -2},
    "a priority above": {**GOOD, "priority": 1001},
    "a priority of text": {**GOOD, "priority": "high"},
    "a priority that is a flag": {**GOOD, "priority": True},
    "a fraction": {**GOOD, "priority": 1.5},
    "no number": {**GOOD, "leafCellNumber": float("nan")},
    "no gpus": {**GOOD, "leafCellNumber": 0},
    "negative gpus": {**GOOD, "leafCellNumber": -4},
    "gpus beyond any": {**GOOD, "leafCellNumber": 10**30},
    "gpus missing": {"virtualCluster": "a"},
    "an unknown type": {**GOOD, "leafCellType": "H100"},
    "a type that is a list": {**GOOD, "leafCellType": ["GPU"]},
    "an unknown pinned cell": {**GOOD, "pinnedCellId": "mine"},
    "lazy as text": {**GOOD, "lazyPreemptionEnable": "perhaps"},
    "suggested as a number": {**GOOD, "ignoreK8sSuggestedNodes": 1},
    "a group of text": {**GOOD, "affinityGroup": "g"},
    "a group without a name": {**GOOD, "affinityGroup": {"members": GANG["members"]}},
    "a group with a mapping as name": {**GOOD, "affinityGroup": {**GANG, "name": {}}},
    "a group without members": {**GOOD, "affinityGroup": {"name": "g"}},
    "members as a number": {**GOOD, "affinityGroup": {"name": "g", "members": 3}},
    "members as text": {**GOOD, "affinityGroup": {"name": "g", "members": "xx"}},
    "members of numbers": {**GOOD, "affinityGroup": {"name": "g", "members": [1]}},
    "a member of none": {**GOOD, "affinityGroup": {"name": "g", "members": [{"podNumber": 0, "leafCellNumber": 1}]}},
    "no member of its size": {
        **GOOD,
        "affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 2}]},
    },
}


@pytest.mark.parametrize("spec", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_spec_is_an_error_of_the_user(spec: Any) -> None:
    outcome = schedule(spec=spec)
    assert outcome["result"] == "error"
    assert outcome["errorClass"] == "user_error"
    assert outcome["groups"] == {}
    assert len(outcome["reason"]) < 300
    json.dumps(outcome)


RAW: dict[str, Any] = {
    "empty": " ",
    "no text": 7,
    "broken": "a: [",
    "a list": "- a",
    "two documents": "virtualCluster: a\n---\nleafCellNumber: 1",
    "ten megabytes": "virtualCluster: a\nleafCellNumber: 1\nnote: " + "x" * 10_000_000,
    "half a character": "virtualCluster: \ud800",
    "a tag": "!!python/object:os.system {}",
    "aliases without end": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{new}: &{new} [*{old},*{old},*{old},*{old},*{old},*{old},*{old},*{old},*{old}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "deep": "[" * 10_000,
}


@pytest.mark.parametrize("text", RAW.values(), ids=RAW.keys())
def test_a_wrong_annotation_is_an_error_of_the_user_and_soon_said(text: Any) -> None:
    start = time.process_time()
    outcome = schedule(rawAnnotation=text)
    assert (outcome["result"], outcome["errorClass"]) == ("error", "user_error")
    assert time.process_time() - start < 2


RIGHT: dict[str, str] = {
    "plain": "virtualCluster: a\nleafCellNumber: 1",
    "JSON": '{"virtualCluster": "a", "leafCellNumber": 1}',
    "old names": "virtualCluster: a\ngpuType: GPU\ngpuNumber: 1",
    "old names in members": "{virtualCluster: a, gpuNumber: 1, "
    "affinityGroup: {name: g, members: [{podNumber: 1, gpuNumber: 1}]}}",
    "unknown keys": "virtualCluster: a\nleafCellNumber: 1\nmultiChainRelaxEnable: true",
    "empty values": "virtualCluster: a\nleafCellNumber: 1\npriority:\nleafCellType:\naffinityGroup: null",
    "old flags": "virtualCluster: a\nleafCellNumber: 1\nlazyPreemptionEnable: yes\nignoreK8sSuggestedNodes: off",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_annotation_is_bound(text: str) -> None:
    assert schedule(rawAnnotation=text)["result"] == "bind"


def test_names_may_look_like_numbers_or_flags() -> None:
    config = {**CONFIG, "virtualClusters": {"7": CONFIG["virtualClusters"]["a"], "no": CONFIG["virtualClusters"]["b"]}}
    for name in ("7", "no"):
        step = {"op": "schedule", "pod": "p", "rawAnnotation": f"virtualCluster: {name}\nleafCellNumber: 1"}
        assert Replay(parse_layout(config)).play(step)["result"] == "bind"


@pytest.mark.parametrize("priority", [-1, 0])
def test_a_gang_of_billions_waits_and_costs_nothing(priority: int) -> None:
    members = [{"podNumber": 2_000_000_000, "leafCellNumber": 1}]
    spec = {**GOOD, "priority": priority, "affinityGroup": {"name": "g", "members": members}}
    start = time.process_time()
    assert schedule(spec=spec)["result"] == "wait"
    assert time.process_time() - start < 1


def test_a_pod_that_runs_cannot_join_another_gang() -> None:
    played = replay()
    assert played.play({"op": "schedule", "pod": "p", "spec": GOOD})["result"] == "bind"
    again = played.play({"op": "schedule", "pod": "p", "spec": {**GOOD, "affinityGroup": GANG}})
    assert again["result"] == "error"
    assert again["groups"] == {"test/p": "Allocated"}
