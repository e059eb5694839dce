"""Whatever is sent as a job, the answer is a job that is harmless, or one line; soon, and without much memory."""

from __future__ import annotations

import math
import string
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skep.core.errors import InputError
from skep.jobs import openpai, openpai_extras, table
from skep.jobs.read import OF_ANY, Reading, from_mapping, read_requests
from skep.jobs.request import Completion, Elastic, OfShare, Request, TaskRole

SECONDS_MAX = 3.0
"""On a busy machine; each takes far below one."""


def refusal(text: str) -> str:
    started = time.process_time()
    tracemalloc.start()
    with pytest.raises(InputError) as caught:
        read_requests(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - started < SECONDS_MAX * 5, "tracing makes it slower"
    assert peak < 200e6
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "a; rm -rf /",
        "$(reboot)",
        "`reboot`",
        "a|b",
        "a&b",
        "a b",
        "a\nb",
        "'a'",
        '"a"',
        "../../etc/passwd",
        "..",
        ".",
        ".hidden",
        "-rf",
        "a/b",
        "a\\b",
        "ä",
        "名前",
        "a\u202eb",
        "a\u200bb",
        "\U0001f41d",
        "a" * 256,
        "",
        "a\x00b",
        "a\x1b[31m",
    ],
)
def test_names_are_plain(name: str) -> None:
    for values in (
        {"name": name, "command": "ls"},
        {"name": "a", "group": name, "command": "ls"},
        {"name": "a", "tasks": {name: {"command": "ls"}}},
        {"name": "a", "command": "ls", "ports": {name: 1}},
        {"protocolVersion": 2, "type": "job", "name": name or "/", "taskRoles": {name: {}}},
    ):
        with pytest.raises(InputError) as caught:
            from_mapping(values)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "workdir", ["run", "./run", "../run", "/data/../etc", "/..", "~", "/a\0b", "/a\nb", "/" + "a" * 5000]
)
def test_a_workdir_is_an_absolute_path(workdir: str) -> None:
    with pytest.raises(InputError):
        from_mapping({"name": "a", "command": "ls", "workdir": workdir})


def test_files_that_are_too_large() -> None:
    assert "larger than 1 MiB" in refusal("name: a\ncommand: " + "x" * 10_000_000)
    assert "larger than 1 MiB" in refusal("# " + "ä" * 600_000)


def bomb(width: int, depth: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(9, 12),
        "parameters:\n  " + bomb(9, 12).replace("\n", "\n  ") + "\nprotocolVersion: 2",
        "- &j {name: a, command: " + "x" * 100_000 + "}\n" + "- *j\n" * 9000,
        "- &j {name: a, env: {" + ", ".join(f"V{n}: x" for n in range(900)) + "}, command: ls}\n" + "- *j\n" * 9000,
        "x: &x " + "y" * 100_000 + "\nname: a\ncommand: ls\nenv: {" + ", ".join(f"V{n}: *x" for n in range(900)) + "}",
        "{name: a, command: " + "x" * 100_000 + ", sweep: {x: [" + "1, " * 9000 + "1]}}",
        "{name: a, command: '" + "${x}" * 30_000 + "', sweep: {x: [" + "y" * 900 + "]}}",
        "name: a\ncommand: ls\ntags: [" + "t, " * 100_000 + "]",
        "name: a\ncommand: ls\nenv: {" + ", ".join(f"V{n}: x" for n in range(20_000)) + "}",
        "name: a\ntasks: {" + ", ".join(f"r{n}: {{command: x}}" for n in range(5_000)) + "}",
        "[" * 10_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        '{"a":' * 15 + "[" * 300,
        "name: " + "[" * 50 + "]" * 50,
        "name: a\nname: b\ncommand: ls",
        "? [a, b]\n: c\n",
        "? {a: b}\n: c\n",
        "1: 2\nname: a\ncommand: ls",
        "null: 2\nname: a\ncommand: ls",
        "name: a\ncommand: ls\ngpus: .nan",
        "name: a\ncommand: ls\ncpu: .inf",
        "name: a\ncommand: ls\ncpu: 1e999",
        '{"name": "a", "command": "ls", "cpu": NaN}',
        '{"name": "a", "command": "ls", "cpu": Infinity}',
        '{"name": "a", "command": "ls", "cpu": 1e999}',
        '{"name": "a", "command": "ls", "gpus": ' + "9" * 10_000 + "}",
        "name: a\ncommand: ls\ngpus: " + "9" * 100_000,
        "name: a\ncommand: ls\nexpect_s: " + "9" * 100_000 + "h",
        "name: a\ncommand: !!python/object/apply:os.system [ls]",
        "name: a\ncommand: !!binary aGVsbG8=",
        "name: a\ncommand: ls\n---\nname: b\ncommand: ls",
        "\x7fELF\x01\x01",
        "name: a\0\ncommand: ls",
        '{"name": "a", "command": "\\u0000"}',
        '{"name": "a", "command": "\\ud800"}',
        '{"name": "a", "command": "ls", "env": {"A": "\\ud800"}}',
        '{"name": "a", "command": "ls", "vc": "\\ud800"}',
        "name: &a *a\ncommand: ls",
        "&a [*a]",
        "name: a\ncommand: " + "x" * 140_000,
        "",
        " \n",
        "\ufeff",
        "%YAML 9.9\n",
        "\ud800",
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)
def test_bombs_and_garbage_are_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], [[]], [1], {1: 2}, {None: 1}, {("a",): 1}, {"name": b"x"}, {"name": object()}]
)
def test_values_that_are_no_job(value: Any) -> None:
    with pytest.raises(InputError):
        from_mapping(value)


NUMBERS = [math.nan, math.inf, -math.inf, 10**5000, -(10**5000), 1e300, 2**63]


@pytest.mark.parametrize("number", NUMBERS, ids=["nan", "inf", "-inf", "10**5000", "-10**5000", "1e300", "2**63"])
@pytest.mark.parametrize("key", ["gpus", "cpu", "count", "priority", "expect_s", "retries", "grace_s", "memory_gib"])
def test_numbers_out_of_range(key: str, number: float) -> None:
    with pytest.raises(InputError):
        from_mapping({"name": "a", "command": "ls", key: number})


def test_values_nested_too_deep() -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InputError, match="nested more than 20 deep"):
        from_mapping({"name": value})


def test_shell_text_in_commands_is_the_business_of_its_author() -> None:
    request = from_mapping({"name": "a", "argv": ["echo", "$(reboot); ä \U0001f41d"]}).requests[0]
    assert request.tasks["task"].argv[1] == "$(reboot); ä \U0001f41d"


KEYS = sorted(
    {
        *OF_ANY,
        *table.COMPLETION,
        *table.ELASTIC,
        *table.SHARE,
        *openpai.OF_JOB,
        *openpai.OF_ROLE,
        *openpai.OF_RESOURCE,
        *openpai.OF_IMAGE,
        *openpai_extras.OF_HIVED,
        *openpai_extras.OF_SKU,
        "gangAllocation",
        "hivedScheduler",
        "virtualCluster",
        "deployment",
        "train",
    }
)
words = st.sampled_from(["a", "job", "dockerimage", "train", "2h", "prod", "", "/tmp", "<% $secrets.a %>", "${a}"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | words
keys = st.sampled_from(KEYS) | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
jobs = st.fixed_dictionaries({"name": st.just("a")}, optional=dict.fromkeys(OF_ANY[1:], values))
pai_roles = st.dictionaries(
    st.just("train"), st.fixed_dictionaries({}, optional={key: values for key in openpai.OF_ROLE}), max_size=1
)
pai_jobs = st.fixed_dictionaries(
    {"protocolVersion": st.just(2), "name": st.just("a"), "type": st.just("job"), "taskRoles": pai_roles},
    optional={key: values for key in openpai.OF_JOB[3:] if key != "taskRoles"},
)


VALID: dict[str, Any] = {
    "name": "a",
    "gang": False,
    "tasks": {"w": {"gpus": 1, "command": "ls", "env": {"A": "1"}, "ports": {"p": 1}, "completion": {"min_failed": 1}}},
    "sweep": {"x": [1, 2]},
    "needs": ["b"],
    "secrets": {"T": "x"},
}
VALID_PAI: dict[str, Any] = {
    "protocolVersion": 2,
    "name": "a",
    "type": "job",
    "prerequisites": [{"name": "i", "type": "dockerimage", "uri": "u"}, {"name": "d", "type": "data", "uri": ["v"]}],
    "parameters": {"x": [1]},
    "secrets": {"s": {"t": "u"}},
    "taskRoles": {
        "train": {
            "dockerImage": "i",
            "data": "d",
            "completion": {"minFailedInstances": 1},
            "resourcePerInstance": {"cpu": 1, "memoryMB": 1, "gpu": 1, "ports": {"p": 1}},
            "commands": ["<% $parameters.x[0] %> <% $data.uri[0] %> <% $secrets.s.t %>"],
        }
    },
    "deployments": [{"name": "d", "taskRoles": {"train": {"preCommands": ["ls"]}}}],
    "defaults": {"deployment": "d", "virtualCluster": "v"},
    "extras": {"gangAllocation": True, "hivedScheduler": {"taskRoles": {"train": {"skuType": "k", "skuNum": 1}}}},
}


def places(value: Any) -> list[tuple[Any, ...]]:
    """The paths of all values in it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, inner in pairs for path in [(key,), *((key, *rest) for rest in places(inner))]]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


one_wrong = st.sampled_from([VALID, VALID_PAI]).flatmap(
    lambda job: st.builds(changed, st.just(job), st.sampled_from(places(job)), values)
)


def test_what_is_made_wrong_below_is_right() -> None:
    assert len(from_mapping([VALID, VALID_PAI]).requests) == 3


def fault_or(read: Callable[[], Reading]) -> Reading | str:
    try:
        return read()
    except InputError as fault:
        return str(fault)


@given(values | jobs | pai_jobs | one_wrong)
@example({"name": "a", "command": "ls", "sweep": {"a": [None]}})
@settings(max_examples=120, deadline=None)
def test_random_values_give_jobs_or_one_line(value: Any) -> None:
    reading = fault_or(lambda: from_mapping(value))
    if isinstance(reading, str):
        assert "\n" not in reading
    else:
        for request in reading.requests:
            assert msgspec.json.decode(msgspec.json.encode(request), type=Request) == request


@given(st.text(max_size=200) | st.text(alphabet="{}[]:,-&*!?|>'\"% \n\tab01.", max_size=60))
@settings(max_examples=120, deadline=None)
def test_random_text_gives_one_line(text: str) -> None:
    reading = fault_or(lambda: read_requests(text))
    assert isinstance(reading, Reading) or "\n" not in reading


names = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).map(lambda text: "n" + text)
role_names = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
commands = texts.filter(str.strip)
amounts = st.floats(0, 1000)
seconds = st.floats(0, 1e9)
maybe_tasks = st.none() | st.integers(1, 10_000)
roles = st.builds(
    TaskRole,
    count=st.integers(1, 5),
    gpus=st.integers(1, 8),
    gpu_type=st.sampled_from(["", "v100", "v100|a100"]),
    gpu_milli=st.integers(1, 1000),
    gpu_mem_gib=amounts,
    cpu=amounts,
    memory_gib=amounts,
    ports=st.dictionaries(role_names, st.integers(1, 9), max_size=2),
    command=commands,
    env=st.dictionaries(st.from_regex(r"V[A-Z0-9_]{0,9}", fullmatch=True), texts, max_size=2),
    completion=st.builds(Completion, min_failed=maybe_tasks, min_succeeded=maybe_tasks),
    image=names,
)
requests = st.builds(
    Request,
    name=names,
    tasks=st.dictionaries(role_names, roles, min_size=1, max_size=1),
    vc=names,
    user=names,
    priority=st.integers(-1, 1000),
    elastic=st.none() | st.just("the role"),
    model=names,
    checkpoint=st.sampled_from(["signal", "criu"]),
    preemptible=st.booleans(),
    grace_s=st.floats(0, 86_400),
    expect_s=st.none() | seconds,
    time_limit_s=st.none() | seconds.filter(bool),
    deadline_s=st.none() | seconds,
    retries=st.integers(-1, 100),
    workdir=st.sampled_from(["", "/tmp", "/data/run 1"]),
    group=names,
    needs=st.lists(names, unique=True, max_size=3).map(tuple),
    tags=st.lists(names, unique=True, max_size=3).map(tuple),
    hold=st.booleans(),
    secrets=st.dictionaries(st.just("TOKEN"), texts),
    share=st.none()
    | st.builds(
        OfShare,
        mode=st.sampled_from(["", "slice", "token", "lend"]),
        limit=st.sampled_from([None, 1.0]),
        weight=st.integers(1, 9),
        affinity=names,
        claim=st.sampled_from(["guaranteed", "auto"]),
        promise=st.sampled_from([0.0, 0.95]),
    )
    | st.builds(OfShare, tier=st.sampled_from(["basic", "standard", "premium"])),
)


def with_elastic(request: Request) -> Request:
    if request.elastic is None:
        return request
    ((name, role),) = request.tasks.items()
    return msgspec.structs.replace(request, elastic=Elastic(name, 1, role.count + 2))


@given(requests.map(with_elastic))
@settings(max_examples=50, deadline=None)
def test_a_request_survives_json_and_can_be_submitted_as_it_is_shown(request_: Request) -> None:
    encoded = msgspec.json.encode(request_)
    assert msgspec.json.decode(encoded, type=Request) == request_
    assert from_mapping(msgspec.json.decode(encoded)).requests == [request_]
    assert read_requests(encoded.decode()).requests == [request_]
