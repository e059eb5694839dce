"""The common part of all placements: the interface, and how tasks become an allocation.

Placements differ in which nodes they prefer, and in whether a gang must sit on as few nodes as possible (`consolidate`,
`first-fit`) or its tasks are placed one by one (`any`, `best-fit`, `spread`, `random`). Most jobs request whole GPUs
and nothing else: for these, numbers of free GPUs are enough (`plain`). For the others the general way checks CPUs,
memory and shares node by node.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, NamedTuple

from skep.core.cluster import WHOLE, Allocation, Slice, bits, lowest_bits
from skep.core.model import Extras, Role, Shape
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.share import EXCLUSIVE, MODES
from skep.core.standstill import Standstills
from skep.core.tasks import needs, times
from skep.core.view import ClusterView, JobView, NodeView, PoolView, View
from skep.policies.order.base import check_traits

Picks = list[tuple[NodeView, int]]
"""Nodes, and the number of tasks on each."""

PAIRED = ("alone", "together", "lanes")
"""Rate models of share modes in which the speed of a job depends on who its neighbours are."""


class Place:
    """Chooses the cells of a job. Subclasses implement plain requests (`plain`) and the preference among nodes
    (`prefer`)."""

    name = ""
    needs_free = True
    """True if a job gets only free GPUs."""

    has_keys: ClassVar[bool] = False
    """Jobs of one shape may differ in where they fit (`key`);"""
    jumps: ClassVar[bool] = False
    """such a key changes by itself (`changes_at`)."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_traits(cls, Place, {"key": "has_keys", "changes_at": "jumps"})

    needs: frozenset[Need] = frozenset()
    """What it reads of `view.knowledge`."""

    standstills = Standstills(None)
    """Where jobs make no progress, as the planner knows it."""
    jobs: Mapping[int, JobView] = {}
    """The jobs that have not ended, by seq."""

    def attach(self, view: View) -> None:
        """The planner's view, for what is to be known beside cells."""
        self.standstills, self.jobs = view.knowledge.standstills, view.open_jobs

    def keeps_together(self, job: JobView, now_s: float) -> bool:
        """True if this gang sits on as few nodes as possible or waits."""
        return False

    def find(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        """Where the job could run now in this shape; cluster and plan are left unchanged."""
        found = self.seek(cluster, plan, job, shape, now_s)
        if found is not None and shape.gpu_milli < WHOLE and self.standstills.are_known:
            found = self._beside_others(cluster, plan, job, shape, now_s, found)
        return found if found is None or plan.allows(found) else None

    def _beside_others(
        self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float, found: Allocation | None
    ) -> Allocation | None:
        """Seek again without the GPUs on which it, or a job there, would make no progress."""
        mark = plan.mark()
        while found is not None and not found.mode():
            nodes = [(cluster.nodes[piece.node], piece.gpus) for piece in found.slices]
            still = [(node, gpu) for node, mask in nodes for gpu in bits(mask) if self.stands_still(job, node, gpu)]
            if not still:
                break
            for node, gpu in still:
                plan.reserve(Allocation((Slice(node.index, 1 << gpu, milli=node.milli_left(gpu)),), 0))
            found = self.seek(cluster, plan, job, shape, now_s)
        plan.rollback(mark)
        return found

    def stands_still(self, job: JobView, node: NodeView, gpu: int) -> bool:
        """True if the job, or one that runs on this GPU at the same time, would make no progress beside the other."""
        for tenant in node.tenants(gpu):
            other = self.jobs.get(tenant.owner)
            is_beside = tenant.limit and MODES[tenant.mode or EXCLUSIVE].rate in PAIRED
            if other is None or other is job or not is_beside:
                continue
            if not self.standstills.go_together(job.spec, other.spec, node.pool.gpu_type):
                return True
        return False

    def seek(self, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float) -> Allocation | None:
        """Free cells that this placement would choose."""
        if not shape.is_plain:
            return find_general(self, cluster, plan, job, shape, now_s)
        count, types = shape.gpus, shape.gpu_types
        for pool in cluster.pools_for(types) if types else cluster.pools:
            if pool.free >= count:
                picks = self.plain(cluster, pool, count, job)
                if picks is not None:
                    return plain_allocation(picks, count)
        return find_general(self, cluster, plan, job, shape, now_s) if shape.spans_types else None

    def plain(self, cluster: ClusterView, pool: PoolView, count: int, job: JobView) -> Picks | None:
        """`count` whole GPUs of a pool that has that many free."""
        raise NotImplementedError

    def prefer(self, cluster: ClusterView, pool: PoolView, job: JobView, among: int) -> Iterator[NodeView]:
        """These nodes of the pool (bits; none that is down), preferred first."""
        raise NotImplementedError

    def trials(self) -> AbstractContextManager[None]:
        """While jobs are explained it also finds what only adjusters may give to jobs."""
        return nullcontext()

    def reach(self, job: JobView, shape: Shape, free: int) -> tuple[int, str]:
        """How many of the free GPUs the job may use, and why not the others: words that follow the number."""
        return free, ""

    def key(self, job: JobView, now_s: float) -> Hashable:
        """Jobs of one shape with the same key fit, or do not fit, together."""
        return 0

    def changes_at(self, job: JobView, now_s: float) -> float:
        """When the key of this pending job changes by itself."""
        return math.inf


def plain_allocation(picks: Picks, count: int) -> Allocation:
    slices = []
    for node, tasks in picks:
        slices.append(Slice(node.index, node.pick(tasks), tasks=tasks))
    return Allocation(tuple(slices), count)


def nodes_of(cluster: ClusterView, mask: int) -> Iterator[NodeView]:
    nodes = cluster.nodes
    for index in bits(mask):
        yield nodes[index]


def find_general(
    place: Place, cluster: ClusterView, plan: Plan, job: JobView, shape: Shape, now_s: float
) -> Allocation | None:
    """Place role after role; each sees the reservations of those before it."""
    pools = cluster.pools_for(shape.gpu_types if shape.gpus else ())
    groups: list[Sequence[PoolView]] = [[pool] for pool in pools]
    if shape.spans_types or not shape.gpus:
        groups.append(pools)
    is_together = place.keeps_together(job, now_s)
    for group in groups:
        search = Search(place, cluster, plan, job, group, is_together)
        placed: list[Allocation] = []
        mark = plan.mark()
        for number, role in enumerate(shape.roles):
            slices = place_role(search, role, number)
            if slices is None:
                break
            part = Allocation(tuple(slices), role.count * role.gpus * role.gpu_milli / WHOLE)
            plan.reserve(part)
            placed.append(part)
        plan.rollback(mark)
        if len(placed) == len(shape.roles):
            slices = [piece for part in placed for piece in part.slices]
            amount = sum(part.gpus for part in placed)
            return Allocation(tuple(slices), int(amount) if amount == int(amount) else amount)
    return None


class Search(NamedTuple):
    """Where the roles of a job are placed, and how."""

    place: Place
    cluster: ClusterView
    plan: Plan
    job: JobView
    pools: Sequence[PoolView]
    is_together: bool

    def prefer(self, pool: PoolView, among: int) -> Iterator[NodeView]:
        """These nodes of the pool (bits), preferred first."""
        return self.place.prefer(self.cluster, pool, self.job, among)


def place_role(search: Search, role: Role, number: int) -> list[Slice] | None:
    if role.gpus and role.gpu_milli < WHOLE:
        return place_shares(search, role, number)
    pools = search.pools
    if role.gpus and sum(pool.free for pool in pools) < role.count * role.gpus:
        return None
    nodes = [node for pool in pools for node in search.prefer(pool, pool.having(role.gpus))]
    picks = together(nodes, role) if search.is_together else one_by_one(nodes, role)
    if picks is None:
        return None
    gpu_mem_mib = needs(role)[2]
    return [role_slice(node, role, number, tasks, node.pick(tasks * role.gpus, gpu_mem_mib)) for node, tasks in picks]


def together(nodes: list[NodeView], role: Role) -> Picks | None:
    """All tasks on one node; else whole idle nodes, largest first, plus one node for the rest."""
    rest = role.count
    for node in nodes:
        if capacity(node, role) >= rest:
            return [(node, rest)]
    picks: Picks = []
    idle = [node for node in nodes if is_idle(node) and capacity(node, role)]
    for node in sorted(idle, key=lambda node: -capacity(node, role)):
        if capacity(node, role) > rest:
            continue
        picks.append((node, capacity(node, role)))
        rest -= capacity(node, role)
        if not rest:
            return picks
    used = {node.index for node, _ in picks}
    for node in nodes:
        if node.index not in used and capacity(node, role) >= rest:
            return [*picks, (node, rest)]
    return None


def one_by_one(nodes: list[NodeView], role: Role) -> Picks | None:
    picks: Picks = []
    rest = role.count
    for node in nodes:
        tasks = min(capacity(node, role), rest)
        if tasks:
            picks.append((node, tasks))
            rest -= tasks
            if not rest:
                return picks
    return None


def place_shares(search: Search, role: Role, number: int) -> list[Slice] | None:
    """Each task takes its part of `role.gpus` GPUs of one node. Tasks that stay apart take parts of different GPUs: all
    on one node if they are to sit together and a node is large enough."""
    tasks, size = 1, max((pool.size_max for pool in search.pools), default=0)
    if role.is_apart and search.is_together and role.count * role.gpus <= size:
        tasks = role.count
    taken: list[Allocation] = []
    plan, mark = search.plan, search.plan.mark()
    used: dict[int, int] = {}
    """GPUs of each node that the role may not take again."""
    for _ in range(role.count // tasks):
        found = gpus_with_room(search, role, tasks, used)
        if found is None:
            break
        node, mask = found
        part = Allocation((role_slice(node, role, number, tasks, mask),), 0)
        plan.reserve(part)
        taken.append(part)
        if role.is_apart:
            used[node.index] = used.get(node.index, 0) | mask
    plan.rollback(mark)
    return [part.slices[0] for part in taken] if len(taken) * tasks == role.count else None


def gpus_with_room(search: Search, role: Role, tasks: int, used: dict[int, int]) -> tuple[NodeView, int] | None:
    """A node and the mask of its GPUs for this many tasks: the fullest shared ones that fit, then idle ones."""
    count, gpu_mem_mib = tasks * role.gpus, needs(role)[2]
    roomy: dict[int, int] = {}
    """The shared GPUs of each node with enough left."""
    for pool in search.pools:
        for node, shared in pool.shares(role.gpu_milli, gpu_mem_mib):
            if has_books(node, role, tasks):
                before = roomy.get(node.index, 0)
                found = shared & ~used.get(node.index, 0)
                mask = before | lowest_bits(found, min(count - before.bit_count(), found.bit_count()))
                if mask.bit_count() == count:
                    return node, mask
                roomy[node.index] = mask
    for pool in search.pools:
        among = pool.having(count)
        for index, mask in roomy.items():
            node = search.cluster.nodes[index]
            if node.pool is pool and node.free + mask.bit_count() >= count:
                among |= node.bit
        for node in search.prefer(pool, among) if among else ():
            mask = roomy.get(node.index, 0)
            missing, free_mask = count - mask.bit_count(), node.free_with(gpu_mem_mib)
            if free_mask.bit_count() >= missing and has_books(node, role, tasks):
                return node, mask | lowest_bits(free_mask, missing)
    return None


def capacity(node: NodeView, role: Role) -> int:
    """The number of tasks of this role that would fit on the node now."""
    if not has_tags(node, role.tags):
        return 0
    cpu_milli, memory_mib, gpu_mem_mib = needs(role)
    limits = [role.count]
    if role.gpus:
        limits.append(node.free_with(gpu_mem_mib).bit_count() // role.gpus)
    if cpu_milli:
        limits.append(node.cpu_free // cpu_milli)
    if memory_mib:
        limits.append(node.memory_free // memory_mib)
    limits += [node.extras_free.get(name, 0) // count for name, count in role.extras]
    return min(limits)


def has_books(node: NodeView, role: Role, tasks: int) -> bool:
    cpu_milli, memory_mib, _ = needs(role)
    is_enough = cpu_milli * tasks <= node.cpu_free and memory_mib * tasks <= node.memory_free
    return is_enough and has_tags(node, role.tags) and has_extras(node, times(role.extras, tasks))


def has_tags(node: NodeView, needed: tuple[str, ...]) -> bool:
    return not needed or bool(node.pool.tagged(needed) & node.bit)


def has_extras(node: NodeView, extras: Extras) -> bool:
    return not extras or all(count <= node.extras_free.get(name, 0) for name, count in extras)


def is_idle(node: NodeView) -> bool:
    spec = node.spec
    is_free = node.free == node.gpu_count and node.cpu_free == spec.cpu_milli and node.memory_free == spec.memory_mib
    return is_free and (not spec.extras or node.extras_free == dict(spec.extras))


def role_slice(node: NodeView, role: Role, number: int, tasks: int, mask: int) -> Slice:
    cpu_milli, memory_mib, gpu_mem_mib = needs(role)
    return Slice(
        node.index,
        mask,
        milli=role.gpu_milli if role.gpus else WHOLE,
        gpu_mem_mib=gpu_mem_mib,
        cpu_milli=cpu_milli * tasks,
        memory_mib=memory_mib * tasks,
        role=number,
        tasks=tasks,
        extras=times(role.extras, tasks) if role.extras else (),
    )
