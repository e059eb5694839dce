"""The use of resources by users and VCs, compared with their limits.

Limits on what is open (jobs, pending jobs, tasks, ports) refuse a submission. Limits on what runs at once (CPUs and
memory of jobs without GPUs) make a job wait: it is held with a reason that begins with `limit`, and released when the
limit allows. A job that is not held counts until it ends or is held for another reason, so a restart, a retry or a
preemption neither loses its part nor counts it twice.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import asdict

from skep.core.events import Event, JobHeld, JobReleased
from skep.core.job import Job, JobState
from skep.core.model import JobSpec, Role
from skep.core.refusal import Cause, End, Refusal, listed, remedy_of
from skep.core.state import State
from skep.jobs.request import LimitReached, LimitRules, Limits, Request, TaskRole
from skep.service.book import LIMIT, PENDING, Book, Record
from skep.service.values import Json

MIB_PER_GIB = 1024
GIB = 1 << 30
WORDS = {
    "jobs": "jobs that have not ended",
    "pending": "pending jobs",
    "tasks": "tasks of jobs that have not ended",
    "ports": "ports of jobs that have not ended",
    "cpus": "CPUs of jobs without GPUs at once",
    "memory_gib": "GiB of memory of jobs without GPUs at once",
}


class Used(msgspec.Struct):
    """Integers, so that returning an amount restores the exact value: thousandths of CPUs, MiB."""

    jobs: int = 0
    pending: int = 0
    tasks: int = 0
    ports: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0

    def add(self, other: Used, sign: int = 1) -> None:
        self.jobs += sign * other.jobs
        self.pending += sign * other.pending
        self.tasks += sign * other.tasks
        self.ports += sign * other.ports
        self.cpu_milli += sign * other.cpu_milli
        self.memory_mib += sign * other.memory_mib

    def shown(self) -> dict[str, float]:
        """In the units of `Limits`."""
        open_now = {name: getattr(self, name) for name in ("jobs", "pending", "tasks", "ports")}
        return {**open_now, "cpus": self.cpu_milli / 1000, "memory_gib": self.memory_mib / MIB_PER_GIB}


def excess(used: Used, more: Used, limits: Limits) -> str:
    """The first limit that `more` would exceed; empty if it fits."""
    now, added = used.shown(), more.shown()
    for name, extra in added.items():
        most = getattr(limits, name)
        if most is not None and extra and now[name] + extra > most:
            return name
    return ""


class Limiter:
    """`look` must be called after every change of a job; `releases` returns the jobs that need not wait any longer."""

    def __init__(self, rules: LimitRules) -> None:
        self.rules = rules
        self.users: dict[str, Used] = {}
        self.vcs: dict[str, Used] = {}
        self._open: dict[str, Used] = {}
        """By job id, the amounts that it counts for now."""
        self._running: dict[str, Used] = {}
        """By id of a job of the core without GPUs that is not held, what it uses."""
        self._lines: dict[tuple[str, str], list[tuple[int, int, Job]]] = {}
        """By user and VC, jobs that wait for a limit: (rank, seq, job), a heap. Only its first is tried."""
        self._queued: dict[str, int] = {}
        """By id of a waiting job, the rank under which it is in its line."""
        self._is_due = False
        """True if a job that waits for a limit may now be released."""

    def restore(self, book: Book, state: State) -> None:
        for record in book.records.values():
            self.recount(record, (state.jobs[name] for name in record.members))

    # Submission -------------------------------------------------------------------------------------------------

    def check(self, requests: list[Request]) -> None:
        """Raises if all of these together would exceed a limit of a user or VC; then none is submitted."""
        users: dict[str, Used] = {}
        vcs: dict[str, Used] = {}
        for request in requests:
            counted = counts_of(request)
            counted.pending = 1
            for whose, name in ((users, request.user), (vcs, request.vc)):
                whose.setdefault(name, Used()).add(counted)
            self._check_alone(request)
        for kind, asked, have in (("user", users, self.users), ("VC", vcs, self.vcs)):
            for name, more in asked.items():
                limits, used = self._limits(kind, name), have.get(name, Used())
                if limit := excess(used, more, limits):
                    now, extra, most = (each[limit] for each in (used.shown(), more.shown(), asdict(limits)))
                    raise LimitReached(
                        limit,
                        f"{title(kind, name)} may have {most:,} {WORDS[limit]}; there are {now:,g}, "
                        f"and {extra:,g} more were asked for",
                        hint=f"wait until jobs end or stop some; admins raise `limits` ({limit}) in the config file",
                    )

    def _check_alone(self, request: Request) -> None:
        """A job that could not run even alone is refused: it would wait forever."""
        roles = request.tasks.values()
        if request.gpus:
            return
        least = [(role, role.count if request.gang else 1) for role in roles]
        needs = [sum_of(least)] if request.gang else [sum_of([each]) for each in least]
        for kind, name in (("user", request.user), ("VC", request.vc)):
            limits = self._limits(kind, name)
            for need in needs:
                if limit := excess(Used(), need, limits):
                    raise LimitReached(
                        limit,
                        f"job {request.name} asks for {need.shown()[limit]:,g}; "
                        f"{title(kind, name)} may have {getattr(limits, limit):,g} {WORDS[limit]}",
                        hint=f"ask for less; admins raise `limits` ({limit}) in the config file",
                    )

    def hold_for(self, spec: JobSpec) -> str:
        """Why a job that is being submitted must wait; empty: it is counted."""
        need = need_of(spec)
        if need is None or not self._is_limited(spec):
            return ""
        if not spec.needs and not self._line((spec.user, spec.vc)) and not self._excess(spec, need):
            self._take(spec, need)
            return ""
        return self._reason(spec, need)

    # While jobs live --------------------------------------------------------------------------------------------

    def recount(self, record: Record, jobs: Iterable[Job]) -> None:
        """Count a job again after a change."""
        self._count(record)
        for job in jobs:
            self._follow(job)

    def leave(self, record: Record) -> None:
        """It does not count until it is counted again: it is about to ask for something else."""
        before = self._open.pop(record.id, None)
        if before is not None:
            self._book(record.request.user, record.request.vc, before, -1)

    def _count(self, record: Record) -> None:
        """Most changes of a job change nothing here; the others mostly whether it is pending."""
        before = self._open.get(record.id)
        is_open = record.row.finish_s is None
        pending = int(is_open and record.row.state == PENDING)
        if before is None and not is_open:
            return
        if before is not None and is_open and before.pending == pending:
            return
        user, vc = record.request.user, record.request.vc
        if before is not None:
            self._book(user, vc, before, -1)
            del self._open[record.id]
        if is_open:
            counted = self._open[record.id] = before or counts_of(record.request)
            counted.pending = pending
            self._book(user, vc, counted, 1)

    def _follow(self, job: Job) -> None:
        need = need_of(job.spec)
        if need is None:
            return
        runs = not job.state.is_final and not job.hold and not job.needs_left
        if not runs:
            self._give_back(job.spec)
        elif job.id not in self._running:
            self._take(job.spec, need)
        if is_waiting(job) and self._queued.get(job.id) != job.rank:
            self._queued[job.id] = job.rank
            heapq.heappush(self._lines.setdefault((job.spec.user, job.spec.vc), []), (job.rank, job.seq, job))
            self._is_due = True

    def releases(self) -> list[Event]:
        """The jobs that may be released now, in the order of their priorities and submissions; they are counted."""
        if not self._is_due:
            return []
        self._is_due = False
        heads = [line[0] for key in list(self._lines) if (line := self._line(key))]
        heapq.heapify(heads)
        found: list[Event] = []
        while heads:
            spec = heapq.heappop(heads)[2].spec
            need = need_of(spec)
            if need is None or self._excess(spec, need):
                continue  # the others of this user in this VC wait behind it
            self._take(spec, need)
            found.append(JobReleased(spec.id))
            if line := self._line((spec.user, spec.vc)):
                heapq.heappush(heads, line[0])
        return found

    def release(self, job: Job) -> Event:
        """A job that is released by its owner may have to wait for a limit instead."""
        need = need_of(job.spec)
        if need is None or job.id in self._running or not self._is_limited(job.spec):
            return JobReleased(job.id)
        if not job.needs_left and not self._line((job.spec.user, job.spec.vc)) and not self._excess(job.spec, need):
            self._take(job.spec, need)
            return JobReleased(job.id)
        return JobHeld(job.id, self._reason(job.spec, need))

    def refusal(self, job: Job, state: State) -> Refusal | None:
        """Why a job waits for a limit, with current numbers and the jobs that must end first; None if it does not."""
        need = need_of(job.spec)
        if need is None or not is_waiting(job):
            return None
        line = self._lines.get((job.spec.user, job.spec.vc), [])
        ahead = {entry[2].id for entry in line if is_waiting(entry[2]) and entry[:2] < (job.rank, job.seq)}
        held = list(self._in_the_way(job.spec, need, state))
        reason = self._reason(job.spec, need).removeprefix(f"{LIMIT}: ")
        if held:
            reason += f"; {listed([f'job {name}' for name in held])} {'holds' if len(held) == 1 else 'hold'} it"
        if ahead:
            reason += (
                f"; {listed([f'job {name}' for name in sorted(ahead)])} {'goes' if len(ahead) == 1 else 'go'} first"
            )
        changes = (End((*held, *sorted(ahead))),)
        return Refusal("limit", Cause.QUOTA, reason, remedy_of(changes, state.now_s), changes)

    def _in_the_way(self, spec: JobSpec, need: Used, state: State) -> Iterator[str]:
        """Jobs that count for the limits, newest first, until the others leave enough."""
        left = [(kind, name, msgspec.structs.replace(used), limits) for kind, name, used, limits in self._both(spec)]
        for name in reversed(list(self._running)):
            if not any(excess(used, need, limits) for _, _, used, limits in left):
                return
            other = state.jobs[name].spec
            same = [each for each in left if each[1] == (other.user if each[0] == "user" else other.vc)]
            if any(excess(used, need, limits) for _, _, used, limits in same):
                for _, _, used, _ in same:
                    used.add(self._running[name], -1)
                yield name

    def shown(self, users: Iterable[str], vcs: Iterable[str], disk: Mapping[tuple[str, str], int] | None) -> list[Json]:
        """Limits and their use, for these users and VCs; `disk`: the bytes of their files, if they are measured."""
        wanted = [("user", name) for name in users] + [("VC", name) for name in vcs]
        return [
            {
                "kind": kind.lower(),
                "name": name,
                "limits": asdict(self._limits(kind, name)),
                "used": {
                    **(self.users if kind == "user" else self.vcs).get(name, Used()).shown(),
                    "disk_gib": None if disk is None else round(disk.get((kind, name), 0) / GIB, 3),
                },
            }
            for kind, name in wanted
        ]

    # The books --------------------------------------------------------------------------------------------------

    def _limits(self, kind: str, name: str) -> Limits:
        return self.rules.of_user(name) if kind == "user" else self.rules.of_vc(name)

    def _both(self, spec: JobSpec) -> list[tuple[str, str, Used, Limits]]:
        return [
            ("user", spec.user, self.users.setdefault(spec.user, Used()), self.rules.of_user(spec.user)),
            ("VC", spec.vc, self.vcs.setdefault(spec.vc, Used()), self.rules.of_vc(spec.vc)),
        ]

    def _is_limited(self, spec: JobSpec) -> bool:
        return any(each[3].cpus is not None or each[3].memory_gib is not None for each in self._both(spec))

    def _excess(self, spec: JobSpec, need: Used) -> bool:
        return any(excess(used, need, limits) for _, _, used, limits in self._both(spec))

    def _reason(self, spec: JobSpec, need: Used) -> str:
        for kind, name, used, limits in self._both(spec):
            if limit := excess(used, need, limits):
                now = used.shown()[limit]
                return f"{LIMIT}: {title(kind, name)} has {now:g} of {getattr(limits, limit):g} {WORDS[limit]}"
        return f"{LIMIT}: other jobs without GPUs of {title('user', spec.user)} go first"

    def _take(self, spec: JobSpec, need: Used) -> None:
        self._running[spec.id] = need
        self._book(spec.user, spec.vc, need, 1)

    def _give_back(self, spec: JobSpec) -> None:
        need = self._running.pop(spec.id, None)
        if need is not None:
            self._book(spec.user, spec.vc, need, -1)
            self._is_due = True

    def _book(self, user: str, vc: str, amounts: Used, sign: int) -> None:
        for books, name in ((self.users, user), (self.vcs, vc)):
            books.setdefault(name, Used()).add(amounts, sign)

    def _line(self, key: tuple[str, str]) -> list[tuple[int, int, Job]]:
        """The waiting jobs without outdated entries: a change of priority adds another one."""
        line = self._lines.get(key, [])
        while line and not self._counts(line[0][0], line[0][2]):
            rank, _, job = heapq.heappop(line)
            if self._queued.get(job.id) == rank:
                del self._queued[job.id]
        if not line:
            self._lines.pop(key, None)
        return line

    def _counts(self, rank: int, job: Job) -> bool:
        return is_waiting(job) and rank == job.rank and job.id not in self._running


def is_waiting(job: Job) -> bool:
    return job.state is JobState.PENDING and job.hold.startswith(LIMIT) and not job.needs_left


def need_of(spec: JobSpec) -> Used | None:
    """What a job uses of the limits on what runs at once; None for one with GPUs."""
    shape = spec.shapes[0]
    return None if shape.gpus else sum_of([(role, role.count) for role in shape.roles])


def sum_of(roles: Sequence[tuple[Role | TaskRole, int]]) -> Used:
    """For this many tasks of each role."""
    cpu_milli = sum(count * math.ceil((role.cpu or 1) * 1000) for role, count in roles)
    return Used(
        cpu_milli=cpu_milli, memory_mib=sum(count * math.ceil(role.memory_gib * MIB_PER_GIB) for role, count in roles)
    )


def counts_of(request: Request) -> Used:
    roles = request.tasks.values()
    return Used(jobs=1, tasks=sum(role.count for role in roles), ports=sum(map(ports_of, roles)))


def ports_of(role: TaskRole) -> int:
    return role.count * sum(role.ports.values())


def title(kind: str, name: str) -> str:
    return f"{kind} {name or 'anonymous'}"
