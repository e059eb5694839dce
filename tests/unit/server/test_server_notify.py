"""What a service manager is told, and how the server's own log stays small."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from skep.server.config import Config
from skep.server.datadir import DataDir
from skep.server.notify import Notifier
from skep.server.own_log import SIZE_MAX, set_aside
from skep.server.run import Herald


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_manager_that_asked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool) -> None:
    name = f"@skep-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if is_abstract else name)
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notifier = Notifier()
        notifier.say("READY=1", "STATUS=up")
        assert manager.recv(1000) == b"READY=1\nSTATUS=up"
    assert "NOTIFY_SOCKET" not in os.environ, "jobs would speak for the server"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "vsock:2:1234"])
def test_nobody_there_is_no_fault(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    Notifier().say("READY=1")


ROTATES = """
import os, sys
from pathlib import Path
from skep.server import own_log
own_log.SIZE_MAX = 100
folder = Path(sys.argv[1])
for number in range(9):
    print(f"line {number} " + "." * 40, file=sys.stderr, flush=True)
    os.write(1, b"out\\n")
    own_log.go_on_anew(folder)
"""


def test_a_log_that_grows_goes_on_anew_and_no_line_of_the_last_two_parts_is_lost(tmp_path: Path) -> None:
    with (tmp_path / "server.log").open("ab") as out:
        subprocess.run([sys.executable, "-c", ROTATES, str(tmp_path)], stdout=out, stderr=out, check=True)
    parts = [(tmp_path / name).read_text() for name in ("server.log.1", "server.log")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server.log", "server.log.1"]
    assert all(len(part) < 200 for part in parts)
    lines = [int(line.split()[1]) for line in "".join(parts).splitlines() if line.startswith("line")]
    assert lines == list(range(lines[0], 9))
    assert "".join(parts).count("out\n") == len(lines)


def test_words_that_go_elsewhere_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("." * 1000)
    subprocess.run([sys.executable, "-c", ROTATES, str(tmp_path)], capture_output=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


def test_a_large_log_of_before_is_set_aside_at_the_start(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    set_aside(tmp_path)
    log.write_bytes(b"." * SIZE_MAX)
    set_aside(tmp_path)
    assert log.exists()
    log.write_bytes(b"." * (SIZE_MAX + 1))
    set_aside(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["server.log.1"]


def test_the_file_that_says_up_comes_after_the_words(tmp_path: Path) -> None:
    """`skep up -d` reads what was said when it finds the file."""
    (tmp_path / "data").mkdir(mode=0o700)
    with DataDir(tmp_path / "data") as data:
        said: list[tuple[str, bool]] = []
        herald = Herald(
            Config(data=tmp_path / "data"),
            data,
            lambda text: said.append((text, (tmp_path / "data/server.json").exists())),
        )
        herald.ready()
        assert said[0][0].startswith("skep is up at ")
        assert not any(announced for _, announced in said)
        assert (tmp_path / "data/server.json").exists()
