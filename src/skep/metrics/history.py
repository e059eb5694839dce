"""The cluster over time, folded from the events of a run, for the charts of the report."""

from __future__ import annotations

from skep.core.events import Event, TasksExited, TasksMoved, TasksStarted
from skep.core.job import Job
from skep.core.state import State
from skep.metrics.run import RunHistory, Span


class HistoryFold:
    """Call it with every batch of events."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.history = RunHistory()
        self.open: dict[int, list[Span]] = {}

    def __call__(self, at_s: float, events: list[Event]) -> None:
        for event in events:
            kind = type(event)
            if kind is TasksStarted or kind is TasksMoved or kind is TasksExited:
                job = self.state.jobs[event.job_id]  # type: ignore[union-attr]
                self._close(job, at_s)
                if kind is not TasksExited:
                    self._open(job, at_s)
        self._sample(at_s)

    def _open(self, job: Job, at_s: float) -> None:
        assert job.held is not None
        self.open[job.seq] = [
            Span(job.seq, piece.node, piece.gpus, at_s, at_s) for piece in job.held.slices if piece.gpus
        ]

    def _close(self, job: Job, at_s: float) -> None:
        for span in self.open.pop(job.seq, ()):
            self.history.spans.append(Span(span.job, span.node, span.gpus, span.start_s, at_s))

    def _sample(self, at_s: float) -> None:
        history = self.history
        cluster = self.state.cluster
        busy: float = 0
        for pool in cluster.pools:
            busy += pool.total - pool.free
        if history.at_s and history.at_s[-1] == at_s:
            history.pending_jobs[-1] = self.state.pending_count
            history.busy_gpus[-1] = busy
        else:
            history.at_s.append(at_s)
            history.pending_jobs.append(self.state.pending_count)
            history.busy_gpus.append(busy)

    def finish(self) -> RunHistory:
        for seq in list(self.open):
            self._close(next(job for job in self.state.jobs.values() if job.seq == seq), self.state.now_s)
        return self.history
