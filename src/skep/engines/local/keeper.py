"""The turn keeper: the process that lets jobs take turns on GPUs, one for each data folder. See `turns.py`,
`throttle.py` and, for GPUs of a declared speed, `brake.py`.

Forked by `forks.py` when the first share group is created: standard library only. It is not a thread of the server,
because turns must be exact while the server is busy, and it outlives the server as shims do. It uses only its folder:

    groups.json     the share groups, written by the engine
    bell            a fifo: a line notifies it that `groups.json` is new
    lock            held for life, so that there is one keeper
    measured.json   what each member has had, written once a second; an old one means a stuck keeper

It pauses a job by the control group inside that of each task (`gather`), or by SIGSTOP to every process if there is
none. It sends each shim `turns LEASE` once a second: a shim that no longer receives this continues its task, so no task
stays paused when this process dies. It ends when no member is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import stat
import sys
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from skep.engines.local.brake import Brake
    from skep.engines.local.disk import SAFELY, write_whole
    from skep.engines.local.pausable import PausableTask
    from skep.engines.local.processes import thaw
    from skep.engines.local.throttle import DutyControl
    from skep.engines.local.turns import Member, choose, window_of
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # The interpreter runs isolated, without this folder.
    from brake import Brake
    from disk import SAFELY, write_whole
    from pausable import PausableTask
    from processes import thaw
    from throttle import DutyControl
    from turns import Member, choose, window_of

LEASE_S = 5.0
"""How long a shim lets its task be paused without a message from us."""
RENEW_S = 1.0
SHORT_S = 0.01
"""The time between two checks while every member is at its limit."""
LEND_S = 0.05
"""The period of the duty cycle of an opportunistic job."""
BUSY = 0.05
"""A guaranteed job is busy if it used more than this part of a CPU in the last period."""
QUIET_PERIODS = 4
"""The number of idle periods in a row after which a guaranteed job counts as idle."""
CALM_PERIODS = 20
"""The number of idle periods in a row after which opportunistic jobs compete with other processes for the CPU. When the
guaranteed job continues they run for one more period: that costs it at most a twentieth of the time."""
FULL = 0.98
PROGRESS_MAX = 1 << 16
NICE = -10
LOOKS = 11
"""The number of CPU time samples, one a second, over which use is measured."""
LOOK_S, PATIENCE_S = 0.001, 0.05
"""The time between two checks whether paused members have stopped, and how long the next ones wait for that."""


class ScheduledMember:
    """A member of a share group with its tasks."""

    def __init__(self, key: str, told: dict[str, Any], now_s: float) -> None:
        self.key = key
        self.tasks = [PausableTask(each) for each in told["tasks"]]
        self.turns = Member(key, told["lanes"], now_s=now_s)
        self.brake = Brake()
        self.joined_s = now_s
        self.is_lent = False
        self.can_yield = True
        """Its scheduling class can be set."""
        self.is_idle_class = False
        """Its threads have the scheduling class SCHED_IDLE."""
        self.late = 0
        """How often it did not stop in time."""
        self.is_paused: bool | None = None
        """None: unknown, as the previous keeper left it."""
        self.cpu_from_s = self.cpu_s = self._cpu_now()
        self.cpu_moved_s = now_s
        self.looks: deque[tuple[float, float]] = deque([(now_s, self.cpu_s)], LOOKS)
        self.progress_ns = 0
        self.mark: tuple[float, float] | None = None
        """When it last reported a step, and which."""
        self.update(told)

    def update(self, told: dict[str, Any]) -> None:
        self.turns.lanes = frozenset(told["lanes"])
        self.turns.request, self.turns.limit = told["request"], told["limit"]
        self.turns.weight = max(told["weight"], 1e-6)
        self.brake.speed = max(told.get("speed", 1.0), 0.01)
        self.is_lent = told["is_lent"]
        self.yield_cpu(self.is_lent)

    def yield_cpu(self, is_idle: bool) -> None:
        """Run only on idle CPUs, or normally again, if that can be set."""
        if is_idle != self.is_idle_class and self.can_yield:
            self.can_yield = all([task.yield_cpu(is_idle) for task in self.tasks])
            self.is_idle_class = is_idle and self.can_yield

    @property
    def has_left(self) -> bool:
        return all(task.has_left for task in self.tasks)

    def renew(self, lease_s: float, epoch: int) -> bool:
        return all([task.order(lease_s, epoch) for task in self.tasks])

    @property
    def stands(self) -> bool:
        return all(task.stands for task in self.tasks)

    def pause(self, now_s: float) -> None:
        self._hold()
        self.turns.end(now_s)
        self.brake.end(now_s)

    def go_on(self, now_s: float) -> None:
        self.turns.begin(now_s)
        self.brake.begin(now_s)
        self.brake.turn(now_s)
        self._run_or_rest()

    def _run_or_rest(self) -> None:
        if self.brake.is_resting:
            self._hold()
        elif self.is_paused is not False:
            for task in self.tasks:
                task.go_on()
            self.is_paused = False

    def _hold(self) -> None:
        for task in self.tasks:
            if not (self.is_paused and task.is_gathered):  # Processes stopped by signals may have been continued.
                task.pause()
        self.is_paused = True

    def brake_turn(self, now_s: float) -> None:
        if now_s >= self.brake.next_s and self.brake.turn(now_s):
            self._run_or_rest()

    def leave(self, epoch: int) -> None:
        """Its shims continue it: they know whether it is also suspended."""
        for task in self.tasks:
            if task.is_gathered:
                thaw(task.inner)
            if self.is_idle_class:
                task.yield_cpu(False)
            task.order(0.0, epoch)

    def look(self, now_s: float) -> float:
        """Seconds of CPU that it has used."""
        before, self.cpu_s = self.cpu_s, max(self._cpu_now(), self.cpu_s)
        if self.cpu_s > before:
            self.cpu_moved_s = now_s
        return self.cpu_s

    def cpu(self, now_s: float) -> float:
        """CPUs used on average over the last seconds."""
        self.looks.append((now_s, self.look(now_s)))
        (then_s, before_s), (now_s, cpu_s) = self.looks[0], self.looks[-1]
        return (cpu_s - before_s) / (now_s - then_s) if now_s > then_s else 0.0

    def _cpu_now(self) -> float:
        return sum(task.cpu_s() for task in self.tasks)

    def step_s(self) -> float | None:
        """The mean time of its steps since the last report of `skep.train`, if there is a new one."""
        for task in self.tasks:
            values = self._report(f"{task.own}/progress.json")
            if values is None:
                continue
            at_s, step = values
            before, self.mark = self.mark, values
            if before is not None and step > before[1] and at_s > before[0]:
                return (at_s - before[0]) / (step - before[1])
        return None

    def _report(self, path: str) -> tuple[float, float] | None:
        """Time and number of a step, from a file that the task may have replaced by anything."""
        try:
            fd = os.open(path, os.O_RDONLY | SAFELY)
            with open(fd, "rb") as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns == self.progress_ns:
                    return None
                self.progress_ns = status.st_mtime_ns
                found = json.loads(file.read(PROGRESS_MAX))
            return float(found["at_s"]), float(found["step"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None


class TurnSchedule:
    """The members of a share group, and the time of the next action."""

    def __init__(self) -> None:
        self.quantum_s = 0.1
        self.tenants: dict[str, ScheduledMember] = {}
        self.next_s = 0.0
        self.chosen: set[str] = set()
        """The members with the present turn, or with the next one during a switch."""
        self.switch_by_s = 0.0
        """Until when the next ones wait for the others to stop; 0: no switch is in progress."""
        self.throttle = DutyControl()
        self.duty = 1.0
        self.is_second_half = False
        """In a duty cycle: the opportunistic members are paused."""
        self.quiet = 0
        self.looked: tuple[float, float] = (0.0, 0.0)
        """When the guaranteed members were last checked, and the CPU time that they had used by then."""

    @property
    def window_s(self) -> float:
        return window_of(self.quantum_s, len(self.tenants))

    def restart(self, now_s: float) -> None:
        """The members have changed: earlier use no longer counts."""
        self.next_s, self.switch_by_s = now_s, 0.0
        for tenant in self.tenants.values():
            tenant.turns.since_s = now_s

    def turn(self, now_s: float) -> None:
        """The turn, or a part of the duty cycle, is over."""
        there = [tenant for tenant in self.tenants.values() if not tenant.has_left]
        lent = [tenant for tenant in there if tenant.is_lent]
        if lent:
            self._lend([tenant for tenant in there if not tenant.is_lent], lent, now_s)
            return
        if self.switch_by_s:
            self._finish_switch(there, now_s)
            return
        members = [tenant.turns for tenant in there]
        self.chosen = {member.key for member in choose(members, now_s, self.window_s)}
        for tenant in there:
            if tenant.key not in self.chosen:
                tenant.pause(now_s)
        self.switch_by_s = now_s + PATIENCE_S
        self._finish_switch(there, now_s)

    def _finish_switch(self, there: list[ScheduledMember], now_s: float) -> None:
        """The next ones continue when the others have stopped, or did not stop in time."""
        late = [tenant for tenant in there if tenant.key not in self.chosen and not tenant.stands]
        if late and now_s < self.switch_by_s:
            self.next_s = now_s + LOOK_S
            return
        self.switch_by_s = 0.0
        for tenant in late:
            tenant.late += 1
        for tenant in there:
            if tenant.key in self.chosen:
                tenant.go_on(now_s)
        is_endless = len(self.chosen) == len(there) and all(tenant.turns.limit >= 1.0 for tenant in there)
        self.next_s = now_s + (RENEW_S if is_endless else self.quantum_s if self.chosen else SHORT_S)

    def _lend(self, guaranteed: list[ScheduledMember], lent: list[ScheduledMember], now_s: float) -> None:
        """Guaranteed members run all the time, the others for a part of each period."""
        for tenant in guaranteed:
            tenant.go_on(now_s)
        if self.duty < FULL and not self.is_second_half and self.duty > 0.0:
            self.is_second_half = True
            for tenant in lent:
                tenant.pause(now_s)
            self.next_s = now_s + (1.0 - self.duty) * LEND_S
            return
        self.is_second_half = False
        self._adapt(guaranteed, now_s)
        for tenant in lent:
            tenant.yield_cpu(self.quiet < CALM_PERIODS)
            if self.duty > 0.0:
                tenant.go_on(now_s)
            else:
                tenant.pause(now_s)
        self.next_s = now_s + LEND_S * (self.duty if 0.0 < self.duty < FULL else 1.0)

    def _adapt(self, guaranteed: list[ScheduledMember], now_s: float) -> None:
        (then_s, before_s), self.looked = self.looked, (now_s, sum(tenant.look(now_s) for tenant in guaranteed))
        is_at_work = self.looked[1] - before_s > BUSY * (now_s - then_s)
        self.quiet = 0 if is_at_work else self.quiet + 1
        for tenant in guaranteed:
            step_s = tenant.step_s()
            if step_s is not None:
                self.throttle.hear(step_s, self.duty)
        self.duty = self.throttle.duty(is_busy=bool(guaranteed) and self.quiet < QUIET_PERIODS)

    def measured(self, now_s: float) -> dict[str, Any]:
        """What each member has had. In mode `lend` jobs run at the same time, and the share is one of CPU time."""
        cpus = {tenant.key: tenant.cpu(now_s) for tenant in self.tenants.values()}
        is_lent = any(tenant.is_lent for tenant in self.tenants.values())
        most = max(sum(cpus.values()), 1.0)
        found = {}
        for tenant in self.tenants.values():
            share = cpus[tenant.key] / most if is_lent else tenant.turns.used(now_s, self.window_s)
            found[tenant.key] = {
                "share": round(share, 4),
                "cpu": round(cpus[tenant.key], 4),
                "turn_s": round(tenant.turns.turn_s(now_s), 3),
                "cpu_s": round(tenant.cpu_s - tenant.cpu_from_s, 3),
                "wall_s": round(now_s - tenant.joined_s, 3),
                "late": tenant.late,
                "idle_s": round(now_s - tenant.cpu_moved_s, 1),
                "is_settled": now_s - tenant.turns.since_s >= self.window_s,
                "way": "freezer" if all(task.is_gathered for task in tenant.tasks) else "signals",
            }
            if tenant.is_lent:
                found[tenant.key] |= {"duty": round(self.duty, 3), "is_idle_class": tenant.is_idle_class}
        return found


class Keeper:
    def __init__(self) -> None:
        self.bell = os.open("bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.groups: dict[str, TurnSchedule] = {}
        self.epoch = 0
        self.renew_s = 0.0
        self.is_over = False

    def serve(self) -> None:
        self.read_groups()
        while not self.is_over:
            now_s = time.monotonic()
            for group in self.groups.values():
                if now_s >= group.next_s:
                    group.turn(now_s)
                for tenant in group.tenants.values():
                    tenant.brake_turn(now_s)
            if now_s >= self.renew_s:
                self.renew(now_s)
                self.renew_s = now_s + RENEW_S
            nexts = [group.next_s for group in self.groups.values()]
            nexts += [tenant.brake.next_s for group in self.groups.values() for tenant in group.tenants.values()]
            wait_s = min([self.renew_s, *nexts]) - time.monotonic()
            if select.select([self.bell], [], [], max(wait_s, 0.0))[0]:
                os.read(self.bell, 4096)
                self.read_groups()

    def read_groups(self) -> None:
        """Apply the new groups of the engine. Members keep their measured use."""
        try:
            with open("groups.json", "rb") as file:
                told = json.load(file)
        except (OSError, ValueError):
            return
        before = {tenant.key: tenant for group in self.groups.values() for tenant in group.tenants.values()}
        groups_before, self.groups, self.epoch = self.groups, {}, told["epoch"]
        now_s = time.monotonic()
        for each in told["groups"]:
            group = self.groups[each["name"]] = groups_before.get(each["name"]) or TurnSchedule()
            were, group.tenants = group.tenants.keys(), {}
            group.quantum_s = each["quantum_s"]
            group.next_s = min(group.next_s, now_s + group.quantum_s)
            for key, member in each["members"].items():
                self._admit(group, key, member, before.pop(key, None), now_s)
            if group.tenants.keys() != were:
                group.restart(now_s)
        for tenant in before.values():
            tenant.leave(self.epoch)
        self.renew_s = now_s

    def _admit(
        self, group: TurnSchedule, key: str, told: dict[str, Any], known: ScheduledMember | None, now_s: float
    ) -> None:
        if known is not None and [task.path for task in known.tasks] == [task["path"] for task in told["tasks"]]:
            known.update(told)
            group.tenants[key] = known
            return
        if known is not None:
            known.leave(self.epoch)
        tenant = ScheduledMember(key, told, now_s)
        if tenant.renew(LEASE_S, self.epoch):  # Before it is paused for the first time.
            group.tenants[key] = tenant

    def renew(self, now_s: float) -> None:
        for group in self.groups.values():
            for tenant in list(group.tenants.values()):
                if tenant.has_left:
                    del group.tenants[tenant.key]
                    group.restart(now_s)
                elif not tenant.renew(LEASE_S, self.epoch):
                    tenant.go_on(now_s)
        members: dict[str, Any] = {}
        for group in self.groups.values():
            members |= group.measured(now_s)
        with contextlib.suppress(OSError):
            write_whole("measured.json", json.dumps({"at_s": now_s, "members": members}))
        self.is_over = not any(group.tenants for group in self.groups.values())

    def let_all_go(self) -> None:
        for group in self.groups.values():
            for tenant in group.tenants.values():
                tenant.leave(self.epoch)


def main() -> None:
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # Another keeper is running.
    if os.getpid() != os.getsid(0):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keeper = Keeper()

    def end(*_: object) -> None:
        keeper.is_over = True

    signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)  # A turn must end on time; the keeper needs little CPU.
    try:
        keeper.serve()
    finally:
        keeper.let_all_go()
