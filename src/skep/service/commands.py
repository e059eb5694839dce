"""The commands of the writer. Each checks first and adds its events last, so that a refused command changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from skep.clusters.read import read_text
from skep.clusters.spec import LIVE
from skep.core.cells.layout import Layout
from skep.core.cluster import UNLIMITED, Allocation, Cluster, Node, NodeSpec, Slice
from skep.core.errors import Conflict, InputError, InvariantBroken, NotFound, did_you_mean
from skep.core.events import (
    ClusterChanged,
    Event,
    GroupFormed,
    JobHeld,
    JobSubmitted,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    PolicyChanged,
    PriorityChanged,
    Solved,
    StopRequested,
)
from skep.core.job import Job, JobState
from skep.core.model import JobSpec
from skep.files.text import Texts
from skep.jobs.core import PODS, Needed, groups_of, says_more, task_name, to_core
from skep.jobs.request import Request
from skep.policies.registry import Setting, parse_policy
from skep.policies.shared.build import build_whole
from skep.service.beyond import refuse_beyond
from skep.service.book import LIMIT, Record, new_row
from skep.service.planning import error_text
from skep.service.searches import refuse_running
from skep.service.sight import EVERYTHING, Sight
from skep.service.turn import NotYet, Turn

if TYPE_CHECKING:
    from skep.service.writer import Writer

TASKS_MAX = 200_000
"""The most tasks of one submission."""

Prepare = Callable[["Writer", Turn], object]


def submit(requests: list[Request], who: str, key: str, sight: Sight = EVERYTHING) -> Prepare:
    """`sight` limits the jobs that the new ones may need."""
    data = [msgspec.json.encode(request) for request in requests]

    def prepare(writer: Writer, turn: Turn) -> list[str]:
        digest = ""
        if key:
            digest = hashlib.sha256(b"\n".join(data)).hexdigest()
            known = turn.keys.get((who, key)) or _known(writer, who, key)
            if known is not None:
                if known[0] != digest:
                    raise Conflict(f"the key {key} was used for another submission", hint="use a new Idempotency-Key")
                return known[1]
        specs = check_all(writer, turn, requests, sight)
        each_job = writer.lock.in_pieces(zip(requests, specs, data, strict=True))
        ids = [_add(writer, turn, *each, who) for each in each_job]
        turn.writes.meta["next_job"] = str(writer.next_job)
        if key:
            turn.keys[who, key] = (digest, ids)
            turn.writes.keys.append((who, key, digest, msgspec.json.encode(ids).decode(), turn.at_s))
        return ids

    return prepare


def _known(writer: Writer, who: str, key: str) -> tuple[str, list[str]] | None:
    found = writer.store.key(who, key)
    return None if found is None else (found[0], msgspec.json.decode(found[1], type=list[str]))


def check_all(writer: Writer, turn: Turn, requests: list[Request], sight: Sight) -> list[list[JobSpec]]:
    """The core's jobs of each request. Raises if one of them could never run or all together exceed a limit; then none
    is submitted."""
    found = []
    seen: set[object] = set()
    named: dict[str, Needed] = {}
    """The jobs of this submission: later ones may need earlier ones."""
    in_pods = any(PODS in node.extras_free for node in writer.state.cluster.nodes)
    refuse_many(requests)
    if any(request.of_group.search is not None for request in requests):
        refuse_running(writer, turn, requests)
    writer.limits.check(requests)
    for number, request in enumerate(writer.lock.in_pieces(requests)):
        refuse_beyond(request, writer.capabilities, writer.ground.layout)
        needs = _resolve_needs(writer, turn, request, named, sight)
        job_id = str(writer.next_job + number)
        specs = to_core(request, job_id, needs, in_pods=in_pods)
        for spec in specs:
            kind = (spec.model, spec.shapes, spec.vc, spec.pinned, spec.priority < 0, spec.min_gpus, spec.max_gpus)
            if kind not in seen:
                check_spec(writer, request, spec)
                seen.add(kind)
        found.append(specs)
        named[request.name] = Needed(jobs=(job_id,)) if request.gang else Needed(groups=(job_id,))
    return found


def refuse_many(requests: list[Request]) -> None:
    """Before anything is made of them: a few bytes may describe ten thousand jobs of ten thousand tasks."""
    tasks = sum(role.count for request in requests for role in request.tasks.values())
    if tasks > TASKS_MAX:
        raise InputError(
            f"{len(requests):,} jobs with {tasks:,} tasks, expected at most {TASKS_MAX:,} tasks at once",
            hint="submit them in parts",
        )


def check_spec(writer: Writer, request: Request, spec: JobSpec) -> None:
    layout = writer.ground.layout
    if layout is not None and spec.vc not in layout.vcs:
        hint = did_you_mean(spec.vc, layout.vcs) or f"it has {', '.join(list(layout.vcs)[:20])}"
        raise InputError(f"job {request.name}: the cluster has no virtual cluster '{spec.vc}'", hint=hint)
    if spec.pinned:
        _check_pinned(layout, request)
    with writer.lock.lent():
        never = writer.planning.why_never(spec)
    if never:
        raise InputError(f"job {request.name} can never run here: {never}", hint="`skep cluster` shows what there is")


def _check_pinned(layout: Layout | None, request: Request) -> None:
    has = layout.vcs[request.vc].pinned if layout is not None else []
    if request.pinned not in has:
        hint = did_you_mean(request.pinned, has) or (f"it has {', '.join(has[:20])}" if has else "it has none")
        raise InputError(f"job {request.name}: VC {request.vc} has no pinned cell '{request.pinned}'", hint=hint)


def _resolve_needs(writer: Writer, turn: Turn, request: Request, named: dict[str, Needed], sight: Sight) -> Needed:
    """As ids of the core; jobs that have already succeeded are left out."""
    found: list[Needed] = []
    for ref in request.needs:
        if ref in named:
            found.append(named[ref])
            continue
        seq = seq_of(writer, ref, sight)
        record = writer.book.records.get(str(seq))
        if record is not None and sight.sees(record.row.vc):
            found.append(record.needed_as)
            continue
        row = turn.row(seq, writer.store)
        if row is not None and not sight.sees(row.vc):
            row = None
        if row is None or row.state != JobState.SUCCEEDED:
            ended = "is no longer known" if row is None else f"ended as {row.state}"
            raise Conflict(f"job {request.name} needs {ref}, which {ended}")
    jobs = dict.fromkeys(name for each in found for name in each.jobs)
    return Needed(tuple(jobs), tuple(dict.fromkeys(name for each in found for name in each.groups)))


def _add(writer: Writer, turn: Turn, request: Request, specs: list[JobSpec], data: bytes, who: str) -> str:
    seq = writer.next_job
    writer.next_job += 1
    row = new_row(seq, request, specs, turn.at_s)
    writer.limits.recount(writer.book.add(row, request, specs), ())
    turn.writes.new_jobs.append((row, data))
    if not request.gang:
        names = ((spec.id, spec.group) for spec in specs)
        turn.writes.members += [(name, seq, task_name(ref)) for name, ref in names if ref is not None]
    turn.events += _new_groups(writer, turn, request, str(seq))
    held = f"by {who}" if request.hold else ""
    turn.events += [JobSubmitted(spec, held or writer.limits.hold_for(spec)) for spec in specs]
    gpus = f"{row.gpus:g} GPU{'' if row.gpus == 1 else 's'}"
    turn.notify("submitted", f"{request.name}: {gpus} in VC {row.vc}", str(seq), who)
    return str(seq)


def _new_groups(writer: Writer, turn: Turn, request: Request, job_id: str) -> list[Event]:
    """Events about its groups, if they are new. A job that only names a group adds none."""
    found: list[Event] = []
    for spec in groups_of(request, job_id):
        group = writer.state.groups.get(spec.id)
        known = turn.formed.get(spec.id) or (group.spec if group is not None and not group.has_ended else None)
        if known is None or (known != spec and says_more(request)):
            turn.formed[spec.id] = spec
            found.append(GroupFormed(spec))
    return found


def seq_of(writer: Writer, ref: str, sight: Sight = EVERYTHING) -> int:
    """The number of the job with this id, or of the latest visible job with this name."""
    if ref.isdecimal() and len(ref) < 16:
        return int(ref)
    seq = writer.store.latest(ref, sight)
    if seq is None:
        raise NotFound(f"there is no job {ref}", hint="`skep ps --all` lists them")
    return seq


def find_open(writer: Writer, turn: Turn, ref: str, to_do: str) -> Record:
    seq = seq_of(writer, ref)
    if str(seq) in turn.touched:
        raise NotYet
    record = writer.book.records.get(str(seq))
    if record is None:
        row = turn.row(seq, writer.store)
        if row is None:
            raise NotFound(f"there is no job {ref}", hint="`skep ps --all` lists them")
        raise Conflict(f"job {ref} cannot be {to_do}: it already finished ({row.state})")
    return record


def stop(ref: str, who: str, reason: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        record = find_open(writer, turn, ref, "stopped")
        why = reason or (f"stopped by {who}" if who else "stopped")
        turn.events += [StopRequested(name, why) for name in record.members]
        turn.notify("stop-requested", why, record.id, who)

    return prepare


def hold(ref: str, is_held: bool, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        record = find_open(writer, turn, ref, "held" if is_held else "released")
        _refuse_running(writer, record, "held" if is_held else "released")
        turn.events += [JobHeld(name, f"by {who}") for name in record.members] if is_held else _releases(writer, record)
        turn.notify("held" if is_held else "released", f"by {who}", record.id, who)

    return prepare


def _releases(writer: Writer, record: Record) -> list[Event]:
    """Members that wait for a limit stay held: only the limiter releases them."""
    held = [job for name in record.members if (job := writer.state.jobs[name]).hold]
    found = [writer.limits.release(job) for job in held if not job.hold.startswith(LIMIT)]
    if held and not found:
        raise Conflict(f"job {record.id} is not held, it waits for a limit", hint=f"`skep explain {record.id}`")
    return found


def reprioritise(ref: str, priority: int, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        if not -1 <= priority <= 1000:
            raise InputError(f"priority {priority} is not between -1 and 1000")
        record = find_open(writer, turn, ref, "given another priority")
        _refuse_running(writer, record, "given another priority")
        turn.events += [PriorityChanged(name, priority) for name in record.members]
        turn.notify("priority", f"from {record.row.priority} to {priority}", record.id, who)

    return prepare


def change(ref: str, who: str, priority: int | None, is_held: bool | None, tags: tuple[str, ...] | None) -> Prepare:
    """All changes or none: the first one checks what a later one would refuse."""
    wanted: list[Prepare] = []
    if priority is not None:
        wanted.append(reprioritise(ref, priority, who))
    if is_held is not None:
        wanted.append(hold(ref, is_held, who))
    if tags is not None:
        wanted.append(tag(ref, tags, who))

    def prepare(writer: Writer, turn: Turn) -> None:
        for each in wanted:
            each(writer, turn)

    return prepare


def _refuse_running(writer: Writer, record: Record, to_do: str) -> None:
    states = {writer.state.jobs[name].state for name in record.members}
    if JobState.PENDING not in states:
        raise Conflict(f"job {record.id} cannot be {to_do}: it is {record.row.state}", hint="only a pending job can")


def tag(ref: str, tags: tuple[str, ...], who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        seq = seq_of(writer, ref)
        record = writer.book.records.get(str(seq))
        row = record.row if record is not None else turn.row(seq, writer.store)
        if row is None:
            raise NotFound(f"there is no job {ref}")
        row.tags = tags
        turn.writes.jobs[seq] = row
        turn.notify("tagged", ", ".join(tags) or "no tags", str(seq), who)

    return prepare


def drain(node: str, is_drained: bool, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        check_node(writer, node)
        turn.events.append(NodeDrained(node) if is_drained else NodeUndrained(node))
        turn.notify("drained" if is_drained else "undrained", node, None, who)

    return prepare


def set_node(node: str, state: str, who: str) -> Prepare:
    """`drained`, `lost` (a virtual node, as if its machine had died) or `up`. The engine is informed after the
    write."""

    def prepare(writer: Writer, turn: Turn) -> None:
        check_node(writer, node)
        is_lost = node in writer.state.health.lost
        if state == "lost":
            turn.events += [] if node in writer.state.health.said_lost else [NodeLost(node, is_said=True)]
            turn.then.append(lambda engine, epoch: engine.lose_node(epoch, node))
            turn.notify("lost", node, None, who)
            return
        if state == "up":
            turn.events += [NodeBack(node, is_said=True)] if is_lost else []
            turn.then.append(lambda engine, epoch: engine.restore_node(epoch, node))
        drain(node, state == "drained", who)(writer, turn)

    return prepare


def check_node(writer: Writer, node: str) -> None:
    if node not in writer.state.cluster.by_name:
        hint = did_you_mean(node, writer.state.cluster.by_name) or "`skep cluster` lists the nodes"
        raise NotFound(f"there is no node {node}", hint=hint)


def use_policy(spec: str, who: str, files: Mapping[str, str] | None = None) -> Prepare:
    """`files`: texts that came with the request; others are read here."""

    def prepare(writer: Writer, turn: Turn) -> None:
        turn.alone()
        event = guarded(writer, lambda: make_policy(spec, writer.state.cluster, files))
        writer.rehearse(event)
        turn.changes.append([event])
        turn.notify("policy", f"{described(spec, event.files)} instead of {writer.ground.policy}", None, who)

    return prepare


T = TypeVar("T")


def guarded(writer: Writer, work: Callable[[], T]) -> T:
    """Run user-written policy code, which may fail in any way."""
    try:
        with writer.lock.lent():
            made: T = writer.planning.call(work)
    except InputError:
        raise
    except BaseException as error:
        raise InputError(f"the policy failed ({error_text(error)})", hint="correct it, and try again") from error
    return made


def make_policy(spec: str, cluster: Cluster, files: Mapping[str, str] | None = None) -> PolicyChanged:
    """The policy with its files. Raises if it cannot schedule real jobs."""
    texts = Texts(files)
    build_whole(spec, Setting(cluster, texts=texts), None)
    if ".py:" not in spec and parse_policy(spec)[1].get("compat"):
        raise InputError(f"policy '{spec}' imitates a simulator and cannot run jobs", hint="leave compat out")
    return PolicyChanged(spec, texts.by_path)


def make_cluster(text: str, name: str) -> ClusterChanged:
    """The cluster with the files of its VCs' own policies. Raises if they cannot schedule real jobs."""
    cluster, layout = read_text(text, name, LIVE)
    files: dict[str, str] = {}
    for vc in layout.vcs.values() if layout is not None else ():
        if vc.policy:
            try:
                files |= make_policy(vc.policy, cluster).files
            except InputError as error:
                raise InputError(f"VC {vc.name}: {error}", hint=error.hint) from None
    return ClusterChanged(name, text, files)


def described(spec: str, files: dict[str, str]) -> str:
    """A policy by its name and, if it is made of files, by the hash of their content."""
    if not files:
        return spec
    digest = hashlib.sha256("\0".join(files[path] for path in sorted(files)).encode()).hexdigest()
    return f"{spec} (sha256 {digest[:12]})"


def apply_cluster(text: str, name: str, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        turn.alone()
        event = guarded(writer, lambda: make_cluster(writer.found.fill(text), name))
        compare(writer, event)
        turn.changes.append(writer.with_nodes(event))
        turn.notify("cluster", f"{described(name, event.files)} instead of {writer.ground.name}", None, who)

    return prepare


def changes_of(writer: Writer, text: str, name: str) -> list[str]:
    """What another cluster would change, in sentences. Raises if jobs are in the way."""
    return compare(writer, guarded(writer, lambda: make_cluster(writer.found.fill(text), name)))


def compare(writer: Writer, event: ClusterChanged) -> list[str]:
    ground, cluster = writer.ground.after(event)
    assert cluster is not None
    guarded(writer, lambda: ground.planner(cluster))
    for job, node in in_the_way(writer, cluster):
        raise Conflict(
            f"job {job.id} runs on node {node}, which the new cluster does not have, or has with less",
            hint=f"`skep drain {node}` and wait, or stop the job",
        )
    refuse_orphans(writer, ground.layout)
    return _node_changes(writer, cluster) + _vc_changes(writer.ground.layout, ground.layout)


def _vc_changes(layout: Layout | None, other: Layout | None) -> list[str]:
    before = layout.vcs if layout is not None else {}
    after = other.vcs if other is not None else {}
    changes = []
    for vc in sorted({*before, *after}):
        if vc not in after:
            changes.append(f"VC {vc} goes")
        elif vc not in before:
            changes.append(f"VC {vc} comes")
        elif before[vc] != after[vc]:
            changes.append(f"VC {vc} gets other cells")
    return changes


def refuse_orphans(writer: Writer, layout: Layout | None) -> None:
    open_vcs = {record.request.vc for record in writer.book.records.values()}
    orphans = sorted(open_vcs - layout.vcs.keys()) if layout is not None else []
    if orphans:
        raise Conflict(f"VC {orphans[0]} has jobs that have not ended, and the new cluster has no such VC")
    for job_id, record in writer.book.records.items():
        vc, pinned = record.request.vc, record.request.pinned
        if pinned and (layout is None or pinned not in layout.vcs[vc].pinned):
            raise Conflict(f"job {job_id} asks for pinned cell {pinned}, which VC {vc} of the new cluster lacks")


def _node_changes(writer: Writer, cluster: Cluster) -> list[str]:
    before, after = writer.state.cluster.by_name, cluster.by_name
    changes = [f"node {name} is added, with {after[name].gpu_count} GPUs" for name in after if name not in before]
    changes += [f"node {name} goes" for name in before if name not in after]
    for name in before:
        if name in after and before[name].spec != after[name].spec:
            changes.append(f"node {name} changes: {what_differs(before[name].spec, after[name].spec)}")
    return changes


def in_the_way(writer: Writer, cluster: Cluster) -> list[tuple[Job, str]]:
    """(job, node) of jobs whose GPUs, CPUs or memory another cluster does not have."""
    found = []
    trial = cluster.blank()
    names = [node.name for node in writer.state.cluster.nodes]
    for job in writer.state.jobs.values():
        for piece in job.bound.slices if job.bound is not None else ():
            node = trial.by_name.get(names[piece.node])
            if node is None or not could_keep(trial, node, piece):
                found.append((job, names[piece.node]))
        # A job that is exiting shares its GPUs with the next one: it only has to fit somewhere until then.
        for piece in job.held.slices if job.held is not None and job.held != job.bound else ():
            node = trial.by_name.get(names[piece.node])
            if node is None or piece.gpus >> node.gpu_count:
                found.append((job, names[piece.node]))
    return found


def could_keep(cluster: Cluster, node: Node, piece: Slice) -> bool:
    if piece.gpus >> node.gpu_count:
        return False
    try:
        cluster.take(Allocation((msgspec.structs.replace(piece, node=node.index),), 0))
    except InvariantBroken:
        return False
    return True


def what_differs(before: NodeSpec, after: NodeSpec) -> str:
    names = [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    return ", ".join(f"{name} {shown(getattr(before, name))} to {shown(getattr(after, name))}" for name in names)


def shown(value: object) -> str:
    return "unlimited" if value == UNLIMITED else str(value or "none")


def solved(event: Solved) -> Prepare:
    """The answer of a solver, or why there is none."""

    def prepare(writer: Writer, turn: Turn) -> None:
        turn.events.append(event)
        if event.error:
            writer.solver_failures += 1
            turn.notify("solver", f"no new answer for the policy: {event.error}; the last answer stays in force")

    return prepare
