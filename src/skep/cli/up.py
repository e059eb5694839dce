"""`skep up`: the server, in the foreground or in the background."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_policies
from skep.files.running import default_data

if TYPE_CHECKING:
    from pathlib import Path

    from skep.server.config import Config

READY_S = 120.0


@click.command()
@click.option(
    "--cluster",
    metavar="SPEC|FILE",
    help="The nodes and GPUs.  [default: as it was; at first the GPUs of this machine]",
)
@click.option(
    "--policy",
    metavar="P",
    help="How to schedule; `skep policies` lists them.  [default: as it was; at first fifo]",
    shell_complete=complete_policies,
)
@click.option("--engine", metavar="NAME", help="What runs the jobs: local or kubernetes.  [default: local]")
@click.option("--kubeconfig", metavar="FILE", help="Kubernetes: where and as whom.  [default: $KUBECONFIG, own pod]")
@click.option("--context", metavar="NAME", help="Kubernetes: the context in that file.  [default: its current one]")
@click.option("--namespace", metavar="NAME", help="Kubernetes: where pods are made.  [default: of the context]")
@click.option(
    "--reports", metavar="URL", help="Kubernetes: where pods reach this server.  [default: they do not report]"
)
@click.option("--profile", metavar="FILE", help="Speeds by model: the reference of jobs that report their steps.")
@click.option("--data", metavar="DIR", help="The data folder.  [default: ~/.local/share/skep]")
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="[default: 7437]")
@click.option("--auth", type=click.Choice(["none", "token"]), help="[default: none on this machine, else token]")
@click.option("--config", "file", metavar="FILE", help="The same settings as YAML; flags override it.")
@click.option("--new", "is_new", is_flag=True, help="Start with a new store although files of jobs are left.")
@click.option("-d", "--detach", is_flag=True, help="Run in the background; return when the server answers.")
def up(file: str | None, detach: bool, is_new: bool, **flags: Any) -> None:
    """Start the server: real jobs on the GPUs of this machine, or on virtual ones.

    Jobs survive the end of the server; the next `skep up` on the same data takes them over.

    \b
    Examples:
      skep up
      skep up --cluster 4x8 --policy tiresias-l --data ./data -d
      skep up --engine kubernetes --namespace ml
      skep up --host 0.0.0.0 --auth token --config skep.yaml
    """
    from skep.server.config import make_config

    config = make_config(file, flags, is_new=is_new)
    if detach:
        start_behind(config, file, flags)
        return
    from skep.server.run import serve

    serve(config, say)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start_behind(config: Config, file: str | None, flags: dict[str, Any]) -> None:
    """The same command in a separate process, whose output goes to a file."""
    import subprocess

    from skep.files.umask import STARTED_WITH
    from skep.server.config import open_socket
    from skep.server.datadir import DataDir
    from skep.server.own_log import set_aside

    # Errors that can be found now are printed here and not in a log. Lock and port are released for the server.
    open_socket(config).close()
    DataDir(config.data).close()
    words = [word for key, value in flags.items() if value is not None for word in (f"--{key}", str(value))]
    words += ["--config", file] if file is not None else []
    words += ["--new"] if config.is_new else []
    set_aside(config.data)
    with log_of(config).open("ab") as out:
        begin = out.tell()
        command = [sys.executable, "-m", "skep.cli.main", "up", *words]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            close_fds=True,
            umask=STARTED_WITH,
        )
    wait_until_ready(child, config, begin)


def wait_until_ready(child: Any, config: Config, begin: int) -> None:
    import time

    from skep.core.errors import InputError
    from skep.files.running import read_running

    log = log_of(config)
    by_s = time.monotonic() + READY_S
    while child.poll() is None and time.monotonic() < by_s:
        running = read_running(config.data)
        if running is not None and running.pid == child.pid:
            say(log_since(config, begin).rstrip())
            say(next_commands(config, running.url))
            return
        time.sleep(0.05)
    if child.poll() is None:
        raise InputError(f"the server does not answer after {READY_S:g} s; it is still starting", hint=f"see {log}")
    said = [line for line in log_since(config, begin).splitlines() if line.strip()]
    errors, hints = (
        [line.removeprefix(word) for line in said if line.startswith(word)] for word in ("error: ", "hint: ")
    )
    raise InputError(
        (errors or said[-1:] or ["the server did not start"])[0], hint=hints[0] if errors and hints else f"see {log}"
    )


def next_commands(config: Config, url: str) -> str:
    """What to type now: the address, if commands would not find it by themselves, and how to stop."""
    from pathlib import Path

    from skep.client.profile import DEFAULT_URL, read_profile
    from skep.engines.local.accounts import SERVER, first_closed
    from skep.server.build import chosen_run_as

    is_elsewhere = url != DEFAULT_URL or bool(read_profile().url)
    lines = [f"  export SKEP_URL={url}"] if is_elsewhere else []
    if config.auth == "token":
        lines.append(
            f"  export SKEP_TOKEN=$(skep token create --user $(id -un) --data {shlex.quote(str(config.data))})"
        )
    is_closed = chosen_run_as(config) != SERVER and first_closed(Path.cwd()) is not None
    lines.append(f"  skep run{' --workdir /tmp' if is_closed else ''} --gpus 1 -- python3 -c 'print(\"hello\")'")
    lines.append(f"  skep down{'' if config.data == default_data() else f' --data {shlex.quote(str(config.data))}'}")
    return "next:\n" + "\n".join(lines)


def log_of(config: Config) -> Path:
    from skep.server.own_log import NAME

    return config.data / NAME


def log_since(config: Config, begin: int) -> str:
    with log_of(config).open("rb") as log:
        log.seek(begin)
        return log.read().decode(errors="replace")
