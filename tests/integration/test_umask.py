"""Whatever umask a server is started with, its files are for its account alone, and it can use them itself."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
NOTHING_MASKED, ALL_MASKED = 0, 0o777
WAIT_S = 120.0


def as_an_account(words: list[str]) -> list[str]:
    """Root may open what no mode allows, so it gives that right away."""
    if os.geteuid() != 0:
        return words
    if shutil.which("setpriv") is None:
        pytest.skip("root could read files without any rights, and there is no setpriv to give that up")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *words]


def skep(umask: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = as_an_account([sys.executable, "-m", "skep.cli.main", *words])
    env = {key: value for key, value in os.environ.items() if not key.startswith("SKEP_")} | {"HOME": str(cwd)}
    env |= {"XDG_STATE_HOME": str(cwd / "state"), "XDG_CONFIG_HOME": str(cwd / "config")}
    ran = subprocess.run(command, umask=umask, env=env, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S)
    assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
    return ran


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def check_modes(data: Path) -> None:
    """`python` is for the programs of jobs, `jobs` has what these have made."""
    for above in (data.parent, data.parent.parent):
        assert stat.S_IMODE(above.stat().st_mode) & 0o722 == 0o700, above
    for path in [data, *data.iterdir()]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0 or path.name == "python", (path, oct(mode))
        assert mode & 0o600 == 0o600, (path, oct(mode))


@pytest.mark.parametrize("umask", [NOTHING_MASKED, ALL_MASKED], ids=oct)
def test_a_server_from_its_first_start_to_a_restored_backup(tmp_path: Path, umask: int) -> None:
    data, port = tmp_path / "new" / "folder" / "data", free_port()
    up = ["up", "-d", "--data", str(data), "--port", port]
    url = f"http://127.0.0.1:{port}"
    for _ in range(2):  # it accepts what it made itself
        skep(umask, *up, cwd=tmp_path)
        check_modes(data)
        ran = skep(umask, "run", "--url", url, "--", "sh", "-c", "umask; echo hi > made; cat made", cwd=tmp_path)
        assert ran.stdout.splitlines()[-2:] == [f"{umask & 0o077:04o}", "hi"]
        skep(umask, "down", "--data", str(data), cwd=tmp_path)
    skep(umask, *up, cwd=tmp_path)
    skep(umask, "token", "create", "--user", "ann", "--data", str(data), cwd=tmp_path)
    skep(umask, "backup", "kept.db", "--url", url, cwd=tmp_path)
    assert stat.S_IMODE((tmp_path / "kept.db").stat().st_mode) == 0o600
    skep(umask, "down", "--data", str(data), cwd=tmp_path)
    skep(umask, "restore", "kept.db", "--data", str(data), cwd=tmp_path)
    check_modes(data)
    skep(umask, *up, cwd=tmp_path)
    check_modes(data)
    skep(umask, "down", "--data", str(data), cwd=tmp_path)


@pytest.mark.parametrize("umask", [NOTHING_MASKED, ALL_MASKED], ids=oct)
def test_a_server_in_the_foreground(tmp_path: Path, umask: int) -> None:
    data = tmp_path / "new" / "folder" / "data"
    command = as_an_account([sys.executable, "-m", "skep.cli.main", "up", "--data", str(data), "--port", "0"])
    env = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, umask=umask, env=env, stderr=subprocess.DEVNULL) as server:
        try:
            by_s = time.monotonic() + WAIT_S
            while not (data / "server.json").exists() and server.poll() is None and time.monotonic() < by_s:
                time.sleep(0.05)
            check_modes(data)
        finally:
            server.terminate()
    assert server.returncode == 0


def test_the_demo(tmp_path: Path) -> None:
    skep(ALL_MASKED, "demo", cwd=tmp_path)
