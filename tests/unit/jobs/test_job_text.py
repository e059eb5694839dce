"""A job written as a file is read as the same job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.jobs.read import read_requests
from skep.jobs.request import Completion, Elastic, Request, TaskRole
from skep.jobs.write import job_text

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40).filter(str.strip)
WORD = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
VARIABLE = st.from_regex(r"X_[A-Za-z0-9_]{0,10}", fullmatch=True)
SECONDS = st.floats(0, 1e6, allow_nan=False)


@st.composite
def roles(draw: Any) -> TaskRole:
    command = draw(TEXT)
    return TaskRole(
        count=draw(st.integers(1, 5)),
        gpus=draw(st.integers(0, 8)),
        gpu_type=draw(st.sampled_from(["", "v100", "3090", "no"])),
        gpu_mem_gib=draw(st.floats(0, 80, allow_nan=False)),
        cpu=draw(st.floats(0, 64, allow_nan=False)),
        ports=draw(st.dictionaries(st.sampled_from(["http", "rpc"]), st.integers(1, 3), max_size=2)),
        **draw(st.sampled_from([{"command": command}, {"argv": (command, "")}])),
        env=draw(st.dictionaries(VARIABLE, st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))),
        completion=draw(st.sampled_from([Completion(), Completion(None, 2), Completion(3)])),
    )


@st.composite
def requests(draw: Any) -> Request:
    names = draw(st.sampled_from([["task"], ["worker"], ["ps", "worker"]]))
    return Request(
        name=draw(WORD),
        tasks={name: draw(roles()) for name in names},
        user=draw(st.sampled_from(["", "ann", "1e5", "null"])),
        vc=draw(st.sampled_from(["default", "on", "7"])),
        priority=draw(st.integers(0, 1000)),
        grace_s=draw(st.floats(0, 86400, allow_nan=False)),
        expect_s=draw(st.none() | SECONDS),
        time_limit_s=draw(st.none() | st.floats(1, 1e6, allow_nan=False)),
        retries=draw(st.integers(-1, 5)),
        tags=tuple(draw(st.lists(WORD, max_size=3, unique=True))),
        needs=tuple(draw(st.lists(WORD, max_size=2, unique=True))),
        hold=draw(st.booleans()),
        preemptible=draw(st.booleans()),
        spans_types=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(requests())
def test_what_is_written_is_read_as_the_same_job(request: Request) -> None:
    types = {role.gpu_type for role in request.tasks.values()} - {""}
    if len(types) > 1:
        return
    text, hidden = job_text(request)
    assert read_requests(text).requests == [request]
    assert hidden == []


def test_incremental_and_elastic_jobs_too() -> None:
    loose = Request(name="a", tasks={"task": TaskRole(command="true", retries=3)}, gang=False)
    elastic = Request(name="b", tasks={"w": TaskRole(count=2, gpus=1, command="true")}, elastic=Elastic("w", 1, 4))
    for request in (loose, elastic):
        assert read_requests(job_text(request)[0]).requests == [request]


@pytest.mark.parametrize("hide_values", [False, True])
def test_secrets_are_hidden_and_named(hide_values: bool) -> None:
    role = TaskRole(command="true", env={"OPEN": "value-of-open"})
    text, hidden = job_text(
        Request(name="a", tasks={"task": role}, secrets={"KEY": "hunter2"}), hide_values=hide_values
    )
    assert "hunter2" not in text
    assert ("value-of-open" in text) is not hide_values
    assert hidden == (["KEY", "OPEN"] if hide_values else ["KEY"])


@pytest.mark.parametrize("odd", ["a\x85b", "a\u2028b", "a\u2029b", "a\rb", "a\r\nb", " a\n\n b ", "\ta", "# a", "é"])
def test_odd_text_survives(odd: str) -> None:
    request = Request(name="a", tasks={"task": TaskRole(command=odd, env={"X": odd})})
    assert read_requests(job_text(request)[0]).requests == [request]


def test_a_script_of_several_lines_stays_readable() -> None:
    text, _ = job_text(Request(name="a", tasks={"task": TaskRole(command="cd x\npython train.py\n")}))
    assert text == "name: a\ncommand: |\n  cd x\n  python train.py\n"
