"""Every GET of the API, asked by a token of one VC after a job of another VC has preempted one of its jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_world import World, maker

from skep.service.foreseen import Foreseen, Foresight, Likely

API = "/api/v1"
CLUSTER = "nodes: [{count: 2, name: n, gpus: 2}]"
OTHERS = ("hush", "crimson", "ann", '"red"')
"""Words that only the jobs, the traces and the studies of VC red have."""
QUERIES = {
    "/jobs": ["", "?all=true&counts=true", "?q=hush&all=true"],
    "/jobs/{id}/logs:search": ["?q=a"],
    "/compare": ["?job=mine&job=late", "?group=crimson"],
    "/events": ["?follow=false", "?follow=false&last=100", "?follow=false&job=mine"],
    "/history": ["?vc=true"],
    "/usage": ["?by=user", "?by=vc", "?by=job"],
    "/decisions": ["", "?job=mine"],
}
NOT_FOR_THEM = {"/tokens": 403, "/searches/{name}": 404}
SEARCHED = "crimson-lr"
STREAMS = [("/events", {"Last-Event-ID": "0"}), ("/events?job=late", {"Last-Event-ID": "0"}), ("/changes?after=1", {})]


class Scene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.red, self.blue = world.bearer("ann", "owner", "red"), world.bearer("bob", "user", "blue")
        self.mine = self.submit(self.blue, vc="blue", name="mine", gpus=2)
        self.victim = self.submit(self.blue, vc="blue", name="late", gpus=2)
        world.wait_for(self.victim, "running")
        self.theirs = self.preempt()
        world.wait_for(self.victim, "pending")
        search = {"metric": "loss", "parameters": {"lr": [0.1, 0.01]}}
        body = {"command": "train ${lr}", "name": SEARCHED, "vc": "red", "hold": True, "search": search}
        assert world.client.post(f"{API}/jobs", json=body, headers=self.red).status_code == 201
        self.upload()
        world.live.foresight = self.forecast()

    def forecast(self) -> Foresight:
        """Of all jobs, for all readers."""
        soon = Likely(2e9, 2e9, 2e9)
        jobs = {job_id: Foreseen(soon, soon, "owner") for job_id in (self.mine, self.victim, self.theirs)}
        return Foresight(1e9, 2e9, 5, 0.0, "fifo", jobs, [])

    def submit(self, who: dict[str, str], **fields: Any) -> str:
        answer = self.world.client.post(f"{API}/jobs", json={"command": "true", **fields}, headers=who)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def preempt(self) -> str:
        fields = {"vc": "red", "name": "hush", "priority": 50, "group": "crimson", "tags": ["crimson"]}
        theirs = self.submit(self.red, gpus=2, **fields)
        self.world.wait_for(theirs, "running")
        return theirs

    def upload(self) -> None:
        text = "job_id,submit_s,duration_s,gpus\nj,0,1,1\n"
        client, headers = self.world.client, {**self.red, "Content-Type": "text/csv"}
        self.trace = client.post(f"{API}/traces?name=crimson.csv", content=text, headers=headers).json()["id"]
        study = {"policies": ["fifo"], "trace": self.trace, "cluster": "1x1", "name": "crimson"}
        self.study = client.post(f"{API}/studies", json=study, headers=self.red).json()["id"]

    def get(self, path: str, who: dict[str, str]) -> httpx.Response:
        return self.world.client.get(f"{API}{path}", headers=who)

    def check(self, text: str, where: str) -> None:
        for word in (*OTHERS, f"job {self.theirs}", f'"{self.theirs}"', self.trace, self.study):
            assert word not in text, (where, word)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with World(tmp_path_factory.mktemp("hidden"), maker(CLUSTER), auth="token") as world:
        yield Scene(world)


def paths(scene: Scene) -> Iterator[tuple[str, str]]:
    """Every GET of the API, with values for its parameters: the path as declared, and as asked."""
    schema = scene.world.client.get("/openapi.json", headers=scene.blue).json()
    for path, methods in schema["paths"].items():
        declared = path.removeprefix(API)
        if "get" in methods and path.startswith(API) and declared != "/changes":
            values = [scene.mine, scene.victim] if declared.startswith("/jobs/") else [scene.study]
            for value in values if "{id}" in declared else [""]:
                name = SEARCHED if declared.startswith("/searches") else "n0"
                asked = declared.replace("{id}", value).replace("{name}", name)
                for query in QUERIES.get(declared, [""]):
                    yield declared, asked + query


def until_preempted(lines: Iterator[str]) -> str:
    found = ""
    for line in lines:
        found += line + "\n"
        if "preempted by" in line or line == ": still here":
            break
    return found


def test_no_answer_names_a_job_of_another_vc(scene: Scene) -> None:
    asked = list(paths(scene))
    assert len(asked) > 30
    for declared, path in asked:
        answer = scene.get(path, scene.blue)
        is_theirs = declared.startswith(("/studies/{id}", "/searches/{name}"))
        assert answer.status_code == (404 if is_theirs else NOT_FOR_THEM.get(declared, 200)), (path, answer.text)
        if not is_theirs:
            scene.check(answer.text, path)


def test_the_preempted_job_says_why_without_the_name(scene: Scene) -> None:
    phrase = f"preempted by job {scene.theirs}"
    assert phrase in scene.get(f"/jobs/{scene.victim}/events", scene.world.bearer("root", "admin")).text
    for path in (f"/jobs/{scene.victim}", f"/jobs/{scene.victim}/events", "/events?follow=false"):
        assert "preempted by a job of another VC" in scene.get(path, scene.blue).text


@pytest.mark.parametrize(("path", "headers"), STREAMS)
def test_no_stream_names_a_job_of_another_vc(scene: Scene, path: str, headers: dict[str, str]) -> None:
    with scene.world.client.stream("GET", f"{API}{path}", headers={**scene.blue, **headers}) as stream:
        found = until_preempted(stream.iter_lines())
    scene.check(found, path)
    assert "preempted by a job of another VC" in found


@pytest.mark.parametrize("path", ["/events", "/events?job=late", "/changes"])
def test_no_live_stream_names_a_job_of_another_vc(scene: Scene, path: str) -> None:
    """Another turn: theirs ends, ours runs again, and is preempted again."""
    with scene.world.client.stream("GET", f"{API}{path}", headers=scene.blue) as stream:
        lines = stream.iter_lines()
        next(lines)
        scene.world.end(scene.theirs)
        scene.world.wait_for(scene.victim, "running")
        scene.theirs = scene.preempt()
        found = until_preempted(lines)
    scene.check(found, path)
    assert "preempted by a job of another VC" in found


def test_what_another_user_keeps_is_as_if_it_were_not(scene: Scene) -> None:
    for kind, theirs in (("traces", scene.trace), ("studies", scene.study)):
        answers = [scene.world.client.delete(f"{API}/{kind}/{each}", headers=scene.blue) for each in (theirs, "0" * 8)]
        assert [answer.status_code for answer in answers] == [404, 404]
        said = [json.loads(answer.text)["error"] for answer in answers]
        assert said[0] == said[1].replace("0" * 8, theirs)
