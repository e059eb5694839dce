"""Routes for the available policies, and for the decisions of the policy in charge."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from skep.core.needs import Need, Offer, lacks
from skep.policies.registry import Policy, policies, shown_needs, shown_value
from skep.server.answers import answer
from skep.server.context import context_of, in_turn, reads_of
from skep.server.schemas import REF, Absent, Seq, errors
from skep.server.shapes import Decisions, PolicyInfo
from skep.service.decisions import decisions
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["policies"])


@router.get("/policies", response_model=None, responses={200: {"model": list[PolicyInfo]}, **errors()})
def list_policies(request: Request) -> Response:
    offer = context_of(request).live.offer()
    return answer([shown(policy, offer) for policy in policies().values()])


def shown(policy: Policy, offer: Offer) -> Json:
    knobs = [
        {"name": knob.name, "default": shown_value(knob.default), "help": knob.help, "choices": knob.shown_choices}
        for knob in policy.knobs
    ]
    return {
        "name": policy.name,
        "title": policy.title,
        "paper": policy.paper,
        "assumes": shown_needs(policy.needs()),
        "needs": [need for need in Need if need in policy.needs()],
        "missing": [str(lack) for lack in lacks(policy.needs(), offer)],
        "oracle": Need.ORACLE in policy.needs(),
        "knobs": knobs,
    }


@router.get("/decisions", response_model=None, responses={200: {"model": Decisions}, **errors(404, 429)})
async def list_decisions(
    request: Request,
    last: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[Seq | Absent, Query(description="Only from log entries before this number.")] = None,
    job: Annotated[str, Field(pattern=REF)] | Absent = None,
) -> Response:
    """Starts, preemptions, moves, resizes and rejections with their reasons, newest first. They are read from the log,
    so a restart does not lose them."""
    reads = reads_of(request)

    def found() -> Response:
        job_id = reads.brief(job)["id"] if job else None
        return answer(decisions(reads, last, before, job_id))

    return await in_turn(request, context_of(request).long_reads, found)
