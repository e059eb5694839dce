"""When is a job over, and how? Some tasks may decide for all (OpenPAI's completion policy)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.jobs.request import Request, TaskRole


class Outcome(msgspec.Struct, frozen=True):
    succeeded: bool
    code: int
    """Of the task that decided."""
    task: str
    """That task, as `role-index`; none where all ended and nobody in particular decided."""


def outcome(
    request: Request, exits: Mapping[tuple[str, int], int], *, counts: Mapping[str, int] | None = None
) -> Outcome | None:
    """None while the job goes on.

    `exits` has the codes of the ended tasks by (role, index), oldest first: who ended first decides. `counts` are the
    tasks by role where that is not what was asked for, as in an elastic job.
    """
    ended = {name: [0, 0] for name in request.tasks}
    for (name, index), code in exits.items():
        ended[name][code == 0] += 1
        if (verdict := _verdict(request.tasks[name], *ended[name])) is not None:
            return Outcome(verdict, code if not verdict else 0, f"{name}-{index}")
    wanted = counts or {name: role.count for name, role in request.tasks.items()}
    is_over = all(sum(ended[name]) >= wanted[name] for name in request.tasks)
    return Outcome(True, 0, "") if is_over else None


def _verdict(role: TaskRole, failed: int, succeeded: int) -> bool | None:
    """What the exits of one role mean for the job, so far."""
    completion = role.completion
    if completion.min_failed is not None and failed >= completion.min_failed:
        return False
    if completion.min_succeeded is not None and succeeded >= completion.min_succeeded:
        return True
    return None
