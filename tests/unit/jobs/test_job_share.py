"""What a job file says of sharing GPUs."""

from __future__ import annotations

import pytest

from skep.core.errors import InputError
from skep.core.share import Share
from skep.jobs.core import to_core
from skep.jobs.read import read_requests
from skep.jobs.request import Request
from skep.jobs.write import job_text

HEAD = "name: small\ngpus: 1\ncommand: sleep 1\n"


def read(text: str) -> Request:
    return read_requests(HEAD + text).requests[0]


def test_what_is_asked_for_goes_to_the_roles_and_the_rest_to_the_scheduler() -> None:
    request = read("share: {mode: token, request: 0.3, limit: 0.6, memory_gib: 4, weight: 2, affinity: lab}")
    role = request.tasks["task"]
    assert (role.gpu_milli, role.gpu_mem_gib) == (300, 4)
    (spec,) = to_core(request, "1")
    assert spec.share == Share("token", 600, 2, "lab")
    assert spec.shapes[0].roles[0].gpu_milli == 300


def test_all_that_a_share_may_say() -> None:
    text = "share: {persistent_gib: 2, ephemeral_gib: 6, claim: auto, promise: 0.95, exclusion: a, anti_affinity: b}"
    (spec,) = to_core(read(text), "1")
    expected = Share(
        anti_affinity="b", exclusion="a", persistent_gib=2, ephemeral_gib=6, claim="auto", promise_milli=950
    )
    assert spec.share == expected
    assert spec.shapes[0].roles[0].gpu_mem_gib == 8


def test_a_tier_is_for_the_policy_to_read() -> None:
    assert to_core(read("share: {tier: standard}"), "1")[0].share == Share(tier="standard")
    assert to_core(read("share: {tier: basic, promise: 0.25}"), "1")[0].share == Share(promise_milli=250)


def test_a_job_that_says_nothing_has_no_share() -> None:
    assert to_core(read(""), "1")[0].share is None
    assert to_core(read("share: null"), "1")[0].share is None


def test_a_share_survives_being_written() -> None:
    request = read("share: {mode: mig, request: 0.428, memory_gib: 20}")
    assert read_requests(job_text(request)[0]).requests == [request]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("share: {mode: half}", "share.mode is half, expected one of exclusive, pack"),
        ("share: {tier: gold}", "share.tier is gold, expected one of basic, standard, premium"),
        (
            "share: {tier: premium, promise: 0.5}",
            "share.tier is premium, expected no tier, or basic, if a promise is given",
        ),
        ("share: {request: 1.5}", "share.request is 1.5, expected a number"),
        ("share: {request: 0}", "share.request is 0, expected a number from 0.001 to 1"),
        ("share: {request: 0.5, limit: 0.4}", "share.limit is 0.4, expected at least what task asks for (0.5)"),
        ("share: {request: 0.5, limit: 0}", "share.limit is 0, expected a number from 0.001 to 1"),
        (
            "share: {mode: mps, request: 0.3, limit: 0.5}",
            "share.limit is 0.5, expected what task asks for (0.3): mode mps gives no more",
        ),
        (
            "share: {mode: mig, request: 0.142, limit: 1}",
            "share.limit is 1, expected what task asks for (0.142): mode mig gives no more",
        ),
        ("gpu_milli: 500\nshare: {request: 0.5}", "share.request and gpu_milli of role task are both given"),
        ("gpu_mem_gib: 5\nshare: {memory_gib: 5}", "share.memory_gib and gpu_mem_gib of role task are both given"),
        ("share: {mode: mig, request: 0.5}", "expected one of 0.142, 0.285, 0.428, 0.571, 1"),
        ("share: {persistent_gib: 4, ephemeral_gib: 4, memory_gib: 6}", "are more than the memory of task"),
        ("share: {quota: 1}", "quota"),
        ("share: token", "share"),
    ],
)
def test_what_makes_no_sense_is_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_share_needs_gpus() -> None:
    with pytest.raises(InputError, match="share is given without GPUs"):
        read_requests("name: a\ncommand: x\nshare: {mode: slice}")


def test_a_task_in_mode_mig_has_one_instance() -> None:
    with pytest.raises(InputError, match="mode mig with 2 GPUs for each task of task, expected 1"):
        read_requests("name: a\ngpus: 2\ncommand: x\nshare: {mode: mig, request: 0.142}")
