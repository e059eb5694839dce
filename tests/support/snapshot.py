"""All content of a state as plain values: two states are the same if their snapshots are equal."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from skep.core.cluster import Cluster, Pool
from skep.core.job import Job
from skep.core.memory import values_of
from skep.core.model import shown_to
from skep.core.state import State


def snapshot(state: State) -> dict[str, Any]:
    names = {id(waiting): scope for scope, waiting in state.waiting.items()}
    return {
        "now_s": state.now_s,
        "wake_s": state.wake_s,
        "timers": state.timers.all(),
        "memory": msgspec.msgpack.decode(msgspec.msgpack.encode(values_of(state.memory))),  # as it is stored
        "cluster": snapshot_cluster(state.cluster),
        "jobs": {job.id: snapshot_job(job, names) for job in state.jobs.values()},
        "waiting": {
            scope: (waiting.cause, waiting.since_s, waiting.quota_s, waiting.fragmentation_s)
            for scope, waiting in state.waiting.items()
        },
        "leaving": list(state.orders.leaving),
        "moving": list(state.orders.moving),
        "held_jobs": list(state.held_jobs),
        "settings": list(state.orders.settings),
        "dirty": [job.id for job in state.orders.dirty.values()],
        "needed_by": {name: [job.id for job in jobs] for name, jobs in state.needed_by.items()},
        "groups": [copy.deepcopy(group) for group in state.groups.values()],
        "trigger": snapshot_trigger(state),
        "nodes": (sorted(state.health.lost), sorted(state.health.drained), state.health.changes, state.health.others),
        "knowledge": msgspec.to_builtins(state.known.saved()),
        "counts": (state.submitted_count, state.pending_count, state.event_count, state.decision_count),
    }


def snapshot_trigger(state: State) -> tuple[Any, ...]:
    trigger = state.trigger
    lists = (trigger.submitted, trigger.withdrawn, trigger.returned, trigger.ended)  # `started` does not count
    return (*([job.id for job in jobs] for jobs in lists), trigger.nodes_changed, trigger.is_timer)


def snapshot_job(job: Job, names: dict[int, str]) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in Job.__slots__}
    values["spec"] = shown_to(frozenset(), job.spec)  # what a planner may read of it is not part of the state
    values["waiting"] = names[id(job.waiting)] if job.waiting is not None else None
    return values


def snapshot_cluster(cluster: Cluster) -> dict[str, Any]:
    """Every number and every index; masks and lists unchanged, so that any difference shows."""
    return {
        "nodes": [
            (
                node.name,
                node.free,
                node.free_mask,
                node.cpu_free,
                sorted(node.extras_free.items()),
                node.memory_free,
                node.is_up,
                dict(node.holders),
                dict(node.terms),
                dict(node.shares),
            )
            for node in cluster.nodes
        ],
        "pools": [
            (pool.free, pool.up, pool.total, list(pool.by_free), dict(pool.idle), shared_index(pool))
            for pool in cluster.pools
        ],
    }


def shared_index(pool: Pool) -> tuple[Any, ...]:
    pool.follow()
    buckets = {milli: dict(sorted(bucket.items())) for milli, bucket in enumerate(pool.shared) if bucket}
    counts = {milli: count for milli, count in enumerate(pool.shared_counts) if count}
    roomiest = {milli: left_mib for milli, left_mib in enumerate(pool.roomiest) if left_mib >= 0}
    return buckets, counts, roomiest, [top for top in pool.tops if top >= 0], pool.shared_milli
