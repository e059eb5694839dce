"""Jobs that do what they can to harm the server and each other. All of them run at once, beside jobs that do not."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from bench.crash import Server, left_over
from local_world import WAIT_S, World, is_alive, on, processes_of, reachable_folder, sh, until

from skep.core.actions import Launch, Stop
from skep.core.reports import Exited, LaunchFailed, Started
from skep.engines.local import launches
from skep.engines.local.accounts import Accounts, missing_rights
from skep.engines.local.folder import log_files
from skep.engines.local.start import ShimProcess
from skep.jobs.request import LimitRules, Limits, Request

FILES = "log log.1 exit.json exit.json.new pid main lock control task.json shim.err own/progress.json"
SHIM = "cd $SKEP_TASK_DIR/.. || cd $SKEP_TASK_DIR"
STAY = "sleep 600 & wait"
LIMITS = LimitRules(Limits(processes=60, log_mib=1))
ATTACKS = {
    "a fifo for a log": f"{SHIM}; rm -f log; mkfifo log; exit 3",
    "fifos for everything": f"{SHIM}; for f in {FILES}; do rm -rf $f; mkfifo $f; done; {STAY}",
    "links for everything": f"{SHIM}; for f in {FILES}; do ln -sfn /etc/passwd $f; done; {STAY}",
    "links to zeros for everything": f"{SHIM}; for f in {FILES}; do ln -sfn /dev/zero $f; done; {STAY}",
    "folders for everything": f"{SHIM}; for f in {FILES}; do rm -rf $f; mkdir -p $f/full; done; {STAY}",
    "no end of zeros": f"{SHIM}; for f in {FILES}; do truncate -s 1T $f; done; {STAY}",
    "one byte": f'printf \'{{"a":"\\377"}}\' > $SKEP_TASK_DIR/progress.json; {STAY}',
    "deep lists": f"printf '[%.0s' $(seq 60000) > $SKEP_TASK_DIR/progress.json; {STAY}",
    "numbers without end": f"echo '{{\"a\":'$(printf '9%.0s' $(seq 4000))'}}' > $SKEP_TASK_DIR/progress.json; {STAY}",
    "half a surrogate": f'echo \'{{"a": "\\ud800"}}\' > $SKEP_TASK_DIR/progress.json; {STAY}',
    "closed folders": f"{SHIM}; chmod 0 own exit.json lock . ..; {STAY}",
    "a stopped shim": f"kill -STOP $PPID; {STAY}",
    "a shim that is stopped again and again": "trap '' TERM; while :; do kill -STOP $PPID; sleep 0.01; done",
    "a killed shim": f"setsid sleep 600 & kill -9 $PPID; {STAY}",
    "a forged end": f"{SHIM}; echo '{{\"code\": 0}}' > exit.json; echo 1 > pid; {STAY}",
    "a forged end without a lock": f"{SHIM}; rm lock; touch lock; echo '{{\"code\": 0}}' > exit.json; {STAY}",
    "a code that no process has": f"{SHIM}; echo '{{\"code\": {10**30}}}' > exit.json; kill -9 $PPID; {STAY}",
    "no folder": f"{SHIM}; rm -rf $PWD; {STAY}",
    "a folder that moved": f"{SHIM}; mv $PWD $PWD.moved; {STAY}",
    "somebody else's folder": f"{SHIM}; mv $PWD $PWD.moved; ln -s /etc $PWD; {STAY}",
    "no fifo to hear by": f"{SHIM}; rm -f control; touch control; {STAY}",
    "output without end": "yes",
    "output without lines": "cat /dev/zero",
    "deaf": "trap '' TERM HUP INT; (trap '' TERM; setsid sleep 600) & while :; do sleep 0.1; done",
    "no name": "env -i setsid sh -c 'while :; do sleep 0.1; done' $SKEP_TASK_DIR & kill -9 $PPID; sleep 600",
    "noise in the fifo of the server": f"timeout 5 cat /dev/zero > $SKEP_TASK_DIR/../../../../../reports; {STAY}",
    "more processes than allowed": "bomb() { bomb | bomb & }; bomb; while :; do sleep 0.1; done",
}
SECRET = "root:"
"""In every `/etc/passwd`."""


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


def hostile(command: str, run_as: str) -> Request:
    request = sh(command, grace_s=0.5)
    return msgspec.structs.replace(request, user="mallory" if run_as != "server" else "")


def look_at(world: World, job_id: str) -> None:
    """What a list, a show and the logs need; it must be possible to send it."""
    shown = [world.engine.progress(job_id), world.engine.tasks(job_id)]
    reader = world.engine.open_log(job_id, tail=10)
    text = reader.read()
    reader.close()
    assert SECRET not in msgspec.json.encode(shown).decode()
    assert SECRET.encode() not in text


@pytest.mark.slow
@pytest.mark.parametrize("run_as", ["server", "separate"])
def test_all_at_once(place: Path, run_as: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if run_as != "server" and missing_rights():
        pytest.skip("accounts cannot be changed here")
    monkeypatch.setattr(launches, "MARGIN_S", 1.0)
    data = place / "data"
    data.mkdir(mode=0o700)
    jobs = {f"{number}": hostile(command, run_as) for number, command in enumerate(ATTACKS.values(), 1)}
    names = dict(zip(jobs, ATTACKS, strict=True))
    jobs |= {
        "good": sh("echo good; trap 'echo saved; exit 0' TERM; sleep 600 & wait"),
        "quick": sh("echo quick; exit 4"),
    }
    with World(data, jobs, accounts=Accounts(run_as, data), limits=LIMITS) as world:
        if not {"pids", "unified"} & world.engine.groups.bases.keys():
            jobs.pop(str(len(ATTACKS)))  # Nothing limits its processes here.
        world.start("good")
        for job_id in names:
            world.launch(job_id)
        for job_id in names:
            kinds = (Started, Exited, LaunchFailed)
            assert until(lambda job_id=job_id, kinds=kinds: any(world.of(kind, job_id) for kind in kinds)), names[
                job_id
            ]
        assert world.run("quick").code == 4
        for job_id in names:
            look_at(world, job_id)
        loud = next(job_id for job_id, name in names.items() if name == "output without end")
        assert until(lambda: size_of_log(world, loud) > 1 << 19), "the log does not grow"
        assert size_of_log(world, loud) <= (1 << 20) + 5 * (1 << 16)
        world.do(*(Stop(job_id, "test") for job_id in names))
        for job_id in names:
            is_over = until(lambda job_id=job_id: bool(world.of(Exited, job_id) or world.of(LaunchFailed, job_id)))
            assert is_over, f"{names[job_id]}: it does not end"
        assert is_alive(world.shim("good"))
        assert world.engine.tasks("good")[0].state == "running"
        world.launch("quick", 2)
        world.wait(Exited, "quick", count=2)
        world.do(Stop("good", "test"))
        assert world.wait(Exited, "good").code == 0
        assert world.log("good") == "good\nsaved\n"
        forged = next(job_id for job_id, name in names.items() if name == "a forged end")
        assert world.wait(Exited, forged).was_stopped, "its own exit.json was believed"
        assert until(lambda: not processes_of(data))


def has_begun(world: World, job_id: str) -> bool:
    return any(world.of(kind, job_id) for kind in (Started, Exited, LaunchFailed))


def size_of_log(world: World, job_id: str) -> int:
    sizes = []
    for path in log_files(world.task(job_id)):
        with contextlib.suppress(FileNotFoundError):  # It is being rotated.
            sizes.append(path.stat().st_size)
    return sum(sizes)


def test_an_end_that_cannot_be_read_now_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import run

    refused = threading.Event()
    real = run.read_small

    def read_small(path: Path) -> bytes | None:
        if path.name == "exit.json" and not refused.is_set():
            refused.set()
            raise OSError(24, "Too many open files", str(path))
        return real(path)

    monkeypatch.setattr(run, "read_small", read_small)
    with World(tmp_path, {"1": sh("exit 0")}) as world:
        assert world.run().code == 0
        assert refused.is_set()


def test_what_runs_is_not_started_again_because_it_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart without file descriptors must not take a running job for one that never started."""
    from skep.engines.local import folder

    world = World(tmp_path, {"1": sh("echo ran; sleep 600", grace_s=1)})
    world.start()
    world.engine.close()
    real, refused = os.listdir, threading.Event()

    def listdir(path: Path) -> list[str]:
        if Path(path).name == "1" and not refused.is_set():
            refused.set()
            raise OSError(24, "Too many open files", str(path))
        return real(path)

    monkeypatch.setattr(folder.os, "listdir", listdir)
    with World(tmp_path, {"1": sh("echo ran; sleep 600", grace_s=1)}) as again:
        again.launch()
        again.do(Stop("1", "test"))
        assert again.wait(Exited).was_stopped
        assert refused.is_set()
        assert again.log() == "ran\n"
        assert again.of(LaunchFailed) == []


@pytest.mark.parametrize(
    ("error", "cause"), [(OSError(28, "No space left on device"), "shortage"), (OSError(13, "Permission denied"), "")]
)
def test_what_a_launch_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, cause: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with World(tmp_path, {"1": sh("true"), "2": sh("true")}) as world:
        with monkeypatch.context() as patch:
            patch.setattr(launches, "start_shim", fail)
            world.launch()
            assert world.wait(LaunchFailed).cause == cause
        with monkeypatch.context() as patch:
            patch.setattr(world.engine.runs.beginner, "write", fail)
            world.launch("2")
            assert world.wait(LaunchFailed, "2").cause == cause
        world.launch("1", 2)
        assert world.wait(Exited).code == 0


def test_all_ports_taken_is_a_shortage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import launches

    monkeypatch.setattr(launches, "is_free", lambda port: False)
    with World(tmp_path, {"1": sh("true")}) as world:
        world.launch()
        assert world.wait(LaunchFailed).cause == "shortage"


def test_half_a_gang_whose_shims_were_all_killed_is_given_back(tmp_path: Path) -> None:
    """The server and all shims die while some have `pid` and others have not."""
    request = Request("job", {"main": sh("sleep 600").tasks["main"]}, grace_s=1)
    three = msgspec.structs.replace(request, tasks={"main": msgspec.structs.replace(request.tasks["main"], count=3)})
    world = World(tmp_path, {"1": three})
    world.engine.runs._go = lambda run: None  # type: ignore[method-assign]
    real, started = launches.start_shim, []

    def start_two(path: Path, *, goes_at_once: bool) -> ShimProcess | None:
        started.append(path)
        return real(path) if len(started) < 3 else None

    launches.start_shim = start_two
    try:
        world.launch(allocation=on(0, 0, 0))
        assert until(lambda: all((world.task(task=f"main-{n}") / "pid").exists() for n in (0, 1)))
        world.engine.close()
    finally:
        launches.start_shim = real
    for number in (0, 1):
        os.kill(world.shim(task=f"main-{number}"), 9)
    assert until(lambda: not processes_of(tmp_path))
    with World(tmp_path, {"1": three}) as again:
        again.do(Launch("1", on(0, 0, 0), 1))
        assert again.wait(LaunchFailed).cause == "shim-killed"
        again.do(Launch("1", on(0, 0, 0), 2))
        again.wait(Started)
        again.do(Stop("1", "test"))
        assert again.wait(Exited).was_stopped


@pytest.mark.slow
def test_the_server_answers_and_restarts_beside_them(tmp_path: Path) -> None:
    """Lists, shows, logs and stops of the real server; each of these once blocked or failed it."""
    attacks = [
        "a fifo for a log",
        "one byte",
        "deep lists",
        "a stopped shim",
        "fifos for everything",
        "numbers without end",
    ]
    server = Server(tmp_path / "data", cluster="1x1")
    server.data.mkdir()
    server.start()
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as http:

        def submit(command: str) -> str:
            job = {"name": "job", "tasks": {"w": {"command": command, "cpu": 0.1}}, "grace_s": 1}
            return str(http.post("/jobs", json=job).raise_for_status().json()["id"])

        ids = [submit(ATTACKS[name]) for name in attacks]
        for restarted in (False, True):
            if restarted:
                server.stop()
                server.start()
            good = submit("echo good; exit 0")
            assert until(lambda good=good: http.get(f"/jobs/{good}").json()["state"] == "succeeded")
            assert len(http.get("/jobs", params={"all": True}).raise_for_status().json()["jobs"]) > len(ids)
            for job_id in ids:
                http.get(f"/jobs/{job_id}").raise_for_status()
                http.get(f"/jobs/{job_id}/logs", params={"tail": 10}).raise_for_status()
        for job_id in ids:
            assert http.post(f"/jobs/{job_id}/stop", json={}).status_code in (200, 202, 204, 409)
        ended = ("failed", "stopped", "succeeded")
        assert until(lambda: all(http.get(f"/jobs/{job_id}").json()["state"] in ended for job_id in ids))
    server.stop()
    assert left_over(server.data) == []
