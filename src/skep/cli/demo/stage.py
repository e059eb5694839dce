"""Where the demo plays: a server of its own in a folder of its own, and a terminal whose commands are really run."""

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
    """What the demo says did not happen."""


@contextlib.contextmanager
def stage(*, is_kept: bool) -> Iterator[Stage]:
    """Server and folder go at the end, however it comes; `is_kept`: only when it did not end well."""
    folder = Path(tempfile.mkdtemp(prefix="skep-demo-"))
    made = Stage(folder)
    is_done = False
    with interrupted_by_any_signal(), environment(PATH=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"):
        try:
            with contextlib.chdir(folder):
                made.set_up()
                yield made
            is_done = True
        finally:
            if not (is_kept and is_done):
                made.tear_down()


@contextlib.contextmanager
def interrupted_by_any_signal() -> Iterator[None]:
    """Whoever ends the demo by a signal or closes its terminal does not want its server to stay either."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """As of a fresh shell, with these values: what is set for another server is not for this one."""
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
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = Client()
        self._scenes = 0
        self._began_s = time.monotonic()

    # The server --------------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        (self.folder / CLUSTER_FILE).write_text(CLUSTER)
        shutil.copyfile(training.__file__, self.folder / SCRIPT)
        self.type(f"skep up -d --cluster {CLUSTER_FILE} --data {DATA} --port 0", is_shown=False)
        from skep.server.datadir import read_running

        running = read_running(self.folder / DATA)
        if running is None:
            raise Unexpected("the server did not stay up")
        os.environ["SKEP_URL"] = running.url
        self.client = Client(running.url)

    def tear_down(self) -> None:
        self.client.close()
        with contextlib.suppress(InputError):  # it may never have come up
            self.type(f"skep down --stop-jobs --data {self.folder / DATA}", is_shown=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # The terminal ------------------------------------------------------------------------------------------------

    def scene(self, title: str) -> None:
        self._scenes += 1
        head = f"{self._scenes}. {title}"
        click.echo()
        click.secho(f"{head}  [{time.monotonic() - self._began_s:.0f} s]", bold=True)

    def shown(self, line: str) -> None:
        click.secho(f"  $ {line}", fg="cyan")

    def type(self, line: str, *, is_shown: bool = True) -> None:
        """The command is run as it is shown, but inside this process, which is quicker; `| head -N` may follow."""
        from skep.cli.main import skep

        if is_shown:
            self.shown(line)
        command, _, most = line.partition(" | head -")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            skep.main(shlex.split(command)[1:], prog_name="skep", standalone_mode=False)
        for text in said.getvalue().splitlines()[: int(most) if most else None] if is_shown else []:
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
            return job["state"] == state and job["attempts"] >= attempts

        self.until(f"{name} is {state}", is_so)
        return self.job(name)

    def until_step(self, name: str, step: int) -> None:
        self.until(f"{name} reaches step {step}", lambda: (self.job(name)["progress"] or {}).get("step", 0) >= step)

    def expect(self, is_so: bool, what: str) -> None:
        if not is_so:
            raise Unexpected(f"expected that {what}; it is not so")

    def log(self, name: str, attempt: int) -> str:
        return "".join(self.client.logs(name, attempt=attempt))
