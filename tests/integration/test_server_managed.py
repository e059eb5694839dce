"""A server under a service manager, and one that runs behind for long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from test_server_up import WAIT_S, Place, place, until

from skep.server.own_log import SIZE_MAX

__all__ = ["place"]
pytestmark = pytest.mark.slow


def test_a_service_manager_is_told_when_it_answers_and_when_it_stops(tmp_path: Path) -> None:
    at = Place(tmp_path / "data")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        command = [sys.executable, "-m", "skep.cli.main", "up", "--data", str(at.data), "--port", str(at.port)]
        environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        server = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert manager.recv(1000).splitlines()[0] == b"READY=1"
            job_id = at.submit("echo ${NOTIFY_SOCKET-nobody}")
            assert at.http.get(f"/jobs/{job_id}/logs?follow=true").text == "nobody\n"
            server.terminate()
            assert manager.recv(1000).splitlines()[0] == b"STOPPING=1"
            assert server.wait(WAIT_S) == 0
        finally:
            server.kill()
            server.wait()
            at.http.close()


def test_the_log_of_a_server_behind_is_bounded(place: Place) -> None:
    place.up()
    log = place.data / "server.log"
    with log.open("ab") as out:
        out.write(b"." * SIZE_MAX)
    until(lambda: (place.data / "server.log.1").exists())
    place.down()
    assert log.stat().st_size < 10_000
    assert "skep is down" in log.read_text()
