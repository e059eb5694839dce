"""What is foreseen of open jobs. It is made beside the server (`experiments/follower.py`) and shown with its age."""

from __future__ import annotations

import msgspec

from skep.core.model import Need
from skep.core.weights import EQUAL, Weights
from skep.service.book import PENDING
from skep.service.store import StoredJob
from skep.service.values import Json

DAY_S = 86400.0


class Setup(msgspec.Struct, frozen=True):
    """What the process that forecasts must know, and the log of the server does not have."""

    data: str
    profile: str = ""
    offers: frozenset[Need] = frozenset(Need)
    weights: Weights = EQUAL
    cpu: float = 0.2
    """The part of one core that it may use."""
    samples: int = 32
    within_s: float = DAY_S


class Likely(msgspec.Struct, frozen=True):
    """A time that is not known exactly: in four of five cases between P10 and P90. None: later than the forecast
    reaches."""

    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    poor: bool = False
    """True if it rests mostly on jobs of whose length nothing is known."""


class Foreseen(msgspec.Struct, frozen=True):
    """Of one job."""

    start: Likely | None
    """The next start; None for a job that runs."""
    end: Likely
    lengths: str
    """The source of its own length: `progress`, `owner`, `history` or `none`."""


class Judged(msgspec.Struct, frozen=True):
    """How earlier forecasts of starts or ends have turned out."""

    what: str
    """`start` or `end`."""
    lengths: str
    count: int
    held: int
    """In how many of them the time was between P10 and P90."""
    error: float | None
    """The median of how far the time was from P50, in parts of the time from the forecast until then."""


class Foresight(msgspec.Struct, frozen=True):
    """A forecast of all open jobs."""

    made_s: float
    until_s: float
    """It does not reach beyond this."""
    samples: int
    cpu_s: float
    policy: str
    jobs: dict[str, Foreseen]
    judged: list[Judged]

    def eta(self, row: StoredJob, now_s: float) -> Json | None:
        """For a job as it is now: one that has started since has no next start any more."""
        found = self.jobs.get(str(row.seq))
        if found is None or row.finish_s is not None or now_s > self.until_s:
            return None
        start = found.start if row.state == PENDING else None
        shown = {"start": start, "end": found.end, "lengths": found.lengths}
        made = {"made_s": self.made_s, "until_s": self.until_s, "samples": self.samples}
        return {**made, **{name: msgspec.to_builtins(value) for name, value in shown.items()}}
