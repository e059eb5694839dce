"""The environment of the demo: a server of its own in a folder of its own, and a terminal whose commands are really
run."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from skep.cli.demo import training
from skep.client import Client, Job
from skep.core.errors import InputError, SkepError

CLUSTER = """\
name: demo
nodes:
  - {count: 4, name: n, gpus: 4}
vcs:
  vision: 2 nodes
  speech: 1 node
  research: 1 node
"""
PYTHON = Path(sys.executable).name
SCRIPT, CLUSTER_FILE, DATA = "train.py", "cluster.yaml", "data"
WITHIN_S = 60.0
LOOK_S = 0.1


class Unexpected(SkepError):
    """A step of the demo did not happen as described."""


@contextlib.contextmanager
def stage(*, is_kept: bool) -> Iterator[Stage]:
    """Server and folder are removed at the end in every case; `is_kept`: unless it ended well."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    is_done = False
    with Interrupts() as interrupts, environment(PATH=path):
        with interrupts.held():
            folder = Path(tempfile.mkdtemp(prefix="skep-demo-"))
        try:
            with contextlib.chdir(folder):
                with interrupts.held():
                    os.environ["XDG_STATE_HOME"] = str(folder)  # the demo leaves nothing in the home folder
                    os.environ["SKEP_URL"] = set_up(folder)
                with Client() as client:
                    yield Stage(folder, client)
            is_done = True
        finally:
            if not (is_kept and is_done):
                with interrupts.held():
                    tear_down(folder)


def set_up(folder: Path) -> str:
    """The address of the server."""
    (folder / CLUSTER_FILE).write_text(CLUSTER)
    shutil.copyfile(training.__file__, folder / SCRIPT)
    run_skep(f"up -d --cluster {CLUSTER_FILE} --data {DATA} --port 0")
    from skep.files.running import read_running

    running = read_running(folder / DATA)
    if running is None:
        raise Unexpected("expected that the server stays up; it has exited")
    return running.url


def tear_down(folder: Path) -> None:
    with contextlib.suppress(InputError):  # it may never have started
        run_skep(f"down --stop-jobs --data {shlex.quote(str(folder / DATA))}")
    shutil.rmtree(folder, ignore_errors=True)


def run_skep(line: str) -> str:
    """Run a command inside this process, which is faster than a new one. Returns its output."""
    from skep.cli.main import skep

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        skep.main(shlex.split(line), prog_name="skep", standalone_mode=False)
    return said.getvalue()


class Interrupts:
    """A signal, or a closed terminal, ends the demo and its server: signals become interrupts.

    They are delayed while the server is starting or stopping, so that no server is left running.
    """

    def __init__(self) -> None:
        self._is_held = self._has_come = False

    def __enter__(self) -> Interrupts:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, self._interrupt) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._is_held, self._has_come = True, False
        try:
            yield
        finally:
            self._is_held = False
        if self._has_come:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._has_come = True
        if not self._is_held:
            raise KeyboardInterrupt


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """The environment of a fresh shell with these values: settings for another server do not apply here."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("SKEP_")]:
        del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Stage:
    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self._scenes = 0
        self._began_s = time.monotonic()

    # The terminal ------------------------------------------------------------------------------------------------

    def scene(self, title: str) -> None:
        self._scenes += 1
        click.echo()
        click.secho(f"{self._scenes}. {title}  [{time.monotonic() - self._began_s:.0f} s]", bold=True)

    def shown(self, line: str) -> None:
        click.secho(f"  $ {line}", fg="cyan")

    def type(self, line: str) -> None:
        """Run as it is shown; `| head -N` may follow."""
        self.shown(line)
        command, _, most = line.removeprefix("skep ").partition(" | head -")
        for text in run_skep(command).splitlines()[: int(most) if most else None]:
            click.echo(f"    {text}".rstrip())

    def table(self, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        from skep.cli.live import console, table_of

        console().print(table_of(columns, rows, right=columns[2:]))

    def submit(self, name: str, vc: str, *, steps: int, options: str = "--gpus 4") -> None:
        self.type(f"skep run -d --name {name} --vc {vc} {options} -- {PYTHON} {SCRIPT} --steps {steps}")

    # What happens ------------------------------------------------------------------------------------------------

    def job(self, name: str) -> Job:
        return self.client.job(name)

    def until(self, what: str, is_so: Callable[[], Any]) -> None:
        by_s = time.monotonic() + WITHIN_S
        while not is_so():
            if time.monotonic() > by_s:
                raise Unexpected(f"expected that {what}; it did not happen within {WITHIN_S:g} s")
            time.sleep(LOOK_S)

    def until_state(self, name: str, state: str, *, attempts: int = 1) -> Job:
        def is_so() -> bool:
            job = self.job(name)
            if job["state"] == "failed":
                raise Unexpected(f"expected that {name} is {state}; it failed: {job['reason']}")
            return bool(job["state"] == state and job["attempts"] >= attempts)

        self.until(f"{name} is {state}", is_so)
        return self.job(name)

    def until_step(self, name: str, step: int) -> None:
        self.until(f"{name} reaches step {step}", lambda: (self.job(name)["progress"] or {}).get("step", 0) >= step)

    def expect(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Unexpected(f"expected that {what}; it is not so")

    def log(self, name: str, attempt: int) -> str:
        """The log of its first task, which reports all steps."""
        return "".join(self.client.logs(name, task="main-0", attempt=attempt))
