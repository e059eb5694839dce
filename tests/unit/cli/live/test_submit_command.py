"""`skep submit`: the jobs of files, all or none, in this folder, and the changes that options make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, FakeRequest, job

from skep.cli import live
from skep.cli.main import main
from skep.client.profile import ClientProfile, write_profile

Ask = Callable[..., Result]
GOOD = "name: a # mine\ntasks: {main: {command: 'true'}}\n"
SWEEP = "name: s-${lr}\nsweep: {lr: [1, 2]}\ntasks: {main: {command: 'echo ${lr}'}}\n"
BAD = "name: a\ntasks:\n  main: {command: 'true', gpus: many}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeApi) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "INHERITED", ())
    for name, text in (("a.yaml", GOOD), ("b.yaml", GOOD), ("bad.yaml", BAD), ("sweep.yaml", SWEEP)):
        (tmp_path / name).write_text(text)
    numbers = iter(range(1, 100))

    def take(_: FakeRequest) -> FakeAnswer:
        return FakeAnswer(201, {**job(str(next(numbers))), "warnings": ["image is ignored"]})

    api.answers["POST /jobs"] = take
    return tmp_path


def sent(folder: Path, **changes: Any) -> dict[str, Any]:
    return {"name": "a", "workdir": str(folder), "tasks": {"main": {"command": "true"}}, **changes}


def test_the_jobs_are_sent_to_run_here_and_their_ids_are_printed(api: FakeApi, ask: Ask, folder: Path) -> None:
    found = ask("submit", "a.yaml", "b.yaml")
    assert found.stdout == "1\n2\n"
    assert found.stderr == "warning: a.yaml: image is ignored\nwarning: b.yaml: image is ignored\n"
    assert [json.loads(asked.body) for asked in api.asked] == [sent(folder)] * 2
    assert len({asked.headers["idempotency-key"] for asked in api.asked}) == 2


def test_stdin(api: FakeApi, ask: Ask, folder: Path) -> None:
    assert ask("submit", "-", input=GOOD).stdout == "1\n"
    assert json.loads(api.asked[0].body) == sent(folder)


def test_tasks_get_the_path_and_python_of_this_shell(
    api: FakeApi, ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "INHERITED", ("PATH", "VIRTUAL_ENV"))
    monkeypatch.setenv("PATH", "/here")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    ask("submit", "a.yaml")
    ask("submit", "-", input="name: a\ntasks: {main: {command: 'true', env: {PATH: /own}}}\n")
    ask("submit", "a.yaml", "--clean-env")
    tasks = [json.loads(asked.body)["tasks"]["main"] for asked in api.asked]
    assert [task.get("env") for task in tasks] == [{"PATH": "/here"}, {"PATH": "/own"}, None]


def test_jobs_without_a_vc_go_to_that_of_the_login(
    api: FakeApi, ask: Ask, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    write_profile(ClientProfile(api.url, vc="research"))
    ask("submit", "a.yaml")
    ask("submit", "-", input=GOOD + "vc: other\n")
    assert [json.loads(asked.body)["vc"] for asked in api.asked] == ["research", "other"]
    write_profile(ClientProfile("http://elsewhere:1", vc="research"))
    ask("submit", "a.yaml")
    assert "vc" not in json.loads(api.asked[-1].body)


def test_a_file_may_name_another_folder(api: FakeApi, ask: Ask, folder: Path) -> None:
    ask("submit", "-", input=GOOD + "workdir: /data\n")
    assert json.loads(api.asked[0].body) == sent(folder, workdir="/data")


def test_what_is_lost_on_the_way_is_said_once(api: FakeApi, ask: Ask, folder: Path) -> None:
    found = ask("submit", "-", input=GOOD + "locality: node\n")
    assert found.stderr.splitlines() == [
        "warning: -: locality: recorded only, no policy uses it yet",
        "warning: -: image is ignored",
    ]


def test_a_key_of_ones_own_is_different_for_each_file(api: FakeApi, ask: Ask, folder: Path) -> None:
    ask("submit", "a.yaml", "b.yaml", "--key", "nightly")
    assert [asked.headers["idempotency-key"] for asked in api.asked] == ["nightly-0", "nightly-1"]


def test_hold_and_name(api: FakeApi, ask: Ask, folder: Path) -> None:
    ask("submit", "a.yaml", "--hold", "--name", "other")
    assert json.loads(api.asked[0].body) == sent(folder, name="other", hold=True)


def test_hold_of_a_sweep_holds_every_job_of_it(api: FakeApi, ask: Ask, folder: Path) -> None:
    from skep.jobs.read import read_requests

    ask("submit", "sweep.yaml", "--hold")
    requests = read_requests(api.asked[0].body.decode()).requests
    assert [(one.name, one.hold, one.tasks["main"].command) for one in requests] == [
        ("s-1", True, "echo 1"),
        ("s-2", True, "echo 2"),
    ]
    assert len({one.group for one in requests} - {""}) == 1


def test_a_sweep_that_is_large_as_jobs(api: FakeApi, ask: Ask, folder: Path) -> None:
    ids = [str(number) for number in range(2500)]
    api.answers["POST /jobs:batch"] = FakeAnswer(201, {"ids": ids, "warnings": []})
    numbers = ", ".join(map(str, range(50)))
    words = f"echo {'x' * 400} ${{n}} ${{m}}"
    text = f"name: s-${{n}}-${{m}}\nsweep: {{n: [{numbers}], m: [{numbers}]}}\ncommand: {words}\n"
    assert ask("submit", "-", input=text).stdout.split() == ids
    (asked,) = api.asked
    assert json.loads(asked.body)["jobs"][51]["name"] == "s-1-1"


def fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> str:
    monkeypatch.setattr("sys.argv", ["skep", "submit", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_no_file_is_submitted_if_one_is_bad(api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    assert fault(monkeypatch, capsys, "a.yaml", "bad.yaml").startswith("error: bad.yaml:3: ")
    assert not api.asked


def test_a_refusal_by_the_server_is_told_as_it_is(api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    api.answers["POST /jobs"] = FakeAnswer(400, {"error": "there is no VC a", "hint": ""})
    assert fault(monkeypatch, capsys, "a.yaml").startswith("error: there is no VC a")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe", "not text in UTF-8"), (b" " * (2**20 + 1), "larger than 1 MiB"), (None, "no such file")],
)
def test_what_is_no_job_file(
    api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any, content: bytes | None, words: str
) -> None:
    if content is not None:
        (folder / "x").write_bytes(content)
    assert words in fault(monkeypatch, capsys, "x")
    assert not api.asked


def test_a_name_is_for_one_job(api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    assert "one file" in fault(monkeypatch, capsys, "a.yaml", "b.yaml", "--name", "x")
    assert "one job" in fault(monkeypatch, capsys, "sweep.yaml", "--name", "x")
    assert not api.asked


def test_jobs_of_files_before_a_refused_one_are_told(
    api: FakeApi, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = FakeAnswer(400, {"error": "job a can never run here", "hint": ""})
    api.answers["POST /jobs"] = [FakeAnswer(201, {**job("7"), "warnings": []}), refused]
    monkeypatch.setattr("sys.argv", ["skep", "submit", "a.yaml", "b.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr() == ("7\n", "error: job a can never run here\n")
