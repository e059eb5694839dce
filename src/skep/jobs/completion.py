"""When a job ends, and how. Some tasks may decide for all (OpenPAI's completion policy)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.jobs.request import Request, TaskRole


class Outcome(msgspec.Struct, frozen=True):
    succeeded: bool
    code: int
    """The exit code of the task that decided."""
    task: str
    """That task, as `role-index`; empty if all ended and no single task decided."""


class TaskTally:
    """Collects the exits of a job's tasks one by one, in order: the first decisive one counts. `counts` are the tasks
    by role if they differ from the request, as in an elastic job."""

    def __init__(self, request: Request, counts: Mapping[str, int] | None = None) -> None:
        self.request = request
        self.ended = {name: [0, 0] for name in request.tasks}
        """Failed and succeeded, by role."""
        self.wanted = counts or {name: role.count for name, role in request.tasks.items()}
        self.decided: Outcome | None = None

    def add(self, name: str, index: int, code: int) -> None:
        self.ended[name][code == 0] += 1
        verdict = _verdict(self.request.tasks[name], *self.ended[name]) if self.decided is None else None
        if verdict is not None:
            self.decided = Outcome(verdict, code if not verdict else 0, f"{name}-{index}")

    @property
    def outcome(self) -> Outcome | None:
        """None while the job continues."""
        if self.decided is not None:
            return self.decided
        is_over = all(sum(self.ended[name]) >= self.wanted[name] for name in self.ended)
        return Outcome(True, 0, "") if is_over else None


def outcome(
    request: Request, exits: Mapping[tuple[str, int], int], *, counts: Mapping[str, int] | None = None
) -> Outcome | None:
    """From the codes of the ended tasks by (role, index), oldest first."""
    tally = TaskTally(request, counts)
    for (name, index), code in exits.items():
        tally.add(name, index, code)
    return tally.outcome


def _verdict(role: TaskRole, failed: int, succeeded: int) -> bool | None:
    """What the exits of one role mean for the job so far."""
    completion = role.completion
    if completion.min_failed is not None and failed >= completion.min_failed:
        return False
    if completion.min_succeeded is not None and succeeded >= completion.min_succeeded:
        return True
    return None
