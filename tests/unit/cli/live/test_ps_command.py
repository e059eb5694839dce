"""`skep ps`: columns, filters, pages and other outputs."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import Result
from tests.support.fake_api import FakeApi, job

from skep.cli.main import main

Ask = Callable[..., Result]


def page(*jobs: dict[str, Any], following: str | None = None) -> dict[str, Any]:
    return {"jobs": list(jobs), "next": following}


def test_the_columns_are_those_of_squeue(api: FakeApi, ask: Ask) -> None:
    running = job("12", ran_s=3750.0, nodes=["n0", "n1"], priority=100)
    waiting = job("13", name="eval", state="pending", ran_s=0.0, nodes=[], reason="VC a is full", priority=-1)
    api.answers["GET /jobs"] = page(running, waiting)
    head, first, second = ask("ps").stdout.splitlines()
    assert head.split() == ["ID", "NAME", "USER", "VC", "STATE", "GPUS", "PRIORITY", "TIME", "NODES(REASON)"]
    assert first.split() == ["12", "train", "ann", "default", "running", "2", "prod", "1:02:30", "n0,n1"]
    assert second.split() == ["13", "eval", "ann", "default", "pending", "2", "oppo", "0:00", "(VC", "a", "is", "full)"]


def test_an_ended_job_shows_how_long_it_took_and_why(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page(job(state="failed", finish_s=500000.0, ran_s=199990.0, reason="exit code 3"))
    assert ask("ps", "--all").stdout.splitlines()[1].split()[4:] == [
        "failed",
        "2",
        "test",
        "2-07:33:10",
        "(exit",
        "code",
        "3)",
    ]
    assert api.asked[0].query["all"] == ["true"]


def test_nothing_to_show(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page()
    assert ask("ps").stdout == "no jobs\n"
    assert ask("ps", "-o", "json").stdout == "[]\n"
    assert ask("ps", "-o", "name").stdout == ""


def test_the_server_is_named_beside_the_data(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page()
    assert ask("ps").stderr == f"server: {api.url}\n"
    for output in ("json", "yaml", "name"):
        assert ask("ps", "-o", output).stderr == ""


def test_filters_are_asked_of_the_server(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page()
    ask(
        "ps",
        "--state",
        "pending",
        "--state",
        "failed",
        "--vc",
        "a",
        "--group",
        "g",
        "--tag",
        "t",
        "--name",
        "n",
        "--mine",
    )
    found = api.asked[0].query
    assert found.pop("state") == ["pending", "failed"]
    assert {key: value[0] for key, value in found.items()} == {
        **{"vc": "a", "group": "g", "tag": "t", "name": "n", "mine": "true"},
        "limit": "100",
    }


def test_the_first_page_says_that_there_is_more(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page(*(job(str(number)) for number in range(100)), following="x")
    lines = ask("ps").stdout.splitlines()
    assert len(lines) == 102
    assert "--limit" in lines[-1]
    assert len(api.asked) == 1


def test_a_limit_takes_as_many_pages_as_it_needs(api: FakeApi, ask: Ask) -> None:
    def answer(asked: Any) -> dict[str, Any]:
        begin, limit = int(asked.query.get("cursor", ["0"])[0]), int(asked.query["limit"][0])
        assert limit <= 1000
        return page(*(job(str(begin + at)) for at in range(limit)), following=str(begin + limit))

    api.answers["GET /jobs"] = answer
    found = json.loads(ask("ps", "--limit", "1500", "-o", "json").stdout)
    assert [row["id"] for row in found] == [str(number) for number in range(1500)]


def test_json_and_yaml_have_all_of_all_jobs(api: FakeApi, ask: Ask) -> None:
    for output, load in (("json", json.loads), ("yaml", yaml.safe_load)):
        api.answers["GET /jobs"] = [page(job("2"), following="x"), page(job("1"))]
        assert load(ask("ps", "-o", output).stdout) == [job("2"), job("1")]
    api.answers["GET /jobs"] = page(job("2"), job("1"))
    assert ask("ps", "-o", "name").stdout == "2\n1\n"


def test_names_from_others_do_not_reach_the_terminal_as_commands(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = page(job(state="pending", user="[bold]eve", reason="a\x1b[2J\nb"))
    out = ask("ps").stdout
    assert "[bold]eve" in out
    assert "(a\\x1b[2J b)" in out
    assert "\x1b" not in out


def test_mine_and_user_exclude_each_other(api: FakeApi, ask: Ask) -> None:
    assert ask("ps", "--mine", "--user", "bob").exit_code == 2
    assert not api.asked


@pytest.mark.parametrize("command", ["ps", "nodes", "cluster", "vc", "policy", "events", "usage", "show 1", "stop 1"])
def test_without_a_server_one_line_says_so(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["skep", *command.split(), "--url", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error, empty, hint = capsys.readouterr().err.splitlines()
    assert (error, empty) == ("error: no server at http://127.0.0.1:9", "")
    assert hint.startswith("hint: `skep up`")


def test_a_fault_of_the_server_is_no_fault_of_the_input(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.fake_api import FakeAnswer

    api.answers["GET /jobs"] = FakeAnswer(500, {"error": "the server failed at this", "hint": ""})
    monkeypatch.setattr("sys.argv", ["skep", "ps"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: the server failed at this\n"


def test_a_long_reason_leaves_the_other_columns_alone(api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.cli.live.PIPE_WIDTH", 100)
    rows = (job("12", reason="x" * 300, state="stopped", ran_s=0.0), job("1234567890", name="y" * 255))
    api.answers["GET /jobs"] = page(*rows)
    head, first, second = ask("ps").stdout.splitlines()
    assert head.split() == ["ID", "NAME", "USER", "VC", "STATE", "GPUS", "PRIORITY", "TIME", "NODES(REASON)"]
    assert first.split()[:8] == ["12", "train", "ann", "default", "stopped", "2", "test", "0:00"]
    assert second.split()[0] == "1234567890"
    assert all(len(line) <= 100 for line in (head, first, second))


def test_on_the_narrowest_screen_a_job_is_a_line_with_its_id(
    api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.cli.live.PIPE_WIDTH", 40)
    api.answers["GET /jobs"] = page(job("123456"), job("123455"))
    assert [line.split()[0] for line in ask("ps").stdout.splitlines()] == ["ID", "123456", "123455"]


def test_watching_into_a_pipe_shows_it_again_and_again(
    api: FakeApi, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers["GET /jobs"] = [page(job("1")), page(job("2"))]
    with start("ps", "--watch") as process:
        assert process.stdout is not None
        words = [process.stdout.readline().split()[0] for _ in range(4)]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert words == ["ID", "1", "ID", "2"]


def test_names_cannot_command_a_terminal(api: FakeApi, ask: Ask) -> None:
    name = "x\x1b[2J\u202ey\x9b"
    api.answers["GET /jobs"] = page(job("7", name=name, reason=name))
    for words in (("ps",), ("ps", "-o", "json"), ("ps", "-o", "yaml"), ("ps", "-o", "name")):
        found = ask(*words).stdout
        assert found.replace("\n", "").isprintable(), words
    assert json.loads(ask("ps", "-o", "json").stdout)[0]["name"] == name
    assert yaml.safe_load(ask("ps", "-o", "yaml").stdout)[0]["name"] == name
