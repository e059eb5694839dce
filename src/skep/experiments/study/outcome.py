"""What a study keeps of each run, and the journal it is kept in.

The journal has a line for each run that is done, under a key of everything that determines the run. So a study that was
interrupted goes on, and one with more policies or repetitions runs only what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.report.columns import COLUMNS, Column
from skep.report.units import format_number

SHOWN = (
    *("jct_avg_s", "jct_p50_s", "jct_p99_s", "slowdown_avg", "first_wait_avg_s", "queue_avg_s", "makespan_s"),
    *("utilization", "busy", "fre", "ftf_avg", "ftf_max", "jain", "deadline_misses", "preemptions", "migrations"),
    *("resizes", "finished"),
)
MEASURES = {key: next(column for column in COLUMNS if column.key == key) for key in SHOWN}
"""The numbers by which policies are compared, by field of a summary."""
DECISION = Column(
    key="decision_avg_ms",
    group="Cost",
    label="decision (ms)",
    note="The measured time of a decision on this machine, in milliseconds",
    show=format_number,
    better="low",
)
"""The only number that is measured, and so not the same when a run is repeated."""

JOURNAL = "journal.jsonl"
FILES = (JOURNAL, "runs.csv", "summary.csv", "tests.csv", "recommendation.txt", "timings.csv")
"""What the folder of a study has."""


class RunOutcome(msgspec.Struct, frozen=True):
    """One run."""

    key: str
    policy: str
    cluster: str
    repetition: int
    """0 is the trace as it is, if the others are drawn from it."""
    oracle: bool = False
    values: dict[str, float | None] = {}
    """By field of `SHOWN`."""
    decision_ms: float = 0.0
    error: str = ""


def digest(*parts: object) -> str:
    """Short, and different if any part is."""
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:24]


def file_digest(path: str | Path | None) -> str:
    return "" if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()[:24]


class StudyJournal:
    """A file with a line for each run. Without a path nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / JOURNAL
        self.known: dict[str, RunOutcome] = {}
        if self.path is not None:
            check_folder(self.path.parent)
            self.known = {each.key: each for each in read_journal(self.path)}

    def add(self, outcome: RunOutcome) -> None:
        """Runs that failed are not kept: they are tried again."""
        self.known[outcome.key] = outcome
        if self.path is not None and not outcome.error:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(outcome) + b"\n")


def read_journal(path: Path) -> Iterable[RunOutcome]:
    """A last line that was cut off, or a line of another version, counts as not run."""
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=RunOutcome)
        except msgspec.DecodeError:
            continue


def check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, expected a folder for the results")
    if folder.is_dir() and any(entry.name not in FILES for entry in folder.iterdir()):
        raise InputError(f"{folder} contains other files than those of a study", hint="--out DIR names another folder")
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent} is not a folder", hint="create it first")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror or error}") from None
