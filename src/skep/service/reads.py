"""Read operations of a running Skep, from any thread.

Lists come from the store's tables; what only the state has (where jobs run, why jobs wait) is read under the lock that
the writer holds while it decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from skep.core.errors import Conflict, InputError, NotFound
from skep.core.job import JobState
from skep.core.model import GroupRef, JobSpec
from skep.core.needs import Need, Offer, count_offers, lacks, offered_needs
from skep.core.ports import Capability, EngineReads, LogReader, Metrics, RunsBeside, TaskEnvironment
from skep.core.refusal import Cause, Refusal
from skep.core.solving import solver_sentence, solver_status
from skep.files.text import Texts
from skep.jobs.core import member_id, task_name, to_core
from skep.jobs.request import Request, in_full, masked
from skep.jobs.write import job_text
from skep.policies.registry import needs_of, policies
from skep.service import commands, present, queries
from skep.service.book import PENDING
from skep.service.clock import Clock
from skep.service.foreseen import Foresight
from skep.service.order import parse_order, read_cursor, write_cursor
from skep.service.planning import error_text, sentence
from skep.service.sight import EVERYTHING, JOB_NAMED, Sight, hide_in, hide_others
from skep.service.spent import NOTHING, Spent, shown_spent, spent
from skep.service.store import JobFilter, Notice, Store, StoredJob
from skep.service.turn import Lendable, Turn
from skep.service.values import Json
from skep.service.writer import Writer

USAGE = {"user": "user", "vc": "vc", "job": "seq"}


class Reads:
    """Answers within `sight`: a new query about jobs must use `_find`, `sight.sees` or `sight.clause`."""

    sight: Sight = EVERYTHING
    store: Store
    writer: Writer
    engine: EngineReads
    lock: Lendable
    clock: Clock
    foresight: Foresight | None = None
    """The last forecast, if there is one."""

    def seen_by(self, sight: Sight) -> Reads:
        """The same reads, restricted to what `sight` allows."""
        seen = Reads()
        seen.store, seen.writer, seen.engine = self.store, self.writer, self.engine
        seen.lock, seen.clock, seen.sight = self.lock, self.clock, sight
        seen.foresight = self.foresight
        return seen

    # Jobs -------------------------------------------------------------------------------------------------------

    def jobs(
        self, where: JobFilter, limit: int, cursor: str | None, sort: str = "-id"
    ) -> tuple[list[Json], str | None]:
        """Newest first, or as sorted; and the cursor of the next page."""
        where = msgspec.structs.replace(where, sight=self.sight)
        after = read_cursor(cursor) if cursor else None
        order = parse_order(sort, after.now_s if after is not None else self.clock())
        found = self.store.sorted_jobs(where, limit + 1, after, order)
        more = write_cursor(found[limit - 1][1]) if len(found) > limit else None
        return self._listed([row for row, _ in found[:limit]]), more

    def rows(self, ids: Iterable[str]) -> list[Json]:
        """Those of these jobs that are visible, as in a list."""
        return self._listed(queries.rows_of(self.store, ids, self.sight))

    def _listed(self, rows: list[StoredJob]) -> list[Json]:
        reasons = self._refusals(row for row in rows if row.state == PENDING)
        for row in rows:
            if row.seq in reasons:
                row.reason = reasons[row.seq].reason
        now_s = self.clock()
        had = spent(self.store, (row.seq for row in rows), now_s)
        return self.hide_jobs("reason", [self._shown(row, had.get(row.seq, NOTHING), now_s) for row in rows])

    def spent(self, seqs: Iterable[int]) -> dict[int, Spent]:
        """What jobs that have started have had so far."""
        return spent(self.store, seqs, self.clock())

    def counts(self, where: JobFilter) -> dict[str, int]:
        """Jobs by state that match the rest of the filter."""
        return queries.state_counts(self.store, msgspec.structs.replace(where, sight=self.sight))

    def last_seq(self) -> int:
        """The number of the last event."""
        return queries.last_seq(self.store)

    def _refusals(self, rows: Iterable[StoredJob]) -> dict[int, Refusal]:
        """Why these jobs wait, by seq, without those that no longer do."""
        limits: dict[str, Refusal | None] = {}
        asked: dict[int, str] = {}
        with self.lock:
            for row in rows:
                record = self.writer.book.records.get(str(row.seq))
                jobs = present.jobs_of(self.writer, record) if record is not None else ()
                job = next((job for job in jobs if job.state is JobState.PENDING), None)
                if job is not None:
                    asked[row.seq] = job.id
                    limits[job.id] = self.writer.limits.refusal(job, self.writer.state)
        found = self.writer.planning.explain(limits) if limits else {}
        shown = {seq: found[name] for seq, name in asked.items() if name in found}
        vcs = self._vcs_named(f"{each.reason} {each.remedy}" for each in shown.values())
        return {seq: without_others(refusal, self.sight, vcs) for seq, refusal in shown.items()}

    def _vcs_named(self, texts: Iterable[str]) -> dict[str, str]:
        """The VCs of the jobs that these texts name, if the reader may not see all."""
        return (
            {} if self.sight.is_whole else self.store.vcs_of({id for text in texts for id in JOB_NAMED.findall(text)})
        )

    def _shown(self, row: StoredJob, had: Spent, now_s: float) -> Json:
        shown = {**msgspec.structs.asdict(row), **shown_spent(row, had, now_s)}
        shown["id"] = str(shown.pop("seq"))
        shown["gpus"] = int(row.gpus) if row.gpus == int(row.gpus) else row.gpus
        shown["progress"] = self.engine.progress(shown["id"]) if row.state == JobState.RUNNING else None
        shown["eta"] = None if self.foresight is None else self.foresight.eta(row, now_s)
        return shown

    def brief(self, ref: str) -> Json:
        """One job as it appears in a list."""
        return self._listed([self._find(ref)[0]])[0]

    def _find(self, ref: str) -> tuple[StoredJob, Request]:
        seq = commands.seq_of(self.writer, ref, self.sight)
        found = self.store.job(seq)
        # the same answer, which does not reveal that the job exists
        if found is None or not self.sight.sees(found[0].vc):
            raise NotFound(f"there is no job {ref}", hint="`skep ps --all` lists them")
        return found[0], msgspec.json.decode(found[1], type=Request)

    def request(self, ref: str) -> tuple[str, Json]:
        """The id of a job, and its request."""
        row, request = self._find(ref)
        return str(row.seq), msgspec.to_builtins(masked(request))

    def job(self, ref: str) -> Json:
        """Everything about one job: by its id, or the latest of that name."""
        row, request = self._find(ref)
        (shown,) = self._listed([row])
        shown["request"] = in_full(masked(request))
        history = [msgspec.structs.asdict(attempt) for attempt in self.store.attempts(row.seq)]
        shown["history"] = self.hide_jobs("phrase", history)
        shown["tasks"] = [task for name in core_ids(row, request) for task in self._tasks(name)]
        shown["share"] = self._share(core_ids(row, request)[0])
        return shown

    def compared(self, where: JobFilter, limit: int, cursor: str | None) -> tuple[list[Json], str | None]:
        """Jobs with their requests and the values that they last reported, oldest first; and the next page."""
        found, following = self.jobs(where, limit, cursor, "id")
        requests = self.store.requests(int(job["id"]) for job in found)
        for job in found:
            request = msgspec.json.decode(requests[int(job["id"])], type=Request)
            job["request"] = in_full(masked(request))
            job["values"] = self.engine.progress(to_core(request, job["id"])[0].id)
        return found, following

    def _share(self, core_id: str) -> Json | None:
        """The terms under which it shares its GPUs, and what it gets."""
        with self.lock:
            job = self.writer.state.jobs.get(core_id)
            terms = job.held.terms if job is not None and job.held is not None else None
            logged = job.share if job is not None else None
        measured = self.engine.share(core_id) if terms is not None else {}
        if terms is None or not (terms.mode or measured):
            return None
        return {
            "mode": terms.mode,
            "guaranteed_milli": terms.milli,
            "limit_milli": terms.limit or terms.milli,
            "weight": terms.weight,
            "group": terms.group,
            "share": measured.get("share", logged),
            "cpu": measured.get("cpu"),
            "duty": measured.get("duty"),
            "idle_s": measured.get("idle_s"),
        }

    def _shared(self) -> dict[tuple[str, str], float]:
        """By VC and share mode: the GPU time that its jobs got, in GPUs, as far as measured."""
        found: dict[tuple[str, str], float] = {}
        for job in self.writer.state.held_jobs.values():
            if job.held is not None and job.held.terms.mode and job.share is not None:
                key = (job.spec.vc, job.held.terms.mode)
                found[key] = found.get(key, 0.0) + job.share * job.held.gpu_count()
        return found

    def _tasks(self, core_id: str) -> list[Json]:
        return [msgspec.structs.asdict(task) for task in self.engine.tasks(core_id)]

    def explain(self, ref: str) -> Json:
        """Why a job does not run, and what would change that."""
        row, _ = self._find(ref)
        refusal = self._refusals([row]).get(row.seq)
        if refusal is None:
            reason = self.without_others(row.reason) or f"the job {'is' if row.finish_s is None else 'has'} {row.state}"
            refusal = Refusal("not-waiting", Cause.ORDER, reason, "")
        shown = {name: getattr(refusal, name) for name in ("code", "cause", "reason", "remedy")}
        eta = None if self.foresight is None else self.foresight.eta(row, self.clock())
        return {"job": str(row.seq), "state": row.state, **shown, "eta": eta, "problems": self.policy_problems()}

    def forecast(self) -> Json | None:
        """How the last forecast was made; how often earlier ones held, for readers who see all of their jobs."""
        if self.foresight is None:
            return None
        shown: Json = msgspec.to_builtins(msgspec.structs.replace(self.foresight, jobs={}))
        del shown["jobs"]
        return shown if self.sight.is_whole else {**shown, "judged": []}

    def policy_problems(self) -> list[str]:
        """Policies that failed and were replaced, and solvers that give no answer, in sentences. Takes no lock."""
        faults = list(self.writer.state.faults.values())
        found = [sentence(fault) for fault in faults if not fault.vc or self.sight.sees(fault.vc)]
        solvers = [each for each in solver_status(self.writer.state.memory) if not each.vc or self.sight.sees(each.vc)]
        return found + [said for each in solvers if (said := solver_sentence(each, self.clock()))]

    def without_others(self, text: str) -> str:
        """A sentence that may name jobs, without those that the reader may not see."""
        return hide_others(text, self.sight, self._vcs_named([text]))

    def hide_jobs(self, field: str, rows: list[Json]) -> list[Json]:
        """Rows whose `field` is such a sentence."""
        vcs = self._vcs_named(row[field] for row in rows)
        return hide_in(field, rows, self.sight, vcs)

    def check_log(self, ref: str, task: str = "", attempt: int = 0) -> None:
        """Raises `NotFound` if there was no such attempt or task."""
        row, request = self._find(ref)
        self.engine.check_log(core_id(row, request, task), task, attempt)

    def open_log(self, ref: str, task: str = "", attempt: int = 0, tail: int | None = None) -> LogReader:
        """Empty while a job has not started."""
        row, request = self._find(ref)
        return self.engine.open_log(core_id(row, request, task), task, attempt, tail)

    def metrics(self, ref: str, task: str = "") -> Iterable[Metrics]:
        """By attempt, what a task reported through `skep.train`."""
        row, request = self._find(ref)
        return self.engine.metrics(core_id(row, request, task), task)

    def job_file(self, ref: str, *, hide_values: bool) -> Json:
        """The file that submits it again, and the values that are hidden in it."""
        text, hidden = job_text(self._find(ref)[1], hide_values=hide_values)
        return {"text": text, "hidden": hidden}

    def environment(self, ref: str, task: str = "") -> TaskEnvironment:
        """Raises `NotFound` if a job has never been started here."""
        row, request = self._find(ref)
        if Capability.EXEC not in self.engine.capabilities:
            raise Conflict(f"engine {self.engine.name} cannot run commands beside a task")
        return self.engine.environment(core_id(row, request, task), task)

    def run_beside(self, ref: str, task: str, argv: list[str]) -> Iterator[tuple[int, bytes]]:
        """Run a command where a task runs, if that is not this machine."""
        row, request = self._find(ref)
        if not isinstance(self.engine, RunsBeside):
            raise Conflict("the tasks of this engine run on the machine of the server: run the command there")
        return self.engine.run_beside(core_id(row, request, task), task, argv)

    def check(self, requests: list[Request]) -> list[list[JobSpec]]:
        """The jobs of the core of each. Raises if these could not be submitted now. Changes nothing."""
        with self.lock:
            return commands.check_all(self.writer, Turn(self.writer.state.now_s), requests, self.sight)

    # The cluster ------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Json]:
        return present.nodes(self)

    def vcs(self) -> list[Json]:
        return present.vcs(self)

    def owned(self) -> dict[str, int]:
        """GPUs of each VC that any of its jobs may use, in the order of the cluster file; empty without VCs."""
        return self.writer.ground.owned()

    def guaranteed(self) -> dict[str, int]:
        """GPUs that each VC owns; empty without VCs."""
        with self.lock:
            return dict(self.writer.ground.guaranteed())

    def sample(self) -> present.Sample:
        """The numbers of this moment."""
        with self.lock:
            return present.sample(self.writer)

    def idle(self) -> present.IdleShown:
        """Idle GPUs."""
        return present.idle(self)

    def cluster(self) -> Json:
        nodes = self.nodes()
        ground = self.writer.ground
        return {
            "name": ground.name,
            "text": ground.text if self.sight.is_whole else "",
            "policy": ground.policy,
            "gpus": sum(node["gpus"] for node in nodes),
            "used": sum(node["used"] for node in nodes),
            "nodes": nodes,
            "vcs": self.vcs(),
        }

    def limits(self, user: str | None) -> list[Json]:
        """Limits and their use: for this user (None: for all users that have jobs or files), and for visible VCs."""
        disk = self.engine.disk_used()
        with_files = {name for kind, name in disk or () if kind == "user"}
        with self.lock:
            limiter = self.writer.limits
            users = sorted({*limiter.users, *limiter.rules.users, *with_files}) if user is None else [user]
            vcs = sorted(vc for vc in {*limiter.vcs, *limiter.rules.vcs} if self.sight.sees(vc))
            return limiter.shown(users, vcs, disk)

    def policy(self) -> Json:
        """Takes no lock: the needs of a user-written policy were read when it was chosen."""
        policy = self.writer.ground.policy
        is_named = policy.partition(":")[0] in policies()
        needs = needs_of(policy) if is_named else self.writer.own_needs.get(policy, frozenset())
        missing = [str(lack) for lack in lacks(needs, self.offer())]
        return {"policy": policy, "problems": self.policy_problems(), "missing": missing}

    def offer(self) -> Offer:
        """What is available to a policy: from the engine, and from the jobs that have not ended."""
        with self.lock:
            jobs = [job.spec for job in self.writer.state.jobs.values() if not job.state.is_final]
        return count_offers(offered_needs(self.engine.capabilities), jobs)

    def missing(self, policy: str, files: Mapping[str, str] | None = None) -> list[str]:
        """The needs of a policy that are not met here, in sentences. `files`: the texts of its files."""
        if ".py:" not in policy:
            return [str(lack) for lack in lacks(needs_of(policy), self.offer())]
        try:
            needs: frozenset[Need] = self.writer.planning.call(lambda: needs_of(policy, Texts(files)))
        except InputError:
            raise
        except BaseException as error:  # user-written code may raise anything
            raise InputError(f"the policy failed ({error_text(error)})", hint="correct it, and try again") from error
        self.writer.own_needs[policy] = needs
        return [str(lack) for lack in lacks(needs, self.offer())]

    def usage(self, by: str, since_s: float | None, until_s: float | None, vc: str = "") -> list[Json]:
        """GPU-hours held between these times, by one VC or all; without times, from the beginning up to now."""
        if by not in USAGE:
            raise InputError(f"usage by '{by}' is not known", hint="user, vc or job")
        now_s = self.clock()
        until_s = min(until_s if until_s is not None else now_s, now_s)
        rows = self.store.usage(USAGE[by], since_s or 0.0, until_s, self.sight.of(vc))
        return [{by: str(whose), "jobs": count, "gpu_hours": round(used / 3600, 4)} for whose, count, used in rows]

    # What happened ----------------------------------------------------------------------------------------------

    def events(self, after: int, job_id: str | None, limit: int) -> list[Json]:
        """Of one job (found visible before), of all visible jobs, or all."""
        return self.hide_jobs("text", [as_event(each) for each in self.store.notices(after, job_id, limit, self.sight)])

    def first_event(self) -> int | None:
        """The number of the oldest event that is kept."""
        return self.store.first_notice()

    def last_event(self, job_id: str | None, back: int) -> int:
        """The number after which there are `back` events."""
        return self.store.last_notice(back, job_id, self.sight)

    def vcs_of(self, job_ids: Iterable[str]) -> dict[str, str]:
        return self.store.vcs_of(job_ids)

    def times(self, ended_after_s: float) -> list[tuple[int, float, float, float | None]]:
        """(seq, submitted, started, ended) of jobs that have started: the open ones, and those that ended since."""
        columns = "SELECT seq, submit_s, start_s, finish_s FROM jobs WHERE start_s IS NOT NULL AND"
        query = f"{columns} finish_s IS NULL UNION ALL {columns} finish_s > ?"
        return self.store.reader.execute(query, (ended_after_s,)).fetchall()

    def _waiting(self) -> dict[str, int]:
        """Pending jobs by cause."""
        counts: dict[str, int] = {}
        for job in self.writer.state.jobs.values():
            if job.waiting is not None:
                counts[str(job.waiting.cause)] = counts.get(str(job.waiting.cause), 0) + 1
        return counts

    def stats(self) -> Json:
        with self.lock:
            state = self.writer.state
            counts = self.writer.jobs_by_state()
            return {
                "jobs": counts,
                "waiting": self._waiting(),
                "shared": self._shared(),
                "events": state.event_count,
                "decisions": state.decision_count,
                "turns": self.writer.turns,
                "decide_s": self.writer.decide_s,
                "commit_s": self.writer.commit_s,
                "policy_failures": self.writer.policy_failures,
                "policies_replaced": len(state.faults),
                "solver_failures": self.writer.solver_failures,
                "solvers": solver_status(state.memory),
                "policy_longest_s": self.writer.longest_answer_s(),
                "clock_off_s": self.clock.off_s,
                "clock_steps": self.clock.steps,
            }


def core_ids(row: StoredJob, request: Request) -> list[str]:
    return [spec.id for spec in to_core(request, str(row.seq))]


def core_id(row: StoredJob, request: Request, task: str) -> str:
    """The job of the core that has this task, or the first one."""
    if request.gang:
        return str(row.seq)
    return member_id(str(row.seq), task or task_name(GroupRef("", next(iter(request.tasks)))))


def as_event(notice: Notice) -> Json:
    shown = msgspec.structs.asdict(notice)
    shown["job_id"] = shown.pop("job")
    return shown


def without_others(refusal: Refusal, sight: Sight, vcs: Mapping[str, str]) -> Refusal:
    reason, remedy = (hide_others(text, sight, vcs) for text in (refusal.reason, refusal.remedy))
    return msgspec.structs.replace(refusal, reason=reason, remedy=remedy)
