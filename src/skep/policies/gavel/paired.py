"""A round of the Gavel policies with `share`: jobs run alone or in pairs on the same GPUs.

A job has a *column* for each type where it runs alone, and for each type and row of jobs beside which it runs there,
with a share of the time each. The most urgent goes first; for one beside a row, the job of that row that is owed the
most time beside this one runs with it. Jobs that stay where they are only get other terms and do not restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from skep.core.cluster import WHOLE, Allocation
from skep.core.errors import InvariantBroken
from skep.core.memory import Slot
from skep.core.view import JobView
from skep.policies.adjust.pairs import PACK, packed
from skep.policies.adjust.slices import on_gpus
from skep.policies.gavel.book import ShareBook
from skep.policies.gavel.rounds import NOT_ENTITLED, ShareRound
from skep.policies.seats import key_of

ALONE = -1
"""Beside no row."""


class ColumnTime(msgspec.Struct, frozen=True, array_like=True):
    """Seconds that a job has run in each of its columns since an answer, and in which it has been since when."""

    answer: int
    times: dict[int, float]
    column: int
    since_s: float


COLUMNS = Slot("gavel columns", ColumnTime)


class ShareColumn(NamedTuple):
    number: int
    """In the answer."""
    gpu_type: int
    beside: int
    """The row of its neighbours, or `ALONE`."""
    share: float


class PairedRound(ShareRound):
    # What is there ---------------------------------------------------------------------------------------------

    def _open_book(self) -> ShareBook:
        self.company: dict[int, int] = {}
        """The neighbour of each running job that has one, by seq."""
        by_gpus: dict[object, list[JobView]] = {}
        for job in self.view.open_jobs.values():
            if job.allocation is not None and job.allocation.mode() == PACK and self.view.has(job):
                by_gpus.setdefault(key_of(job.allocation), []).append(job)
        for jobs in by_gpus.values():
            if len(jobs) == 2:
                self._sit_together(*jobs)
        self.columns = self._columns()
        return super()._open_book()

    def _sit_together(self, one: JobView, other: JobView) -> None:
        """Two jobs on one seat. While one of them is launched or ends, the other stays as it is."""
        if one.seq in self.there and other.seq in self.there:
            self.company[one.seq], self.company[other.seq] = other.seq, one.seq
        for job in (one, other) if one.seq not in self.there or other.seq not in self.there else (other,):
            number = self.there.get(job.seq)
            if number is not None and job.allocation is not None:
                self.free[number] -= job.allocation.gpus
                if job.seq not in self.company:
                    del self.there[job.seq], self.jobs[job.seq]

    def _columns(self) -> list[list[ShareColumn]]:
        """Of each row of the answer."""
        types = len(self.free)
        found = [
            [ShareColumn(number, number, ALONE, share) for number, share in enumerate(row) if share]
            for row in self.shares.rows
        ]
        for at, pair in enumerate(self.shares.pairs, start=1):
            ways = [(pair.one, pair.other, pair.of_one)]
            if pair.one != pair.other:
                ways.append((pair.other, pair.one, pair.of_other))
            for row, beside, shares in ways:
                found[row] += [
                    ShareColumn(at * types + gpu_type, gpu_type, beside, share)
                    for gpu_type, share in enumerate(shares)
                    if share
                ]
        return found

    def _columns_of(self, seq: int) -> list[ShareColumn]:
        row = self.shares.jobs.get(seq)
        return [] if row is None else self.columns[row]

    def _column_now(self, seq: int, gpu_type: int, other: int | None) -> int:
        beside = ALONE if other is None else self.shares.jobs.get(other, ALONE)
        for column in self._columns_of(seq):
            if (column.gpu_type, column.beside) == (gpu_type, beside):
                return column.number
        return gpu_type

    # What is owed ----------------------------------------------------------------------------------------------

    def received(self, job: JobView) -> tuple[float, ...]:
        times = list(self.planner.none)
        for column, ran_s in self.column_times(job).items():
            times[column % len(times)] += ran_s
        return tuple(times)

    def column_times(self, job: JobView) -> dict[int, float]:
        """Seconds in each column since the answer in force."""
        noted, here, now_s = COLUMNS.get(self.memory, job.id), self.there.get(job.seq), self.view.now_s
        is_noted = noted is not None and noted.answer == self.book.answer
        times = dict(noted.times) if noted is not None and is_noted else {}
        if here is not None:
            since_s = max(job.decided_s, self.book.at_s, noted.since_s if noted is not None and is_noted else 0.0)
            column = self._column_now(job.seq, here, self.company.get(job.seq))
            if noted is not None and is_noted and noted.column >= 0:
                column = noted.column
            times[column] = times.get(column, 0.0) + now_s - since_s
        return times

    def _late(self, job: JobView) -> Iterable[tuple[float, ShareColumn]]:
        """By how much the job is behind in each of its columns."""
        columns, seq = self._columns_of(job.seq), job.seq
        times = self.column_times(job)
        passed_s, here = self.view.now_s - self.book.at_s, self.there.get(seq)
        now = ALONE if here is None else self._column_now(seq, here, self.company.get(seq))
        speeds = self.planner.kind(self.view, job).speeds
        for column in columns:
            if not speeds[column.gpu_type]:
                continue
            late = column.share * (passed_s + self.head_s) - times.get(column.number, 0.0)
            if here is not None:
                late += self.turn_s if column.number == now else -self.turn_s
            yield late, column

    # Who runs --------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        self.chosen, self.blocked = {}, set()
        self.hosts: dict[int, int] = {}
        """The job on whose GPUs each other one runs, by seq."""
        no_claims = {seq: [NOT_ENTITLED] * len(self.free) for seq in self.jobs}
        for rank in sorted({job.rank for job in self.jobs.values()}):
            jobs = [job for job in self.jobs.values() if job.rank == rank]
            owed = [(late, -job.seq, column) for job in jobs for late, column in self._late(job)]
            owed.sort(reverse=True)
            for number in range(len(self.free)):
                self._admit_owed(number, [(-seq, column) for _, seq, column in owed if column.gpu_type == number])
            for number in range(len(self.free)):
                self._admit(number, self._unowed(jobs, no_claims, number))

    def _admit_owed(self, number: int, owed: list[tuple[int, ShareColumn]]) -> None:
        rows = self.shares.jobs
        beside: dict[tuple[int, int], list[int]] = {}
        for seq, column in owed:
            beside.setdefault((rows[seq], column.beside), []).append(seq)
        for seq, column in owed:
            gpus = self.planner.kind(self.view, self.jobs[seq]).gpus
            if seq in self.chosen or gpus > self.free[number]:
                continue
            if column.beside != ALONE:
                others = [each for each in beside.get((column.beside, rows[seq]), ()) if each not in self.chosen]
                other = self._neighbour(seq, others)
                if other is None:
                    continue
                host = min(seq, other, key=lambda each: (self.there.get(each) != number, each))
                self.hosts[seq + other - host] = host
                self.chosen[other] = number
            self.chosen[seq] = number
            self.free[number] -= gpus

    def _neighbour(self, seq: int, others: list[int]) -> int | None:
        """The present one, else the one that is behind most."""
        found = [each for each in others if each != seq]
        if self.company.get(seq) in found:
            return self.company[seq]
        return found[0] if found else None

    # Where they run --------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        plan, jobs, there = self.plan, self.jobs, self.there
        targets = self._targets()
        with plan.bundle():
            for seq in there:
                if targets.get(seq) is None:
                    self._leave(seq)
            stay = [seq for seq, seat in targets.items() if seat is not None and seq in there and self._has(seq, seat)]
            for seq in stay:
                self._set_terms(seq, targets[seq], PACK)
            moves = [(jobs[seq], seat) for seq, seat in targets.items() if seat and seq in there and seq not in stay]
            if moves:
                plan.move_all(moves)
            for seq in stay:
                self._set_terms(seq, targets[seq], "")
            for seq, seat in targets.items():
                if seat is not None and seq not in there:
                    plan.start(jobs[seq], seat)
        for seq, seat in targets.items():
            if seat is not None:
                self._note_column(jobs[seq], self._column_now(seq, self.chosen[seq], self._partner(seq, targets)))

    def _has(self, seq: int, seat: Allocation) -> bool:
        mine = self.jobs[seq].allocation
        return mine is not None and seat.has_seats_of(mine)

    def _set_terms(self, seq: int, seat: Allocation | None, mode: str) -> None:
        mine = self.jobs[seq].allocation
        if seat is not None and mine is not None and seat.mode() == mode != mine.mode():
            self.plan.reshare(self.jobs[seq], mine.on_terms(milli=WHOLE) if not mode else packed(self.jobs[seq], mine))

    def _partner(self, seq: int, targets: dict[int, Allocation | None]) -> int | None:
        """The job with which it runs from now on."""
        for guest, host in self.hosts.items():
            if seq in (guest, host) and targets.get(guest) is not None:
                return guest + host - seq
        return None

    def _remember(self, job: JobView) -> None:
        """It no longer runs."""
        self._note_column(job, ALONE)

    def _note_column(self, job: JobView, column: int) -> None:
        """From now on it runs in this column."""
        before, now = COLUMNS.get(self.memory, job.id), self.book.answer
        if before is None or (before.answer, before.column) != (now, column):
            times = self.column_times(job)
            self.plan.remember(COLUMNS, job.id, ColumnTime(now, times, column, self.view.now_s))

    def _targets(self) -> dict[int, Allocation | None]:
        """The GPUs of each chosen job; None: there are none. If one finds none on its type, the type is packed anew."""
        staying = self._staying()
        found = self._try(staying)
        full = {self.chosen[seq] for seq, seat in found.items() if seat is None and seq not in self.hosts}
        anew = {seq for seq in staying if self.chosen[seq] not in full}
        return self._try(anew) if anew != staying else found

    def _staying(self) -> set[int]:
        """Jobs that keep their GPUs: of two neighbours that part, one."""
        found: set[int] = set()
        for seq in sorted(self.chosen):
            host, other = self.hosts.get(seq), self.company.get(seq)
            if self.there.get(seq) != self.chosen[seq]:
                continue
            if host is not None and (other != host or self.there[host] != self.chosen[host]):
                continue
            if other in found and host != other and self.hosts.get(other) != seq:
                continue
            found.add(seq)
        return {seq for seq in found if self.hosts.get(seq, seq) in found}

    def _try(self, staying: set[int]) -> dict[int, Allocation | None]:
        """Everything that is there counts as free; first those that stay take their seats, then the others."""
        plan, jobs, guests = self.plan, self.jobs, {host: guest for guest, host in self.hosts.items()}
        mark = plan.mark()
        for seq in self.there:
            plan.vacate(jobs[seq])
        seats: dict[int, Allocation | None] = {}
        for seq in sorted(staying - self.hosts.keys()):
            mine = jobs[seq].allocation
            assert mine is not None
            seats[seq] = seat = mine.on_terms(milli=WHOLE) if mine.mode() == PACK else mine
            plan.reserve(seat)
        for number in sorted(set(self.chosen.values())):
            coming = [seq for seq, type_ in self.chosen.items() if type_ == number and seq not in (*seats, *self.hosts)]
            seats.update(self._fit(number, coming))
        for host, guest in guests.items():
            seats[guest] = None
            if (at := seats[host]) is not None:
                seats[host], seats[guest] = self._join(
                    host, guest, at, jobs[guest].allocation if guest in staying else None
                )
        plan.rollback(mark)
        return seats

    def _join(
        self, host: int, guest: int, seat: Allocation, has: Allocation | None
    ) -> tuple[Allocation, Allocation | None]:
        """Both on one seat, or the host alone; `has`: what the guest has there already."""
        plan, job = self.plan, self.jobs[guest]
        theirs = has or on_gpus(self.view, key_of(seat), job.shapes[0].roles[0])
        both = packed(self.jobs[host], seat), packed(job, theirs)
        mark = plan.mark()
        try:
            plan.release(seat)
            for each in both:
                plan.reserve(each)
        except InvariantBroken:
            plan.rollback(mark)
            return seat, None
        return both
