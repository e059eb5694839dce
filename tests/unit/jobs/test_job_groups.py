"""`group` of a job file: a name, or what is to hold for the group."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.core.group import FIRST_SUCCEEDED, EndsWhen, Enough, GroupKind, GroupSpec
from skep.core.model import GroupRef
from skep.jobs.core import groups_of, read_ends_when
from skep.jobs.read import read_requests
from skep.jobs.request import OfGroup
from skep.jobs.write import job_text


def test_a_name_and_a_mapping() -> None:
    plain, more = read_requests(
        "[{name: a, command: ls, group: g},"
        "{name: b, command: ls, group: {name: g, kind: workflow, weight: 2, ends_when: first-succeeded}}]"
    ).requests
    assert (plain.group, plain.of_group) == ("g", OfGroup())
    assert more.of_group == OfGroup("workflow", weight=2.0, ends_when="first-succeeded")
    assert groups_of(more, "7") == [
        GroupSpec("default//g", GroupKind.WORKFLOW, 2.0, FIRST_SUCCEEDED, name="g"),
    ]
    for request in (plain, more):
        assert read_requests(job_text(request)[0]).requests[0] == request


def test_a_sweep_counts_its_jobs_and_keeps_what_was_said() -> None:
    text = "{name: t, command: ls, group: {name: 'g-${x}', ends_when: min_succeeded=2}, sweep: {x: [p, q]}}"
    found = read_requests(text).requests
    assert [(each.group, each.of_group.index, each.of_group.kind) for each in found] == [
        ("g-p", 0, "sweep"),
        ("g-q", 1, "sweep"),
    ]
    assert {each.of_group.ends_when for each in found} == {"min_succeeded=2"}


def test_tasks_that_start_one_by_one_are_a_group_within_the_named_one() -> None:
    (request,) = read_requests("{name: a, command: ls, count: 2, gang: false, group: g}").requests
    _, own = groups_of(request, "7")
    assert own == GroupSpec(
        "7",
        GroupKind.INCREMENTAL,
        ends_when=EndsWhen((Enough("task", failed=1),)),
        within=GroupRef("default//g"),
    )


@pytest.mark.parametrize("group", ["{kind: sweep}", "{name: g, ends_when: soon}", "{name: g, weight: 0}", "[g]"])
def test_what_is_no_group_is_refused_in_a_line(group: str) -> None:
    with pytest.raises(InputError, match="group"):
        read_requests(f"{{name: a, command: ls, group: {group}}}")


def test_words_that_are_no_rule() -> None:
    assert [read_ends_when(text) for text in ("min_succeeded=0", "min_failed=x", "", "First-failed")] == [None] * 4
