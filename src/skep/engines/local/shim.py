"""The shim: the process above one task. It outlives the server, keeps the exit code, and leaves no process behind.

Forked by `forks.py`: standard library only, and nothing is imported later, because each task has one. It uses only its
folder, which is its working folder: `task.json` says what to run; the `control` fifo brings commands (`go -`, `stop
GRACE`, `kill CAUSE`, `suspend LEASE`, `resume -`, `turns LEASE`, each with the epoch of its server); a lock on `lock`
is held for life; `pid` and `main` appear when it is ready and when the task runs; `suspended` exists while the task is
suspended; `exit.json` is durable before the lock is released. As a subreaper it inherits every process that the task
left behind, so "no child is left" means that no process of the task is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import stat
import sys
import time
import warnings  # noqa: F401 (used by `os.execvpe`, when another account may not be able to read it any more)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from skep.engines.local.disk import SAFELY, LogFile, remove_folder, write_whole
    from skep.engines.local.processes import (
        TURN,
        below,
        freeze,
        has_caretaker,
        in_container,
        join_groups,
        kill_below,
        run,
        send,
        signal_below,
        thaw,
    )
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # The interpreter runs isolated, without this folder.
    from disk import SAFELY, LogFile, remove_folder, write_whole
    from processes import (
        TURN,
        below,
        freeze,
        has_caretaker,
        in_container,
        join_groups,
        kill_below,
        run,
        send,
        signal_below,
        thaw,
    )

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
PIPE_READS = 32
EPOCH_DIGITS = 19
REST_GRACE_S = 3.0
"""The grace period for processes that a task leaves behind when it exits by itself."""

libc = ctypes.CDLL(None, use_errno=True)


class Shim:
    """Its working folder is the task's folder, so that all names here are short and stay valid if the folder moves."""

    def __init__(self, lock: int) -> None:
        self.lock = lock
        with open("task.json", "rb") as file:
            self.task: dict[str, Any] = json.load(file)
        self.log = LogFile(self.task["log_bytes"], self.task["log_files"])
        self.poller = select.poll()
        self.control = os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self.output = -1
        self.main = 0
        self.code: int | None = None
        self.cause = ""
        self.ran = False
        self.stop_asked = False
        self.is_over = False
        self.asked: set[int] = set()
        self.kill_at: float | None = None
        self.kill_every_s = 0.02
        self.resume_at: float | None = None
        """When the suspension ends unless it is renewed; None: the task is not suspended."""
        self.was_signalled = False
        """True if a process of the task was stopped by a signal."""
        self.turns_until: float | None = None
        """Until when the turn keeper may pause the task without another message; None: it takes no turns."""
        self.epoch = 0
        """The epoch of the latest server that sent a command."""
        self.began_at = now()

    def serve(self, *, goes_at_once: bool) -> None:
        """Run until no process of the task is left."""
        self.poller.register(self.control, select.POLLIN)
        self.poller.register(self.wake, select.POLLIN)
        write_whole("pid", str(os.getpid()))
        if goes_at_once:
            self.start()
        else:
            self.ring()
        while not self.is_over:
            ready = {fd for fd, _ in self.poller.poll(self.timeout_ms())}
            if self.output in ready and not self.log.pump(self.output):
                self.poller.unregister(self.output)
            signals = os.read(self.wake, 4096) if self.wake in ready else b""
            self.reap()  # Before any command: a task that exited by itself was not stopped.
            self.on_signals(signals)
            if self.control in ready:
                for line in os.read(self.control, 4096).decode(errors="replace").splitlines():
                    self.receive(*line.split()[:3])
            if self.resume_at is not None and time.monotonic() >= self.resume_at:
                self.resume()  # The suspension was not renewed: the server is gone or stuck.
            if self.turns_until is not None and time.monotonic() >= self.turns_until:
                self.leave_turns()  # On command, or because the turn keeper is gone.
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.kill_rest()
        if self.output >= 0:
            for _ in range(PIPE_READS):  # No more than a pipe holds: another process may be writing to it.
                if not self.log.pump(self.output):
                    break

    def timeout_ms(self) -> float | None:
        nexts = [at for at in (self.kill_at, self.resume_at, self.turns_until) if at is not None]
        return max(min(nexts) - time.monotonic(), 0.0) * 1000 + 1 if nexts else None

    def on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            # The machine goes down, or an admin sent SIGTERM: the task is stopped gracefully too.
            self.obey("stop", str(self.task["grace_s"]))

    def receive(self, word: str = "", value: str = "", epoch: str = "") -> None:
        """A command is valid if no later server has taken over."""
        given = int(epoch) if epoch.isdecimal() else 0
        self.epoch = max(self.epoch, self.taken())
        if given >= self.epoch:
            self.epoch = given
            self.obey(word, "" if value == "-" else value)

    def taken(self) -> int:
        """The epoch of the latest server, as far as it can be read."""
        text = b""
        with contextlib.suppress(OSError):
            fd = os.open(self.task.get("fence", ""), os.O_RDONLY | SAFELY)
            with open(fd, "rb", buffering=0) as file:
                text = file.read(EPOCH_DIGITS) or b""
        return int(text) if text.isdigit() else 0

    def obey(self, word: str = "", value: str = "") -> None:
        if word == "go" and not self.ran:
            self.start()
        elif word == "stop" and is_seconds(value):
            self.stop(float(value))
        elif word == "kill":
            self.kill(value)
        elif word == "suspend" and is_seconds(value):
            self.suspend(float(value))
        elif word == "resume":
            self.resume()
        elif word == "turns" and is_seconds(value):
            self.take_turns(float(value))
        if not self.ran and self.stop_asked:
            self.is_over = True

    # Starting

    def start(self) -> None:
        self.ran = True
        self.began_at = now()
        for note in self.task["notes"]:
            self.log.note(note)
        try:
            error = self.restore() if self.task["restore"] else self.fork(os.getpid())
        except OSError as problem:
            self.code, self.is_over = 126, True
            error = f"cannot start a process: {problem.strerror}"
        if error:
            self.log.note(error)
        else:
            write_whole("main", str(self.main))
        self.ring()

    def fork(self, shim: int) -> str:
        """Start the task. Returns an error message, if any."""
        if self.task["output"]:
            output = os.open(self.task["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        else:
            self.output, output = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.output, False)
            self.poller.register(self.output, select.POLLIN)
        errors, error_end = os.pipe2(os.O_CLOEXEC)
        self.main = os.fork()
        if self.main == 0:
            self.become_task(shim, output, error_end)
        os.close(output)
        os.close(error_end)
        with open(errors, "rb") as pipe:  # Closed when the task has become its program, or has failed to.
            return pipe.read().decode(errors="replace")

    def become_task(self, shim: int, output: int, error_end: int) -> NoReturn:
        code = 126
        step, program = "start", ""
        try:
            os.setsid()
            container = self.task.get("container")
            if not container:  # Its processes join them, not those of podman.
                join_groups(self.task["cgroups"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            if self.task.get("open_files", 0) > 0:
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.task["open_files"], limit))
            os.umask(self.task.get("umask", 0o022))  # Not in the file of an earlier version.
            account = None if container else self.task.get("account")
            whom = f" as account {account['name']}" if account else ""
            if container:
                step = f"enter the folder {container['folder']!r}"
                try_folder(container)
            if account:
                step = f"become account {account['name']}"
                become(account)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # After the change of account, which resets this.
            if os.getppid() != shim:
                os._exit(code)  # The shim died before this was set.
            step = f"enter the folder {self.task['cwd']!r}{whom}"
            os.chdir(self.task["cwd"])
            program = self.task["argv"][0]
            step = f"run {program!r}{whom}"
            os.execvpe(program, self.task["argv"], self.task["env"])
        except OSError as error:
            code = 127 if error.errno == errno.ENOENT and not is_there(program) else 126
            os.write(error_end, f"cannot {step}: {why_not(error, program)}".encode())
        except Exception as error:
            os.write(error_end, f"cannot {step}: {error}".encode())
        finally:
            os._exit(code)

    def restore(self) -> str:
        """Restore a frozen task: CRIU makes it a child of the shim, with its previous process number."""
        if run(self.task["restore"]) != 0:
            self.code, self.is_over = 125, True
            return "criu could not restore the task, see criu.log in its folder; the frozen image is kept"
        with open("thawed") as file:
            self.main = int(file.read())
        return ""

    # Ending

    def reap(self) -> None:
        has_main_left = False
        while self.ran and not self.is_over:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.is_over = True
                return
            if pid == 0:
                if has_main_left:  # And others have not: most tasks leave no process, and the search is slow.
                    self.terminate(REST_GRACE_S)
                return
            if pid == self.main:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
                has_main_left = True

    def stop(self, grace_s: float) -> None:
        if self.stop_asked or self.code is not None:
            # It is already stopping; the grace period may only become shorter.
            self.kill_at = min(self.kill_at or 0.0, time.monotonic() + grace_s)
            return
        self.stop_asked = True
        self.resume()
        self.leave_turns()
        if self.task["freeze"] and self.main:
            if run([word.replace("{pid}", str(self.main)) for word in self.task["freeze"]]) == 0:
                self.cause = "frozen"
                return
            self.log.note("criu could not freeze the task, see criu.log in its folder; it is asked to stop instead")
        self.terminate(grace_s)

    def kill(self, cause: str) -> None:
        if self.code is None:
            self.stop_asked, self.cause = True, self.cause or cause
        self.kill_at = 0.0

    def terminate(self, grace_s: float) -> None:
        """Send SIGTERM to every process once; to later ones after the main process has exited: they may save for it.

        Parents first: a shell whose child exits would continue with its next command.
        """
        tree = self.processes()
        for pid in tree:
            if pid not in self.asked and not has_caretaker(pid, tree):
                send(pid, signal.SIGTERM)
                self.asked.add(pid)
        self.resume()
        self.leave_turns()
        for pid in tree:
            send(pid, signal.SIGCONT)  # A stopped process cannot handle signals.
        if self.kill_at is None:
            self.kill_at = time.monotonic() + grace_s

    def processes(self) -> dict[int, int]:
        """Those of the task. Podman's own are left alone while there is a container: it ends when that does."""
        tree = below(os.getpid())
        if not self.task.get("container"):
            return tree
        inside = {pid: parent for pid, parent in tree.items() if in_container(pid)}
        return inside or (tree if self.code is None else {})

    def kill_rest(self) -> None:
        """Repeat with growing intervals: a process may be forking, or stuck in the kernel."""
        kill_below(os.getpid())
        self.kill_at = time.monotonic() + self.kill_every_s
        self.kill_every_s = min(self.kill_every_s * 2, 1.0)

    # Suspending

    def suspend(self, lease_s: float) -> None:
        """Suspend until `resume`, or until the lease expires."""
        if not self.ran or self.stop_asked or self.code is not None:
            return
        is_new = self.resume_at is None
        self.resume_at = time.monotonic() + lease_s
        freezer = self.task.get("freezer", "")
        if not (freezer and freeze(freezer, os.getpid())):
            signal_below(os.getpid(), signal.SIGSTOP)
            self.was_signalled = True
        if is_new:
            with contextlib.suppress(OSError):
                write_whole("suspended", "")
            self.ring()

    def resume(self) -> None:
        if self.resume_at is None:
            return
        self.resume_at = None
        thaw(self.task.get("freezer", ""))
        if self.was_signalled:
            signal_below(os.getpid(), signal.SIGCONT)
            self.was_signalled = False
        with contextlib.suppress(OSError):
            os.unlink("suspended")
        self.ring()

    # Turns

    def take_turns(self, lease_s: float) -> None:
        """Let the turn keeper pause and continue the task for this long; see `keeper.py`."""
        if self.ran and not self.stop_asked and self.code is None:
            self.turns_until = time.monotonic() + lease_s

    def leave_turns(self) -> None:
        """Continue the task, unless it is suspended."""
        if self.turns_until is None:
            return
        self.turns_until = None
        thaw(f"{self.task.get('freezer', '')}/{TURN}")
        if not self.was_signalled:
            signal_below(os.getpid(), signal.SIGCONT)

    def finish(self) -> None:
        code = self.code if self.code is not None else 128 + signal.SIGTERM
        if self.out_of_memory() and code != 0:
            code, self.cause = 128 + signal.SIGKILL, self.cause or "oom"
        if self.task.get("container"):
            self.finish_container(self.task["container"])
        for group in self.task["cgroups"]:
            remove_folder(group)
        seconds = round(now() - self.began_at, 3) if self.ran else 0.0
        result = {"code": code, "cause": self.cause, "ran": self.ran, "stop_asked": self.stop_asked, "seconds": seconds}
        result["version"] = self.task.get("version", 1)
        while True:
            try:
                write_whole("exit.json", json.dumps(result), is_durable=True)
                break
            except FileNotFoundError:
                return  # The folder was deleted: the exit is not needed.
            except OSError:
                with contextlib.suppress(OSError):
                    os.chmod(".", 0o700)  # The task may have changed that.
                time.sleep(1.0)  # A full disk; holding the lock keeps the task "running" until it can be written.
        os.close(self.lock)  # The end is valid from here; the server is notified afterwards.
        self.ring()

    def finish_container(self, container: dict[str, Any]) -> None:
        """Remove what podman left, if it was killed; say why there was no container, if that was not our doing."""
        if self.kill_at is not None or self.stop_asked:
            run(container["remove"], self.task["env"])
        elif self.code == 125 and not os.path.exists("contained"):
            self.cause = "config" if run(container["has_image"], self.task["env"]) == 0 else "image"

    def out_of_memory(self) -> bool:
        try:
            with open(self.task["oom_file"]) as file:
                return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in file)
        except OSError:
            return False

    def ring(self) -> None:
        """Notify the server of a change; without a server the next one finds it."""
        with contextlib.suppress(OSError):
            fd = os.open(self.task["reports"], os.O_WRONLY | os.O_NONBLOCK)
            with open(fd, "wb", buffering=0) as fifo:
                fifo.write(self.task["name"].encode() + b"\n")


def become(account: dict[str, Any]) -> None:
    """Change the account irrevocably: no group and no right of the server remains, and no program can regain any."""
    os.setgroups(account["groups"])
    os.setresgid(account["gid"], account["gid"], account["gid"])
    os.setresuid(account["uid"], account["uid"], account["uid"])
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")


def try_folder(container: dict[str, Any]) -> None:
    """Raises if the account of the task could not enter its folder: podman, with the rights of the server, could."""
    child = os.fork()
    if child == 0:
        try:
            if container["account"]:
                become(container["account"])
            os.chdir(container["folder"])
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EACCES)
        finally:
            os._exit(errno.EACCES)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(code, os.strerror(code))


def why_not(error: OSError, program: str) -> str:
    """The kernel answers "Permission denied" also for a file that is executable for no account, and for a folder; and
    "No such file" for a script that exists, if its interpreter does not."""
    if error.errno == errno.EACCES and "/" in program:
        with contextlib.suppress(OSError):
            mode = os.stat(program).st_mode
            if stat.S_ISDIR(mode):
                return "it is not executable: it is a folder"
            if not mode & 0o111:
                return "it is not executable"
    if error.errno == errno.ENOENT and is_there(program):
        return "it is not executable: its interpreter does not exist"
    return os.strerror(error.errno or 0)


def is_there(program: str) -> bool:
    return "/" in program and os.path.exists(program)


def is_seconds(value: str) -> bool:
    return value.replace(".", "", 1).isdecimal()


def now() -> float:
    """A clock that runs while the machine sleeps and does not jump: the server computes the end of the task from it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def main(*, goes_at_once: bool) -> None:
    lock = os.open("lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # Another shim has this task.
    if os.path.exists("pid") or os.path.exists("exit.json"):
        return  # Another shim had it: a task runs once.
    if os.getpid() != os.getsid(0):
        os.setsid()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    shim = Shim(lock)
    shim.serve(goes_at_once=goes_at_once)
    shim.finish()
