"""What a pending job may ask for instead."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.jobs.alter import Alteration, altered
from skep.jobs.request import Elastic, Request, TaskRole


def gang(**roles: TaskRole) -> Request:
    return Request("train", roles or {"worker": TaskRole(count=4, gpus=2, command="true")})


def test_fewer_gpus_are_fewer_tasks() -> None:
    found = altered(gang(), Alteration(gpus=4))
    assert found == gang(worker=TaskRole(count=2, gpus=2, command="true"))
    assert altered(gang(), Alteration(gpus=8)) == gang()


def test_a_job_of_one_task_has_fewer_gpus_in_it() -> None:
    assert altered(gang(worker=TaskRole(gpus=8)), Alteration(gpus=3)) == gang(worker=TaskRole(gpus=3))


def test_tasks_are_not_split() -> None:
    with pytest.raises(InputError, match="cannot have 3 GPUs"):
        altered(gang(), Alteration(gpus=3))


def test_an_elastic_job_still_has_its_range() -> None:
    asked = Request("train", {"worker": TaskRole(count=4, gpus=1)}, elastic=Elastic("worker", 4, 8))
    assert altered(asked, Alteration(gpus=2)).elastic == Elastic("worker", 2, 8)
    assert altered(asked, Alteration(gpus=16)).elastic == Elastic("worker", 4, 16)


def test_which_role_would_be_a_guess() -> None:
    with pytest.raises(InputError, match="only a gang with GPUs in one role"):
        altered(gang(a=TaskRole(gpus=1), b=TaskRole(gpus=1)), Alteration(gpus=1))


def test_another_type_for_all_tasks_with_gpus() -> None:
    found = altered(gang(a=TaskRole(gpus=1, gpu_type="k80"), b=TaskRole(cpu=1.0)), Alteration(gpu_type="v100"))
    assert found.tasks == {"a": TaskRole(gpus=1, gpu_type="v100"), "b": TaskRole(cpu=1.0)}
    assert altered(found, Alteration(gpu_type="")).tasks["a"].gpu_type == ""


@pytest.mark.parametrize("bound", [{"pinned": "cell"}, {"group": "sweep"}])
def test_what_belongs_to_a_vc_stays_there(bound: dict[str, str]) -> None:
    request = Request("train", {"worker": TaskRole(gpus=1)}, vc="a", **bound)
    with pytest.raises(InputError, match="which belongs to VC a"):
        altered(request, Alteration(vc="b"))
    assert altered(request, Alteration(vc="a")) == request
