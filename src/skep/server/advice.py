"""Asks the process that tries out what would let a job start (`experiments/adviser.py`).

The first question starts it. It ends after a while without questions; the next one starts it again.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec

from skep.server.foresight import kill
from skep.service.advice import Line, Question, Tried
from skep.service.foreseen import Setup

log = logging.getLogger("skep")

FAILED = Tried(changes=0, seconds=0.0, error="the process that tries changes out has ended; the server's log says why")


class Advice:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def ask(self, question: Question) -> Iterator[bytes]:
        """The lines of the answer as they come, one question at a time; the last one is `Tried`. A caller that stops
        listening ends the process."""
        with self._lock:
            is_done = False
            try:
                yield from self._lines(question)
                is_done = True
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("no advice: %s", error)
                yield msgspec.json.encode(FAILED) + b"\n"
            finally:
                if not is_done:
                    self._end()

    def _lines(self, question: Question) -> Iterator[bytes]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(question) + b"\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            yield line
            if isinstance(msgspec.json.decode(line, type=Line), Tried):
                return
        raise BrokenPipeError("it has ended")

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and process.poll() is None:
            return process
        if self._is_closed:
            raise BrokenPipeError("the server stops")
        self._end()
        process = self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "skep.experiments.adviser"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self.setup) + b"\n")
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill(process)
            process.communicate()

    def close(self) -> None:
        """An answer that is being read ends with `FAILED`."""
        self._is_closed = True
        process = self._process
        if process is not None:
            kill(process)
        with self._lock:
            self._end()
