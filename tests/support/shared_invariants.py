"""The invariants between the jobs of a state and the virtual clusters of its planner, recomputed naively."""

from __future__ import annotations

from tests.support.cells_invariants import check_cell_books, check_counts
from tests.support.invariants import check_books, expect

from skep.core.cells.tree import GUARANTEED_MIN, OPPORTUNISTIC
from skep.core.cluster import bits
from skep.core.job import Job, JobState
from skep.core.memory import LENT, OWNED
from skep.core.state import State
from skep.policies.shared.cell_books import CellBooks
from skep.policies.shared.clusters import NumberBooks
from skep.policies.shared.lender import pinned_around
from skep.policies.shared.planner import VcPlanner
from skep.policies.shared.vc import CELLS, Vc


def check_shared(state: State, planner: VcPlanner) -> None:
    """Raise `InvariantBroken` if an invariant does not hold."""
    for job in state.jobs.values():
        check_memory(state, planner, job)
    for vc in planner.vcs.values():
        check_vc(state, planner, vc)
    if planner.sharing == CELLS:
        physical, virtual = gpus_in_use(state, planner)
        check_counts(planner.cells, physical, virtual)
        check_cell_books(planner.cells)
        check_lent(state, planner)
        check_pinned(state, planner)


def check_pinned(state: State, planner: VcPlanner) -> None:
    """A job runs in a pinned cell if and only if it requested that cell."""
    for job in state.jobs.values():
        for piece in job.bound.slices if job.bound is not None else ():
            for bit in bits(piece.gpus):
                there = pinned_around(planner.hardware.leaves[piece.node][bit])
                expect(there == job.spec.pinned, f"{job!r} asks for pinned cell {job.spec.pinned!r}, is in {there!r}")


def check_memory(state: State, planner: VcPlanner, job: Job) -> None:
    """A job with an allocation is an owner or a borrower, and the memory has which."""
    is_owner, is_borrower = OWNED.get(state.memory, job.id) is not None, bool(LENT.get(state.memory, job.id))
    expect((job.bound is not None) == (is_owner or is_borrower), f"{job!r} has {job.bound}, the memory differs")
    expect(not (is_owner and is_borrower), f"{job!r} is owner and borrower")
    expect(not (is_owner and planner.vcs.only_borrows(job)), f"{job!r} is opportunistic and an owner")
    expect((job.seq in planner.loans.borrowers) == is_borrower, f"{job!r}: who borrows is wrong")
    expect((job.seq in planner.vcs.of(job).view.held_jobs) == is_owner, f"{job!r}: who owns is wrong")


def owned(state: State, planner: VcPlanner, vc: Vc) -> list[Job]:
    return [job for job in state.jobs.values() if planner.vcs.of(job) is vc and OWNED.get(state.memory, job.id)]


def check_vc(state: State, planner: VcPlanner, vc: Vc) -> None:
    """The VC's cluster has the allocations of its owners, and nothing else."""
    jobs = owned(state, planner, vc)
    for job in jobs:
        kept = OWNED.get(state.memory, job.id)
        expect(kept is not None and job.allocation == kept.allocation, f"{job!r} is elsewhere than the memory says")
    if isinstance(vc.books, NumberBooks):
        used = sum(round(job.allocation.gpus * 1000) for job in jobs if job.allocation is not None)
        numbers = vc.books.numbers
        expect(numbers.used_milli == used <= numbers.quota * 1000, f"{vc.name} counts {numbers.used_milli}, has {used}")
    else:
        check_books(vc.books.cluster, [(job.seq, job.allocation) for job in jobs if job.allocation is not None])


def gpus_in_use(state: State, planner: VcPlanner) -> tuple[dict[int, int], dict[int, int]]:
    """The priority of every GPU that is in use, physical and virtual, by identity."""
    physical: dict[int, int] = {}
    virtual: dict[int, int] = {}
    for job in state.jobs.values():
        if job.bound is None:
            continue
        leaves = [planner.hardware.leaves[piece.node][bit] for piece in job.bound.slices for bit in bits(piece.gpus)]
        is_owner = OWNED.get(state.memory, job.id) is not None
        for leaf in leaves:
            priority = GUARANTEED_MIN if is_owner else OPPORTUNISTIC
            physical[id(leaf)] = max(physical.get(id(leaf), priority), priority)
        if is_owner:
            books = planner.vcs.of(job).books
            assert isinstance(books, CellBooks)
            assert job.allocation is not None
            cells = books.leaves_of(job.allocation)
            virtual.update((id(cell), GUARANTEED_MIN) for cell in cells)
            bound = {id(cell.physical) for cell in cells}
            expect(bound == set(map(id, leaves)), f"{job!r} runs on other GPUs than those its cells are bound to")
    return physical, virtual


def check_lent(state: State, planner: VcPlanner) -> None:
    """Every lent GPU is recorded with its borrower."""
    lent: dict[int, set[int]] = {}
    for job in state.jobs.values():
        if job.bound is not None and LENT.get(state.memory, job.id):
            for piece in job.bound.slices:
                for bit in bits(piece.gpus):
                    lent.setdefault(id(planner.hardware.leaves[piece.node][bit]), set()).add(job.seq)
    expect(planner.loans.lent == lent, f"lent are {planner.loans.lent}, counted {lent}")


def unserved(state: State, planner: VcPlanner) -> list[Job]:
    """Guaranteed jobs that wait although the free cells of their VC could be given to them now."""
    found = []
    for job in state.jobs.values():
        vc = planner.vcs.of(job)
        if job.state is JobState.PENDING and job.is_ready and job.spec.priority >= 0 and vc.pipeline is not None:
            place = vc.pipeline.place
            asked = (vc.view.cluster, vc.view.new_plan(), job)
            if any(place.find(*asked, shape, state.now_s) is not None for shape in job.spec.shapes):
                found.append(job)
    return found
