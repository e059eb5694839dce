"""`skep up --cluster` and `--policy` on a store that has others: they replace the stored ones before anything runs.

A stored policy that can no longer be read (its file is gone) must not prevent the replacement. Jobs on nodes that the
new cluster does not have lose them, as if the machine had died, and are pending again.
"""

from __future__ import annotations

from skep.core.errors import Conflict
from skep.core.events import ClusterChanged, Event, Exit, NodeDrained, NodeUndrained, PolicyChanged, TasksExited
from skep.core.job import Job
from skep.service import commands
from skep.service.receive import Received
from skep.service.turn import Turn
from skep.service.writer import Writer

KEEP = "`skep up` without --cluster continues with the stored one"


def override(writer: Writer, cluster: tuple[str, str] | None, policy: str | None, now_s: float) -> None:
    """All of it or nothing: if refused, the store is unchanged."""
    events = _changes(writer, cluster, policy)
    if not events:
        return
    turn = Turn(max(now_s, writer.state.now_s))
    text = f"{_described(events)} instead of {writer.ground.name}, {writer.ground.policy}"
    with writer.lock:
        undrained = _make_room(writer, turn, events)
        steps = [writer.with_nodes(event) if isinstance(event, ClusterChanged) else [event] for event in events]
        writer.step(turn, [each for group in steps for each in group], None)
        if undrained:
            writer.step(turn, undrained, None)
    turn.notify("started-with", text)
    writer.store.commit(turn.writes)


def _changes(
    writer: Writer, cluster: tuple[str, str] | None, policy: str | None
) -> list[ClusterChanged | PolicyChanged]:
    ground = writer.ground
    events: list[ClusterChanged | PolicyChanged] = []
    if cluster is not None:
        made = commands.make_cluster(cluster[1], cluster[0])
        if (made.text, made.files) != (ground.text, ground.files.get("cluster", {})):
            events.append(made)
    there = ground.after(*events)[1] or writer.state.cluster
    if policy is not None:
        chosen = commands.make_policy(policy, there)
        if (chosen.policy, chosen.files) != (ground.policy, ground.files.get("policy", {})):
            events.append(chosen)
    ground.after(*events)[0].planner(there)
    return events


def _described(events: list[ClusterChanged | PolicyChanged]) -> str:
    names = [event.name if isinstance(event, ClusterChanged) else event.policy for event in events]
    return ", ".join(commands.described(name, event.files) for name, event in zip(names, events, strict=True))


def _make_room(writer: Writer, turn: Turn, events: list[ClusterChanged | PolicyChanged]) -> list[Event]:
    """Remove the jobs in the way from their nodes, and keep others away until the cluster is changed. Returns what to
    do after that."""
    ground, cluster = writer.ground.after(*events)
    if cluster is None:
        return []
    try:
        commands.refuse_orphans(writer, ground.layout)
    except Conflict as error:
        raise Conflict(str(error), hint=KEEP) from None
    found = commands.in_the_way(writer, cluster)
    if not found:
        return []
    names = sorted({name for _, name in found} - writer.state.health.drained)
    received = [_lost(job, name) for job, name in {job.seq: (job, name) for job, name in found}.values()]
    exits = [event for each in received for event in each.events]
    writer.step(turn, [*exits, *(NodeDrained(name) for name in names)], received)
    for job, name in commands.in_the_way(writer, cluster):
        raise Conflict(f"job {job.id} is starting on node {name}, which --cluster does not have", hint=KEEP)
    return [NodeUndrained(name) for name in names if name in cluster.by_name]


def _lost(job: Job, node: str) -> Received:
    event = TasksExited(job.id, Exit.NODE_LOST, job.work_s, job.held_launch)
    return Received([event], job.id, job.held_launch, f"its node {node} is not in the new cluster, or has less")
