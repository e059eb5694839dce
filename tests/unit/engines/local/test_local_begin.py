from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.core.allocation import Seat
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InputError
from skep.core.model import GroupRef
from skep.engines.local import begin, criu
from skep.engines.local.accounts import Account
from skep.engines.local.begin import BASE_ENV, base_env, place_tasks, server_env, warnings_of
from skep.jobs.env import TaskPlace
from skep.jobs.request import Request, TaskRole

NODES = {0: "a", 1: "b"}


def places(roles: dict[str, TaskRole], *slices: Slice, member: GroupRef | None = None) -> list[TaskPlace]:
    return place_tasks(Request("job", roles), member, Allocation(slices, 0), NODES)


def test_tasks_of_a_slice_get_equal_parts_in_order() -> None:
    found = places({"w": TaskRole(count=3, gpus=2)}, Slice(1, gpus=0b1011_0001, tasks=2), Slice(0, gpus=0b11))
    assert found == [TaskPlace("w", 0, "b", (0, 4)), TaskPlace("w", 1, "b", (5, 7)), TaskPlace("w", 2, "a", (0, 1))]


def test_ranks_sit_where_the_allocation_says() -> None:
    roles = {"ps": TaskRole(), "w": TaskRole(count=3, gpus=1)}
    usual = Allocation((Slice(0, role=0), Slice(0, gpus=0b11, role=1, tasks=2), Slice(1, gpus=0b1, role=1)), 3)
    other = usual.seated([Seat(1, 1, (0,)), Seat(1, 0, (1,)), Seat(1, 0, (0,))])
    found = place_tasks(Request("job", roles), None, other, NODES)
    workers = [TaskPlace("w", 0, "b", (0,)), TaskPlace("w", 1, "a", (1,)), TaskPlace("w", 2, "a", (0,))]
    assert found == [TaskPlace("ps", 0, "a", ()), *workers]


def test_roles_come_in_their_order() -> None:
    roles = {"ps": TaskRole(), "w": TaskRole(count=2, gpus=1)}
    found = places(roles, Slice(0, gpus=0b1, role=1), Slice(1, role=0), Slice(1, gpus=0b10, role=1))
    assert [(place.task, place.node, place.gpus) for place in found] == [
        ("ps-0", "b", ()),
        ("w-0", "a", (0,)),
        ("w-1", "b", (1,)),
    ]


def test_tasks_on_one_shared_gpu_all_see_it() -> None:
    found = places({"w": TaskRole(count=2, gpus=1, gpu_milli=300)}, Slice(0, gpus=0b100, milli=300, tasks=2))
    assert [place.gpus for place in found] == [(2,), (2,)]


def test_a_member_keeps_its_number() -> None:
    assert places({"a-b": TaskRole(count=9)}, Slice(1, gpus=0b1), member=GroupRef("17", "a-b", 7)) == [
        TaskPlace("a-b", 7, "b", (0,))
    ]


def test_an_allocation_without_a_task_is_refused() -> None:
    with pytest.raises(InputError, match="no task"):
        places({"w": TaskRole()})


def test_warnings_are_for_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin, "criu_problem", lambda: "no criu here")
    request = Request("job", {"w": TaskRole(image="i:1"), "v": TaskRole()}, checkpoint="criu")
    assert warnings_of(request) == ["no criu here"]
    assert warnings_of(Request("job", {"w": TaskRole()})) == []


def test_a_task_inherits_what_the_server_has_but_not_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_TOKEN", "secret")
    monkeypatch.setenv("PYTHONUNBUFFERED", "0")
    env = base_env(server_env(), None, "/w")
    assert "SKEP_TOKEN" not in env
    assert (env["CUDA_DEVICE_ORDER"], env["PYTHONUNBUFFERED"]) == ("PCI_BUS_ID", "0")


def test_another_account_inherits_only_what_it_needs() -> None:
    mine = {"PATH": "/bin", "LC_ALL": "C", "AWS_SECRET": "x", "HOME": "/root", "USER": "r"}
    env = base_env(mine, Account("ann", 50_000, 50_000), "/w")
    assert env == BASE_ENV | {"PATH": "/bin", "LC_ALL": "C", "HOME": "/w", "USER": "ann", "LOGNAME": "ann"}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (None, "criu is not installed"),
        ("exit 0", None),
        ("echo 'Error (x): too old' >&2; exit 1", r"`criu check` fails \(Error \(x\): too old\)"),
        ("exit 1", r"`criu check` fails \(exit code 1\)"),
    ],
)
def test_whether_criu_works_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, problem: str | None
) -> None:
    if script is not None:
        (tmp_path / "criu").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "criu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    criu.criu_problem.cache_clear()
    said = criu.criu_problem()
    criu.criu_problem.cache_clear()
    if problem is None:
        assert said is None
    else:
        assert said is not None
        assert said.count("\n") == 0
        assert re.search(problem, said)
