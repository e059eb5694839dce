"""The process of a study: `python -m skep.server.studies.worker FOLDER DATA`, or for a trace `--check FILE NAME`.

It has low priority and limits of memory (of its address space, `RLIMIT_AS`), time and files, and ends when the server
does: its standard input is a pipe from there. It opens no file that a user names.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import InputError
from skep.files.untrusted import open_file
from skep.server.studies.records import TABLE, TRACE_MAX, StudyPart, StudyRecord
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.experiments.simulate import Experiment
    from skep.traces.trace import Trace


NICE = 15
VCS_MAX = 1000
"""The VCs of a trace that are noted: no cluster has as many."""
MEMORY_MAX, MEMORY_MIN = 4 << 30, 1 << 30
CPU_MAX_S = 2 * 3600
FILE_MAX = 64 << 20
EVERY_S = 0.3
"""The time between two progress records."""


def main(args: list[str]) -> int:
    memory = memory_max()
    hold_back(memory)
    threading.Thread(target=end_with_server, daemon=True).start()
    try:
        if args[0] == "--check":
            print(msgspec.json.encode(check(Path(args[1]), args[2])).decode())
        else:
            StudyRun(Path(args[0]), Path(args[1])).run()
    except InputError as error:
        print(str(error), file=sys.stderr)
        return 2
    except MemoryError:
        print(f"it needs more than {memory / (1 << 30):.1f} GiB of memory", file=sys.stderr)
        return 2
    return 0


def memory_max() -> int:
    """Half of the machine's memory at most: a study and a check may run at once."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(min(MEMORY_MAX, machine // 2), MEMORY_MIN)


def hold_back(memory: int) -> None:
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if the machine runs out of memory, this ends first
    for what, most in (
        (resource.RLIMIT_AS, memory),
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


def check(path: Path, name: str) -> Json:
    trace = read_upload(path, name)
    if not trace.jobs:
        raise InputError("the trace has no jobs")
    vcs = sorted({job.spec.vc for job in trace.jobs})[:VCS_MAX]
    return {"format": trace.format, "jobs": len(trace.jobs), "vcs": vcs}


def read_upload(path: Path, name: str) -> Trace:
    """Only a regular file of the server's own account, never where a link leads to. `name` is shown in messages."""
    from skep.files.text import decode
    from skep.traces.read import read_source
    from skep.traces.table import HINT, WHAT, Source

    file = open_file(path)
    if file is None:
        raise InputError(f"{name}: is not a regular file")
    with file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise InputError(f"{name}: does not belong to the server")
        content = file.read(TRACE_MAX + 1)
    if len(content) > TRACE_MAX:
        raise InputError(f"{name}: is larger than {TRACE_MAX >> 20} MiB")
    return read_source(Source(name, decode(name, content, WHAT, HINT)))


class StudyRun:
    """Reads `study.json` and `trace`, writes `parts.json` while it runs and `report.html` at its end."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = data
        self.record = msgspec.json.decode((folder / "study.json").read_bytes(), type=StudyRecord)
        self._noted_s = 0.0

    def run(self) -> None:
        from skep.files.text import write_aside
        from skep.report.html import render_report

        gc.disable()  # jobs have no reference cycles, and the collector would only cost time
        experiment = self.experiment()
        if self.record.repetitions:
            self.repeat(experiment)
            return
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

    def repeat(self, experiment: Experiment) -> None:
        """What `skep study` does."""
        from skep.experiments.study.page import render_study
        from skep.experiments.study.study import StudyQuestion, plan_study, run_study
        from skep.files.text import write_aside

        experiment.options = msgspec.structs.replace(experiment.options, keep_history=False)
        record = self.record
        question = StudyQuestion((experiment,), tuple(record.policies), repetitions=record.repetitions).check()
        found = plan_study(question)[1]
        self.parts = [StudyPart(each.policy, len(experiment.trace.jobs)) for each in found]
        self.note()

        def tell(done: int, total: int) -> None:
            for part in self.parts:
                part.done = part.jobs * done // total
            self.note()

        made = run_study(question, report=tell)
        write_aside(self.folder / "report.html", render_study(made))

    def experiment(self) -> Experiment:
        from skep.clusters.read import read_text
        from skep.experiments.sharing import check_vcs
        from skep.experiments.simulate import Experiment, Options
        from skep.files.text import Texts

        record = self.record
        cluster, layout = read_text(record.cluster_text, record.cluster)
        trace = self.trace()
        if layout is not None:
            check_vcs(trace, layout)
        options = Options(seed=record.seed, keep_history=True, estimate_error=record.estimate_error)
        return Experiment(trace, cluster, options, layout=layout, texts=Texts(record.files, openable=()))

    def trace(self) -> Trace:
        from skep.server.studies.past import past_trace
        from skep.service.files import NAME

        if self.record.past is None:
            return read_upload(self.folder / "trace", self.record.trace_name)
        with closing(sqlite3.connect(f"{(self.data / NAME).as_uri()}?mode=ro", uri=True)) as db:
            return past_trace(db, self.record.past)

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
