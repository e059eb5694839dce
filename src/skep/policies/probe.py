"""Short runs that only measure: a job of a model whose speed on a GPU type is not known starts there for a few seconds,
so that policies for mixed clusters need no profile.

A job allows it if it names its model, may be preempted and accepts the type. It keeps what it has trained; its report
makes the speed known for all jobs of its model with as many GPUs. One job at a time measures for them, each type once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from skep.core.memory import Memory, Slot
from skep.core.model import Shape
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.place import Place


class Probed(msgspec.Struct, frozen=True):
    """The GPU types on which a job has measured."""

    types: tuple[str, ...] = ()


PROBED = Slot("probed", Probed)


class Probes:
    """`probe_s`: the length of such a run; 0: none is made."""

    def __init__(self, probe_s: float, place: Place) -> None:
        self.probe_s = probe_s
        self.place = place

    def start(self, view: View, plan: Plan, memory: Memory, pending: Sequence[JobView]) -> list[JobView]:
        """Start such runs where GPUs are free. Returns the jobs that are still pending."""
        types = [pool.gpu_type for pool in view.cluster.pools]
        if not self.probe_s or len(types) < 2:
            return list(pending)
        busy = {
            (job.spec.model, job.gpu_count, view.cluster.nodes[piece.node].pool.gpu_type)
            for job in view.placed_jobs()
            if job.allocation is not None
            for piece in job.allocation.slices
        }
        for job in sorted(pending, key=lambda job: (job.rank, job.seq)):
            for gpu_type in types if job.spec.model and job.spec.preemptible else ():
                which = (job.spec.model, job.gpu_count, gpu_type)
                if which not in busy and self._start(view, plan, memory, job, gpu_type):
                    busy.add(which)
                    break
        return [job for job in pending if job.allocation is None]

    def is_measuring(self, memory: Memory, job: JobView, now_s: float) -> bool:
        """True while such a run may last: a policy that decides in rounds leaves the job alone."""
        return now_s < job.decided_s + self.probe_s and PROBED.get(memory, job.id) is not None

    def _start(self, view: View, plan: Plan, memory: Memory, job: JobView, gpu_type: str) -> bool:
        done = (PROBED.get(memory, job.id) or Probed()).types
        shape = job.shapes[0]
        is_asked = not shape.gpu_types or gpu_type in shape.gpu_types
        if gpu_type in done or not shape.gpus or not is_asked or is_known(view, job, gpu_type):
            return False
        found = self.place.find(view.cluster, plan, job, on_types(shape, (gpu_type,)), view.now_s)
        if found is None:
            return False
        plan.start(job, found, until_s=view.now_s + self.probe_s)
        plan.remember(PROBED, job.id, Probed((*done, gpu_type)))
        return True


@functools.cache
def on_types(shape: Shape, gpu_types: tuple[str, ...]) -> Shape:
    """The shape restricted to these types."""
    return Shape(shape.roles, gpu_types, shape.spans_types and len(gpu_types) > 1)


def is_known(view: View, job: JobView, gpu_type: str) -> bool:
    """Either is enough: a profile may have factors without steps, and a first report has no reference yet."""
    known, shape = view.knowledge, job.shapes[0]
    has_rate = known.rate(job.spec, shape, gpu_type) is not None
    return has_rate or known.throughput(job.spec.model, gpu_type, shape.gpus) is not None
