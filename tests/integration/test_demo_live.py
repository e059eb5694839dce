"""`skep demo` as one types it: it comes true, and leaves nothing, however it ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where the demo makes its folder; at the end no process knows of it any more."""
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    by_s = time.monotonic() + 60
    while (left := processes_of(tmp_path)) and time.monotonic() < by_s:
        time.sleep(0.05)  # a server that has said good-bye still has to leave
    assert left == []


def processes_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in words and int(process.name) != os.getpid():
                found.append(words.decode(errors="replace")[:200])
        except OSError:
            continue
    return found


def start(place: Path, *command: str) -> subprocess.Popen[str]:
    """Nothing is on the path: the demo has to find its own Python."""
    env = {"TMPDIR": str(place), "PATH": "/usr/bin:/bin", "HOME": str(place), "SKEP_URL": "http://127.0.0.1:1"}
    command = command or ("-m", "skep.cli.main", "demo")
    return subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def start_without(acts: str, place: Path, *words: str, instead: str = "lambda on: None") -> subprocess.Popen[str]:
    changes = "; ".join(f"story.{act} = {instead}" for act in acts.split())
    line = f"import sys; from skep.cli.main import main; from skep.cli.demo import story; {changes}; main()"
    return start(place, "-c", line, "demo", *words)


ALL = "share borrow give_back lose_a_node get_it_back grow sum_up"


def test_it_comes_true(place: Path) -> None:
    out, err = start(place).communicate(timeout=600)
    assert err == ""
    assert "explore   research         3          2    100     0         0" in out
    assert "All losses are those of undisturbed runs" in out
    assert "goes on at step" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(number: signal.Signals, place: Path) -> None:
    running = start(place)
    assert running.stdout is not None
    assert any(line.startswith("2. A team borrows") for line in running.stdout)
    interrupt(running, number)


def test_interrupted_while_its_server_starts_it_leaves_nothing(place: Path) -> None:
    running = start(place)
    while not list(place.glob("skep-demo-*/data")):
        assert running.poll() is None
        time.sleep(0.01)
    interrupt(running, signal.SIGINT)


def interrupt(running: subprocess.Popen[str], number: signal.Signals) -> None:
    running.send_signal(number)
    _, err = running.communicate(timeout=180)
    assert (running.returncode, err.split()) == (130, ["interrupted"])


def test_what_does_not_come_true_is_exit_code_1(place: Path) -> None:
    running = start_without(
        "borrow give_back lose_a_node get_it_back grow sum_up", place, instead="lambda on: on.expect(False, 'pigs fly')"
    )
    _, err = running.communicate(timeout=180)
    assert (running.returncode, err) == (1, "error: expected that pigs fly; it is not so\n")


def test_kept_it_can_be_used_and_stopped_as_it_says(place: Path) -> None:
    running = start_without(ALL, place, "--keep")
    out, err = running.communicate(timeout=180)
    assert (running.returncode, err) == (0, "")
    to_use, to_run, to_stop = (line.strip() for line in out.splitlines()[-5:] if line.startswith("  "))
    bin_ = Path(sys.executable).parent
    shell = {"env": {"PATH": f"{bin_}:/usr/bin:/bin"}, "capture_output": True, "text": True, "timeout": 180}
    url = shlex.split(to_use)[-1].removeprefix("SKEP_URL=")
    assert httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 200
    ran = subprocess.run(["bash", "-c", f"{to_use} && {to_run}"], **shell)  # type: ignore[call-overload]
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "done")
    stopped = subprocess.run(["bash", "-c", to_stop], **shell)  # type: ignore[call-overload]
    assert stopped.returncode == 0, stopped.stderr
