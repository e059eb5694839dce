"""`skep down` and `skep backup` use the same client as all other commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi

from skep.client import NoServer
from skep.core.errors import InputError

Ask = Callable[..., Result]


def test_host_and_port_are_enough(api: FakeApi, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", api.url.removeprefix("http://"))
    monkeypatch.setenv("SKEP_TOKEN", "skep_1_x\n")
    api.answers["POST /backup"] = FakeAnswer(200, b"store")
    assert ask("backup", str(tmp_path / "b.db")).exit_code == 0
    assert (tmp_path / "b.db").read_bytes() == b"store"
    assert api.asked[0].headers["authorization"] == "Bearer skep_1_x"


def test_a_token_of_two_lines_is_not_shown(api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_TOKEN", "hunter2\nb")
    with pytest.raises(InputError) as refused:
        ask("down", "--url", api.url)
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"


def test_half_a_backup_is_none(api: FakeApi, ask: Ask, tmp_path: Path) -> None:
    api.answers["POST /backup"] = FakeAnswer(pieces=[b"half"], is_cut=True)
    with pytest.raises(InputError, match="was not written: the server went away"):
        ask("backup", str(tmp_path / "b.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_server_with_other_data_is_named_and_not_stopped(
    api: FakeApi, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKEP_URL")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("skep.server.config.PORT", api.url.rpartition(":")[2])
    assert ask("down").stderr == f"no server runs on {tmp_path}/skep\n"  # what answers with a 404 is no Skep
    api.answers["GET /health"] = {"status": "ok"}
    with pytest.raises(InputError, match=f"but one answers at {api.url}"):
        ask("down")
    assert {asked.path for asked in api.asked} == {"/health"}


@pytest.mark.parametrize("command", [("backup",), ("down",), ("token", "list"), ("ps",), ("events",)])
def test_every_command_names_the_server_that_does_not_answer(
    api: FakeApi, ask: Ask, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEP_URL", "http://127.0.0.1:9")
    with pytest.raises(NoServer, match=r"^no server at http://127\.0\.0\.1:9$") as refused:
        ask(*command)
    assert "SKEP_URL names another" in refused.value.hint
