"""Checks whether an untrusted plan can be carried out on this state.

A server runs planners on a copy of the state (`service/planning.py`), so that a planner which raises, returns an
invalid plan or modifies its input does no harm. Its decisions are checked here before they are committed.
"""

from __future__ import annotations

import math

from skep.core.actions import Limit
from skep.core.allocation import sits_right
from skep.core.cluster import GONE, WHOLE, Allocation, Cluster, Node, Slice
from skep.core.errors import InvariantBroken
from skep.core.fold.tasks import ENDS
from skep.core.job import Job, JobState, amount_of
from skep.core.memory import Of
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Decision, Plan
from skep.core.record import PlanRecord, joined, repeat, say
from skep.core.state import State
from skep.core.tasks import times


class BadPlan(InvariantBroken):
    """`job_id`: the job whose decision is invalid, if it is one job's."""

    def __init__(self, message: str, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


def checked_plan(state: State, logged: PlanRecord) -> Plan:
    """The plan, tried on this state. Raises `BadPlan` and leaves the state unchanged if anything in it is invalid."""
    plan = state.new_plan()
    job_id = ""
    try:
        check_words(state, logged)
        for together in joined(logged.decisions):
            for decision in together:
                job_id = decision.job_id
                check_decision(state, decision, is_alone=len(together) == 1)
            repeat(state, plan, together)
        for decision in logged.decisions:
            job_id = decision.job_id
            check_terms(state.jobs[job_id])
        job_id = ""
        check_settings(state, logged)
        say(state, plan, logged)
    except InvariantBroken as error:
        plan.rollback(0)
        raise BadPlan(str(error), job_id) from error
    return plan


def check_words(state: State, logged: PlanRecord) -> None:
    """Jobs that wait or are rejected must be pending; a wake-up and the end of a lease must be a time."""
    check_wake(logged.wake_s)
    for job_id, until_s in logged.leases:
        if math.isnan(until_s):
            raise InvariantBroken(f"it gives job {find(state, job_id).id} an end that is not a number")
    for job_id, _ in (*logged.joins, *logged.rejects):
        if find(state, job_id).state is not JobState.PENDING:
            raise InvariantBroken(f"it lets job {job_id} wait, which is {state.jobs[job_id].state}")
    for group_id, outcome, _ in logged.ends:
        if group_id not in state.groups or outcome not in ENDS.values():
            raise InvariantBroken(f"it ends group {group_id} as {outcome}, but there is no such group or outcome")
    for change in logged.memory:
        if change.of is Of.JOB:
            find(state, change.key)
    rejected = {job_id for job_id, _ in logged.rejects}
    if len(rejected) < len(logged.rejects) or not rejected.isdisjoint(each.job_id for each in logged.decisions):
        raise InvariantBroken("it rejects a job twice, or one that it starts")


def check_wake(wake_s: float | None) -> None:
    if wake_s is not None and math.isnan(wake_s):
        raise InvariantBroken("its wake-up time is not a number")


def check_settings(state: State, logged: PlanRecord) -> None:
    """`Plan.set` checks that the jobs run."""
    for setting in logged.settings:
        find(state, setting.job_id)
        if isinstance(setting, Limit) and not 0 < setting.milli <= WHOLE:
            raise InvariantBroken(f"it limits job {setting.job_id} to {setting.milli} thousandths of a GPU")
    for decision in logged.decisions:
        if decision.until_s is not None and (decision.before is not None or math.isnan(decision.until_s)):
            raise InvariantBroken(f"it sets an end time for job {decision.job_id}, which only a start may have")


def find(state: State, job_id: str) -> Job:
    job = state.jobs.get(job_id)
    if job is None:
        raise InvariantBroken(f"there is no job {job_id}")
    return job


def check_decision(state: State, decision: Decision, *, is_alone: bool = True) -> None:
    """Jobs that move together may go where another of them is: `Plan.move_all` checks that there is room for all."""
    job, after = find(state, decision.job_id), decision.after
    if after is None:
        return  # `Plan.stop` checks that the job runs
    if decision.before is None and not (job.is_ready and job.state is JobState.PENDING):
        raise InvariantBroken(f"it starts job {job.id}, which is {(job.hold and 'held') or job.state}")
    if decision.before is not None and (after.is_suspended or decision.before.is_suspended):
        check_stays(job, after)
    elif decision.before is not None and after.is_parked and after.has_seats_of(decision.before):
        pass  # it gets other terms within this plan
    elif not any(is_shape(state.cluster, after, shape) for shape in shapes_of(job.spec, after)):
        raise InvariantBroken(f"it gives job {job.id} an allocation that the job did not request: {after.gpus:g} GPUs")
    if not sits_right(after):
        raise InvariantBroken(f"it puts tasks of job {job.id} on GPUs that are not in the job's allocation")
    for piece in after.slices:
        check_piece(state.cluster.nodes[piece.node], piece)
    if is_alone:
        check_room(state.cluster, after, job.allocation if decision.before is not None else None, job.seq)


def check_terms(job: Job) -> None:
    """After all decisions, every job without compute must be suspended."""
    if job.allocation is not None and job.allocation.is_parked:
        raise InvariantBroken(f"it leaves job {job.id} without compute, although the job is not suspended")


def check_stays(job: Job, after: Allocation) -> None:
    """A suspended or resumed job keeps its place and resources."""
    before = job.allocation
    wanted = None if before is None else before.resumes_as
    if before is not None and after.memory is not None:
        wanted = before.suspended(after.memory)
    if after != wanted:
        raise InvariantBroken(f"it suspends or resumes job {job.id} with another allocation than the job has")


def shapes_of(spec: JobSpec, allocation: Allocation) -> list[Shape]:
    sizes = spec.gpu_range
    role = spec.shapes[0].roles[spec.elastic_role]
    if sizes is None or not sizes[0] <= allocation.gpus <= sizes[1] or allocation.gpus % max(role.gpus, 1):
        return list(spec.shapes)
    return [*spec.shapes, spec.resized(int(allocation.gpus))]


def is_shape(cluster: Cluster, allocation: Allocation, shape: Shape) -> bool:
    """True if this is the requested number of GPUs of accepted types."""
    pieces = [piece for piece in allocation.slices if piece.gpus]
    count = len(cluster.nodes)
    if any(not 0 <= piece.node < count or cluster.nodes[piece.node].spec == GONE for piece in allocation.slices):
        raise InvariantBroken("it names a node that does not exist")
    if any(not 0 <= piece.role < len(shape.roles) or not is_part(shape.roles[piece.role], piece) for piece in pieces):
        return False
    depth = allocation.depth
    if depth > 1 and not is_spliced(allocation, shape):
        return False
    asked = sum(piece.gpus.bit_count() * shape.roles[piece.role].gpu_milli for piece in pieces)
    types = {cluster.nodes[piece.node].spec.gpu_type for piece in pieces}
    if not all(is_tagged(cluster.nodes[piece.node], shape, piece) for piece in allocation.slices):
        return False
    is_all = asked == round(allocation.gpus * WHOLE) == round(amount_of(shape) * WHOLE / depth)
    return is_all and (not shape.gpu_types or types <= set(shape.gpu_types))


def is_tagged(node: Node, shape: Shape, piece: Slice) -> bool:
    """True if the node has the tags, and the slice the extras, that the role needs."""
    role = shape.roles[piece.role]
    is_all = not role.extras or piece.extras == times(role.extras, piece.tasks)
    return is_all and (not role.tags or bool(node.pool.tagged(role.tags) & node.bit))


def is_spliced(allocation: Allocation, shape: Shape) -> bool:
    """Whether all workers of a gang are there, as many on each GPU. Only workers with one whole GPU each can be so."""
    role, depth = shape.roles[0], allocation.depth
    if len(shape.roles) > 1 or role.gpus != 1 or role.gpu_milli < WHOLE or role.count % depth:
        return False
    is_even = all(piece.gpus.bit_count() == 1 and piece.tasks == depth for piece in allocation.slices)
    return is_even and len(allocation.slices) * depth == role.count


def is_part(role: Role, piece: Slice) -> bool:
    """True if it has as much of each GPU as the role requests; in a share mode the guaranteed part may be smaller."""
    if piece.mode:
        return piece.milli <= role.gpu_milli <= max(piece.milli, piece.limit)
    return piece.milli == role.gpu_milli


def check_room(cluster: Cluster, allocation: Allocation, before: Allocation | None, owner: int) -> None:
    """All of it must be free once `before` is returned."""
    if before is not None:
        cluster.give(before, owner)
    try:
        cluster.take(allocation, owner)
        cluster.give(allocation, owner)
    finally:
        if before is not None:
            cluster.take(before, owner)


def check_piece(node: Node, piece: Slice) -> None:
    """What the ledger assumes about a slice, and that the node may be used."""
    if piece.gpus < 0 or piece.gpus >> node.gpu_count:
        raise InvariantBroken(f"it names GPUs that node {node.name} does not have")
    if piece.gpus and not node.is_up:
        raise InvariantBroken(f"it uses node {node.name}, which is lost or drained")
    if min(piece.milli, piece.gpu_mem_mib, piece.cpu_milli, piece.memory_mib, piece.tasks) < 0:
        raise InvariantBroken(f"it gives a negative amount of node {node.name}")
