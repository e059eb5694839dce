"""The process of a study: `python -m skep.server.studies.worker FOLDER`, or with a trace `--check FILE`.

It has low priority and limits of memory and time, and ends when the server does: its standard input is a pipe from
there.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import InputError
from skep.server.studies.records import TABLE, StudyPart, StudyRecord
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.experiments.simulate import Experiment


NICE = 15
MEMORY_MAX = 4 << 30
CPU_MAX_S = 2 * 3600
FILE_MAX = 512 << 20
EVERY_S = 0.3
"""The time between two progress records."""


def main(args: list[str]) -> int:
    hold_back()
    threading.Thread(target=end_with_server, daemon=True).start()
    try:
        if args[0] == "--check":
            print(msgspec.json.encode(check(Path(args[1]))).decode())
        else:
            StudyRun(Path(args[0])).run()
    except InputError as error:
        print(str(error), file=sys.stderr)
        return 2
    except MemoryError:
        print(f"it needs more than {MEMORY_MAX >> 30} GiB of memory", file=sys.stderr)
        return 2
    return 0


def hold_back() -> None:
    os.nice(NICE)
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_MAX),
        (resource.RLIMIT_CPU, CPU_MAX_S),
        (resource.RLIMIT_FSIZE, FILE_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def end_with_server() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os._exit(1)


def check(path: Path) -> Json:
    from skep.traces.read import read_trace

    trace = read_trace(path)
    if not trace.jobs:
        raise InputError("the trace has no jobs")
    return {"format": trace.format, "jobs": len(trace.jobs)}


class StudyRun:
    """Reads `study.json` and `trace`, writes `parts.json` while it runs and `report.html` at its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = msgspec.json.decode((folder / "study.json").read_bytes(), type=StudyRecord)
        self._noted_s = 0.0

    def run(self) -> None:
        from skep.files.text import write_aside
        from skep.report.html import render_report

        gc.disable()  # jobs have no reference cycles, and the collector would only cost time
        experiment = self.experiment()
        for policy in self.record.policies:
            experiment.planner(policy)  # an invalid policy is reported before anything runs
        self.parts = [StudyPart(policy, len(experiment.trace.jobs)) for policy in self.record.policies]
        self.note()
        runs = []
        for part in self.parts:
            runs.append(experiment.run(part.policy, functools.partial(self.tell, part)))
            part.done = part.jobs
            part.summary = {name: getattr(runs[-1].summary, name) for name in TABLE}
            self.note()
        write_aside(self.folder / "report.html", render_report(runs, title=self.record.name))

    def experiment(self) -> Experiment:
        from skep.clusters.read import read_text
        from skep.experiments.sharing import check_vcs
        from skep.experiments.simulate import Experiment, Options
        from skep.traces.read import read_trace
        from skep.traces.trace import Trace

        cluster, layout = read_text(self.record.cluster_text, self.record.cluster)
        history = self.folder / "history.msgpack"
        if history.exists():
            trace = msgspec.msgpack.decode(history.read_bytes(), type=Trace)
        else:
            trace = read_trace(self.folder / "trace" / self.record.trace_name)
        if layout is not None:
            check_vcs(trace, layout)
        record = self.record
        options = Options(seed=record.seed, keep_history=True, estimate_error=record.estimate_error)
        return Experiment(trace, cluster, options, layout=layout)

    def tell(self, part: StudyPart, done: int) -> None:
        part.done = done
        if time.monotonic() - self._noted_s >= EVERY_S:
            self.note()

    def note(self) -> None:
        aside = self.folder / ".parts.json"
        aside.write_bytes(msgspec.json.encode(self.parts))
        aside.replace(self.folder / "parts.json")
        self._noted_s = time.monotonic()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
