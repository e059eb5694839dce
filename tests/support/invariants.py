"""The invariants of a state, recomputed naively.

`check(state)` checks one state; a `Checker` accompanies a run, checks after every step, and remembers what a single
state cannot show: that finished jobs stay finished and that no work is lost unnecessarily.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from skep.core.cluster import UNLIMITED, WHOLE, Allocation, Cluster, Node, Pool, Slice, Tenant, bits
from skep.core.errors import InvariantBroken
from skep.core.events import (
    Event,
    Exit,
    JobSubmitted,
    NodeBack,
    NodeLost,
    ProgressReported,
    TasksExited,
    TasksMoved,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
    in_order,
)
from skep.core.group import Group
from skep.core.job import Job, JobState, amount_of, state_of
from skep.core.ledger import OTHERS, GpuShares
from skep.core.model import JobSpec, Role, Shape
from skep.core.orders import resumes
from skep.core.pool import BLOCK, NONE
from skep.core.share import SHARED
from skep.core.state import State
from skep.core.tags import compiled

EPSILON = 1e-6

THERE = (JobState.RUNNING, JobState.SUSPENDED)

WANTED = {
    # state → (has an allocation, may hold something, must hold something)
    JobState.PENDING: (False, False, False),
    JobState.LAUNCHING: (True, True, False),
    JobState.RUNNING: (True, True, True),
    JobState.SUSPENDED: (True, True, True),
    JobState.STOPPING: (False, True, True),
    JobState.SUCCEEDED: (False, False, False),
    JobState.FAILED: (False, False, False),
    JobState.STOPPED: (False, False, False),
    JobState.UNRUNNABLE: (False, False, False),
}


def check(state: State) -> None:
    """Raise `InvariantBroken` if an invariant does not hold."""
    jobs = list(state.jobs.values())
    others = [(OTHERS, Allocation(each.booked, 0)) for each in state.health.others.values()]
    bound = [(job.seq, job.bound) for job in jobs if job.bound is not None]
    holding = [(job.seq, job.held) for job in jobs if job.held is not None]
    check_books(state.cluster, [*bound, *others])
    if holding != bound:
        count_use(state.cluster, holding)
    for job in jobs:
        check_job(state, job)
        for allocation in (job.bound, job.held):
            if allocation is not None:
                check_whole(state.cluster, job, allocation)
    pending = sum(job.state is JobState.PENDING for job in jobs)
    expect(state.pending_count == pending, f"pending_count is {state.pending_count}, {pending} jobs are pending")
    check_groups(state)
    for job in jobs:  # except for a job that was stopped before it came to run
        held = job.state in (*THERE, JobState.STOPPING)
        fits = job.seq in state.held_jobs if job.state in THERE else held or job.seq not in state.held_jobs
        expect(fits, "held_jobs is wrong about {}", job)


def expect(holds: bool, otherwise: str, *about: object) -> None:
    """`about` stands for the braces of the message, which is put together only when it is needed."""
    if not holds:
        raise InvariantBroken(otherwise.format(*about) if about else otherwise)


def compare(where: str, twins: Mapping[str, tuple[object, object]]) -> None:
    """For each name: the stored value, and a recount."""
    for name, (kept, counted) in twins.items():
        if kept != counted:
            raise InvariantBroken(f"{where}: {name} is {kept}, counted {counted}")


# Jobs --------------------------------------------------------------------------------------------------------------


def check_job(state: State, job: Job) -> None:
    derived = state_of(job, job.seq in state.held_jobs)
    expect(job.state is derived, "{} should be {}", job, derived)
    wanted, may_hold, must_hold = WANTED[job.state]
    expect((job.allocation is not None) == wanted, "{} has allocation {}", job, job.allocation)
    expect(job.held is None or may_hold, "{} holds {}", job, job.held)
    expect(job.held is not None or not must_hold, "{} holds nothing", job)
    over = job.state.is_final and job.state is not JobState.UNRUNNABLE
    expect((job.finish_s is not None) == over, "{} has finish_s {}", job, job.finish_s)
    expect(job.waiting is None or job.state is JobState.PENDING, "{} is still booked as waiting", job)
    expect(not job.needs_left or job.state is JobState.PENDING, "{} needs {} more jobs", job, job.needs_left)
    expect(job.is_ready == (not job.needs_left and not job.hold), "{} has is_ready {}", job, job.is_ready)
    held_gpus = job.held.gpus if job.seq in state.held_jobs and job.held is not None else 0
    expect(job.held_gpus == held_gpus, "{} counts {} GPUs, it holds {}", job, job.held_gpus, held_gpus)
    if job.state is JobState.STOPPING:
        expect(job.seq in state.orders.leaving or job.seq in state.orders.dirty, "{} was never sent a stop", job)
    elif job.state not in THERE and not job.is_ending:
        expect(job.seq not in state.orders.leaving, "{} is leaving", job)
    if job.state in THERE:
        is_suspended = job.allocation is not None and job.allocation.is_suspended
        expect(is_suspended == (job.state is JobState.SUSPENDED), "{} has {}", job, job.allocation)
        moves = job.held != job.bound and not job.is_ending and not job.is_expired
        is_told = job.seq in state.orders.moving or job.seq in state.orders.dirty or resumes(job)
        expect(is_told or not moves, "{} was sent no action: it has {} and is to have {}", job, job.held, job.bound)
    else:
        expect(job.seq not in state.orders.moving, "{} is moving", job)
    if job.state is JobState.LAUNCHING and job.held is None:
        expect(job.seq in state.orders.dirty, "{} was forgotten: it is wanted, and no action will launch it", job)


def check_groups(state: State) -> None:
    """A group has the right counts of its members; a decided group lets no member continue; an ended one has answered
    all."""
    for group in state.groups.values():
        left = [name for name, ended_as in group.members.items() if ended_as is None]
        expect(group.left == len(left), f"group {group.id} counts {group.left} members left, there are {left}")
        expect(
            not (group.has_ended and group.needed_by), f"{group.needed_by} wait for group {group.id}, which has ended"
        )
        for name, ended_as in group.members.items():
            check_member(state, group, name, ended_as)
    for job in state.jobs.values():
        ref = job.spec.group
        if ref is not None and not job.state.is_final:
            expect(ref.id in state.groups and job.id in state.groups[ref.id].members, "{} is not in its group", job)


def check_member(state: State, group: Group, name: str, ended_as: JobState | None) -> None:
    job, inner = state.jobs.get(name), state.groups.get(name)
    if job is not None and job.spec.group is not None and job.spec.group.id == group.id:
        state_of = job.state if job.state.is_final else None
        goes_on = state_of is None and not job.is_ending
    else:
        expect(inner is not None, f"group {group.id} has member {name}, which is not there")
        assert inner is not None
        state_of = inner.outcome if inner.has_ended else None
        goes_on = inner.outcome is None
    expect(state_of == ended_as, f"member {name} of group {group.id} is {state_of}, the group says {ended_as}")
    expect(not (group.outcome and goes_on), f"member {name} goes on, but its group {group.id} has {group.outcome}")


def check_whole(cluster: Cluster, job: Job, allocation: Allocation) -> None:
    """A gang is whole: the allocation is exactly one of the shapes, or a size that an elastic job accepts; for a
    suspended job, what it will have again."""
    if allocation.resumes_as is not None and allocation.memory is not None:
        halted = allocation.resumes_as.suspended(allocation.memory)
        expect(allocation == halted, "{!r} is suspended with {}, not {}", job, allocation, halted)
        allocation = allocation.resumes_as
    faults = [fault_of(cluster, shape, allocation) for shape in (*job.spec.shapes, *sizes_like(job.spec, allocation))]
    expect("" in faults, "{!r} has {}, which is none of its shapes: {}", job, allocation, faults)


def sizes_like(spec: JobSpec, allocation: Allocation) -> list[Shape]:
    """The size of an elastic job with this many GPUs, if it is one."""
    low, high = spec.gpu_range or (0, -1)
    gpus = sum(piece.gpus.bit_count() for piece in allocation.slices if piece.role == spec.elastic_role)
    return [spec.resized(gpus)] if low <= gpus <= high else []


def fault_of(cluster: Cluster, shape: Shape, allocation: Allocation) -> str:
    """Why this allocation is not that shape; empty if it is. A gang of workers with one GPU each may be spliced."""
    depth = allocation.depth
    if depth > 1 and (len(shape.roles) > 1 or shape.roles[0].gpus != 1 or shape.roles[0].gpu_milli < WHOLE):
        return f"{depth} tasks on a GPU"
    for number, role in enumerate(shape.roles):
        pieces = [piece for piece in allocation.slices if piece.role == number]
        if sum(piece.tasks for piece in pieces) != role.count:
            return f"{sum(piece.tasks for piece in pieces)} of {role.count} tasks of role {number}"
        for piece in pieces:
            if not all(compiled(each)(frozenset(cluster.nodes[piece.node].spec.tags)) for each in role.tags):
                return f"node {piece.node} lacks the tags of {role}"
            if piece != piece_of(role, piece) or piece.gpus.bit_count() * depth != piece.tasks * role.gpus:
                return f"{piece} is not what {role} asks for"
        gpus = [(piece.node, gpu) for piece in pieces for gpu in bits(piece.gpus)]
        if role.is_apart and len(set(gpus)) < len(gpus):
            return f"tasks of role {number} share a GPU with each other"
    if any(piece.role >= len(shape.roles) for piece in allocation.slices):
        return "a role too many"
    types = {cluster.nodes[piece.node].pool.gpu_type for piece in allocation.slices if piece.gpus}
    if shape.gpus and shape.gpu_types and not types <= set(shape.gpu_types):
        return f"on {types}"
    if shape.gpus and len(types) > 1 and not shape.spans_types:
        return f"spans {types}"
    amount = amount_of(shape) / depth
    return "" if abs(allocation.gpus - amount) < EPSILON else f"says {allocation.gpus} GPUs, not {amount}"


def piece_of(role: Role, piece: Slice) -> Slice:
    """What this many tasks of the role take on this node. Which GPUs is free to choose, and in a share mode also how
    much of the request is guaranteed."""
    in_mode = piece.mode in SHARED and piece.milli <= role.gpu_milli <= max(piece.milli, piece.limit)
    return Slice(
        piece.node,
        piece.gpus,
        milli=piece.milli if in_mode else role.gpu_milli if role.gpus else WHOLE,
        gpu_mem_mib=up(role.gpu_mem_gib * 1024) * max(piece.tasks // max(piece.gpus.bit_count(), 1), 1),
        cpu_milli=up(role.cpu * 1000) * piece.tasks,
        memory_mib=up(role.memory_gib * 1024) * piece.tasks,
        role=piece.role,
        tasks=piece.tasks,
        limit=piece.limit if in_mode else 0,
        mode=piece.mode if in_mode else "",
        slot=piece.slot,
        group=piece.group,
        weight=piece.weight,
        quantum_ms=piece.quantum_ms,
        ephemeral_mib=piece.ephemeral_mib,
        extras=tuple((name, count * piece.tasks) for name, count in role.extras),
    )


def up(amount: float) -> int:
    return math.ceil(amount - EPSILON)


# The cluster -------------------------------------------------------------------------------------------------------


class CountedUse:
    """The use of one node, added up piece by piece."""

    def __init__(self) -> None:
        self.whole: dict[int, tuple[int, Slice]] = {}
        self.tenants: dict[int, list[Tenant]] = {}
        """For each GPU, except for a holder of the whole GPU."""
        self.cpu_milli = 0
        self.extras: Counter[str] = Counter()
        self.memory_mib = 0


Held = tuple[int, Allocation]
"""An owner, and what it has."""


def count_use(cluster: Cluster, held: Iterable[Held]) -> dict[int, CountedUse]:
    """Add up what these hold of each node; nothing may be held twice or beyond capacity."""
    uses = {node.index: CountedUse() for node in cluster.nodes}
    in_turn: dict[tuple[int, int], set[frozenset[tuple[int, int]]]] = {}
    """The sets of GPUs of those who take turns on each GPU."""
    for owner, allocation in held:
        for piece in allocation.slices:
            add_piece(cluster.nodes[piece.node], uses[piece.node], piece, owner)
        sliced = [piece for piece in allocation.slices if piece.mode == "slice"]
        gpus = frozenset((piece.node, gpu) for piece in sliced for gpu in bits(piece.gpus))
        for gpu in gpus:
            in_turn.setdefault(gpu, set()).add(gpus)
    for node in cluster.nodes:
        check_capacity(node, uses[node.index])
    for gpu, sets in in_turn.items():
        expect(len(sets) == 1, f"those who take turns on GPU {gpu} have different GPUs: {sets}")
    return uses


def add_piece(node: Node, use: CountedUse, piece: Slice, owner: int) -> None:
    use.cpu_milli += piece.cpu_milli
    use.extras.update(dict(piece.extras))
    use.memory_mib += piece.memory_mib
    expect(not piece.gpus >> node.gpu_count, "node {} has no GPUs {:#b}", node.name, piece.gpus)
    if not piece.gpus:
        return
    if piece.milli == WHOLE:
        twice = piece.gpus & sum(use.whole)
        expect(not twice, "GPUs {:#b} of node {} are held twice", twice, node.name)
        use.whole[piece.gpus] = (owner, piece)
        if has_terms(piece) or piece.ephemeral_mib:
            check_mode(tenant_of_piece(piece, owner))
        return
    limit = piece.limit or piece.milli
    expect(piece.milli <= limit <= WHOLE, "{} has more than a GPU", piece)
    expect(limit == piece.milli or piece.mode in SHARED, "{} may use more than is guaranteed in no share mode", piece)
    tenant = tenant_of_piece(piece, owner)
    check_mode(tenant)
    for gpu in bits(piece.gpus):
        use.tenants.setdefault(gpu, []).append(tenant)


def tenant_of_piece(piece: Slice, owner: int) -> Tenant:
    limit = piece.limit or piece.milli
    tenant = Tenant(owner, piece.milli, limit, piece.gpu_mem_mib, piece.mode, piece.slot, piece.group)
    terms = {"weight": piece.weight, "quantum_ms": piece.quantum_ms, "ephemeral_mib": piece.ephemeral_mib}
    return msgspec.structs.replace(tenant, **terms)


def has_terms(piece: Slice) -> bool:
    """True if it has more than whole GPUs."""
    return bool(piece.gpu_mem_mib or piece.mode or piece.group or piece.slot)


def check_capacity(node: Node, use: CountedUse) -> None:
    whole = {gpu: tenant_of_piece(piece, 0) for mask, (_, piece) in use.whole.items() for gpu in bits(mask)}
    for gpu in whole.keys() | use.tenants.keys():
        tenants = [*use.tenants.get(gpu, ()), *([whole[gpu]] if gpu in whole else ())]
        where = (gpu, node.name)
        milli, memory_mib = sum(tenant.milli for tenant in tenants), memory_on(tenants)
        expect(milli <= WHOLE, "GPU {} of node {} carries {} milli", *where, milli)
        check_together(tenants, where)
        expect(memory_mib <= node.spec.gpu_mem_mib, "GPU {} of node {} carries {} MiB", *where, memory_mib)
    expect(use.cpu_milli <= node.spec.cpu_milli, "CPUs of node {} over capacity", node.name)
    expect(use.memory_mib <= node.spec.memory_mib, "memory of node {} over capacity", node.name)


def memory_on(tenants: list[Tenant]) -> int:
    """MiB of a GPU that these use. Jobs of a lane run one after the other: their ephemeral memory counts once."""
    kept = sum(tenant.memory_mib - tenant.ephemeral_mib for tenant in tenants)
    lanes = {tenant.group for tenant in tenants}
    return kept + sum(
        max((each.ephemeral_mib for each in tenants if each.group == lane and each.limit), default=0) for lane in lanes
    )


def check_mode(tenant: Tenant) -> None:
    """Check that a tenant by itself is what its mode allows."""
    is_lane = tenant.mode == "lane" or not tenant.limit
    expect(0 <= tenant.ephemeral_mib <= (tenant.memory_mib if is_lane else 0), "{} shares memory", tenant)
    if not tenant.mode:
        return
    expect(tenant.mode in SHARED, "{} is in no share mode that there is", tenant)
    expect(tenant.limit > 0, "{} has no compute and a share mode", tenant)
    expect(tenant.weight >= 1 and tenant.quantum_ms >= 0, "{} has an impossible weight or quantum", tenant)
    if tenant.mode in ("mps", "mig"):
        expect(tenant.limit == tenant.milli, f"{tenant} may exceed a fixed part")
    if tenant.mode == "slice":
        expect(tenant.group != "", f"{tenant} is in no share group")
    if tenant.mode == "mig":
        expect(len(mig_eighths(tenant)) > 0, f"{tenant} has no MIG profile")


def check_together(tenants: list[Tenant], where: tuple[int, str]) -> None:
    """Check that the tenants with compute on one GPU are compatible."""
    there = [tenant for tenant in tenants if tenant.limit]
    modes = {tenant.mode for tenant in there}
    expect(len(modes) <= 1, "GPU {} of node {} is shared in modes {}", *where, modes)
    if modes == {"slice"}:
        groups = {tenant.group for tenant in there}
        expect(len(groups) == 1, "GPU {} of node {} has members of groups {}", *where, groups)
    if modes == {"mig"}:
        taken = [eighth for tenant in there for eighth in mig_eighths(tenant)]
        expect(len(set(taken)) == len(taken), "GPU {} of node {} has slots {} taken twice", *where, taken)


def mig_eighths(tenant: Tenant) -> range:
    """The eighths of an A100 that an instance takes; 0: there is no such instance."""
    sizes = {142: (1, range(7)), 285: (2, (0, 2, 4)), 428: (4, (0, 4)), 571: (4, (0,)), 1000: (8, (0,))}
    size, starts = sizes.get(tenant.milli, (0, ()))
    return range(tenant.slot, tenant.slot + size) if tenant.slot in starts else range(0)


def check_books(cluster: Cluster, held: Iterable[Held]) -> None:
    """Nodes and indexes must agree with a recount of everything that is held."""
    uses = count_use(cluster, held)
    for node in cluster.nodes:
        use = uses[node.index]
        used = sum(use.whole)
        shares = {}
        for gpu, tenants in use.tenants.items():
            milli, memory_mib = sum(each.milli for each in tenants), memory_on(tenants)
            mode = next((each.mode for each in tenants if each.limit), None)
            shares[gpu] = GpuShares(milli, memory_mib, tuple(sorted(tenants)), mode)
            used |= (mode is not None) << gpu
        free_mask = ((1 << node.gpu_count) - 1) & ~used
        compare(
            f"node {node.name}",
            {
                "free_mask": (node.free_mask, free_mask),
                "free": (node.free, free_mask.bit_count()),
                "holders": (node.holders, {mask: owner for mask, (owner, _) in use.whole.items()}),
                "terms": (node.terms, {mask: piece for mask, (_, piece) in use.whole.items() if has_terms(piece)}),
                "shares": (node.shares, shares),
                "cpu_free": (node.cpu_free, node.spec.cpu_milli - use.cpu_milli),
                "extras_free": (node.extras_free, {key: n - use.extras[key] for key, n in node.spec.extras}),
                "memory_free": (node.memory_free, node.spec.memory_mib - use.memory_mib),
            },
        )
        expect(0 <= node.cpu_free <= UNLIMITED and 0 <= node.memory_free <= UNLIMITED, "{} over capacity", node.name)
    for pool in cluster.pools:
        check_index(pool)
    expect(cluster.gpu_total == sum(node.gpu_count for node in cluster.nodes), "gpu_total is not all GPUs")


def check_index(pool: Pool) -> None:
    """The naive twin of the free index."""
    pool.follow()
    there = [node for node in pool.nodes if node.is_up]
    by_free = [0] * (max((node.gpu_count for node in pool.nodes), default=0) + 1)
    idle = dict.fromkeys(sorted({node.gpu_count for node in pool.nodes}, reverse=True), 0)
    for node in there:
        by_free[node.free] |= 1 << node.index
        if node.free == node.gpu_count:
            idle[node.gpu_count] |= 1 << node.index
    compare(
        f"pool '{pool.gpu_type}'",
        {
            "up": (pool.up, sum(1 << node.index for node in there)),
            "free": (pool.free, sum(node.free for node in there)),
            "total": (pool.total, sum(node.gpu_count for node in pool.nodes)),
            "by_free": (pool.by_free, by_free),
            "idle": (list(pool.idle.items()), list(idle.items())),
        },
    )
    check_shared_index(pool, [(node, share) for node in there for share in node.shares.values() if share.mode == ""])


def check_shared_index(pool: Pool, shares: list[tuple[Node, GpuShares]]) -> None:
    """The naive twin of the index of GPUs in parts; it is empty until there is one."""
    size = WHOLE if pool.shared or shares else 0
    shared: list[dict[int, int]] = [{}] * size
    counts, roomiest = [0] * size, [NONE] * size
    for node, share in shares:
        left, left_mib = WHOLE - share.milli, node.spec.gpu_mem_mib - share.memory_mib
        shared[left] = {**shared[left], left_mib: shared[left].get(left_mib, 0) | 1 << node.index}
        counts[left] += 1
        roomiest[left] = max(roomiest[left], left_mib)
    compare(
        f"pool '{pool.gpu_type}'",
        {
            "shared": (pool.shared, shared),
            "shared_counts": (pool.shared_counts, counts),
            "roomiest": (pool.roomiest, roomiest),
            "tops": (pool.tops, [max(roomiest[at : at + BLOCK]) for at in range(0, size, BLOCK)]),
            "shared_milli": (pool.shared_milli, sum(WHOLE - share.milli for _, share in shares)),
        },
    )


# Along a run -------------------------------------------------------------------------------------------------------


class JobProgress(NamedTuple):
    """What the engine has reported about one job's work."""

    work_s: float = 0.0
    rate: float = 0.0
    since_s: float = 0.0
    kept_s: float = 0.0
    """Work that was safe when the present run began."""

    def work_at(self, now_s: float) -> float:
        return self.work_s + max(now_s - self.since_s, 0.0) * self.rate


class Checker:
    """An observer of `skep.service.loop.run` that checks after every step."""

    def __init__(
        self,
        state: State,
        *,
        checkpoint_s: float = 600.0,
        rate_max: float = 1.0,
        every: int = 1,
        work_s: Mapping[str, float] | None = None,
    ) -> None:
        """`work_s`: the total work of each job, if known; with rounds it may be done before its end."""
        self.state = state
        self.work_s = work_s or {}
        self.checkpoint_s = checkpoint_s
        self.rate_max = rate_max
        self.every = every
        self.steps = 0
        self.now_s = -math.inf
        self.progress: dict[str, JobProgress] = {}
        self.over: set[str] = set()
        self.down: set[str] = set()

    def __call__(self, at_s: float, events: list[Event]) -> None:
        expect(at_s >= self.now_s, f"time went back from {self.now_s} to {at_s}")
        self.now_s = at_s
        expect(events == in_order(events), f"the events of {at_s} s are out of order: {events}")
        for event in events:
            self._take_in(at_s, event)
        self.steps += 1
        if self.steps % self.every == 0:
            check(self.state)

    def _take_in(self, at_s: float, event: Event) -> None:
        if isinstance(event, NodeLost):
            self.down.add(event.node)
        elif isinstance(event, NodeBack):
            self.down.discard(event.node)
        elif isinstance(event, JobSubmitted):
            self.progress[event.job.id] = JobProgress()
        elif isinstance(event, TasksStarted):
            self._started(event)
        elif isinstance(event, TasksSuspended | TasksResumed):
            self._halted(at_s, event)
        elif isinstance(event, TasksMoved):
            before = self._work_at(event.job_id, at_s)
            expect(event.work_s >= before - EPSILON, f"job {event.job_id} lost {before - event.work_s} s by a move")
            self.progress[event.job_id] = JobProgress(
                event.work_s, told(event.rate), event.progress_since_s, event.work_s
            )
        elif isinstance(event, ProgressReported):
            kept_s = self.progress[event.job_id].kept_s
            since_s = max(at_s, self.progress[event.job_id].since_s)
            self.progress[event.job_id] = JobProgress(told(event.work_s), told(event.rate), since_s, kept_s)
        elif isinstance(event, TasksExited):
            self._exited(at_s, event)

    def _started(self, event: TasksStarted) -> None:
        name = event.job_id
        expect(name not in self.over, f"job {name} is over and was started again")
        work_s = self.progress[name].work_s
        self.progress[name] = JobProgress(work_s, told(event.rate), event.progress_since_s, work_s)
        held = self.state.jobs[name].held
        lost = [self.state.cluster.nodes[index].name for index in held.nodes()] if held is not None else []
        expect(not self.down.intersection(lost), f"job {name} was started on {lost}, of which {self.down} are down")

    def _halted(self, at_s: float, event: TasksSuspended | TasksResumed) -> None:
        """A suspension neither loses nor gains work."""
        before, work_s = self.progress[event.job_id], self._work_at(event.job_id, at_s)
        expect(abs(event.work_s - work_s) <= EPSILON, f"job {event.job_id} has {event.work_s} s of work, had {work_s}")
        rate, since_s = (told(event.rate), event.progress_since_s) if isinstance(event, TasksResumed) else (0.0, at_s)
        self.progress[event.job_id] = JobProgress(event.work_s, rate, since_s, before.kept_s)

    def _work_at(self, name: str, now_s: float) -> float:
        return min(self.progress[name].work_at(now_s), self.work_s.get(name, math.inf))

    def _exited(self, at_s: float, event: TasksExited) -> None:
        before = self.progress[event.job_id]
        done_s = self._work_at(event.job_id, at_s)
        lost_s = done_s - event.work_s
        story = f"job {event.job_id} exited ({event.exit}) with {event.work_s} of {done_s} s"
        if event.exit is Exit.NODE_LOST:
            expect(lost_s <= self.checkpoint_s * self.rate_max + EPSILON, f"{story}: more than a checkpoint lost")
            expect(event.work_s >= before.kept_s - EPSILON, f"{story}: {before.kept_s} s were safe")
        elif event.exit is Exit.PREEMPTED:
            expect(abs(lost_s) <= EPSILON, f"{story}: a graceful stop loses nothing")
        expect(lost_s >= -EPSILON, f"{story}: work from nowhere")
        if event.exit not in (Exit.NODE_LOST, Exit.PREEMPTED):
            self.over.add(event.job_id)
        self.progress[event.job_id] = JobProgress(event.work_s)

    def _is_ended(self, job: Job) -> bool:
        """True if its group ended it, or one around that, or one that it needed. That group may have restarted since,
        and no longer knows the job: the job has the reason."""
        if job.state is not JobState.STOPPED:
            return False
        groups = self.state.groups
        needed = [f"needs {groups[name].spec.name or name}, which ended as" for name in job.spec.needs_groups]
        ref = job.spec.group
        while ref is not None:
            needed.append(f"{groups[ref.id].spec.title} ended: ")
            ref = groups[ref.id].spec.within
        return job.reason.startswith(tuple(needed))

    def check_done(self) -> None:
        """At the end of a run in which nothing is away for ever and every job ends: everything that could run has
        finished, and only jobs that wait for one that never will are left."""
        jobs = self.state.jobs
        never = {job.id for job in jobs.values() if job.state is JobState.UNRUNNABLE or self._is_ended(job)}
        for job in jobs.values():  # a job comes after those it needs, or waits for ever
            if any(name in never or name not in jobs for name in job.spec.needs):
                never.add(job.id)
            groups = [self.state.groups[name] for name in job.spec.needs_groups]
            if any(not group.has_ended or group.outcome is not JobState.SUCCEEDED for group in groups):
                never.add(job.id)
        left = [job for job in jobs.values() if job.state is not JobState.SUCCEEDED and job.id not in never]
        expect(not left, f"the run is over, but {left} could have run")


def told(number: float | None) -> float:
    """A simulator knows the progress and the speed of jobs."""
    expect(number is not None, "a simulator did not report the progress or the speed of a job")
    return number or 0.0
