"""An engine on paper: jobs that were started run until a test says how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skep.core.actions import Action, Launch, Move, Stop
from skep.core.cluster import Cluster
from skep.core.events import Event, NodeBack, NodeLost
from skep.core.reports import Exited, Moved, Report, Started
from skep.service.live import Live


class Paper:
    """Does everything at once."""

    def __init__(self, live: Live, folder: Path) -> None:
        self.live, self.folder = live, folder

    def execute(self, at_s: float, actions: list[Action]) -> list[Event]:
        self.live.tell([self.report(each) for each in actions])
        return []

    def report(self, action: Action) -> Report:
        if isinstance(action, Launch):
            return Started(action.job_id, action.launch)
        if isinstance(action, Move):
            return Moved(action.job_id, action.launch)
        assert isinstance(action, Stop)
        return Exited(action.job_id, self.launch_of(action.job_id), 143, was_stopped=True)

    def launch_of(self, core_id: str) -> int:
        return self.live.writer.state.jobs[core_id].held_launch

    def end(self, core_id: str, code: int = 0) -> None:
        self.live.tell([Exited(core_id, self.launch_of(core_id), code)])

    def lose_node(self, node: str) -> None:
        state = self.live.writer.state
        number = state.cluster.by_name[node].index
        there = [job for job in state.held_jobs.values() if job.held is not None and number in job.held.nodes()]
        gone = [Exited(job.id, job.held_launch, 137, cause="node-lost") for job in there]
        self.live.tell([NodeLost(node), *gone])

    def restore_node(self, node: str) -> None:
        self.live.tell([NodeBack(node)])

    def log_files(self, core_id: str, task: str, attempt: int) -> list[Path]:
        path = self.folder / f"{core_id}.{task or 'task-0'}.log"
        if not path.exists():
            path.write_text(f"printed by {core_id}\n")
        return [path]

    def write_log(self, core_id: str, task: str, lines: list[str]) -> None:
        (self.folder / f"{core_id}.{task}.log").write_text("\n".join(lines) + "\n")

    def metrics_path(self, core_id: str, attempt: int) -> Path:
        return self.folder / "metrics" / core_id / f"{attempt}.jsonl"

    def metrics_files(self, core_id: str, task: str) -> list[tuple[int, Path]]:
        return [(attempt, self.metrics_path(core_id, attempt)) for attempt in (1, 2)]

    def environment(self, core_id: str, task: str) -> dict[str, Any]:
        return {"env": {}, "cwd": "/", "task": task}

    def progress(self, core_id: str) -> dict[str, Any]:
        return {"step": 7, "loss": 0.5}

    def tasks(self, core_id: str) -> list[dict[str, Any]]:
        return [{"name": "task-0", "state": "running", "node": "n0", "gpus": [0], "exit_code": None}]

    def gpu_health(self) -> dict[str, list[dict[str, Any]]]:
        reading = {"utilization": 97.0, "memory_used_mib": 1, "memory_total_mib": 2, "temperature_c": 60.0}
        return {"a0": [{"index": 0, **reading, "power_w": None, "errors": None}]}

    def last_job(self) -> int:
        return 0

    def use_cluster(self, cluster: Cluster) -> None: ...

    def look(self) -> None: ...

    def forget(self, core_id: str) -> None: ...

    def close(self) -> None: ...
