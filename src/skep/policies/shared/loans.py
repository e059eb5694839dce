"""Which GPUs are lent, and to which jobs."""

from __future__ import annotations

from skep.core.allocation import Allocation, gpus_in
from skep.core.cells.hardware import Hardware
from skep.core.cells.tree import FREE, OPPORTUNISTIC, PhysicalCell, set_use
from skep.core.view import JobView
from skep.policies.shared.cell_books import Lent
from skep.policies.shared.vc import Vcs


class Loans:
    def __init__(self, hardware: Hardware, vcs: Vcs, lent: Lent) -> None:
        self.hardware = hardware
        self.vcs = vcs
        self.lent = lent
        self.counts: dict[int, int] = {}
        """The number of loans on each node; absent: none."""
        self.borrowers: dict[int, JobView] = {}
        """By seq."""
        self.held: dict[int, Allocation] = {}
        """What each borrower has, by its seq."""
        self.untried: dict[int, JobView] = {}
        """By seq: borrowers to try as owners, because something has changed that could help them."""

    def begin(self, job: JobView, physical: Allocation) -> None:
        seq = job.seq
        self.borrowers[seq] = job
        if not self.vcs.only_borrows(job):
            self.vcs.of(job).borrowers[seq] = self.untried[seq] = job
        self.held[seq] = physical
        for piece in physical.slices:
            self.counts[piece.node] = self.counts.get(piece.node, 0) + 1
            for leaf in self._leaves(piece.node, piece.gpus):
                self.lent.setdefault(id(leaf), set()).add(seq)
                if leaf.priority == FREE:  # otherwise it is shared with another borrower or its owner
                    set_use(leaf, OPPORTUNISTIC)

    def end(self, job: JobView) -> None:
        del self.borrowers[job.seq]
        self.vcs.of(job).borrowers.pop(job.seq, None)
        self.untried.pop(job.seq, None)
        for piece in self.held.pop(job.seq).slices:
            self.counts[piece.node] -= 1
            if not self.counts[piece.node]:
                del self.counts[piece.node]
            for leaf in self._leaves(piece.node, piece.gpus):
                others = self.lent[id(leaf)]
                others.remove(job.seq)
                if not others:
                    del self.lent[id(leaf)]
                    if leaf.priority == OPPORTUNISTIC:  # otherwise it is already in guaranteed use
                        set_use(leaf, FREE)

    def on(self, physical: Allocation | None) -> list[JobView]:
        """The borrowers that must leave if these cells are taken, in the order of their submission."""
        found: set[int] = set()
        for piece in physical.slices if physical is not None else ():
            if piece.node in self.counts:
                for leaf in self._leaves(piece.node, piece.gpus):
                    found.update(self.lent.get(id(leaf), ()))
        return [self.borrowers[seq] for seq in sorted(found)] if found else []

    def _leaves(self, node: int, mask: int) -> list[PhysicalCell]:
        """The cells of the layout: a node may have joined since."""
        leaves = self.hardware.leaves[node]
        return [leaves[gpu] for gpu in gpus_in(mask) if gpu < len(leaves)]

    def try_again(self, cell: PhysicalCell) -> None:
        """This cell has become free as a whole: borrowers in it may become owners."""
        if OPPORTUNISTIC in cell.used:
            for leaf in cell.leaves():
                for seq in self.lent.get(id(leaf), ()):
                    if not self.vcs.only_borrows(self.borrowers[seq]):
                        self.untried[seq] = self.borrowers[seq]

    def try_all_again(self) -> None:
        own = (job for job in self.borrowers.values() if not self.vcs.only_borrows(job))
        self.untried.update((job.seq, job) for job in own)
