"""What the dashboard shows, for programs: the cluster over time, decisions, details of a job, studies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skep.client.wire import Wire

Found = dict[str, Any]
BULK_MOST = 1000
"""The most jobs that the server accepts at once."""


class Insight(ABC):
    """The reading part of `Client`, and studies. Answers are those of the API, see `docs/reference/server.md`."""

    _wire: Wire

    @abstractmethod
    def _at(self, job: str, what: str = "") -> str:
        """The path of a job, or of a part of it."""

    # The cluster

    def me(self) -> Found:
        """The caller as the server knows it: `user`, `role`, `vcs`, `auth`."""
        return self._get("/me")

    def overview(self) -> Found:
        """GPUs used, free, lent and bad; jobs by state; how long jobs wait."""
        return self._get("/overview")

    def forecast(self) -> Found:
        """How the last forecast was made, and how often earlier ones held; those of single jobs are their `eta`."""
        return self._get("/forecast")

    def map(self) -> Found:
        """Every GPU and its tenants."""
        return self._get("/map")

    def history(
        self, *, since_s: float | None = None, until_s: float | None = None, step_s: float = 0.0, by_vc: bool = False
    ) -> Found:
        """Means of GPUs used, lent and bad, and of the queue, step by step; without `since_s` of the last 24 hours."""
        return self._get("/history", since=since_s, until=until_s, step=step_s, vc=by_vc)

    def timeline(self, *, since_s: float | None = None, until_s: float | None = None, **where: Any) -> Found:
        """Which jobs held which GPUs. `where`: vc, user, node, limit."""
        return self._get("/timeline", since=since_s, until=until_s, **where)

    def policies(self) -> list[Found]:
        return list(self._wire.ask("GET", "/policies"))

    def decisions(self, last: int = 100, *, before: int | None = None, job: str = "") -> Found:
        """Decisions of the policy and their reasons, newest first: `decisions`, and `next` for `before`."""
        return self._get("/decisions", last=last, before=before, job=job)

    def drain_preview(self, node: str) -> Found:
        """What draining a node would affect."""
        return self._get(f"/nodes/{quote(node, safe='')}/drain")

    # Jobs

    def bulk(self, jobs: Sequence[str], action: str, value: int = 0, reason: str = "") -> list[Found]:
        """`stop`, `hold`, `release` or `priority` (to `value`) for many jobs; a result for each, in their order."""
        body = {"action": action, **({"value": value} if action == "priority" else {}), "reason": reason}
        found: list[Found] = []
        for at in range(0, len(jobs), BULK_MOST):
            asked = {**body, "ids": list(jobs[at : at + BULK_MOST])}
            found += self._wire.ask("POST", "/jobs:bulk", json=asked)["results"]
        return found

    def dry_run(self, job: str | bytes | Mapping[str, Any]) -> Found:
        """What would be submitted (`requests`), or everything that is wrong (`errors`: path, line, text, hint)."""
        params = {"dry_run": "true"}
        if isinstance(job, Mapping):
            return dict(self._wire.ask("POST", "/jobs", params=params, json=dict(job)))
        text, headers = job.encode() if isinstance(job, str) else job, {"Content-Type": "application/yaml"}
        return dict(self._wire.ask("POST", "/jobs", params=params, content=text, headers=headers))

    def curve(self, job: str, keys: Sequence[str] = (), *, task: str = "", points: int = 500) -> Found:
        """What it reported through `skep.train`, reduced to at most this many points per key."""
        return self._get(self._at(job, "curve"), key=list(keys), task=task, points=points)

    def search_logs(self, job: str, text: str, *, task: str = "", attempt: int = 0, limit: int = 200) -> Found:
        return self._get(self._at(job, "logs:search"), q=text, task=task, attempt=attempt, limit=limit)

    def job_file(self, job: str) -> Found:
        """`text`: the file that submits it again; `hidden`: variables whose values are not shown."""
        return self._get(self._at(job, "file"))

    # Studies

    def traces(self) -> list[Found]:
        return list(self._wire.ask("GET", "/traces"))

    def upload_trace(self, path: str | Path) -> Found:
        """Upload a file in any format that Skep reads; a study names it by its `id`."""
        headers = {"Content-Type": "application/octet-stream"}
        name = "".join(
            char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in Path(path).name
        )
        params = {"name": name.lstrip("._-")[-100:] or "trace"}
        return dict(self._wire.ask("POST", "/traces", content=Path(path).read_bytes(), headers=headers, params=params))

    def remove_trace(self, trace: str) -> None:
        self._wire.ask("DELETE", f"/traces/{quote(trace, safe='')}")

    def studies(self) -> list[Found]:
        """The newest first."""
        return list(self._wire.ask("GET", "/studies"))

    def study(self, study: str) -> Found:
        return self._get(f"/studies/{quote(study, safe='')}")

    def start_study(self, policies: Sequence[str], *, trace: str = "history", **fields: Any) -> Found:
        """`trace`: the id of an uploaded one, or `history`. `fields`: name, cluster, seed,
        estimate_error, repetitions, files, since_s, until_s."""
        body = {"trace": trace, "policies": list(policies), **fields}
        return dict(self._wire.ask("POST", "/studies", json=body))

    def cancel_study(self, study: str) -> Found:
        return dict(self._wire.ask("POST", f"/studies/{quote(study, safe='')}/cancel"))

    def remove_study(self, study: str) -> None:
        self._wire.ask("DELETE", f"/studies/{quote(study, safe='')}")

    def study_report(self, study: str) -> str:
        """The HTML page."""
        return b"".join(self._wire.stream("GET", f"/studies/{quote(study, safe='')}/report")).decode("utf-8")

    def _get(self, path: str, **params: Any) -> Found:
        found: Found = self._wire.ask("GET", path, params=given(params))
        return found


def given(params: dict[str, Any]) -> dict[str, Any]:
    """Only parameters that were given; a list becomes a repeated parameter."""
    return {name: value for name, value in params.items() if value not in (None, "", False, 0, [], ())}
