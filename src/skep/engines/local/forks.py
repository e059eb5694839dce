"""The process that forks shims: with all modules loaded that takes a millisecond, while a new Python takes thirty.

Run as `python -I -S forks.py ROOM`. Its standard input is a socket to the server. Each message names the folder of a
task, after `+` if its task is to start at once and `-` if it is to wait for `go`, or after `=` the folder of a turn
keeper (`keeper.py`). The answer is the number and start time of the new process, or `!` and an error message. It ends
with the server; its children live on. ROOM is an argument whose memory they reuse for their names.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from skep.engines.local import keeper, shim
    from skep.engines.local.processes import began, read
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # The interpreter runs isolated, without this folder.
    import keeper
    import shim
    from processes import began, read

CHANNEL = 0
MESSAGE_MAX = 1 << 16
FILES_MAX = 1 << 30
KEEPER = b"="


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps shims that have exited.
    gc.freeze()  # What is never collected is never copied.
    while message := os.read(CHANNEL, MESSAGE_MAX):
        try:
            pid = os.fork()
        except OSError as error:
            answer = f"!{error.errno} {os.strerror(error.errno or 0)}"
        else:
            if pid == 0:
                become(message[:1], os.fsdecode(message[1:]))
            answer = f"{pid} {began(pid)}"
        os.write(CHANNEL, answer.encode())


def become(kind: bytes, folder: str) -> NoReturn:
    """A shim or a turn keeper, with no open file of the server; its errors go to `shim.err`."""
    code = 1
    try:
        os.closerange(3, FILES_MAX)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        os.chdir(folder)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if kind == KEEPER:
            rename(f"skep-turns {folder}")
            keeper.main()
        else:
            rename(f"skep-shim {folder}")
            shim.main(goes_at_once=kind == b"+")
        code = 0
    except BaseException:
        os.dup2(os.open("shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600), 2)
        traceback.print_exc()
    finally:
        os._exit(code)


def rename(title: str) -> None:
    """The name shown in process lists. The kernel reads the command line from our memory."""
    fields = read("/proc/self/stat").rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    room = end - begin
    ctypes.memmove(begin, os.fsencode(title)[: room - 1].ljust(room, b"\0"), room)


if __name__ == "__main__":
    serve()
