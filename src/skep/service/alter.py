"""The command that lets a pending job ask for something else, in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import Conflict, InputError
from skep.core.events import JobAltered
from skep.core.job import JobState, amount_of
from skep.core.model import JobSpec
from skep.jobs.alter import Alteration, altered
from skep.jobs.core import PODS, to_core
from skep.jobs.request import Request
from skep.service.beyond import refuse_beyond
from skep.service.book import Record
from skep.service.commands import Prepare, check_spec, find_open
from skep.service.turn import Turn

if TYPE_CHECKING:
    from skep.core.state import State
    from skep.service.writer import Writer


def alter(ref: str, wanted: Alteration, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        turn.alone()
        record = find_open(writer, turn, ref, "altered")
        if any(writer.state.jobs[name].state is not JobState.PENDING for name in record.members):
            raise Conflict(
                f"job {record.id} cannot be altered: it is {record.row.state}", hint="only a pending job can"
            )
        before = record.request
        try:
            specs = _asks(writer, record, wanted)
        except InputError as error:  # it is a job of which that cannot be said, not a bad request
            raise Conflict(str(error), hint=error.hint) from None
        if said := describe(before, record.request):
            _keep(turn, record, specs)
            turn.changes.append([JobAltered(spec) for spec in specs])
            turn.notify("altered", said, record.id, who)

    return prepare


def _asks(writer: Writer, record: Record, wanted: Alteration) -> list[JobSpec]:
    """Its jobs of the core from now on. Raises if the job cannot ask for that, and then changes nothing."""
    request = altered(record.request, wanted)
    specs = altered_specs(writer.state, record.members, request)
    if not request.gpus:
        raise InputError(f"job {record.id} has no GPUs: it cannot be altered", hint="submit it again")
    refuse_beyond(request, writer.capabilities, writer.ground.layout)
    check_spec(writer, request, specs[0])
    writer.limits.leave(record)
    try:
        writer.limits.check([request])
        record.request = request
    finally:
        writer.limits.recount(record, ())
    return specs


def altered_specs(state: State, members: list[str], request: Request) -> list[JobSpec]:
    """The jobs of the core, which keep their names and what they wait for."""
    in_pods = any(PODS in node.extras_free for node in state.cluster.nodes)
    before = {name: state.jobs[name].spec for name in members}
    job_id = members[0].partition("/")[0]
    found = []
    for spec in to_core(request, job_id, in_pods=in_pods):
        known = before[spec.id]
        kept = {"priority": known.priority, "needs": known.needs, "needs_groups": known.needs_groups}
        found.append(msgspec.structs.replace(spec, **kept))
    return found


def _keep(turn: Turn, record: Record, specs: list[JobSpec]) -> None:
    row = record.row
    row.vc, row.gpus = record.request.vc, sum(amount_of(spec.shapes[0]) for spec in specs)
    turn.writes.jobs[row.seq] = row
    turn.writes.requests.append((msgspec.json.encode(record.request), row.seq))


def describe(before: Request, after: Request) -> str:
    """What differs, in words; empty if nothing does."""
    pairs = zip(("GPUs", "GPU type", "VC"), asked(before), asked(after), strict=True)
    return ", ".join(f"{what} {old} to {new}" for what, old, new in pairs if old != new)


def asked(request: Request) -> tuple[str, str, str]:
    types = sorted({role.gpu_type or "any" for role in request.tasks.values() if role.gpus})
    return str(request.gpus), ", ".join(types), request.vc
