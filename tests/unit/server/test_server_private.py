from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.engines.local.accounts import missing_rights
from skep.server.build import job_accounts
from skep.server.config import Config, make_config
from skep.server.datadir import prepare_folder
from skep.server.tokens import Tokens


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """As a server leaves it."""
    Tokens(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_new_or_empty_folder_is_closed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    for name in ("new", "empty"):
        prepare_folder(tmp_path / name)
        assert mode(tmp_path / name) == 0o700


@pytest.mark.parametrize("wide", [0o755, 0o711, 0o770, 0o750, 0o701])
def test_a_folder_that_is_open_to_others_is_refused(data: Path, wide: int) -> None:
    data.chmod(wide)
    with pytest.raises(InputError, match=rf"data is open to other accounts \(mode {wide:04o}\)") as caught:
        prepare_folder(data)
    assert caught.value.hint.startswith(f"`chmod 700 {data}`")
    assert mode(data) == wide


@pytest.mark.parametrize(("name", "wide"), [("tokens.db", 0o644), ("tokens.db", 0o602), ("skep.db", 0o666)])
def test_a_file_that_others_could_write_or_a_token_they_could_read_is_refused(data: Path, name: str, wide: int) -> None:
    (data / name).touch()
    (data / name).chmod(wide)
    with pytest.raises(InputError, match=f"{name} is open to other accounts"):
        prepare_folder(data)


def test_what_an_earlier_version_left_readable_is_closed(data: Path) -> None:
    (data / "jobs").mkdir(mode=0o755)
    (data / "skep.db").touch(mode=0o644)
    prepare_folder(data)
    assert (mode(data / "jobs"), mode(data / "skep.db")) == (0o700, 0o600)


@pytest.mark.skipif(bool(missing_rights()), reason="nothing can be given away here")
@pytest.mark.parametrize("name", ["", "tokens.db"])
def test_what_belongs_to_somebody_else_is_refused(data: Path, name: str) -> None:
    os.chown(data / name, 50_123, 50_123)
    with pytest.raises(InputError, match=r"belongs to user number 50123, and this is") as caught:
        prepare_folder(data)
    assert "`chown -R" in caught.value.hint


def config(tmp_path: Path, text: str, **flags: str) -> Config:
    (tmp_path / "skep.yaml").write_text(text)
    return make_config(str(tmp_path / "skep.yaml"), flags)


def test_run_as_is_read(tmp_path: Path) -> None:
    found = config(tmp_path, "run_as: account:lab\njob_files: files\n")
    assert (found.run_as, found.job_files) == ("account:lab", str(tmp_path / "files"))


@pytest.mark.parametrize(
    ("word", "problem"),
    [("root", "server, submitter, separate or account:NAME"), ("submitter", "needs --auth token")],
)
def test_a_run_as_that_is_none_or_not_safe_is_refused(tmp_path: Path, word: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        config(tmp_path, f"run_as: {word}\n")


@pytest.mark.parametrize(("auth", "run_as"), [("none", "server"), ("token", "separate")])
def test_jobs_of_others_do_not_run_as_the_server_if_it_may_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: str, run_as: str
) -> None:
    monkeypatch.setattr("skep.engines.local.accounts.SHARED", tmp_path)
    monkeypatch.setattr("skep.engines.local.accounts.first_closed", lambda _: None)
    said: list[str] = []
    for rights in ([], ["CAP_SETUID"]):
        monkeypatch.setattr("skep.server.build.missing_rights", lambda rights=rights: rights)
        monkeypatch.setattr("skep.engines.local.accounts.missing_rights", lambda rights=rights: rights)
        accounts = job_accounts(Config(data=tmp_path, auth=auth), said.append)
        assert accounts.run_as == ("server" if rights else run_as)
    assert len(said) == 2
    assert "the account of this server" in said[1]


def test_an_account_is_not_changed_without_the_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.engines.local.accounts.missing_rights", lambda: ["CAP_SETUID"])
    with pytest.raises(InputError, match="run_as: separate needs rights that this server lacks: CAP_SETUID"):
        job_accounts(Config(data=tmp_path, run_as="separate"), print)
