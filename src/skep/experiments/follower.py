"""The follower: a process beside the server that forecasts when each job starts and ends.

It reads a `Setup` and then, for each line with the time, makes a forecast and writes it as one line. It ends when the
server closes its input.
"""

from __future__ import annotations

import os
import resource
import select
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from skep.core.errors import SkepError
from skep.experiments.calibration import Calibration
from skep.experiments.measure import measure_of
from skep.experiments.samples import cpu_seconds, foresee
from skep.service.followed import Followed
from skep.service.foreseen import Foresight, Setup

MEMORY_MAX = 4 << 30
NICE = 10


class Forecaster:
    def __init__(self, setup: Setup, server: int) -> None:
        """`server` is the descriptor that becomes readable when the server has gone."""
        self.setup = setup
        self.server = server
        self.followed = Followed(Path(setup.data), measure_of(setup.profile), setup.offers, setup.weights)
        self.calibration = Calibration(Path(setup.data))

    def forecast(self, now_s: float) -> Foresight:
        began_s = cpu_seconds()
        kept = self.followed.catch_up()
        self.calibration.judge(self.followed.store, now_s)
        found = foresee(
            kept,
            self.followed.names,
            now_s=now_s,
            count=self.setup.samples,
            within_s=self.setup.within_s,
            pause=self.rest,
        )
        self.calibration.keep(found)
        judged = self.calibration.judged()
        self.rest(cpu_seconds() - began_s - found.cpu_s)
        return msgspec.structs.replace(found, judged=judged)

    def rest(self, cpu_s: float) -> None:
        """So long that the CPU time is its part of the whole. During a forecast the server sends nothing: its input is
        readable only at its end."""
        if select.select([self.server], [], [], cpu_s * (1 / self.setup.cpu - 1))[0]:
            sys.exit(0)


def serve(times: Iterable[bytes], to: BinaryIO, forecaster: Forecaster) -> None:
    for line in times:
        to.write(msgspec.json.encode(forecaster.forecast(float(line))) + b"\n")
        to.flush()


def main() -> None:
    """What a policy prints goes to standard error."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.nice(NICE)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_MAX, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    asked = open(sys.stdin.fileno(), "rb", buffering=0)  # noqa: SIM115 - nothing may be read ahead
    try:
        forecaster = Forecaster(msgspec.json.decode(asked.readline(), type=Setup), asked.fileno())
        with open(answers, "wb") as to:
            serve(asked, to, forecaster)
    except (SkepError, sqlite3.Error) as error:
        print(f"no forecast: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
