"""`skep cluster`, `nodes`, `vc`, `drain`, `policy`, `events`, `usage`, `completion`, and the list of commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, events, job

from skep.cli.live import clock, duration
from skep.cli.main import COMMANDS

Ask = Callable[..., Result]
NODES = [
    {"name": "n0", "state": "up", "gpu_type": "v100", "gpus": 4, "used": 3, "jobs": [["7"], ["7"], [], ["8/w-0", "7"]]},
    {"name": "n1", "state": "drained", "gpu_type": "", "gpus": 4, "used": 0, "jobs": [[], [], [], []]},
    {"name": "n2", "state": "lost", "gpu_type": "", "gpus": 4, "used": 0, "jobs": [[], [], [], []]},
]
VCS = [
    {"name": "a", "gpus": 8, "used": 3, "borrowed": 0, "pending": 2},
    {"name": "b", "gpus": 4, "used": 0, "borrowed": 1, "pending": 0},
]
CLUSTER = {"name": "lab", "policy": "fifo", "gpus": 12, "used": 3, "nodes": NODES, "vcs": VCS}


@pytest.fixture(autouse=True)
def cluster(api: FakeApi) -> None:
    api.answers |= {"GET /nodes": FakeAnswer(200, NODES), "GET /vcs": FakeAnswer(200, VCS), "GET /cluster": CLUSTER}
    api.answers |= {"GET /policy": {"policy": "fifo"}, "PUT /policy": {"policy": "srtf"}}


def test_the_cluster_is_drawn(ask: Ask) -> None:
    lines = ask("cluster").stdout.splitlines()
    assert lines[0] == "lab: 3 nodes, 3 of 12 GPUs used (25%), policy fifo"
    assert [line.split() for line in lines[1:4]] == [
        ["n0", "██░█", "1", "free,", "jobs", "7", "8/w-0"],
        ["n1", "░░░░", "drained"],
        ["n2", "××××", "lost"],
    ]
    assert ["a", "8", "3", "0", "2"] in [line.split() for line in lines]


def test_a_node_with_many_gpus_is_drawn_to_scale(api: FakeApi, ask: Ask) -> None:
    big = {"name": "n0", "state": "up", "gpus": 1024, "used": 512, "jobs": [["1"]] * 512 + [[]] * 512}
    api.answers["GET /cluster"] = CLUSTER | {"nodes": [big]}
    assert "█" * 32 + "░" * 32 + " " in ask("cluster").stdout


def test_nodes_and_vcs(ask: Ask) -> None:
    assert ["n0", "up", "v100", "4", "3", "7", "8/w-0"] in [line.split() for line in ask("nodes").stdout.splitlines()]
    assert ask("nodes", "-o", "name").stdout == "n0\nn1\nn2\n"
    assert json.loads(ask("vc", "-o", "json").stdout) == VCS
    assert json.loads(ask("cluster", "-o", "json").stdout) == CLUSTER


def test_watch_draws_again_until_ctrl_c(api: FakeApi, start: Callable[..., subprocess.Popen[str]]) -> None:
    with start("nodes", "--watch") as process:
        by_s = time.monotonic() + 120
        while len(api.asked) < 2 and time.monotonic() < by_s:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert len(api.asked) >= 2
    assert "n0" in out
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("command", ["nodes", "ps", "show 7", "cluster", "vc"])
def test_watch_is_for_tables(api: FakeApi, ask: Ask, command: str) -> None:
    assert ask(*command.split(), "--watch", "-o", "json").exit_code == 2
    assert not api.asked


@pytest.mark.parametrize(("word", "state"), [("drain", "drained"), ("undrain", "up")])
def test_drain(api: FakeApi, ask: Ask, word: str, state: str) -> None:
    api.answers |= {"PATCH /nodes/n0": {}, "PATCH /nodes/n1": {}}
    found = ask(word, "n0", "n1")
    assert found.exit_code == 0
    assert [api.bodies("PATCH", f"/nodes/n{at}") for at in (0, 1)] == [[{"state": state}]] * 2
    assert ("still running there: 7 8/w-0" in found.stderr) == (word == "drain")


def test_apply_shows_what_changes_and_asks(api: FakeApi, ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: [{count: 2, name: n, gpus: 4}]\n")
    api.answers["PUT /cluster"] = {"changes": ["n2 goes", "VC c is new"]}
    found = ask("cluster", "apply", str(path), input="n\n")
    assert found.exit_code == 1
    assert found.stdout.startswith("- n2 goes\n- VC c is new\n")
    assert [asked.query for asked in api.asked] == [{"name": ["lab.yaml"], "dry_run": ["true"]}]
    assert ask("cluster", "apply", str(path), input="y\n").stdout.endswith("applied\n")
    assert ask("cluster", "apply", str(path), "--yes", input="").exit_code == 0
    assert [asked.query for asked in api.asked[1:]] == [
        {"name": ["lab.yaml"], "dry_run": ["true"]},
        {"name": ["lab.yaml"]},
    ] * 2
    assert api.asked[-1].body == path.read_bytes()


def test_apply_of_what_is_there_already_does_nothing(api: FakeApi, ask: Ask) -> None:
    api.answers["PUT /cluster"] = {"changes": []}
    assert ask("cluster", "apply", "2x4").stdout == "nothing changes\n"
    assert (len(api.asked), api.asked[0].body) == (1, b"2x4")


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_whoever_does_not_want_it_gets_exit_code_1(
    api: FakeApi, start: Callable[..., subprocess.Popen[str]], answer: str
) -> None:
    api.answers["PUT /cluster"] = {"changes": ["node n2 comes"]}
    with start("cluster", "apply", "3x4", stdin=subprocess.PIPE) as process:
        _, said = process.communicate(answer, timeout=120)
    assert process.returncode == 1
    assert said.endswith("nothing was done\n")
    assert [asked.query.get("dry_run") for asked in api.asked] == [["true"]]


def switches(api: FakeApi) -> list[list[str] | None]:
    """The values of `dry_run` with which a switch to srtf was asked for."""
    assert all(body == {"policy": "srtf"} for body in api.bodies("PUT", "/policy"))
    return [asked.query.get("dry_run") for asked in api.asked if asked.method == "PUT"]


def test_policy(api: FakeApi, ask: Ask) -> None:
    assert ask("policy").stdout == "fifo\n"
    assert ask("policy", "use", "srtf").stderr == "policy srtf (before: fifo)\n"
    assert switches(api) == [["true"], None]  # What it would miss is asked first.


def test_the_server_may_be_named_before_or_behind_use(api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", "http://127.0.0.1:9")
    for words in (("--url", api.url, "use", "srtf"), ("use", "--url", api.url, "srtf")):
        assert ask("policy", *words).exit_code == 0
    assert switches(api) == [["true"], None] * 2


def test_events(api: FakeApi, ask: Ask) -> None:
    event = {"seq": 3, "at_s": 0.0, "kind": "NodeLost", "job_id": None, "who": "ann", "text": "n0 is\x1b lost"}
    api.answers["GET /events"] = lambda asked: FakeAnswer(
        200, [event] if int(asked.query.get("after", ["0"])[0]) < 3 else []
    )
    line = ask("events").stdout
    assert line.split() == ["1970-01-01", "00:00:00", "NodeLost", "n0", "is\\x1b", "lost", "(ann)"]
    assert json.loads(ask("events", "-o", "json").stdout) == event
    ask("events", "--last", "7")
    assert [asked.query["last"] for asked in api.asked] == [["50"], ["50"], ["7"]]
    assert ask("events", "--last", "0").stdout == ""


def test_events_of_a_job_are_followed(api: FakeApi, start: Callable[..., subprocess.Popen[str]]) -> None:
    def event(seq: int, job_id: str) -> dict[str, object]:
        return {"seq": seq, "at_s": 0.0, "kind": "x", "job_id": job_id, "who": "", "text": f"event {seq}"}

    new = f"id: 6\ndata: {json.dumps(event(6, '7'))}\n\n".encode()
    api.answers["GET /jobs/train"] = job("7")
    api.answers["GET /events"] = [FakeAnswer(200, [event(4, "7")]), events(new, lambda: time.sleep(20))]
    with start("events", "train", "-f", "-o", "json") as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(2)] == [4, 6]
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    past, stream = (asked for asked in api.asked if asked.path == "/events")
    assert past.query == {"follow": ["false"], "last": ["50"], "job": ["7"]}
    assert (stream.query, stream.headers["last-event-id"]) == ({"job": ["7"]}, "4")


def test_usage(api: FakeApi, ask: Ask) -> None:
    rows = [{"vc": "b", "jobs": 1, "gpu_hours": 1.0}, {"vc": "a", "jobs": 3, "gpu_hours": 3.0}]
    api.answers["GET /usage"] = FakeAnswer(200, rows)
    found = ask("usage", "--by", "vc", "--since", "7d").stdout.splitlines()
    assert [line.split() for line in found[:2]] == [["VC", "JOBS", "GPU-HOURS", "SHARE"], ["a", "3", "3.00", "75.0%"]]
    since_s = float(api.asked[0].query["since"][0])
    assert abs(since_s - (time.time() - 7 * 86400)) < 60


def test_limits(api: FakeApi, ask: Ask) -> None:
    used = {"jobs": 3, "pending": 1, "tasks": 9, "ports": 0, "cpus": 2.5, "memory_gib": 0, "disk_gib": 1.5}
    rows = [
        {
            "kind": "user",
            "name": "ann",
            "limits": {"jobs": 50_000, "cpus": 64.0, "ports": None, "disk_gib": 20.0},
            "used": used,
        },
        {"kind": "vc", "name": "lab", "limits": {"processes": 10}, "used": used},
    ]
    api.answers["GET /limits"] = FakeAnswer(200, rows)
    found = ask("usage", "--limits").stdout.splitlines()
    assert [line.split() for line in found] == [
        ["WHOSE", "LIMIT", "USED", "AT", "MOST"],
        ["user", "ann", "jobs", "3", "50,000"],
        ["user", "ann", "cpus", "2.5", "64"],
        ["user", "ann", "disk_gib", "1.5", "20"],
        ["vc", "lab", "processes", "10"],
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(ask: Ask, shell: str) -> None:
    assert "_SKEP_COMPLETE" in ask("completion", shell).stdout


@pytest.mark.parametrize(
    ("words", "found", "is_all"),
    [
        ("skep rel", ["release"], None),
        ("skep ps --sta", ["--state"], None),
        ("skep stop ", ["12", "7", "eval", "train"], False),
        ("skep priority t", ["train"], False),
        ("skep show ", ["12", "7", "eval", "train"], True),
        ("skep logs e", ["eval"], True),
        ("skep wait 12 tr", ["train"], True),
    ],
)
def test_tab_completes_commands_jobs_and_options(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, words: str, found: list[str], is_all: bool | None
) -> None:
    """Jobs by their ids and names; those that have ended for commands that look at them."""
    from click.shell_completion import BashComplete

    from skep.cli.main import skep

    api.answers["GET /jobs"] = {"jobs": [job("12", name="eval"), job("7")], "next": None}
    parts = words.split(" ")
    made = BashComplete(skep, {}, "skep", "_SKEP_COMPLETE").get_completions(parts[1:-1], parts[-1])
    assert [item.value for item in made] == found
    assert [request.query.get("all") == ["true"] for request in api.asked] == ([] if is_all is None else [is_all])


def test_the_commands_stand_under_headings_and_all_of_them_load(ask: Ask) -> None:
    out = ask("--help").stdout
    places = [out.index(heading) for heading in ("\nYour jobs:", "\nThe cluster:", "\nCompare and research:")]
    assert places == sorted(places)
    for name in COMMANDS:
        assert ask(name, "--help").exit_code == 0, name


def test_help_imports_neither_httpx_nor_rich() -> None:
    code = "import sys; from skep.cli.main import skep; skep(['--help'], standalone_mode=False)"
    check = "; assert not {'httpx', 'rich', 'msgspec', 'yaml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code + check], check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("7d", 604800)])
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1y", "h", "1e9", "nan", "9" * 20])
def test_what_is_no_duration(text: str) -> None:
    import click

    with pytest.raises(click.BadParameter, match="is not a duration"):
        duration(text)


def test_clocks() -> None:
    found = [clock(seconds) for seconds in (None, -3, 7, 247, 5025, 183600)]
    assert found == ["", "0:00", "0:07", "4:07", "1:23:45", "2-03:00:00"]
