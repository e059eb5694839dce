"""Converts the blobs of an older store to the present format.

Until format 5 a job named its group by a text, a task that started by itself was identified by its id
(`JOB/ROLE-INDEX`), and the server itself ended the job after the ends of such tasks. So their groups never end by
themselves in an older log: it has the resulting stops and ends. From now on they do, if the job has not ended.

The memory of policies was one dictionary of names such as `red/place 17`: a VC, a word, and a job or VC. Each becomes a
value in a slot; names that no policy of Skep used are kept as values that exist once in all.
"""

from __future__ import annotations

import re
import sqlite3
import zlib

import msgspec

from skep.core.events import GroupFormed
from skep.core.group import GroupSpec
from skep.core.memory import At, Memory, MemoryChange, Of, values_of
from skep.core.record import Entry
from skep.jobs.core import task_of, to_core
from skep.jobs.groups import groups_of
from skep.jobs.request import Request
from skep.service.values import Json

Raw = Json
"""As decoded from msgpack: no present type describes these values."""

FINAL = ("succeeded", "failed", "stopped", "unrunnable")

encode = msgspec.msgpack.Encoder().encode


def add_groups(db: sqlite3.Connection) -> None:
    """From format 5 to format 6."""
    groups = Groups(set())
    jobs = db.execute("SELECT seq, finish_s, request FROM jobs").fetchall()
    formed = [spec for row in jobs for spec in _of_job(db, groups, *row)]
    for (seq,) in db.execute("SELECT seq FROM log ORDER BY seq").fetchall():
        raw = msgspec.msgpack.decode(db.execute("SELECT entry FROM log WHERE seq=?", (seq,)).fetchone()[0])
        has_memory = any([convert_memory(plan) for plan in raw["plans"]])
        if groups.convert_entry(raw) or has_memory:
            _put(db, "log", "entry", seq, encode(raw))
    snapshots = "SELECT seq, state, cluster_name, cluster, policy, files FROM snapshots"
    for seq, state, *words in db.execute(snapshots).fetchall():
        raw = msgspec.msgpack.decode(state)
        groups.convert_snapshot(raw)
        saved = Memory()
        for change in changes_of(raw["memory"]):
            saved.take_in(change)
        raw["memory"] = values_of(saved)
        _put(db, "snapshots", "state", seq, encode(raw), *words)
    if formed:
        _append(db, formed)


def _of_job(db: sqlite3.Connection, groups: Groups, seq: int, finish_s: float | None, data: bytes) -> list[GroupSpec]:
    """Note which jobs of the core its tasks are. Returns its group, if it has not ended."""
    request = msgspec.json.decode(data, type=Request)
    if request.gang:
        return []
    groups.owners.add(str(seq))
    specs = to_core(request, str(seq))
    db.executemany("INSERT INTO members VALUES (?, ?, ?)", [(spec.id, seq, task_of(spec, request)) for spec in specs])
    return groups_of(request, str(seq))[-1:] if finish_s is None else []


def _put(db: sqlite3.Connection, table: str, column: str, seq: int, data: bytes, *words: str) -> None:
    """With its checksum."""
    crc = seq & 0xFFFFFFFF
    for part in (*(word.encode() for word in words), data):
        crc = zlib.crc32(part, crc)
    db.execute(f"UPDATE {table} SET {column}=?, crc=? WHERE seq=?", (data, crc, seq))


def _append(db: sqlite3.Connection, formed: list[GroupSpec]) -> None:
    """Append an entry to the log."""
    seqs = "SELECT max(seq) + 1 FROM (SELECT seq FROM log UNION ALL SELECT seq FROM snapshots)"
    times = "SELECT max(at_s) FROM (SELECT at_s FROM log UNION ALL SELECT max(submit_s) FROM jobs)"
    (seq,), (at_s,) = db.execute(seqs).fetchone(), db.execute(times).fetchone()
    db.execute("INSERT INTO log (seq, at_s, entry) VALUES (?, ?, x'')", (seq, at_s))
    _put(db, "log", "entry", seq, encode(Entry(at_s, [GroupFormed(spec) for spec in formed], [])))


JOB_WORDS = {"place": "standing", "promoted": "promotion", "key": "key", "virtual": "owned", "lent": "lent"}
VC_WORDS = {"served": "served", "wake": "wake"}
OLD_NAME = re.compile(r"(?:(?P<planner>.*?)/)?(?P<word>[a-z]+) (?P<key>.*)")


def convert_memory(plan: Raw) -> bool:
    """True if it remembered anything."""
    if "memory" in plan:
        plan["memory"] = changes_of(plan["memory"])
    return "memory" in plan


def changes_of(memory: Raw) -> list[MemoryChange]:
    """What was remembered or removed, by name."""
    found = []
    lists: dict[At, Raw] = {}
    """Queues and their counters were two values of one planner."""
    for name, value in memory.items():
        known = OLD_NAME.fullmatch(name)
        word, key = (known["word"], known["key"]) if known else ("", "")
        if word in JOB_WORDS:
            kept = [value] if word == "key" and value is not None else value
            found.append(MemoryChange(Of.JOB, key, JOB_WORDS[word], kept))
        elif word in VC_WORDS and known is not None:
            kept = [value] if value is not None else None
            found.append(MemoryChange(Of.VC, key, VC_WORDS[word], kept, at_of(known["planner"] or "")))
        else:
            planner, _, rest = name.rpartition("/")
            lists.setdefault(at_of(planner), {})[rest] = value
    return found + [change for at, values in lists.items() for change in planner_changes(at, values)]


def planner_changes(at: At, values: Raw) -> list[MemoryChange]:
    """Values of a planner that do not belong to jobs."""
    if "queues" in values and "counters" in values:
        values["queues"] = [values["queues"], values.pop("counters")]
    if values.get("order") is not None:
        values["list"] = [values.pop("order")]
    if "wake_s" in values:
        wake_s = values.pop("wake_s")
        values["wake"] = [wake_s] if wake_s is not None else None
    return [MemoryChange(Of.ALL, "", slot, value, at) for slot, value in values.items()]


def at_of(planner: str) -> At:
    vc, _, pinned = planner.partition("/pinned ")
    return (vc, pinned)


class Groups:
    def __init__(self, owners: set[str]) -> None:
        self.owners = owners
        """Jobs whose tasks start one by one."""
        self.seen: set[str] = set()

    def convert_entry(self, entry: Raw) -> bool:
        """True if it was concerned with groups."""
        events: list[Raw] = []
        has_groups = False
        for event in entry["events"]:
            if event["type"] == "MembersEnded":
                outcome = "succeeded" if event["succeeded"] else "failed"
                event = {"type": "GroupEnded", "group_id": event["job_id"], "outcome": outcome, "reason": ""}
                has_groups = True
            elif event["type"] == "JobSubmitted":
                group = self.convert_spec(event["job"])
                has_groups |= group is not None or "needs_groups" in event["job"]
                if group is not None and group["id"] not in self.seen:
                    self.seen.add(group["id"])
                    events.append({"type": "GroupFormed", "group": group})
            events.append(event)
        entry["events"] = events
        return has_groups

    def convert_spec(self, spec: Raw) -> Raw | None:
        """The group of this job."""
        name = spec.pop("group", "")
        job, slash, task = spec["id"].partition("/")
        group: Raw | None = None
        if slash:
            role, _, index = task.rpartition("-")
            spec["group"] = [job, role, int(index)]
            group = {"id": job, "kind": "incremental", "ends_when": {"never": True}}
            self.owners.add(job)
        elif name:
            group = {"id": f"{spec.get('vc', 'default')}/{spec.get('user', '')}/{name}", "name": name}
            spec["group"] = [group["id"], "", 0]
        needs = spec.pop("needs", [])
        spec["needs"] = [each for each in needs if each not in self.owners]
        if len(spec["needs"]) < len(needs):
            spec["needs_groups"] = [each for each in needs if each in self.owners]
        return group

    def convert_snapshot(self, saved: Raw) -> None:
        groups: dict[str, Raw] = {}
        for job in saved["jobs"]:
            spec, state = job[0], job[3]
            found = self.convert_spec(spec)
            if found is not None:
                group = groups.setdefault(found["id"], {"spec": found, "members": {}, "left": 0})
                _join(group, spec, state)
        for group_id, group in groups.items():
            group["needed_by"] = saved["needed_by"].pop(group_id, [])
        saved["groups"] = list(groups.values())


def _join(group: Raw, spec: Raw, state: str) -> None:
    is_final = state in FINAL
    group["members"][spec["id"]] = state if is_final else None
    group["left"] += not is_final
    if state == "stopped":
        group["is_cut_short"] = True
    elif is_final:
        counts = group.setdefault("succeeded" if state == "succeeded" else "failed", {})
        counts[spec["group"][1]] = counts.get(spec["group"][1], 0) + 1
