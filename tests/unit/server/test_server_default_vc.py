"""The VC of a job that names none: one that its user may use and that has GPUs, for every way to submit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_world import JOB, World, maker

from skep.server.routes.submit import examples

TEAMS = """
nodes: [{count: 4, name: n, gpus: 8}, {name: big, gpus: 8}]
vcs: {alone: {pinned: [big]}, prod: 1 node, research: 2 nodes, lab: 1 node}
"""
OPENPAI = """
protocolVersion: 2
name: pai
type: job
prerequisites: [{name: image, type: dockerimage, uri: none}]
taskRoles:
  main: {dockerImage: image, resourcePerInstance: {cpu: 1, memoryMB: 100, gpu: 1}, commands: ["true"]}
"""


@pytest.fixture(scope="module")
def teams_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("teams"), maker(TEAMS)) as made:
        yield made


@pytest.fixture(scope="module")
def teams_with_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("tokens"), maker(TEAMS), auth="token") as made:
        yield made


@pytest.fixture
def world(teams_world: World) -> World:
    teams_world.clear()
    return teams_world


def submit(world: World, body: object = JOB, **options: Any) -> dict[str, Any]:
    given = {"json": body} if not isinstance(body, str) else {"content": body}
    headers = {**options.pop("headers", {}), "Content-Type": "application/yaml" if "content" in given else ""}
    answer = world.client.post("/api/v1/jobs", headers={k: v for k, v in headers.items() if v}, **given, **options)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_it_is_the_one_with_most_gpus_and_the_answer_says_so(world: World) -> None:
    found = submit(world)
    assert found["jobs"][0]["vc"] == "research"
    assert found["warnings"] == ["VC research was chosen: this cluster has no VC default, and no other is named"]


def test_a_vc_that_is_named_stays_and_nothing_is_said(world: World) -> None:
    found = submit(world, {**JOB, "vc": "lab"})
    assert (found["jobs"][0]["vc"], found["warnings"]) == ("lab", [])


def test_files_of_openpai_batches_and_sweeps(world: World) -> None:
    assert submit(world, OPENPAI)["jobs"][0]["vc"] == "research"
    swept = submit(world, {**JOB, "name": "s-${lr}", "sweep": {"lr": ["1", "2"]}})
    assert {job["vc"] for job in swept["jobs"]} == {"research"}
    batch = world.client.post("/api/v1/jobs:batch", json={"jobs": [JOB, {**JOB, "vc": "prod"}]}).json()
    assert [world.live.brief(job_id)["vc"] for job_id in batch["ids"]] == ["research", "prod"]
    assert any("VC research was chosen" in each for each in batch["warnings"])


@pytest.mark.parametrize("example", examples(), ids=lambda example: example["name"])
def test_the_examples_of_the_dashboard(world: World, example: dict[str, str]) -> None:
    tried = submit(world, example["text"], params={"dry_run": "true"})
    assert tried["errors"] == []
    assert {each["vc"] for each in tried["requests"]} == {"research"}
    assert any("VC research was chosen" in each for each in tried["warnings"])
    assert {job["vc"] for job in submit(world, example["text"])["jobs"]} == {"research"}


@pytest.mark.parametrize(
    ("vcs", "role", "chosen", "is_said"),
    [
        ((), "user", "research", True),
        (("lab", "prod"), "user", "prod", True),
        (("alone", "prod"), "user", "prod", True),
        (("prod",), "user", "prod", False),
        (("prod",), "admin", "research", True),
    ],
)
def test_it_is_one_that_the_token_is_for(
    teams_with_tokens: World, vcs: tuple[str, ...], role: str, chosen: str, is_said: bool
) -> None:
    found = submit(teams_with_tokens, headers=teams_with_tokens.bearer("ann", role, *vcs))
    assert found["jobs"][0]["vc"] == chosen
    assert bool(found["warnings"]) == is_said


@pytest.mark.parametrize("example", examples(), ids=lambda example: example["name"])
def test_the_examples_fit_a_small_vc(tmp_path: Path, example: dict[str, str]) -> None:
    with World(tmp_path, maker("nodes: [{count: 2, gpus: 2, cpus: 4, memory_gib: 16}]\nvcs: {a: 1 node}")) as small:
        assert submit(small, example["text"], params={"dry_run": "true"})["errors"] == []


def test_the_vc_default_is_taken_where_there_is_one(guarded: World) -> None:
    assert submit(guarded, headers=guarded.bearer("ann", "user"))["jobs"][0]["vc"] == "default"
    found = submit(guarded, headers=guarded.bearer("bob", "user", "lab", "prod"))
    assert found["jobs"][0]["vc"] in ("lab", "prod")
    assert "this token is not for VC default" in found["warnings"][0]


def test_a_vc_default_without_gpus_is_not_taken(tmp_path: Path) -> None:
    with World(tmp_path, maker("nodes: [{count: 2, gpus: 2}]\nvcs: {default: , a: 1 node}")) as made:
        found = submit(made)
    assert found["jobs"][0]["vc"] == "a"
    assert found["warnings"] == ["VC a was chosen: VC default has no GPUs, and no other is named"]


def test_without_virtual_clusters_nothing_changes(open_world: World) -> None:
    found = submit(open_world)
    assert (found["jobs"][0]["vc"], found["warnings"]) == ("default", [])
