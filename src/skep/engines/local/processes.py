"""Processes as shown in /proc. Standard library only: the shim uses this too."""

from __future__ import annotations

import contextlib
import os
import signal

ROUNDS_MAX = 100
SIGTERM_BIT = 1 << (signal.SIGTERM - 1)
FREEZE = "cgroup.freeze"
TURN = "turn"
"""The control group inside that of a task which contains its processes while it takes turns or is suspended."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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


def written_by(pid: int) -> int:
    """Bytes that a process has had written to a disk; 0 if that cannot be read."""
    lines = read(f"/proc/{pid}/io").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:"))


def family(root: int) -> list[int]:
    """All processes below this one, without reading those of others; parents first.

    It may miss a process whose siblings exit at this moment.
    """
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):  # The kernel does not list them.
        return list(below(root))
    found = [root]
    for parent in found:
        for thread in listed(f"/proc/{parent}/task"):
            found += map(int, read(f"/proc/{parent}/task/{thread}/children").split())
    return found[1:]


def cpu_below(root: int) -> float:
    """Seconds of CPU that the processes below this one have used, including those that have exited."""
    ticks = 0
    for pid in (root, *family(root)):
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if fields:
            own = 0 if pid == root else int(fields[11]) + int(fields[12])
            ticks += own + int(fields[13]) + int(fields[14])
    return ticks * TICK_S


def listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def has_caretaker(pid: int, tree: dict[int, int]) -> bool:
    """True if a parent that handles the signal takes care of this process.

    The workers of a data loader must not get the signal while their parent, which got it too, needs them for its last
    step. They are started by Python's multiprocessing: forked from a Python process without a program of their own, or
    marked so.
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


def in_container(pid: int) -> bool:
    """True if it has another root folder than we do."""
    try:
        return not os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    except OSError:
        return False


def catches_sigterm(pid: int) -> bool:
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) & SIGTERM_BIT)
    return False


def read(path: str) -> bytes:
    """Empty if the process has exited meanwhile."""
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
    """Kill all processes below this one, as far as the kernel permits. They are stopped first, because a stopped
    process cannot fork."""
    signal_below(root, signal.SIGSTOP)
    for pid in below(root):
        send(pid, signal.SIGKILL)


def signal_below(root: int, number: int) -> None:
    """Send this signal to all processes below this one, until no new one appears: some may fork before they stop."""
    seen: set[int] = set()
    for _ in range(ROUNDS_MAX):
        found = set(below(root)) - seen
        if not found:
            return
        for pid in found:
            send(pid, number)
        seen |= found


def run(argv: list[str], env: dict[str, str] | None = None) -> int:
    """A tool of the shim; what it says goes to a file in the working folder."""
    name = f"{os.path.basename(argv[0])}.log"
    log = (os.POSIX_SPAWN_OPEN, 1, name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawnp(
            argv[0], argv, os.environ if env is None else env, file_actions=[log, (os.POSIX_SPAWN_DUP2, 1, 2)]
        )
    except OSError:
        return 127
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def join_groups(groups: list[str]) -> None:
    """For a process with one thread. In version 1 a thread may move itself (`tasks`) without the machine-wide lock over
    all forks that moving a process takes, for which the kernel waits 5 to 15 ms."""
    for group in groups:
        for name in ("tasks", "cgroup.procs"):
            with contextlib.suppress(OSError):
                write(f"{group}/{name}", b"0")
                break


def write(file: str, content: bytes) -> None:
    """Write into a file of the kernel."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def freeze(group: str, root: int) -> bool:
    """Freeze all processes below this one in a control group; true if that was possible.

    Only groups of version 2: in version 1 a frozen process cannot even be killed.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(group)
        write(f"{group}/{FREEZE}", b"1")
    except OSError:
        return False
    return gather(group, root)


def gather(group: str, root: int) -> bool:
    """Put all processes below this one into a control group, so that they can be frozen. True if that was possible.

    It is done only when needed, because moving a process takes a machine-wide lock over all forks. The processes are
    put into an inner group, which turns freeze, while a suspension freezes the outer one: a task that is continued by
    one of them is still paused by the other.
    """
    inner = f"{group}/{TURN}"
    try:
        for folder in (group, inner):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        for _ in range(ROUNDS_MAX):
            inside = {int(line) for line in read_all(f"{inner}/cgroup.procs").split()}
            outside = [pid for pid in below(root) if pid not in inside and not is_zombie(pid)]
            if not outside:
                return True
            for pid in outside:
                with contextlib.suppress(ProcessLookupError):
                    write(f"{inner}/cgroup.procs", str(pid).encode())
    except OSError:
        pass
    return False


def thaw(group: str) -> None:
    with contextlib.suppress(OSError):
        write(f"{group}/{FREEZE}", b"0")


def kill_marked(marks: set[str]) -> set[str]:
    """Kill every process that has one of these variables in its environment. Returns the variables that were found."""
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
    """When this process began, in the kernel's ticks; 0 if it does not exist."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[19]) if fields and fields[0] not in b"ZX" else 0


def is_zombie(pid: int) -> bool:
    return state_of(pid) in b"ZX"


def state_of(pid: int) -> bytes:
    """One letter, empty for a process that has exited."""
    stat = read(f"/proc/{pid}/stat")
    return stat[stat.rindex(b")") + 2 :][:1] if stat else b""


def read_all(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
