"""`skep submit`: files as they are, all or none, and the changes that options make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from skep.cli.main import main
from skep.testing.fake_api import Answer, Asked, FakeApi, job

Ask = Callable[..., Result]
GOOD = "name: a # mine\ntasks: {main: {command: 'true'}}\n"
SWEEP = "name: s-${lr}\nsweep: {lr: [1, 2]}\ntasks: {main: {command: 'echo ${lr}'}}\n"
BAD = "name: a\ntasks:\n  main: {command: 'true', gpus: many}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: FakeApi) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a.yaml", GOOD), ("b.yaml", GOOD), ("bad.yaml", BAD), ("sweep.yaml", SWEEP)):
        (tmp_path / name).write_text(text)
    numbers = iter(range(1, 100))

    def take(_: Asked) -> Answer:
        return Answer(201, {**job(str(next(numbers))), "warnings": ["image is ignored"]})

    api.answers["POST /jobs"] = take
    return tmp_path


def test_the_text_is_sent_as_it_is_and_the_ids_are_printed(api: FakeApi, ask: Ask, folder: Path) -> None:
    found = ask("submit", "a.yaml", "b.yaml")
    assert found.stdout == "1\n2\n"
    assert found.stderr == "warning: a.yaml: image is ignored\nwarning: b.yaml: image is ignored\n"
    assert [asked.body.decode() for asked in api.asked] == [GOOD, GOOD]
    assert len({asked.headers["idempotency-key"] for asked in api.asked}) == 2


def test_stdin(api: FakeApi, ask: Ask, folder: Path) -> None:
    assert ask("submit", "-", input=GOOD).stdout == "1\n"
    assert api.asked[0].body.decode() == GOOD


def test_a_key_of_ones_own_is_different_for_each_file(api: FakeApi, ask: Ask, folder: Path) -> None:
    ask("submit", "a.yaml", "b.yaml", "--key", "nightly")
    assert [asked.headers["idempotency-key"] for asked in api.asked] == ["nightly-0", "nightly-1"]


def test_hold_and_name(api: FakeApi, ask: Ask, folder: Path) -> None:
    ask("submit", "a.yaml", "--hold", "--name", "other")
    assert json.loads(api.asked[0].body) == {
        **{"name": "other", "hold": True},
        "tasks": {"main": {"command": "true"}},
    }


def test_hold_of_a_sweep_holds_every_job_of_it(api: FakeApi, ask: Ask, folder: Path) -> None:
    from skep.jobs.read import read_requests

    ask("submit", "sweep.yaml", "--hold")
    requests = read_requests(api.asked[0].body.decode()).requests
    assert [(one.name, one.hold, one.tasks["main"].command) for one in requests] == [
        ("s-1", True, "echo 1"),
        ("s-2", True, "echo 2"),
    ]
    assert len({one.group for one in requests} - {""}) == 1


def fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> str:
    monkeypatch.setattr("sys.argv", ["skep", "submit", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_no_file_is_submitted_if_one_is_bad(api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    assert fault(monkeypatch, capsys, "a.yaml", "bad.yaml").startswith("error: bad.yaml:3: ")
    assert not api.asked


def test_a_refusal_by_the_server_names_the_file(api: FakeApi, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    api.answers["POST /jobs"] = Answer(400, {"error": "job:3: gpus …", "hint": ""})
    assert fault(monkeypatch, capsys, "bad.yaml").startswith("error: bad.yaml:3: ")
    api.answers["POST /jobs"] = Answer(400, {"error": "there is no VC a", "hint": ""})
    assert fault(monkeypatch, capsys, "a.yaml").startswith("error: there is no VC a")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe", "no text in UTF-8"), (b" " * (2**20 + 1), "larger than 1 MiB"), (None, "no such file")],
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
