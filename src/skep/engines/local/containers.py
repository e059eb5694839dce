"""Tasks in container images, run by podman below the shim like any other task.

A container shares the process numbers, the network and the shared memory of the machine, its processes are in the
control groups of the task (a hook puts them there before the program starts), and the folders of the task have the
same paths inside. So signals, suspension, limits, logs, ports and exit codes are those of plain processes, and a task
without a shim is found and killed as ever. What is left of a container that was killed is removed by its name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.engines.local.accounts import Account
from skep.engines.local.cgroups import own_groups
from skep.engines.local.folder import safe_name
from skep.engines.local.gpus import find_gpus
from skep.jobs.env import TaskPlace

REMOVE_S = 60.0
RUNTIME_ENV = ("PATH", "HOME", "XDG_RUNTIME_DIR", "TMPDIR", "LANG")
RUNTIME_PREFIXES = ("CONTAINERS_", "REGISTRY_", "STORAGE_", "DBUS_")
"""Variables of the server that podman gets. Those of a job it reads from a file: with them a job could choose what
podman, which has the rights of the server, does."""
JOIN_GROUPS = (
    """pid=$(sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p'); : > "$1"; shift; """
    'for group; do echo "$pid" > "$group/cgroup.procs"; done 2>/dev/null; true'
)
BEGUN = "contained"
"""A file in the task's folder: the container was made."""


class ContainerFile(msgspec.Struct, frozen=True):
    """What the shim must know of a container, beside the command that runs it."""

    name: str
    folder: str
    """Where the task works, and `account` must be able to: podman could reach more."""
    account: Account | None
    remove: list[str]
    has_image: list[str]
    """Exit code 0 if the image is on this machine."""


@functools.cache
def podman() -> str:
    """Its path; empty if it is not installed."""
    return shutil.which("podman") or ""


def name_of(mark: str, job_id: str, launch: int, task: str) -> str:
    return f"{mark}.{safe_name(job_id)}.{launch}.{safe_name(task)}".replace("%", "-")


def container_file(name: str, image: str, folder: str, account: Account | None) -> ContainerFile:
    return ContainerFile(name, folder, account, remove_command(name), [podman(), "image", "exists", image])


def remove_command(name: str) -> list[str]:
    return [podman(), "rm", "--force", "--ignore", "--time", "0", name]


def exec_command(container: ContainerFile) -> list[str]:
    """What a command begins with that runs in a container."""
    return [podman(), "exec", "--interactive", "--workdir", container.folder, container.name]


def run_command(
    name: str,
    image: str,
    argv: list[str],
    task: Path,
    folders: Sequence[str],
    library: Path,
    cwd: str,
    account: Account | None,
    place: TaskPlace,
    umask: int,
) -> list[str]:
    """`task` has the hook and the variables (`write_files`); `folders` are the job's own."""
    mounts = [word for folder in dict.fromkeys((*folders, cwd)) for word in ("--volume", f"{folder}:{folder}")]
    groups = [word for group in (account.groups if account else []) for word in ("--group-add", str(group))]
    return [
        *(podman(), "run", "--rm", "--replace", "--name", name, "--hooks-dir", str(task / "hooks")),
        *("--pid=host", "--network=host", "--ipc=host", "--log-driver=passthrough", "--security-opt=label=disable"),
        *(["--cap-drop=all", "--security-opt=no-new-privileges"] if account else []),
        *("--user", f"{account.uid}:{account.gid}" if account else "0:0", *groups, f"--umask={umask:04o}"),
        *(*mounts, "--volume", f"{library}:{library}:ro", "--workdir", cwd),
        *("--env-file", str(task / "env"), *devices(place), "--entrypoint=", image, *argv),
    ]


def devices(place: TaskPlace) -> list[str]:
    """Its GPUs by CDI; virtual ones have no device."""
    if not find_gpus():
        return []
    named = place.devices or tuple(map(str, place.gpus))
    return [word for each in named for word in ("--device", f"nvidia.com/gpu={each}")]


def inner_env(env: dict[str, str], place: TaskPlace) -> dict[str, str]:
    """Inside a container real GPUs are numbered from 0."""
    if place.gpus and not place.devices and find_gpus():
        return env | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(place.gpus))))}
    return env


def runtime_env(env: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key in RUNTIME_ENV or key.startswith(RUNTIME_PREFIXES)}


def write_files(aside: Path, final: Path, env: dict[str, str], groups: list[str]) -> None:
    """Into the folder of a task that is written aside and becomes `final`."""
    for name, value in env.items():
        if "\n" in value or "\r" in value:
            raise InputError(f"variable {name} has a line break, which a container on this machine cannot get")
    fd = os.open(aside / "env", os.O_WRONLY | os.O_CREAT, 0o600)  # It may contain secrets.
    with open(fd, "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in env.items())
    # Out of the groups that the runtime made: it kills what is left there when the first process ends, also one that
    # saves.
    args = ["sh", "-c", JOIN_GROUPS, "sh", str(final / BEGUN), *own_groups(), *groups]
    hook = {
        "version": "1.0.0",
        "hook": {"path": "/bin/sh", "args": args},
        "when": {"always": True},
        "stages": ["createRuntime"],
    }
    (aside / "hooks").mkdir(mode=0o700)
    (aside / "hooks" / "skep.json").write_bytes(msgspec.json.encode(hook))


def remove_containers(names: list[str]) -> None:
    """What is left of containers whose processes are gone; in a thread, because it takes a while."""

    def remove() -> None:
        for name in names:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(remove_command(name), capture_output=True, timeout=REMOVE_S, check=False)

    if names and podman():
        threading.Thread(target=remove, name="skep-local-containers", daemon=True).start()
