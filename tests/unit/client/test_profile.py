"""Which server a client means: what was said, the environment, the login, a server of this machine."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from skep.client.profile import (
    DEFAULT_URL,
    ClientProfile,
    find_token,
    find_url,
    profile_file,
    read_profile,
    write_profile,
)
from skep.core.errors import InputError
from skep.files.running import RunningProcess
from skep.server.datadir import DataDir


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("SKEP_URL", raising=False)
    monkeypatch.delenv("SKEP_TOKEN", raising=False)
    return tmp_path


def serve(folder: Path, port: int) -> DataDir:
    """As much of a server as clients look for."""
    data = DataDir(folder)
    data.announce(RunningProcess(1, f"http://127.0.0.1:{port}"))
    return data


def test_what_is_said_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_url("") == DEFAULT_URL
    write_profile(ClientProfile("http://profile:1"))
    assert find_url("") == "http://profile:1"
    monkeypatch.setenv("SKEP_URL", "http://environment:1")
    assert find_url("") == "http://environment:1"
    assert find_url("http://said:1") == "http://said:1"


def test_a_profile_is_read_as_it_was_written_and_is_private() -> None:
    profile = ClientProfile("https://skep.example.org", 'secret"\\', "research")
    file = write_profile(profile)
    assert read_profile() == profile
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_token_of_a_profile_goes_to_its_server_only(monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(ClientProfile("http://mine:1", "secret"))
    assert find_token("", "http://mine:1/") == "secret"
    assert find_token("", "http://other:1") == ""
    monkeypatch.setenv("SKEP_TOKEN", "given")
    assert find_token("", "http://other:1") == "given"


@pytest.mark.parametrize("text", ["url = ", "url = 3", "= x", "\xff"])
def test_a_damaged_profile_is_one_line(text: str) -> None:
    profile_file().parent.mkdir(parents=True)
    profile_file().write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"config\.toml") as caught:
        read_profile()
    assert "\n" not in str(caught.value)


def test_the_only_server_of_this_machine_is_found_by_its_data_folder(home: Path) -> None:
    with serve(home / "elsewhere", 1234):
        assert find_url("") == "http://127.0.0.1:1234"
    assert find_url("") == DEFAULT_URL


def test_the_server_on_the_default_folder_wins(home: Path) -> None:
    with serve(home / "elsewhere", 1), serve(home / "data" / "skep", 2):
        assert find_url("") == "http://127.0.0.1:2"


def test_several_servers_are_named_and_none_is_guessed(home: Path) -> None:
    with serve(home / "one", 1), serve(home / "two", 2), pytest.raises(InputError, match="2 servers run") as caught:
        find_url("")
    assert f"export SKEP_URL=http://127.0.0.1:2 ({home / 'two'})" in caught.value.hint


def test_what_a_crash_left_is_no_server(home: Path) -> None:
    data = serve(home / "crashed", 1)
    keep = (home / "crashed" / "server.json").read_bytes()
    data.close()
    with serve(home / "other", 2):
        (home / "crashed" / "server.json").write_bytes(keep)
        assert find_url("") == "http://127.0.0.1:2"


def test_a_home_that_cannot_be_written_stops_no_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    with serve(home / "elsewhere", 1):
        assert find_url("") == DEFAULT_URL
