"""The effect of each event on the state: one module for each source of events, and one for what follows when something
ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skep.core.events import (
    ClockStepped,
    ClusterChanged,
    GroupEnded,
    GroupFormed,
    JobAltered,
    JobHeld,
    JobReleased,
    JobsForgotten,
    JobSubmitted,
    NodeBack,
    NodeChanged,
    NodeConditions,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeUndrained,
    OthersChanged,
    PolicyChanged,
    PolicyFailed,
    PriorityChanged,
    ProgressReported,
    Solved,
    StopRequested,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
    TimerDue,
)
from skep.core.fold import admins, endings, nodes, owners, tasks, timers

if TYPE_CHECKING:
    from skep.core.state import State

# Each function takes the events of its key, which the type of a dictionary cannot express.
HANDLERS: dict[type, Callable[[State, Any], None]] = {
    JobSubmitted: owners.job_submitted,
    JobHeld: owners.job_held,
    JobReleased: owners.job_released,
    StopRequested: owners.stop_requested,
    GroupFormed: owners.group_formed,
    GroupEnded: endings.group_ended,
    PriorityChanged: owners.priority_changed,
    JobAltered: owners.job_altered,
    JobsForgotten: owners.jobs_forgotten,
    TasksPlaced: tasks.tasks_placed,
    TasksStarted: tasks.tasks_started,
    TasksExited: tasks.tasks_exited,
    TasksMoved: tasks.tasks_moved,
    TasksSuspended: tasks.tasks_suspended,
    TasksResumed: tasks.tasks_resumed,
    SuspendRefused: tasks.suspend_refused,
    ProgressReported: tasks.progress_reported,
    NodeLost: nodes.node_lost,
    NodeBack: nodes.node_back,
    NodeConditions: nodes.node_conditions,
    NodeDrained: nodes.node_drained,
    NodeUndrained: nodes.node_undrained,
    NodeJoined: nodes.node_changed,
    NodeLeft: nodes.node_left,
    NodeChanged: nodes.node_changed,
    OthersChanged: nodes.others_changed,
    PolicyChanged: admins.policy_changed,
    PolicyFailed: admins.policy_failed,
    ClusterChanged: admins.cluster_changed,
    ClockStepped: admins.clock_stepped,
    Solved: admins.solved,
    TimerDue: timers.timer_due,
}
