"""A server that answers as a test says, and the command line pointed at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.fake_api import FakeApi

from skep.cli.main import skep


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    made = FakeApi()
    monkeypatch.setenv("SKEP_URL", made.url)
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setenv("TZ", "UTC")
    yield made
    made.close()


@pytest.fixture
def ask(api: FakeApi) -> Callable[..., Result]:
    """A command inside this process."""

    def run(*args: str, **options: Any) -> Result:
        return CliRunner().invoke(skep, list(args), catch_exceptions=False, **options)

    return run


@pytest.fixture
def start(api: FakeApi) -> Callable[..., subprocess.Popen[str]]:
    """A command as a process of its own."""

    def popen(*args: str, **options: Any) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "skep.cli.main", *args]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(line, text=True, env=dict(os.environ), **{**pipes, **options})

    return popen
