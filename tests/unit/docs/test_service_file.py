"""The unit for systemd: what makes jobs survive is in it, its command exists, and systemd reads it."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from skep.cli.up import up

UNIT = Path(__file__).parents[3] / "docs" / "skep.service"


def service() -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def test_jobs_outlive_the_server_and_readiness_is_told() -> None:
    given = service()
    wanted = {"Type": "notify", "KillMode": "process", "OOMPolicy": "continue", "Delegate": "yes"}
    assert {key: given.get(key) for key in wanted} == wanted
    assert not given.keys() & {"PrivateTmp", "PrivateDevices", "DevicePolicy", "NoNewPrivileges", "ProtectHome"}


def test_its_command_is_one() -> None:
    program, name, *words = service()["ExecStart"].split()
    assert (Path(program).name, name) == ("skep", up.name)
    up.make_context("skep up", words)
    assert "-d" not in words


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_it(tmp_path: Path) -> None:
    program = service()["ExecStart"].split()[0]
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(program, shutil.which("true") or "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=120)
    said = [line for line in ran.stderr.splitlines() if UNIT.name in line and "DelegateSubgroup" not in line]
    assert (ran.returncode, said) == (0, [])
