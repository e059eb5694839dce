"""Reading what a job may have put there: nothing blocks, nothing raises but what may be different later."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from skep.engines.local.folder import ExitRecord
from skep.files import untrusted
from skep.files.untrusted import (
    Reserve,
    decode_as,
    is_file,
    lock_holder,
    open_as,
    open_file,
    read_small,
    read_values,
    write_line,
)


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_text('{"code": 1, "step": 1}')
    path.symlink_to(other)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def make_nothing(path: Path) -> None:
    pass


IMPOSTORS = [make_fifo, make_link, make_socket, make_loop, make_sparse, Path.mkdir, make_nothing]


@pytest.mark.parametrize("make", IMPOSTORS, ids=lambda make: make.__name__)
def test_what_is_no_small_regular_file_counts_as_absent(tmp_path: Path, make) -> None:
    path = tmp_path / "file"
    make(path)
    assert read_small(path) is None
    assert read_values(path) == {}
    assert is_file(path) == (make is make_sparse)
    assert write_line(path, "stop") is False
    assert lock_holder(path) == 0


def test_below_a_file_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert read_small(tmp_path / "file" / "progress.json") is None


DAMAGED = {
    "one byte that is no text": b'{"code": 0, "cause": "\377"}',
    "deep lists": b"[" * 60_000,
    "deep objects": b'{"code":' * 8000,
    "half a surrogate": b'{"code": 0, "cause": "\\ud800"}',
    "an encoded surrogate": b'{"code": 0, "cause": "\xed\xa0\x80"}',
    "a code that no process has": b'{"code": 99999999999999999999999999999}',
    "a negative code": b'{"code": -1}',
    "endless seconds": b'{"code": 0, "seconds": 1e999}',
    "seconds that are no number": b'{"code": 0, "seconds": NaN}',
    "a long cause": b'{"code": 0, "cause": "%s"}' % (b"x" * 50_000),
    "nothing": b"",
    "a list": b"[]",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_what_cannot_be_decoded_is_damaged(content: bytes) -> None:
    assert decode_as(content, ExitRecord) is None


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_values_can_always_be_sent_on(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress.json").write_bytes(content)
    msgspec.json.encode(read_values(tmp_path / "progress.json"))


def test_only_plain_values_of_bounded_size_are_kept(tmp_path: Path) -> None:
    much = ", ".join(f'"k{number}": 1' for number in range(1000))
    (tmp_path / "a").write_text(
        f'{{"step": 3, "loss": 0.5, "left": true, "none": null, "text": "x", "huge": {"9" * 400}, "float": 1e300, '
        f'"long": "{"y" * 5000}", "list": [1], "object": {{}}, {much}}}'
    )
    values = read_values(tmp_path / "a")
    assert len(values) == untrusted.KEYS_MAX
    kept = {key: value for key, value in values.items() if not key.startswith("k")}
    assert kept == {"step": 3, "loss": 0.5, "left": True, "none": None, "text": "x"}


def test_what_cannot_be_read_now_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exit.json").write_text('{"code": 0}')

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(untrusted.reserve, "open", fail)
    with pytest.raises(OSError, match="Input/output"):
        read_small(tmp_path / "exit.json")


def test_a_file_is_open_for_reading(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"line")
    file = open_file(tmp_path / "log")
    assert file is not None
    with file:
        assert file.read() == b"line"


def test_the_reserve_opens_a_file_when_no_descriptor_is_left(tmp_path: Path) -> None:
    (tmp_path / "exit.json").write_text("x")
    code = """
import os, sys
from skep.files import untrusted
untrusted.reserve.fill()
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    open(sys.argv[1])
    raise SystemExit("there is a descriptor left")
except OSError:
    pass
for _ in range(100):
    assert untrusted.read_small(sys.argv[1]) == b"x"
    assert untrusted.is_file(sys.argv[1])
"""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    path = str(tmp_path / "exit.json")
    done = subprocess.run([sys.executable, "-c", code, path], preexec_fn=few_files, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_reserve_that_is_spent_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Reserve()
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(24, "Too many open files")))
    with pytest.raises(OSError, match="Too many"):
        reserve.open(tmp_path, os.O_RDONLY)


def test_a_line_reaches_who_reads_the_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    assert write_line(tmp_path / "control", "go") is False
    reader = os.open(tmp_path / "control", os.O_RDONLY | os.O_NONBLOCK)
    assert write_line(tmp_path / "control", "go") is True
    assert os.read(reader, 100) == b"go\n"
    while write_line(tmp_path / "control", "x" * 4000):
        pass  # A reader that does not read blocks nobody.
    os.close(reader)


def test_the_holder_of_a_lock_is_seen_without_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    assert lock_holder(lock) == 0
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert lock_holder(lock) == process.pid
        process.kill()
    assert lock_holder(lock) == 0


def test_a_descriptor_of_another_kind_is_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = len(os.listdir("/proc/self/fd"))
    assert open_as(tmp_path / "fifo", os.O_RDONLY, stat.S_ISREG) is None
    assert len(os.listdir("/proc/self/fd")) == before
