"""`skep.Client`: the verbs of the command line, for programs.

    client = skep.Client()                      # SKEP_URL and SKEP_TOKEN, or the server of this machine
    job = client.run(["python", "train.py"], gpus=2)
    for text in client.logs(job["id"], follow=True):
        print(text, end="")
    assert client.wait(job["id"])["state"] == "succeeded"

Responses are returned unchanged: a job is a dict with the keys of the API. A refused request raises an exception of
`skep.core.errors` with the server's message.
"""

from __future__ import annotations

import codecs
import json
import os
import secrets
import shlex
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from skep.client.insight import Insight, given
from skep.client.wire import NoServer, ServerFault, Wire
from skep.core.errors import InputError, SkepError
from skep.files.text import load_text

ENDED = frozenset({"succeeded", "failed", "stopped"})
STOPPED_CODE = 130
EVENTS_MOST = 10_000
"""The most events that the server returns at once."""
FRAME = struct.Struct("!BI")
"""Channel and size, before a piece of the output of `exec`."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0

Job = dict[str, Any]
T = TypeVar("T")


class Client(Insight):
    """A client of one server. A call whose answer is lost is repeated; nothing is submitted twice by that."""

    def __init__(self, url: str = "", *, token: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self._wire = Wire(url, token, transport)
        self.url = self._wire.url
        self.problems: list[str] = []
        """From the last page of jobs: policies that failed and were replaced."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

    # Jobs

    def submit(self, job: str | bytes | Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
        """A job as text (YAML, JSON, OpenPAI) or as a mapping → `{"jobs": […], "warnings": […]}`.

        `key` names the submission: calls with the same key are one submission. Without one it is generated here, so
        that a call whose answer was lost can be repeated without running anything twice.
        """
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        if isinstance(job, Mapping):
            return submission(self._wire.ask("POST", "/jobs", json=dict(job), headers=headers))
        headers["Content-Type"] = "application/yaml"  # JSON is YAML too
        text = job.encode() if isinstance(job, str) else job
        return submission(self._wire.ask("POST", "/jobs", content=text, headers=headers))

    def submit_many(self, jobs: Sequence[Mapping[str, Any]], *, key: str = "") -> list[str]:
        """Submit all of them or none; returns their ids."""
        return list(self.submit_batch(jobs, key=key)["ids"])

    def submit_batch(self, jobs: Sequence[Mapping[str, Any]], *, key: str = "") -> dict[str, Any]:
        """Submit all of them or none → `{"ids": […], "warnings": […]}`."""
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        found: dict[str, Any] = self._wire.ask("POST", "/jobs:batch", json={"jobs": list(jobs)}, headers=headers)
        return found

    def run(self, argv: str | Sequence[str], *, name: str = "", gpus: int = 0, count: int = 1, **fields: Any) -> Job:
        """Submit `count` tasks of one command, in this working directory, and do not wait.

        A string is split as a shell would (`client.run("python train.py")`), but no shell runs it.
        `fields` are those of a job file (`vc`, `priority`, `time_limit_s`, …); `env` is for the task.
        """
        argv = shlex.split(argv) if isinstance(argv, str) else list(argv)
        if not argv:
            raise InputError("the command is empty")
        role = {"count": count, "gpus": gpus, "argv": argv, "env": dict(fields.pop("env", {}))}
        asked = {"name": name or name_of(argv), "workdir": os.getcwd(), "tasks": {"main": role}, **fields}
        job: Job = self.submit(asked)["jobs"][0]
        return job

    def page(self, *, limit: int = 100, cursor: str = "", **where: Any) -> tuple[list[Job], str]:
        """Some jobs, newest first, and the cursor of the next page ("" after the last).

        `where`: state, vc, user, group, tag, name, mine, all.
        """
        params = {**where, "limit": limit, "cursor": cursor}
        found = self._wire.ask("GET", "/jobs", params=given(params))
        self.problems = found.get("problems", [])
        return found["jobs"], found.get("next") or ""

    def jobs(self, **where: Any) -> Iterator[Job]:
        """All jobs that match, newest first."""
        cursor = ""
        while True:
            found, cursor = self.page(cursor=cursor, **where)
            yield from found
            if not cursor:
                return

    def job(self, job: str) -> Job:
        """A job by id, or the latest job with that name."""
        found: Job = self._wire.ask("GET", self._at(job))
        return found

    def stop(self, job: str, reason: str = "") -> None:
        self._wire.ask("POST", self._at(job, "stop"), json={"reason": reason} if reason else {})

    def hold(self, job: str) -> None:
        self._wire.ask("PATCH", self._at(job), json={"hold": True})

    def release(self, job: str) -> None:
        self._wire.ask("PATCH", self._at(job), json={"hold": False})

    def set_priority(self, job: str, priority: int) -> None:
        self._wire.ask("PATCH", self._at(job), json={"priority": priority})

    def alter(self, job: str, *, gpus: int | None = None, gpu_type: str | None = None, vc: str | None = None) -> None:
        """A pending job asks for something else from now on, and keeps its place. An empty type: any."""
        wanted = {"gpus": gpus, "gpu_type": gpu_type, "vc": vc}
        self._wire.ask("PATCH", self._at(job), json={name: each for name, each in wanted.items() if each is not None})

    def set_tags(self, job: str, tags: Sequence[str]) -> None:
        self._wire.ask("PATCH", self._at(job), json={"tags": list(tags)})

    def explain(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = self._wire.ask("GET", self._at(job, "explain"))
        return found

    def changes(self, job: str, within_s: float = 8.0) -> Iterator[dict[str, Any]]:
        """What would let a waiting job start now or sooner, of what the caller may do; each change was tried out. The
        last item (`type` is `tried`) says how much was tried. `within_s`: for what lets it start sooner."""
        return self._lines(self._wire.stream("GET", self._at(job, "changes"), params={"within": within_s}))

    def plan(self, job: str | bytes | Mapping[str, Any], within_s: float = 8.0) -> dict[str, Any]:
        """What submitting this job would do, without doing it: `jobs` (where and when they would start and end),
        `preempts`, `delays`, and `alternatives`, other requests that would start now."""
        params = {"within": within_s}
        if isinstance(job, Mapping):
            sent: dict[str, Any] = {"json": dict(job)}
        else:
            text = job.encode() if isinstance(job, str) else job
            sent = {"content": text, "headers": {"Content-Type": "application/yaml"}}
        found = list(self._lines(self._wire.stream("POST", "/jobs:plan", params=params, **sent)))
        tried = found[-1]
        if tried["error"]:
            raise SkepError(f"there is no plan: {tried['error']}")
        fixes = [each for each in found if each["type"] == "fix"]
        return {**next(each for each in found if each["type"] == "plan"), "alternatives": fixes}

    def _lines(self, pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        rest = b""
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield from map(json.loads, lines)

    def environment(self, job: str, task: str = "") -> dict[str, Any]:
        """`env`, `cwd` and `task` of a task, to run something beside it."""
        found: dict[str, Any] = self._wire.ask("GET", self._at(job, "environment"), params=given({"task": task}))
        return found

    def exec(self, job: str, argv: Sequence[str], task: str = "") -> Iterator[tuple[int, bytes]]:
        """Run a command in the container of a task that runs elsewhere: (1, stdout), (2, stderr), (0, exit code)."""
        rest = b""
        body = {"argv": list(argv), "task": task}
        for piece in self._wire.stream("POST", self._at(job, "exec"), json=body):
            rest += piece
            while len(rest) >= FRAME.size and len(rest) >= FRAME.size + FRAME.unpack_from(rest)[1]:
                channel, size = FRAME.unpack_from(rest)
                yield channel, rest[FRAME.size : FRAME.size + size]
                rest = rest[FRAME.size + size :]

    def wait(self, job: str, timeout_s: float | None = None) -> Job:
        """Wait until it has ended; raises `TimeoutError` if it has not by then. Waits through a restart of the
        server."""
        found, by_s = self.job(job), None if timeout_s is None else time.monotonic() + timeout_s
        job, pauses = found["id"], pause_lengths()
        while found["state"] not in ENDED:
            if by_s is not None and time.monotonic() >= by_s:
                raise TimeoutError(f"job {job} is still {found['state']}")
            time.sleep(next(pauses))
            found = self.patiently(lambda: self.job(job), until_s=by_s)
        return found

    def logs(
        self, job: str, *, task: str = "", attempt: int = 0, tail: int | None = None, follow: bool = False
    ) -> Iterator[str]:
        """The output in pieces; `follow` continues until the attempt has ended (attempt 0: the last one)."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        params = given({"task": task, "attempt": attempt, "tail": tail, "follow": follow})
        for piece in self._wire.stream("GET", self._at(job, "logs"), params=params):
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)

    def job_events(self, job: str) -> list[dict[str, Any]]:
        return list(self._wire.ask("GET", self._at(job, "events"), params={"limit": EVENTS_MOST}))

    # Searches

    def searches(self) -> list[dict[str, Any]]:
        """The latest first."""
        return list(self._wire.ask("GET", "/searches"))

    def search(self, name: str) -> dict[str, Any]:
        """A search by name, with its `trials`, and `best`, the id of the best trial so far."""
        found: dict[str, Any] = self._wire.ask("GET", f"/searches/{quote(name, safe='')}")
        return found

    def stop_search(self, name: str) -> None:
        self._wire.ask("POST", f"/searches/{quote(name, safe='')}/stop", json={})

    # The cluster

    def nodes(self) -> list[dict[str, Any]]:
        return list(self._wire.ask("GET", "/nodes"))

    def set_node(self, node: str, state: str) -> None:
        """`up`, `drained` or `lost`."""
        self._wire.ask("PATCH", f"/nodes/{quote(node, safe='')}", json={"state": state})

    def vcs(self) -> list[dict[str, Any]]:
        return list(self._wire.ask("GET", "/vcs"))

    def cluster(self) -> dict[str, Any]:
        found: dict[str, Any] = self._wire.ask("GET", "/cluster")
        return found

    def preview_cluster(self, text: str, name: str = "cluster.yaml") -> list[str]:
        """What applying this file would change, in sentences."""
        return self._put_cluster(text, name, is_dry=True)

    def apply_cluster(self, text: str, name: str = "cluster.yaml") -> list[str]:
        return self._put_cluster(text, name, is_dry=False)

    def policy(self) -> str:
        return str(self._wire.ask("GET", "/policy")["policy"])

    def use_policy(self, policy: str) -> None:
        """A user-written policy (`./mine.py:Mine`) is read here and sent with the request."""
        self._put_policy(policy, is_dry=False)

    def missing_for(self, policy: str) -> list[str]:
        """The needs of a policy that are not met there, in sentences. Changes nothing."""
        return list(self._put_policy(policy, is_dry=True).get("missing", []))

    def _put_policy(self, policy: str, *, is_dry: bool) -> dict[str, Any]:
        file, is_own, rest = policy.partition(".py:")
        body: dict[str, Any] = {"policy": policy}
        if is_own:
            path = os.path.abspath(f"{file}.py")
            text = load_text(path, what="a policy in Python", hint="expected ./file.py:Class")
            body = {"policy": f"{path}:{rest}", "files": {path: text}}
        return dict(self._wire.ask("PUT", "/policy", params=given({"dry_run": is_dry or None}), json=body))

    def usage(self, by: str = "user", *, since_s: float | None = None, until_s: float | None = None) -> list[Any]:
        params = given({"by": by, "since": since_s, "until": until_s})
        return list(self._wire.ask("GET", "/usage", params=params))

    def limits(self) -> list[dict[str, Any]]:
        """Limits of users and VCs, and their use."""
        return list(self._wire.ask("GET", "/limits"))

    def events(self, *, after: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
        """The events after event number `after`."""
        params = given({"follow": "false", "after": after, "limit": limit})
        return list(self._wire.ask("GET", "/events", params=params))

    def last_events(self, most: int, job: str = "") -> list[dict[str, Any]]:
        """The newest events (of one job), in order; at most 10,000."""
        params = {"follow": "false", "last": min(most, EVENTS_MOST), **given({"job": job})}
        return list(self._wire.ask("GET", "/events", params=params))

    def follow_events(self, after: int | None = None, job: str = "") -> Iterator[dict[str, Any]]:
        """Yields events (of one job) as they happen, without end; continues after the last one if the connection is
        lost."""
        while True:
            try:
                for event in self._wire.event_stream(after, given({"job": job})):
                    after = event["seq"]
                    yield event
            except NoServer:
                if after is None:
                    raise
            time.sleep(LONGEST_PAUSE_S)

    # The server

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self._wire.ask("GET", "/health")
        return found

    def is_there(self) -> bool:
        """True if the server answers now."""
        return self._wire.is_there()

    def shut_down(self, stop_jobs_within_s: int | None = None) -> dict[str, Any]:
        """Ask the server to stop; its jobs run on, or are stopped first. Returns how many run, and which process is
        about to end."""
        within_s = stop_jobs_within_s
        body = {"stop_jobs": within_s is not None, **({} if within_s is None else {"within_s": within_s})}
        found: dict[str, Any] = self._wire.ask("POST", "/shutdown", json=body)
        return found

    def backup(self) -> Iterator[bytes]:
        """The store as one SQLite file, in pieces."""
        return self._wire.stream("POST", "/backup", json={})

    def tokens(self) -> list[dict[str, Any]]:
        return list(self._wire.ask("GET", "/tokens"))

    def create_token(
        self, user: str, role: str = "user", vcs: Sequence[str] = (), life_s: float | None = None
    ) -> dict[str, Any]:
        """`token` is the secret, which the server does not show again."""
        body = {"user": user, "role": role, "vcs": list(vcs), "life_s": life_s}
        return dict(self._wire.ask("POST", "/tokens", json=body))

    def rotate_token(self, token_id: str, overlap_s: float = 0.0) -> dict[str, Any]:
        """A new one for the same user; the old one expires after `overlap_s`."""
        path = f"/tokens/{quote(token_id, safe='')}/rotate"
        return dict(self._wire.ask("POST", path, json={"overlap_s": overlap_s}))

    def revoke_token(self, token_id: str) -> None:
        self._wire.ask("DELETE", f"/tokens/{quote(token_id, safe='')}")

    # Internals

    def patiently(self, ask: Callable[[], T], until_s: float | None = None) -> T:
        """Repeat until the server is back: for callers that wait for something anyway."""
        for pause_s in pause_lengths():
            try:
                return ask()
            except (NoServer, ServerFault):
                if until_s is not None and time.monotonic() >= until_s:
                    raise
                time.sleep(pause_s)
        raise AssertionError("pauses never end")

    def _put_cluster(self, text: str, name: str, *, is_dry: bool) -> list[str]:
        headers, params = {"Content-Type": "application/yaml"}, given({"name": name, "dry_run": is_dry})
        found = self._wire.ask("PUT", "/cluster", content=text.encode(), headers=headers, params=params)
        return list(found["changes"])

    def _at(self, job: str, what: str = "") -> str:
        """The name quoted for a URL; it may contain any character."""
        if not job:
            raise InputError("the name of the job is empty")
        return f"/jobs/{quote(job, safe='')}" + (f"/{what}" if what else "")


def submission(answer: dict[str, Any]) -> dict[str, Any]:
    """The same form for one job and for several."""
    warnings = answer.pop("warnings", [])
    return {"jobs": answer.get("jobs") or [answer], "warnings": warnings}


def exit_code(job: Job) -> int:
    """The job's own exit code; 130 if it was stopped, 1 if it failed before anything of it ran."""
    if job["state"] == "succeeded":
        return 0
    if job["state"] == "stopped":
        return STOPPED_CODE
    # Tasks that were stopped because another had failed do not show the failure.
    history = [attempt for attempt in job.get("history") or [] if attempt.get("outcome") != "stopped"]
    codes = [attempt["code"] for attempt in history if attempt.get("code")]
    return codes[-1] if codes and 0 < codes[-1] < 256 else 1


def name_of(argv: Sequence[str]) -> str:
    """`python -u train.py --lr 1` is train."""
    words = [os.path.basename(word) for word in argv if not word.startswith("-")]
    found = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "")
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in found.rsplit(".", 1)[0])
    return kept.strip("-")[:64] or "job"


def pause_lengths() -> Iterator[float]:
    """Short at first: most waits are for something that is about to happen."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
