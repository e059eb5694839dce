"""What would let a waiting job start now or sooner: questions and answers between a server and the process that tries
it out (`experiments/adviser.py`)."""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.core.group import GroupSpec
from skep.core.model import JobSpec
from skep.jobs.request import Request
from skep.service.foreseen import Likely

Kind = Literal["release", "alter", "priority", "wait", "undrain", "node", "stop"]
When = Literal["now", "sooner"]


class Asker(msgspec.Struct, frozen=True):
    """What the one who asks may see and do."""

    user: str = ""
    may_change: bool = True
    """The job that is asked about."""
    is_admin: bool = True
    leads: tuple[str, ...] = ()
    """VCs whose jobs it may all change."""
    sees: tuple[str, ...] | None = None
    """VCs whose jobs it may see; None: all."""
    uses: tuple[str, ...] | None = None
    """VCs to which it may submit; None: all."""
    priority: int = 1000
    """The highest that it may give the job."""

    def may_see(self, vc: str) -> bool:
        return self.sees is None or vc in self.sees

    def may_use(self, vc: str) -> bool:
        return self.uses is None or vc in self.uses

    def may_stop(self, user: str, vc: str) -> bool:
        return self.is_admin or vc in self.leads or (bool(user) and user == self.user and self.may_use(vc))


class FixQuestion(msgspec.Struct, frozen=True, tag="fixes"):
    """About one waiting job."""

    job: str
    now_s: float
    asker: Asker = Asker()
    within_s: float = 0.0
    """So long it may try out what would let the job start sooner, after what would let it start now."""


class PlanQuestion(msgspec.Struct, frozen=True, tag="plan"):
    """About jobs that are not submitted yet."""

    requests: list[Request]
    specs: list[list[JobSpec]]
    """The jobs of the core of each request."""
    groups: list[GroupSpec]
    now_s: float
    asker: Asker = Asker()
    within_s: float = 8.0


Question = FixQuestion | PlanQuestion


class Fix(msgspec.Struct, frozen=True, kw_only=True, tag="fix"):
    """A change that was tried out, with its effect."""

    kind: Kind
    when: When
    text: str
    """What to do, to follow a number or a dash."""
    effect: str
    command: str = ""
    """That does it; empty: it happens by itself, or is more than a command."""
    change: dict[str, int | str | bool] = {}
    """The same for programs: what to `PATCH` of the job (or of the `node`), or the `job` that ends."""
    lost_gpu_s: float = 0.0
    """GPU time of other jobs that is lost."""
    delay_s: float | None = None
    """By how much other jobs start later, all together, as a median; known if it was sampled."""
    gain_s: float | None = None
    """By how much the job starts sooner, as a median."""


class Tried(msgspec.Struct, frozen=True, kw_only=True, tag="tried"):
    """The end of an answer: how much was tried."""

    changes: int
    seconds: float
    samples: int = 0
    """Of each change that might let the job start sooner; those with fewer than 16 are not offered."""
    cut: bool = False
    """True if there was no time to try everything."""
    error: str = ""
    """Why nothing could be tried."""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one job, if nothing else were submitted."""

    name: str
    gpus: float
    nodes: tuple[str, ...] = ()
    """Where it would start now; empty: it would wait."""
    start: Likely | None = None
    end: Likely | None = None
    gpu_hours: float | None = None
    """The median; None: not known, or longer than the simulation."""
    lengths: str = "none"
    """The source of its length: `owner`, `history` or `none`."""


class DelayedJob(msgspec.Struct, frozen=True):
    job: str
    delay_s: float
    """The median."""


class Planned(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """What a submission would do."""

    jobs: list[PlannedJob]
    preempts: list[str]
    """Jobs that would make room at once, of those that the caller may see."""
    preempts_others: int
    """And how many of other VCs."""
    delays: list[DelayedJob]
    """Waiting jobs that would start later, of those that the caller may see, most first."""
    delayed: int
    delay_s: float
    """How many jobs would start later, and by how much all together, as a median."""
    samples: int
    until_s: float


Line = Fix | Tried | Planned
