"""A `Live` without a scheduler: jobs stay as the test puts them. Writes go through one thread, as in the real one."""

from __future__ import annotations

import copy
import itertools
import queue
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from skep.core.errors import Conflict, InputError, NotFound
from skep.jobs.limits import UNLIMITED
from skep.jobs.request import Request
from skep.service.limits import Limiter
from skep.service.present import Sample
from skep.service.sight import EVERYTHING, Sight

ENDED = ("succeeded", "failed", "stopped")


class FakeLive:
    sight = EVERYTHING

    clock = staticmethod(time.time)

    def seen_by(self, sight: Sight) -> FakeLive:
        seen = copy.copy(self)
        seen.sight = sight
        return seen

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: dict[str, dict[str, Any]] = {}
        self.log: list[dict[str, Any]] = []
        self.requests: dict[str, dict[str, Any]] = {}
        self.keys: dict[tuple[str, str], list[str]] = {}
        self.node_rows = [{"name": "n0", "gpus": 8, "used": 0, "state": "up"}]
        self.spec = "fifo"
        self.is_closed = False
        self._numbers = itertools.count(1)
        self._callbacks: list[Callable[[list[dict[str, Any]], list[str]], None]] = []
        self._queue: queue.Queue[Any] = queue.Queue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        db = sqlite3.connect(self.folder / "fake.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, body BLOB)")
        while (first := self._queue.get()) is not None:
            batch = [first]
            while not self._queue.empty() and len(batch) < 256 and (more := self._queue.get()) is not None:
                batch.append(more)
            self._commit(db, batch)
        db.close()

    def _commit(self, db: sqlite3.Connection, batch: list[Any]) -> None:
        begin, answers = len(self.log), []
        for work, future in batch:
            try:
                answers.append((future.set_result, work()))
            except InputError as error:
                answers.append((future.set_exception, error))
        events = self.log[begin:]
        db.execute("BEGIN")
        db.executemany("INSERT INTO log VALUES (?, ?)", [(e["seq"], msgspec.json.encode(e)) for e in events])
        db.execute("COMMIT")
        for resolve, value in answers:
            resolve(value)
        for callback in list(self._callbacks):
            callback(events, [event["job_id"] for event in events if event["job_id"]])

    def _do(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.put((work, future))
        return future

    def _note(self, kind: str, job_id: str | None, who: str, text: str = "") -> None:
        row = {"seq": len(self.log) + 1, "at_s": time.time(), "kind": kind, "job_id": job_id, "who": who, "text": text}
        self.log.append(row)

    def say(self, kind: str, job_id: str | None = None, text: str = "") -> Future[Any]:
        return self._do(lambda: self._note(kind, job_id, "test", text))

    def note(self, kind: str, text: str, who: str = "") -> Future[Any]:
        return self._do(lambda: self._note(kind, None, who, text))

    # writes

    def submit(self, requests: list[Request], who: str, key: str = "", sight: Sight = EVERYTHING) -> Future[list[str]]:
        def work() -> list[str]:
            if key and (who, key) in self.keys:
                return self.keys[who, key]
            ids = [self._add(request, who) for request in requests]
            if key:
                self.keys[who, key] = ids
            return ids

        return self._do(work)

    def _add(self, request: Request, who: str) -> str:
        job_id = f"j{next(self._numbers)}"
        self.all[job_id] = {
            **{"id": job_id, "name": request.name, "state": "pending", "vc": request.vc, "user": request.user},
            **{"gpus": request.gpus, "priority": request.priority, "submit_s": time.time(), "start_s": None},
            **{"finish_s": None, "reason": "", "group": request.group, "tags": list(request.tags), "attempts": 0},
            **{"nodes": [], "progress": None},
        }
        self.requests[job_id] = msgspec.to_builtins(request)
        self._note("JobSubmitted", job_id, who)
        return job_id

    def _set(self, job_id: str, who: str, kind: str, text: str = "", **values: Any) -> Future[None]:
        def work() -> None:
            job = self.job(job_id)
            if job["state"] in ENDED:
                raise Conflict(f"job {job_id} has ended")
            self.all[job_id].update(values)
            self._note(kind, job_id, who, text)

        return self._do(work)

    def stop(self, job_id: str, who: str, reason: str = "") -> Future[None]:
        return self._set(job_id, who, "StopRequested", state="stopped", reason=reason)

    def change(self, job_id: str, who: str, **asked: Any) -> Future[None]:
        given = {name: value for name, value in asked.items() if value is not None}
        values = {name: value for name, value in given.items() if name != "is_held"}
        return self._set(job_id, who, "JobChanged", " ".join(given), **values)

    def set_node(self, node: str, state: str, who: str) -> Future[None]:
        def work() -> None:
            if node != "n0":
                raise NotFound(f"there is no node {node}")
            self.node_rows[0]["state"] = state
            self._note("NodeChanged", None, who, state)

        return self._do(work)

    def use_policy(self, spec: str, who: str, files: dict[str, str] | None = None) -> Future[None]:
        def work() -> None:
            if not spec.isalnum():
                raise InputError(f"policy {spec!r} is unknown")
            self.spec = spec
            self._note("PolicyChanged", None, who, spec)

        return self._do(work)

    def apply_cluster(self, text: str, name: str, who: str) -> Future[None]:
        return self._do(lambda: self._note("ClusterChanged", None, who, name))

    # reads

    def preview_cluster(self, text: str, name: str) -> list[str]:
        if "nodes" not in text:
            raise InputError(f"{name}: nodes is missing")
        return ["one node more"]

    def jobs(
        self, where: Any, limit: int, cursor: str | None, sort: str = "-id"
    ) -> tuple[list[dict[str, Any]], str | None]:
        found = [job for job in reversed(list(self.all.values())) if self._fits(job, where)]
        begin = int(cursor) if cursor and cursor.isdigit() else 0
        following = str(begin + limit) if len(found) > begin + limit else None
        return found[begin : begin + limit], following

    def _fits(self, job: dict[str, Any], where: Any) -> bool:
        if where.states:
            return job["state"] in where.states
        return (where.all or job["state"] not in ENDED) and where.user in ("", job["user"])

    def counts(self, where: Any) -> dict[str, int]:
        return dict(Counter(job["state"] for job in self.all.values()))

    def last_seq(self) -> int:
        return len(self.log)

    def sample(self) -> Sample:
        return Sample(gpus=8, used=0, lent=0, bad=0, drained=0, vcs={})

    def brief(self, ref: str) -> dict[str, Any]:
        if ref not in self.all or not self.sight.sees(self.all[ref]["vc"]):
            raise NotFound(f"there is no job {ref}")
        return self.all[ref]

    def job(self, ref: str) -> dict[str, Any]:
        return {**self.brief(ref), "request": self.requests[ref], "tasks": [], "history": []}

    def request(self, ref: str) -> tuple[str, dict[str, Any]]:
        return self.brief(ref)["id"], self.requests[ref]

    def nodes(self) -> list[dict[str, Any]]:
        return self.node_rows

    def vcs(self) -> list[dict[str, Any]]:
        return [{"name": "default", "gpus": 8, "used": 0}]

    def cluster(self) -> dict[str, Any]:
        return {"name": "fake", "text": "1x8"}

    def policy(self) -> dict[str, Any]:
        return {"policy": self.spec, "problems": []}

    def limits(self, user: str | None) -> list[dict[str, Any]]:
        return Limiter(UNLIMITED).shown(["ann"] if user is None else [user], [])

    def usage(self, by: str, since_s: float | None, until_s: float | None, vc: str = "") -> list[dict[str, Any]]:
        return [{by: "ann", "gpu_hours": 1.0}]

    def events(self, after: int, job_id: str | None, limit: int) -> list[dict[str, Any]]:
        return [e for e in self.log[after:] if job_id is None or e["job_id"] == job_id][:limit]

    def first_event(self) -> int | None:
        return self.log[0]["seq"] if self.log else None

    def last_event(self, job_id: str | None, back: int) -> int:
        seqs = [e["seq"] for e in self.log if job_id is None or e["job_id"] == job_id]
        return seqs[-back - 1] if len(seqs) > back else 0

    def times(self, ended_after_s: float) -> list[tuple[Any, ...]]:
        rows = [(job["id"], job["submit_s"], job["start_s"], job["finish_s"]) for job in self.all.values()]
        return [row for row in rows if row[2] is not None and (row[3] is None or row[3] > ended_after_s)]

    def explain(self, ref: str) -> dict[str, Any]:
        job = self.job(ref)
        return {
            **{"job": job["id"], "state": job["state"], "code": "", "cause": "order", "reason": "", "remedy": ""},
            "problems": [],
        }

    def log_files(self, ref: str, task: str = "", attempt: int = 0) -> list[Path]:
        folder = self.folder / "jobs" / ref
        if task not in ("", "task-0"):
            folder /= task
        if not folder.exists():
            raise NotFound(f"job {ref} has not been started")
        return [path for path in (folder / "log.2", folder / "log.1", folder / "log") if path.exists()]

    def environment(self, ref: str, task: str = "") -> dict[str, Any]:
        return {"env": {"SECRET": "s"}, "cwd": "/", "task": task or "task-0"}

    def subscribe(self, callback: Callable[[list[dict[str, Any]], list[str]], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def rows(self, ids: list[str]) -> list[dict[str, Any]]:
        return [self.brief(job_id) for job_id in ids]

    def policy_problems(self) -> list[str]:
        return []

    def problems(self) -> list[str]:
        return []

    def stats(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for job in list(self.all.values()):
            counts[job["state"]] = counts.get(job["state"], 0) + 1
        rest = {"waiting": {"order": 1}, "decide_s": 0.5, "commit_s": 1.5, "turns": 3, "decisions": 2}
        rest["events"] = len(self.log)
        rest |= {"clock_off_s": 0.0, "clock_steps": 0}
        rest |= {"policy_failures": 0, "policies_replaced": 0, "policy_longest_s": 0.0}
        return {"jobs": counts, **rest}

    def backup(self, path: Path) -> None:
        shutil.copyfile(self.folder / "fake.db", path)

    def close(self) -> None:
        self.is_closed = True
        self._queue.put(None)
        self._thread.join()
