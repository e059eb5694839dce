"""The present cluster: the tenants of each GPU, the use of each VC, the queue. Read under the writer's lock, and
quickly.

Readers that may see only some VCs see the whole hardware, and of other VCs' jobs only that GPUs are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from skep.core.cluster import GONE, UNLIMITED, WHOLE, Cell, Cluster, Node, bits
from skep.core.fragments import Fragments, typical_tasks
from skep.core.job import Job, JobState
from skep.core.memory import LENT, Memory
from skep.core.state import State
from skep.metrics.quantile import quantile
from skep.policies.registry import Setting, build_planner
from skep.service.book import PENDING, Record
from skep.service.commands import check_node
from skep.service.queries import last_seq, state_counts, waits
from skep.service.spent import NOTHING, spent
from skep.service.store import JobFilter
from skep.service.values import Json
from skep.service.writer import Writer

if TYPE_CHECKING:
    from skep.service.reads import Reads

DAY_S = 86400.0
HIDDEN = "other"
"""In place of the id of a job that the reader may not see."""
FREE, SHARED = -1, -2
"""In the map, in place of the index of a job."""


def jobs_of(writer: Writer, record: Record) -> list[Job]:
    """The job in the state; None if it is just being submitted."""
    jobs = writer.state.jobs
    return [jobs[name] for name in record.members if name in jobs]


def holders(writer: Writer) -> Iterator[tuple[Record, Job]]:
    """Jobs that hold part of the cluster."""
    for record in writer.book.records.values():
        if record.row.state != PENDING:
            yield from ((record, job) for job in jobs_of(writer, record) if job.held is not None)


def borrowers(writer: Writer) -> dict[int, Job]:
    return {job.seq: job for _, job in holders(writer) if LENT.get(writer.state.memory, job.id)}


def node_state(name: str, state: State) -> str:
    if name in state.health.lost:
        return "lost"
    is_drained = name in state.health.drained or name in state.health.conditions or name in state.health.changes
    return "drained" if is_drained else "up"


# Nodes --------------------------------------------------------------------------------------------------------------


def nodes(reads: Reads) -> list[Json]:
    with reads.lock:
        state = reads.writer.state
        tenants: dict[int, list[Json]] = {}
        for record, job in holders(reads.writer):
            is_seen = reads.sight.sees(record.row.vc)
            whose = {"job": record.id if is_seen else HIDDEN, "name": record.row.name if is_seen else ""}
            assert job.held is not None
            for piece in job.held.slices:
                tenants.setdefault(piece.node, []).extend(
                    {**whose, "gpu": gpu, "milli": piece.milli, "gpu_mem_mib": piece.gpu_mem_mib}
                    for gpu in bits(piece.gpus)
                )
        found = [shown_node(node, state, tenants.get(node.index, [])) for node in state.cluster.by_name.values()]
    health = reads.engine.gpu_health()
    return [{**node, "health": health.get(node["name"], [])} for node in found]


def shown_node(node: Node, state: State, tenants: list[Json]) -> Json:
    by_gpu: list[list[str]] = [[] for _ in range(node.gpu_count)]
    for tenant in tenants:
        by_gpu[tenant["gpu"]].append(tenant["job"])
    spec = node.spec
    return {
        "name": node.name,
        "state": node_state(node.name, state),
        "gpu_type": spec.gpu_type,
        "gpus": node.gpu_count,
        "used": sum(map(bool, by_gpu)),
        "jobs": by_gpu,
        "tenants": sorted(tenants, key=lambda tenant: tenant["gpu"]),
        "cpus": limited(spec.cpu_milli, 1000),
        "cpus_free": limited(node.cpu_free, 1000, spec.cpu_milli),
        "memory_gib": limited(spec.memory_mib, 1024),
        "memory_free_gib": limited(node.memory_free, 1024, spec.memory_mib),
        "within": [{"level": level, "name": name} for level, name in spec.within],
    }


def limited(amount: int, unit: int, of: int | None = None) -> float | None:
    return None if (amount if of is None else of) == UNLIMITED else amount / unit


# VCs ----------------------------------------------------------------------------------------------------------------


class VcBook(msgspec.Struct):
    """What the jobs of one VC hold and request."""

    gpus: int = 0
    policy: str = ""
    used: float = 0
    borrowed: float = 0
    pending: int = 0
    pending_gpus: float = 0
    running: int = 0


def vc_books(writer: Writer) -> dict[str, VcBook]:
    """For all VCs; under the lock."""
    ground = writer.ground
    total = writer.state.cluster.gpu_total
    books = {name: VcBook(gpus, ground.own_policy(name) or ground.policy) for name, gpus in ground.guaranteed().items()}
    borrows = borrowers(writer)
    for record in writer.book.records.values():
        book = books.get(record.row.vc)
        if book is None:
            book = books[record.row.vc] = VcBook(total, ground.policy)
        is_pending = record.row.state == PENDING
        book.pending += is_pending
        book.running += not is_pending
        for job in jobs_of(writer, record):
            if job.state is JobState.PENDING:
                book.pending_gpus += job.gpus
            elif job.held is not None:
                if job.seq in borrows:
                    book.borrowed += job.held.gpus
                else:
                    book.used += job.held.gpus
    return books or {"default": VcBook(total, ground.policy)}


def lent_by(books: dict[str, VcBook], total: int) -> dict[str, float]:
    """Which VC lends a GPU is undetermined until one takes its own back; so borrowed GPUs are divided in proportion to
    what is idle, including GPUs that no VC owns."""
    borrowed = sum(book.borrowed for book in books.values())
    idle = {name: max(book.gpus - book.used, 0.0) for name, book in books.items()}
    unowned = max(total - sum(book.gpus for book in books.values()), 0)
    whole = sum(idle.values()) + unowned
    return {name: round(borrowed * each / whole, 3) if borrowed and whole else 0.0 for name, each in idle.items()}


def vcs(reads: Reads) -> list[Json]:
    with reads.lock:
        books = vc_books(reads.writer)
        total = reads.writer.state.cluster.gpu_total
    lent = lent_by(books, total)
    return [
        {
            "name": name,
            "gpus": book.gpus,
            "used": book.used,
            "borrowed": book.borrowed,
            "lent": lent[name],
            "pending": book.pending,
            "running": book.running,
            "policy": book.policy,
        }
        for name, book in sorted(books.items())
        if reads.sight.sees(name)
    ]


# The whole ----------------------------------------------------------------------------------------------------------


class Sample(msgspec.Struct):
    """The numbers of one moment."""

    gpus: int
    used: float
    lent: float
    bad: int
    drained: int
    vcs: dict[str, VcBook]


def sample(writer: Writer) -> Sample:
    """Under the lock."""
    state = writer.state
    books = vc_books(writer)
    counts = {name: node.gpu_count for name, node in state.cluster.by_name.items()}
    return Sample(
        gpus=state.cluster.gpu_total,
        used=sum(book.used + book.borrowed for book in books.values()),
        lent=sum(book.borrowed for book in books.values()),
        bad=sum(counts.get(name, 0) for name in state.health.lost),
        drained=sum(
            counts.get(name, 0)
            for name in {*state.health.drained, *state.health.conditions, *state.health.changes} - state.health.lost
        ),
        vcs=books,
    )


class IdleShown(msgspec.Struct):
    """Idle GPUs and parts of GPUs on nodes that are up, and the part of them that typical jobs cannot use."""

    gpus: float
    fragments: float


def idle(reads: Reads) -> IdleShown:
    """Fragments are measured by what the latest jobs asked for (`core/fragments.py`, `core/requests.py`)."""
    with reads.lock:
        state = reads.writer.state
        latest = state.known.requests.shapes()
        size_max = max((pool.size_max for pool in state.cluster.pools), default=0)
        nodes = Counter(
            (node.spec.gpu_type, node.cpu_free, node.free, tuple(sorted(left for _, left in node.parts() if left)))
            for node in state.cluster.nodes
            if node.is_up and node.gpu_count
        )
    fragments = Fragments(typical_tasks(latest, size_max))
    milli = sum(count * (free * WHOLE + sum(parts)) for (_, _, free, parts), count in nodes.items())
    found = sum(count * fragments.of(*kind) for kind, count in nodes.items())
    return IdleShown(round(milli / WHOLE, 3), round(found / (WHOLE * fragments.scale), 3))


def overview(reads: Reads) -> Json:
    now_s = reads.clock()
    seq = last_seq(reads.store)
    with reads.lock:
        now = sample(reads.writer)
        ground, cluster = reads.writer.ground, reads.writer.state.cluster
        free = cluster.free_gpus()
        pending = [
            (record.row.seq, record.row.submit_s)
            for record in reads.writer.book.records.values()
            if record.row.state == PENDING and reads.sight.sees(record.row.vc)
        ]
        node_count = len(cluster.by_name)
    counts = state_counts(reads.store, JobFilter(sight=reads.sight))
    unused = idle(reads)
    had = spent(reads.store, (seq for seq, _ in pending), now_s)
    so_far = [now_s - submit_s - had.get(seq, NOTHING).ran_s for seq, submit_s in pending]
    return {
        "at_s": now_s,
        "seq": seq,
        "name": ground.name,
        "policy": ground.policy,
        "gpus": now.gpus,
        "used": now.used,
        "free": free,
        "idle_gpus": unused.gpus,
        "fragment_gpus": unused.fragments,
        "lent": now.lent,
        "bad": now.bad,
        "drained": now.drained,
        "nodes": node_count,
        "queue_gpus": sum(book.pending_gpus for name, book in now.vcs.items() if reads.sight.sees(name)),
        "jobs": counts,
        "waiting": quantiles(waits(reads.store, now_s - DAY_S, reads.sight)),
        "waiting_now": quantiles(so_far),
    }


def quantiles(seconds: list[float]) -> Json:
    ordered = sorted(max(each, 0.0) for each in seconds)
    if not ordered:
        return {"jobs": 0, "p50_s": None, "p90_s": None, "max_s": None}
    found = {"p50_s": quantile(ordered, 0.5), "p90_s": quantile(ordered, 0.9), "max_s": ordered[-1]}
    return {"jobs": len(ordered), **{name: round(value, 3) for name, value in found.items()}}


# The map ------------------------------------------------------------------------------------------------------------


def cluster_map(reads: Reads) -> Json:
    now_s, seq = reads.clock(), last_seq(reads.store)
    with reads.lock:
        cluster, state = reads.writer.state.cluster, reads.writer.state
        cells = MapCells()
        firsts: list[int] = []
        shown: list[Json] = []
        total = 0
        for node in cluster.nodes:
            firsts.append(total)
            if node.spec == GONE:
                continue
            shown.append(
                {
                    "name": node.name,
                    "state": node_state(node.name, state),
                    "gpu_type": node.spec.gpu_type,
                    "cell": cells.place(node.cell.parent),
                    "first": total,
                    "gpus": node.gpu_count,
                    "inner": [size for _, size in node.spec.inner],
                }
            )
            total += node.gpu_count
        jobs, gpus, shares = map_jobs(reads, firsts, total)
    return {
        "at_s": now_s,
        "seq": seq,
        "cells": cells.rows,
        "nodes": shown,
        "jobs": jobs,
        "gpus": gpus,
        "shares": shares,
    }


def map_jobs(reads: Reads, firsts: list[int], total: int) -> tuple[list[Json], list[int], list[dict[str, int]]]:
    """The jobs that hold GPUs, the single tenant of each GPU, and the tenants of shared ones."""
    jobs: list[Json] = []
    places: dict[str, int] = {}
    gpus = [FREE] * total
    shares: list[dict[str, int]] = []
    borrows = borrowers(reads.writer)
    for record, job in holders(reads.writer):
        row = record.row
        is_seen = reads.sight.sees(row.vc)
        place = places.get(row_id := record.id if is_seen else HIDDEN)
        if place is None:
            place = places[row_id] = len(jobs)
            jobs.append(
                {
                    "id": row_id,
                    "name": row.name if is_seen else "",
                    "vc": row.vc if is_seen else "",
                    "user": row.user if is_seen else "",
                    "state": row.state,
                    "lent": is_seen and job.seq in borrows,
                }
            )
        assert job.held is not None
        for piece in job.held.slices:
            for gpu in bits(piece.gpus):
                number = firsts[piece.node] + gpu
                if piece.milli >= 1000 and gpus[number] == FREE:
                    gpus[number] = place
                else:  # shared, or for a moment held by two: one that exits and one that starts
                    if gpus[number] >= 0:
                        shares.append({"gpu": number, "job": gpus[number], "milli": 1000})
                    gpus[number] = SHARED
                    shares.append({"gpu": number, "job": place, "milli": piece.milli})
    return jobs, gpus, shares


class MapCells:
    """The cells above the nodes, each once, a parent before its children."""

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self._places: dict[int, int] = {}

    def place(self, cell: Cell | None) -> int:
        if cell is None or cell.parent is None:  # the outermost one is the cluster itself
            return -1
        found = self._places.get(id(cell))
        if found is None:
            parent = self.place(cell.parent)
            found = self._places[id(cell)] = len(self.rows)
            self.rows.append({"level": cell.level, "name": cell.name, "parent": parent})
        return found


# Draining -----------------------------------------------------------------------------------------------------------


def drain_preview(reads: Reads, name: str) -> Json:
    with reads.lock:
        writer = reads.writer
        check_node(writer, name)
        state = writer.state
        node = state.cluster.by_name[name]
        there = {
            record.id
            for record, job in holders(writer)
            if job.held is not None and any(piece.node == node.index for piece in job.held.slices)
        }
        up = [each for each in state.cluster.by_name.values() if node_state(each.name, state) == "up"]
        stuck = stuck_without(writer, up, node)
        shown = {
            "node": name,
            "state": node_state(name, state),
            "gpus": node.gpu_count,
            "idle": node.free_mask.bit_count(),
            "gpus_left": sum(each.gpu_count for each in up if each is not node),
        }
    rows = reads.rows([*there, *stuck])
    return {
        **shown,
        "jobs": [row for row in rows if row["id"] in there],
        "unrunnable": [row for row in rows if row["id"] in stuck],
    }


def stuck_without(writer: Writer, up: list[Node], node: Node) -> set[str]:
    """Pending jobs that could run on the nodes that are up, but not without this one."""
    without, whole = ([each for each in up if each is not node], [*up, *([] if node in up else [node])])
    could, will = possible(whole), possible(without)
    found: set[str] = set()
    for record in writer.book.records.values():
        for job in jobs_of(writer, record)[:1] if record.row.state == PENDING else ():
            if not will(job) and could(job):
                found.add(record.id)
    return found


def possible(nodes: list[Node]) -> Callable[[Job], bool]:
    """True if the job would fit on these nodes if they were empty."""
    if not nodes:
        return lambda job: False
    trial = State(Cluster([node.spec for node in nodes]))
    planner = build_planner("fifo", Setting(trial.cluster))
    planner.attach(trial, Memory())
    return lambda job: not planner.why_never(trial, job)
