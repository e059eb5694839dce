"""The state has three doors. The guard (`tests/doors.py`) watches the tests of the kernel, the golden traces and the
service; here it is shown that it notices what comes in elsewhere, and that the source has nothing of the kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.doors import WroteBesideTheDoors
from tests.support import cluster, job
from tests.unit.core.by_hand import ByHand, gpus

import skep
from skep.core.job import DERIVED, SEEN, SENT, WANTED, Job
from skep.core.state import State

PACKAGE = Path(skep.__file__).parent
STATE_FIELDS = frozenset(vars(State(cluster("1x1"))))
JOB_FIELDS = frozenset(Job.__slots__)


def test_every_field_of_a_job_is_wanted_sent_seen_or_derived() -> None:
    parts = (*WANTED, *SENT, *SEEN, *DERIVED)
    assert len(parts) == len(set(parts)) == len(vars_of(ByHand(job(id="a"))["a"]))


def vars_of(each: Job) -> dict[str, object]:
    return {name: getattr(each, name) for name in Job.__slots__}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("job.held = None", "`held` of a job outside every door"),
        ("job.work_s += 1", "`work_s` of a job outside every door"),
        ("state.now_s = 5.0", "`now_s` of the state outside every door"),
        ("state.orders.dirty = {}", "`dirty` of the state outside every door"),
        ("state.orders.dirty[0] = job", "an entry of `dirty` outside every door"),
        ("del state.jobs['a']", "an entry of `jobs` outside every door"),
        ("state.held_jobs.pop(0, None)", "an entry of `held_jobs` outside every door"),
    ],
)
def test_a_write_of_the_package_beside_the_doors_is_noticed(line: str, what: str) -> None:
    world = ByHand(job(id="a"))
    planted = {"__name__": "skep.policies.planted", "job": world["a"], "state": world.state}
    with pytest.raises(WroteBesideTheDoors, match=what):
        exec(line, planted)


def test_a_door_writes_its_own_fields_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ByHand(job(id="a"))
    planted = {"__name__": "skep.core.planted", "job": world["a"]}
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1)))

    def note(state: State, *sent: object) -> None:
        exec("job.bound = None", planted)

    monkeypatch.setattr("skep.core.state.note_sent", note)
    world.state.orders.dirty[0] = world["a"]
    with pytest.raises(WroteBesideTheDoors, match="`bound` of a job inside send"):
        world.state.send()


def test_the_difference_is_computed_without_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ByHand(job(id="a"))
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1)))
    planted = {"__name__": "skep.core.orders", "job": world["a"]}
    monkeypatch.setattr("skep.core.orders.halt", lambda orders, job: exec("job.launches += 1", planted))
    world.state.orders.dirty[0] = world["a"]
    with pytest.raises(WroteBesideTheDoors, match="`launches` of a job inside reconcile"):
        world.state.send()


# The source --------------------------------------------------------------------------------------------------------


def writes_in(source: str) -> Iterator[str]:
    """Assignments to fields of a job or a state, and deletions of them."""
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            yield from (ast.unparse(each) for each in parts_of(target) if is_field(each))


def parts_of(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def is_field(target: ast.expr) -> bool:
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, ast.Attribute):
        return False
    owner = ast.unparse(target.value).split(".")[-1]
    is_job = owner == "job" and target.attr in JOB_FIELDS
    return is_job or (owner == "state" and target.attr in STATE_FIELDS) or owner in ("orders", "health")


def test_nothing_outside_the_core_writes_a_job_or_the_state() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {write}"
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "core"
        for write in writes_in(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    "line",
    [
        "job.held = None",
        "self.job.work_s += 1.0",
        "state.now_s = 5.0",
        "self.state.jobs['a'] = job",
        "scheduler.state.orders.dirty = {}",
        "del state.held_jobs[3]",
        "first, job.held = 1, None",
    ],
)
def test_a_planted_write_is_found(line: str) -> None:
    assert list(writes_in(line))
