"""Processes as /proc shows them. Standard library only: the shim uses this too."""

from __future__ import annotations

import contextlib
import os
import signal

ROUNDS_MAX = 100
SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def below(root: int) -> dict[int, int]:
    """All processes below this one, parents first: number → number of the parent."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read(f"/proc/{name}/stat")
            if stat:
                fields = stat[stat.rindex(b")") + 2 :].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    tree: dict[int, int] = {}
    todo = [root]
    for parent in todo:
        for child in children.get(parent, ()):
            tree[child] = parent
            todo.append(child)
    return tree


def has_caretaker(pid: int, tree: dict[int, int]) -> bool:
    """Whether a parent that handles the signal looks after this process.

    The workers of a data loader must not be told to stop while their parent, told too, still needs them for its last
    step. They are Python's multiprocessing: forked from a Python process without a program of their own, or marked so.
    """
    command = read(f"/proc/{pid}/cmdline")
    while is_worker(command, tree.get(pid, 0)):
        pid = tree[pid]
        if catches_sigterm(pid):
            return True
        command = read(f"/proc/{pid}/cmdline")
    return False


def is_worker(command: bytes, parent: int) -> bool:
    if b"python" not in os.path.basename(command.split(b"\0")[0]):
        return False
    return b"multiprocessing" in command or command == read(f"/proc/{parent}/cmdline")


def catches_sigterm(pid: int) -> bool:
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) & SIGTERM_BIT)
    return False


def read(path: str) -> bytes:
    """Nothing where the process has gone meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 16)
    except OSError:
        return b""
    finally:
        os.close(fd)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_below(root: int) -> None:
    """Kill all processes below this one, as far as the kernel lets them die. First they are stopped: who stands still
    makes no others."""
    signal_below(root, signal.SIGSTOP)
    for pid in below(root):
        send(pid, signal.SIGKILL)


def signal_below(root: int, number: int) -> None:
    """Send this signal to all processes below this one, until nobody is new: some may fork before they stop."""
    seen: set[int] = set()
    for _ in range(ROUNDS_MAX):
        found = set(below(root)) - seen
        if not found:
            return
        for pid in found:
            send(pid, number)
        seen |= found


def run(argv: list[str]) -> int:
    log = (os.POSIX_SPAWN_OPEN, 1, "criu.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[log, (os.POSIX_SPAWN_DUP2, 1, 2)])
    except OSError:
        return 127
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def join_groups(groups: list[str]) -> None:
    """For a process with one thread. In version 1 a thread may move itself (`tasks`) without the lock over all forks
    of the machine that moving a process takes, for which the kernel waits 5 to 15 ms."""
    for group in groups:
        for name in ("tasks", "cgroup.procs"):
            with contextlib.suppress(OSError):
                move_into(f"{group}/{name}")
                break


def move_into(file: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def kill_marked(marks: set[str]) -> set[str]:
    """Kill every process that has one of these variables in its environment; those that some process had."""
    wanted = {mark.encode(errors="surrogateescape"): mark for mark in marks}
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = wanted.keys() & read_all(f"/proc/{name}/environ").split(b"\0")
            if seen and not is_zombie(int(name)):
                send(int(name), signal.SIGKILL)
                found |= {wanted[mark] for mark in seen}
    return found


def began(pid: int) -> int:
    """When this process began, in the kernel's ticks; 0 if there is none any more."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[19]) if fields and fields[0] not in b"ZX" else 0


def is_zombie(pid: int) -> bool:
    return state_of(pid) in b"ZX"


def state_of(pid: int) -> bytes:
    """One letter, nothing for a process that has gone."""
    stat = read(f"/proc/{pid}/stat")
    return stat[stat.rindex(b")") + 2 :][:1] if stat else b""


def read_all(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
