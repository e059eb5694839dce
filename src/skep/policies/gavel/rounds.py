"""One round of the Gavel policies: who runs on which type, and on which GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from skep.core.chance import draw
from skep.core.cluster import Allocation
from skep.core.job import JobState
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.solving import ANSWERED, SOLVE_FAILED
from skep.core.view import JobView, View
from skep.policies.allox import can_stop
from skep.policies.gavel.book import BOOK, EMPTY, RECEIVED, ReceivedTime, ShareBook

if TYPE_CHECKING:
    from skep.policies.gavel.planner import Gavel

TURN = 2.0
"""By how many rounds more than another job a job must be behind to take its GPUs: a restart must be worth it."""
HEAD = 40.0
"""A job counts as behind by its share of so many rounds from the beginning: one that is owed all of the time cannot
catch up, so it comes before one that is owed little and a little behind."""

RUNNING = JobState.RUNNING
Urgency = tuple[float, ...]
NOT_ENTITLED: Urgency = ()
"""A job that is entitled to no time on a type: no other urgency is lower."""


class ShareRound:
    """The decision of one round, or a trial of it. It follows from the state, the memory and the pending jobs."""

    def __init__(self, planner: Gavel, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> None:
        self.planner, self.view, self.plan, self.memory = planner, view, plan, memory
        self.turn_s, self.head_s = TURN * planner.round_s, HEAD * planner.round_s
        self.shares = planner.answer(memory)
        pools = view.cluster.pools
        self.free = [float(pool.free) for pool in pools]
        self.numbers = range(len(pools))
        self.there: dict[int, int] = {}
        """The type on which each running job that may be stopped is, by seq."""
        self.jobs: dict[int, JobView] = {job.seq: job for job in pending}
        nodes, numbers, probes = view.cluster.nodes, planner.numbers, planner.probes
        for seq, job in sorted(view.open_jobs.items()):
            if job.state is not RUNNING or (probes.probe_s and probes.is_measuring(memory, job, view.now_s)):
                continue
            if can_stop(job) and view.has(job) and planner.kind(view, job).is_shared:
                assert job.allocation is not None
                number = numbers[nodes[job.allocation.slices[0].node].pool.gpu_type]
                self.jobs[seq] = job
                self.there[seq] = number
                self.free[number] += job.allocation.gpus
        self.kinds = {seq: planner.kind(view, job) for seq, job in self.jobs.items()}
        self.book = self._open_book()

    # What is owed ----------------------------------------------------------------------------------------------

    def _open_book(self) -> ShareBook:
        """The book of the answer in force. A new answer begins a new one, with what jobs are behind so far."""
        before, answered = BOOK.get(self.memory) or EMPTY, ANSWERED.get(self.memory)
        if answered is None or answered.number == before.answer:
            return before
        self.book = before
        now_s = self.view.now_s
        behind = {seq: self._behind(job) for seq, job in self.jobs.items()} if self.planner.options.is_compat else {}
        alone = self.planner.alone(self.view, self.memory, list(self.jobs.values()))
        kept = {seq: self.shares.rows[row] for seq, row in self.shares.jobs.items() if seq in self.jobs}
        found = ShareBook(answered.number, now_s, behind, kept, alone)
        self.plan.remember(BOOK, "", found)
        return found

    def _behind(self, job: JobView) -> tuple[float, ...]:
        """By how much the job is behind its shares in all answers so far."""
        book, none = self.book, self.planner.none
        owed = zip(book.behind.get(job.seq, none), book.shares.get(job.seq, none), self.received(job), strict=True)
        passed_s = self.view.now_s - book.at_s
        return tuple([old + part * passed_s - got for old, part, got in owed])

    def received(self, job: JobView) -> tuple[float, ...]:
        """Seconds on each type since the answer in force."""
        noted, number = RECEIVED.get(self.memory, job.id), self.there.get(job.seq)
        times = self.planner.none if noted is None or noted.answer != self.book.answer else noted.times
        if number is None:
            return times
        ran_s = self.view.now_s - max(job.decided_s, self.book.at_s)
        ran_s *= self.kinds[job.seq].used[number]
        return (*times[:number], times[number] + ran_s, *times[number + 1 :])

    def _urgencies(self, job: JobView) -> list[Urgency]:
        """For each type how urgent it is that the job runs there; the empty one: it cannot, or is owed nothing."""
        seq = job.seq
        share, speeds = self.shares.of(seq), self.kinds[seq].speeds
        if share is None:
            return [NOT_ENTITLED] * len(speeds)
        times = self.received(job)
        if self.planner.options.is_compat:
            credit_s, behind = self.planner.round_s / 2, self.book.behind.get(seq, self.planner.none)
            return [
                (part / (credit_s + got), old, part) if speed else NOT_ENTITLED
                for part, got, old, speed in zip(share, times, behind, speeds, strict=True)
            ]
        passed_s, here = self.view.now_s - self.book.at_s + self.head_s, self.there.get(seq)
        away_s = 0.0 if here is None else self.turn_s
        return [
            (part * passed_s - got + (away_s if number == here else -away_s),) if part and speed else NOT_ENTITLED
            for number, part, got, speed in zip(self.numbers, share, times, speeds, strict=True)
        ]

    # Who runs --------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """The type of each job that runs in this round, by seq."""
        self.chosen: dict[int, int] = {}
        self.blocked: set[int] = set()
        """New jobs of which no answer knows: with `compat` they hold GPUs and do not run, unless the solver failed."""
        urgencies = {seq: self._urgencies(job) for seq, job in self.jobs.items()}
        order = self._type_order()
        for rank in sorted({job.rank for job in self.jobs.values()}):
            jobs = [job for job in self.jobs.values() if job.rank == rank]
            seqs = [job.seq for job in jobs]
            for number in order:
                owed = [(urgency, -seq) for seq in seqs if (urgency := urgencies[seq][number])]
                owed.sort(reverse=True)
                self._admit(number, [self.jobs[-seq] for _, seq in owed])
                if self.planner.options.is_compat:
                    self._admit(number, self._unowed(jobs, urgencies, number))
            if not self.planner.options.is_compat:
                for is_there in (True, False):  # no job moves for time that others leave over
                    for number in order:
                        unowed = self._unowed(jobs, urgencies, number)
                        self._admit(number, [job for job in unowed if (self.there.get(job.seq) == number) == is_there])

    def _type_order(self) -> list[int]:
        """With `compat`, policies that do not know the types take them in a random order."""
        order, options = list(self.numbers), self.planner.options
        if options.is_compat and not options.is_aware:
            number_of_round = round(self.view.now_s / self.planner.round_s)
            order.sort(key=lambda number: draw(options.seed, number_of_round, number))
        return order

    def _unowed(self, jobs: Iterable[JobView], urgencies: dict[int, list[Urgency]], number: int) -> list[JobView]:
        """Jobs that may use what is left of a type: those that are there first, then the fastest."""
        if self.free[number] <= 0:
            return []
        left = [job for job in jobs if not urgencies[job.seq][number] and job.seq not in self.chosen]
        speeds = {job.seq: self.kinds[job.seq].speeds[number] for job in left}
        left = [job for job in left if speeds[job.seq]]
        return sorted(left, key=lambda job: (self.there.get(job.seq) != number, -speeds[job.seq], job.seq))

    def _admit(self, number: int, jobs: Iterable[JobView]) -> None:
        free, kinds, chosen = self.free, self.kinds, self.chosen
        blocks = self.planner.options.is_compat and SOLVE_FAILED.get(self.memory) is None
        for job in jobs:
            if free[number] <= 0:
                return
            seq = job.seq
            if seq in chosen or seq in self.blocked:
                continue
            gpus = kinds[seq].gpus
            if gpus <= free[number]:
                free[number] -= gpus
                if blocks and seq not in self.shares.jobs:
                    self.blocked.add(seq)
                else:
                    chosen[seq] = number

    # Where they run --------------------------------------------------------------------------------------------

    def carry_out(self) -> None:
        plan, there, chosen = self.plan, self.there, self.chosen
        leaving = [seq for seq in there if seq not in chosen]
        coming = [seq for seq, number in chosen.items() if there.get(seq) != number]
        if not leaving and not coming:
            return
        with plan.bundle():
            for seq in leaving:
                self._leave(seq)
            self._seat(coming)

    def start_others(self, jobs: Iterable[JobView]) -> None:
        """Jobs without shares run where they find room, and so do those for which there was none on their type. With
        `compat` a job that was not chosen waits."""
        view, place, is_compat = self.view, self.planner.place, self.planner.options.is_compat
        for job in sorted(jobs, key=lambda job: (job.rank, job.seq)):
            if is_compat and job.seq in self.jobs and job.seq not in self.chosen:
                continue
            for shape in job.shapes:
                seat = place.find(view.cluster, self.plan, job, shape, view.now_s)
                if seat is not None:
                    self.plan.start(job, seat)
                    break

    def _leave(self, seq: int) -> None:
        job = self.jobs[seq]
        self._remember(job)
        self.plan.stop(job, "its turn is over")

    def _remember(self, job: JobView) -> None:
        self.plan.remember(RECEIVED, job.id, ReceivedTime(self.book.answer, self.received(job)))

    def _seat(self, coming: Sequence[int]) -> None:
        """Find GPUs for jobs that begin on a type, then move and start all of them."""
        plan, jobs = self.plan, self.jobs
        mark = plan.mark()
        for seq in coming:
            if seq in self.there:
                plan.vacate(jobs[seq])
        seats: dict[int, Allocation | None] = {}
        for number in sorted({self.chosen[seq] for seq in coming}):
            seats.update(self._seats(number, [seq for seq in coming if self.chosen[seq] == number]))
        plan.rollback(mark)
        for seq, seat in seats.items():
            if seat is None and seq in self.there:
                self._leave(seq)
        moves = [(jobs[seq], seat) for seq, seat in seats.items() if seat is not None and seq in self.there]
        for job, _ in moves:
            self._remember(job)
        if moves:
            plan.move_all(moves)
        for seq, seat in seats.items():
            if seat is not None and seq not in self.there:
                plan.start(jobs[seq], seat)

    def _seats(self, number: int, coming: Sequence[int]) -> dict[int, Allocation | None]:
        """GPUs of this type for these jobs, the largest first. If one of them finds none, the type is packed anew."""
        mark = self.plan.mark()
        found = self._fit(number, coming)
        if all(found.values()):
            return found
        staying = [seq for seq, here in self.there.items() if here == number and self.chosen.get(seq) == number]
        staying = [seq for seq in staying if self.jobs[seq].state is RUNNING]
        if not staying:
            return found
        self.plan.rollback(mark)
        for seq in staying:
            self.plan.vacate(self.jobs[seq])
        anew = self._fit(number, [*staying, *coming])
        return {seq: seat for seq, seat in anew.items() if seat is None or seat != self.jobs[seq].allocation}

    def _fit(self, number: int, seqs: Iterable[int]) -> dict[int, Allocation | None]:
        planner, view, plan = self.planner, self.view, self.plan
        found: dict[int, Allocation | None] = {}
        jobs = [self.jobs[seq] for seq in seqs]
        for job in sorted(jobs, key=lambda job: -job.gpus):
            shape = planner.kind(view, job).shapes[number]
            seat = planner.place.find(view.cluster, plan, job, shape, view.now_s)
            found[job.seq] = seat
            if seat is not None:
                plan.reserve(seat)
        return found
