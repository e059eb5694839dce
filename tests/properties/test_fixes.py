"""A change that is offered to let a job start now, made for real, starts it: on a server with a store, whose engine
does at once what it is told."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.service.live_world import LiveWorld
from worlds import examples

from skep.core.actions import Action, Launch, Move, Resume, Stop, Suspend
from skep.core.errors import InputError
from skep.core.events import Solved
from skep.core.reports import Exited, Looked, Moved, Report, Resumed, Started, Suspended
from skep.core.solving import Unsolved, solve_encoded
from skep.experiments.adviser_now import try_now
from skep.experiments.fixes import candidates, case_of
from skep.jobs.alter import Alteration
from skep.jobs.request import Request, TaskRole
from skep.policies.registry import policies
from skep.service import commands
from skep.service.advice import Asker, Fix
from skep.service.alter import alter
from skep.service.followed import Followed
from skep.service.solvers import Question
from skep.service.turn import Command

CLUSTERS = (
    "1x4",
    "2x4",
    "nodes: [{count: 1, name: k, gpus: 4, gpu_type: k80}, {count: 2, name: v, gpus: 2, gpu_type: v100}]\n",
    "nodes: [{count: 3, name: n, gpus: 4}]\nvcs: {a: 1 nodes, b: 2 nodes}\n",
    "nodes: [{count: 2, name: n, gpus: 4}]\nvcs: {a: 4 gpus, b: 4 gpus}\n",
)
ADMIN = Asker()


class FixWorld(LiveWorld):
    """Time passes only between what the test does; solvers answer at once."""

    def open(self) -> None:
        super().open()
        self.questions: list[Question] = []
        self.writer.solve = self.questions.append
        self.writer.pass_questions()

    def turn(self, asked: list[Command], reports: list[Report]) -> None:
        self.writer.turn(asked, reports, self.now_s)
        if self.puppet.is_asked_to_look:
            self.puppet.is_asked_to_look = False
            self.writer.turn([], [Looked()], self.now_s)

    def settle(self) -> None:
        while self.puppet.asked or self.questions:
            asked, self.puppet.asked = self.puppet.asked, []
            self.tell(*[report for action in asked if (report := self.report(action)) is not None])
            questions, self.questions = self.questions, []
            for each in questions:
                self.ask(commands.solved(solved(each)))

    def report(self, action: Action) -> Report | None:
        job = self.writer.state.jobs[action.job_id]
        if isinstance(action, Launch):
            return Started(job.id, action.launch)
        if isinstance(action, Move):
            return Moved(job.id, action.launch)
        if isinstance(action, Stop):
            return Exited(job.id, job.held_launch, 143, was_stopped=True)
        if isinstance(action, Suspend):
            return Suspended(job.id, action.launch, action.memory)
        return Resumed(job.id, action.launch) if isinstance(action, Resume) else None

    def pass_time(self, until_s: float) -> None:
        """With everything that is due until then."""
        while (due_s := self.writer.wake_s) <= until_s:
            self.now_s = max(due_s, self.now_s)
            before = self.writer.state.version
            self.turn([], [])
            self.settle()
            if self.writer.state.version == before:
                break
        self.now_s = until_s


def solved(question: Question) -> Solved:
    try:
        return Solved(question.number, question.at, solve_encoded(question.solver, question.problem))
    except Unsolved as error:
        return Solved(question.number, question.at, error=str(error))


@st.composite
def requests(draw: st.DrawFn, has_vcs: bool, has_types: bool) -> Request:
    gpus = draw(st.sampled_from([1, 2, 3, 4, 4, 6, 8]))
    role = TaskRole(
        count=gpus,
        gpus=1,
        command="true",
        gpu_type=draw(st.sampled_from(["", "k80", "v100"])) if has_types else "",
    )
    if draw(st.booleans()):
        role = msgspec.structs.replace(role, count=1, gpus=gpus)
    return Request(
        "job",
        {"task": role},
        vc=draw(st.sampled_from("ab")) if has_vcs else "default",
        user=draw(st.sampled_from(["ann", "bob"])),
        priority=draw(st.sampled_from([-1, 10, 10, 100])),
        preemptible=draw(st.booleans()),
        expect_s=draw(st.sampled_from([50.0, 500.0])),
        hold=draw(st.integers(0, 9)) == 0,
    )


def lived(data: st.DataObject, folder: Path, policy: str) -> FixWorld:
    """A server on which some time has passed."""
    cluster = data.draw(st.sampled_from(CLUSTERS))
    world = FixWorld(folder, cluster, policy)
    asked = requests("vcs" in cluster, "k80" in cluster)
    for request in data.draw(st.lists(asked, min_size=2, max_size=8)):
        try:
            world.submit(request)
        except InputError:
            continue  # it could never run here
        world.settle()
        world.pass_time(world.now_s + data.draw(st.sampled_from([0.0, 7.0, 400.0])))
    nodes = [node.name for node in world.writer.state.cluster.nodes]
    for node in data.draw(st.lists(st.sampled_from(nodes), max_size=1)):
        world.ask(commands.drain(node, True, "ann"))
        world.settle()
    return world


def offered(world: FixWorld, job_id: str, asker: Asker = ADMIN) -> list[Fix]:
    followed = Followed(world.folder)
    kept = followed.catch_up()
    case = case_of(kept, job_id, world.writer.book.records[job_id].request, asker, world.now_s)
    followed.store.close()
    if case is None:
        return []
    return try_now(case, list(candidates(case)), 60.0).fixes


def make(world: FixWorld, job_id: str, fix: Fix) -> None:
    change: dict[str, Any] = dict(fix.change)
    match fix.kind:
        case "release":
            world.ask(commands.hold(job_id, False, "ann"))
        case "alter":
            world.ask(alter(job_id, Alteration(**change), "ann"))
        case "priority":
            world.ask(commands.reprioritise(job_id, change["priority"], "ann"))
        case "undrain":
            world.ask(commands.drain(change["node"], False, "ann"))
        case "stop":
            world.ask(commands.stop(change["job"], "ann", ""))
        case "wait":
            world.tell(Exited(change["job"], world.writer.state.jobs[change["job"]].held_launch, 0))
        case "node":
            ground = world.writer.ground
            names = [node.name for node in world.writer.state.cluster.nodes]
            specs = [node.spec for node in world.writer.state.cluster.nodes]
            like = msgspec.structs.replace(specs[names.index(change["like"])], name="more")
            world.ask(commands.apply_cluster(nodes_text([*specs, like]), ground.name, "ann"))
    world.settle()
    planner = world.writer.planning.planner
    assert planner is not None
    if planner.round_s and world.writer.state.wake_s < math.inf:
        world.pass_time(world.writer.state.wake_s)


def nodes_text(specs: list[Any]) -> str:
    return "nodes:\n" + "".join(
        f"- {{name: {each.name}, gpus: {each.gpus}{f', gpu_type: {each.gpu_type}' if each.gpu_type else ''}}}\n"
        for each in specs
    )


@pytest.mark.parametrize("policy", sorted(policies()))
@examples(5)
@given(data=st.data())
def test_what_is_offered_starts_the_job(policy: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = lived(data, Path(folder), policy)
        waiting = [name for name, each in world.writer.book.records.items() if each.row.state == "pending"]
        if waiting:
            job_id = data.draw(st.sampled_from(waiting))
            fixes = offered(world, job_id)
            if fixes:
                fix = data.draw(st.sampled_from(fixes))
                make(world, job_id, fix)
                assert world.writer.state.jobs[job_id].allocation is not None, fix
        world.store.close()
