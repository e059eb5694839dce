"""How much of the disk each job, user and VC uses, and which job must end when that is too much.

Only a job that still grows is ended: files stay where they are, so ending another one would free nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.jobs.request import LimitRules

GIB = 1 << 30
GROWTH_MIN = 1 << 20
"""A job that grew by less is not to blame for a limit that it shares with others."""
PERIOD_S = 60.0
Scope = tuple[str, str]
"""A kind, `job`, `user`, `VC` or `all`, and a name."""
ALL: Scope = ("all", "")


class JobUse(msgspec.Struct):
    job_id: str
    owner: str
    """The job as its owner sees it: the same for all tasks that start one by one."""
    user: str
    vc: str
    is_asked: bool = False
    """True if it was asked to end because of the disk."""
    bytes: int = 0
    newer: int | None = None
    older: int | None = None
    """What it used when this period began, and the one before; None until it is known."""

    @property
    def grown(self) -> int:
        """In the last one or two periods."""
        return 0 if self.older is None else self.bytes - self.older

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return (("job", self.owner), ("user", self.user), ("VC", self.vc), ALL)


class Excess(msgspec.Struct, frozen=True):
    """A job that must end."""

    job_id: str
    reason: str


class Uses:
    def __init__(self, rules: LimitRules, all_bytes: int | None = None) -> None:
        self.rules = rules
        self.all_bytes = all_bytes
        self.jobs: dict[str, JobUse] = {}
        self.running: dict[str, JobUse] = {}
        self.totals: dict[Scope, int] = {}

    def add(self, job_id: str, user: str, vc: str) -> JobUse:
        if job_id not in self.jobs:
            self.jobs[job_id] = JobUse(job_id, job_id.partition("/")[0], user, vc)
        return self.jobs[job_id]

    def start(self, use: JobUse, *, is_new: bool) -> None:
        """`is_new`: everything that is measured from now on is growth; otherwise it had files before, of unknown
        size."""
        self.running[use.job_id] = use
        use.is_asked = False
        use.older = use.newer = use.bytes if is_new or use.bytes else None

    def end(self, use: JobUse) -> None:
        self.running.pop(use.job_id, None)

    def forget(self, owner: str) -> None:
        for use in [use for use in self.jobs.values() if use.owner == owner]:
            self.measure(use, 0)
            del self.jobs[use.job_id]
            self.running.pop(use.job_id, None)

    def measure(self, use: JobUse, size: int) -> None:
        for scope in use.scopes:
            self.totals[scope] = self.totals.get(scope, 0) + size - use.bytes
            if not self.totals[scope]:
                del self.totals[scope]
        use.bytes = size
        if use.older is None:
            use.older = use.newer = size

    def begin_period(self) -> None:
        for use in self.running.values():
            use.older, use.newer = use.newer, use.bytes
            use.is_asked = False  # it may have been moved when it was asked

    def limit_of(self, scope: Scope, use: JobUse) -> int | None:
        if scope[0] != "job":
            return self.shared_limit(scope)
        most = self.rules.of_task(use.user, use.vc).job_gib
        return None if most is None else int(most * GIB)

    def shared_limit(self, scope: Scope) -> int | None:
        kind, name = scope
        if kind == "all":
            return self.all_bytes
        most = (self.rules.of_user(name) if kind == "user" else self.rules.of_vc(name)).disk_gib
        return None if most is None else int(most * GIB)

    def full(self) -> dict[Scope, str]:
        """The users, VCs, or all jobs, whose files take more than is allowed, with the reason why nothing of theirs is
        started: short jobs could fill the disk between two looks."""
        shared = [(scope, size) for scope, size in self.totals.items() if scope[0] != "job"]
        limits = [(scope, size, self.shared_limit(scope)) for scope, size in shared]
        return {
            scope: f"the files of {whose(scope)} {amounts(size, most)}"
            for scope, size, most in limits
            if most is not None and size > most
        }

    def overruns(self) -> list[Excess]:
        """The jobs that must end now; each is named once."""
        over: dict[Scope, list[JobUse]] = {}
        for use in self.running.values():
            for scope in use.scopes:
                most = self.limit_of(scope, use)
                if most is not None and self.totals.get(scope, 0) > most:
                    over.setdefault(scope, []).append(use)
        own_first = sorted(
            over.items(), key=lambda entry: entry[0][0] != "job"
        )  # the job's own limit is the nearer reason
        found = [each for scope, uses in own_first for each in self._of(scope, uses)]
        return list({each.job_id: each for each in reversed(found)}.values())

    def _of(self, scope: Scope, uses: list[JobUse]) -> list[Excess]:
        take = amounts(self.totals[scope], self.limit_of(scope, uses[0]) or 0)
        if scope[0] == "job":
            return [self._ask(use, f"its files {take}") for use in uses if not use.is_asked]
        use = self.culprit(use for use in uses if not use.is_asked)
        if use is None:
            return []
        return [self._ask(use, f"the files of {whose(scope)} {take}; those of this job grew most")]

    def culprit(self, uses: Iterable[JobUse]) -> JobUse | None:
        """The one that grew most. The growth of all others counts from now on: only who still grows is next."""
        among = list(uses)
        found = max(among, key=lambda use: (use.grown, use.job_id), default=None)
        if found is None or found.grown < GROWTH_MIN:
            return None
        for use in among:
            use.older = use.newer = use.bytes
        return found

    def _ask(self, use: JobUse, reason: str) -> Excess:
        use.is_asked = True
        return Excess(use.job_id, reason)


def whose(scope: Scope) -> str:
    kind, name = scope
    return "all jobs" if kind == "all" else f"all jobs of {kind} {name or 'anonymous'}"


def amounts(size: int, most: int) -> str:
    return f"take {shown(size)} of the disk, and {shown(most)} are allowed"


def shown(size: float) -> str:
    for unit, name in ((1 << 40, "TiB"), (GIB, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1024:.3g} KiB"
