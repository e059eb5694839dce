"""The environment: the agent starts jobs, the simulator goes on to the next instant with a choice."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy
from gymnasium import spaces

from skep.core.cluster import Cluster
from skep.core.errors import InputError
from skep.core.events import Event
from skep.core.job import Job
from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import JobView, Trigger, View
from skep.engines.sim.engine import Simulator
from skep.experiments.sharing import read_shared
from skep.gym.observe import OF_CLUSTER, OF_SLOT, SLOTS, Choice, observation
from skep.policies.idle import Idle
from skep.traces.read import read_trace
from skep.traces.synth import synthesize
from skep.traces.trace import Trace

Reward = Literal["jct", "slowdown", "utilization"]
HOUR_S = 3600.0


class Commanded(Idle):
    """A planner that does what the agent says, and nothing else."""

    name = "commanded"

    def __init__(self) -> None:
        self.next: Plan | None = None
        self.pending: dict[int, JobView] = {}
        """Jobs that can be started, in the order of submission."""

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        for job in (*trigger.submitted, *trigger.returned):
            self.pending[job.seq] = job
        for job in trigger.withdrawn:
            self.pending.pop(job.seq, None)
        commanded, self.next = self.next, None
        return commanded or view.new_plan()


class ClusterEnv(gymnasium.Env[numpy.ndarray[Any, Any], Any]):
    """Action 0 waits; action n starts the n-th oldest pending job. `info["action_mask"]` (or `action_masks()`) has what
    is allowed; an action that is not allowed is like waiting. Instants without a choice are skipped.

    Rewards, by the time that passes: `jct` -1 for every job in the system and hour (their sum is the total JCT),
    `slowdown` the same with each job weighted by 1 ÷ its length, `utilization` the part of the GPUs in use.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (the name and type are Gymnasium's)

    def __init__(
        self,
        cluster: str = "2x4",
        *,
        trace: str | Trace | None = None,
        jobs: int = 100,
        load: float = 1.0,
        reward: Reward = "jct",
        slots: int = SLOTS,
        restart_s: float = 30.0,
        render_mode: str | None = None,
    ) -> None:
        """`trace` None: every episode has a new one, made from its seed."""
        if reward not in ("jct", "slowdown", "utilization"):
            raise InputError(f"reward is '{reward}', expected jct, slowdown or utilization")
        if slots < 1:
            raise InputError(f"slots is {slots}, expected at least 1")
        self.cluster = read_shared(cluster)[0]
        self.trace = read_trace(trace) if isinstance(trace, str) else trace
        self.jobs, self.load, self.reward, self.slots = jobs, load, reward, slots
        self.restart_s = restart_s
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(slots + 1)
        self.observation_space = spaces.Box(0.0, 1.0, (OF_CLUSTER + OF_SLOT * slots,), numpy.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        trace = self.trace or synthesize(
            jobs=self.jobs,
            load=self.load,
            gpus=self.cluster.gpu_total,
            vcs=1,
            seed=int(self.np_random.integers(2**31)),
        )
        self.world = World(self.cluster.blank(), trace, self.restart_s)
        self.world.go_on(self.reward, self.slots)
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        world = self.world
        slot = int(action) - 1
        if 0 <= slot < len(world.choice.jobs) and world.choice.fits[slot]:
            world.start(world.choice.jobs[slot], self.slots)
            # After a start there may be nothing left to choose at this instant.
            gained = 0.0 if any(world.choice.fits) else world.go_on(self.reward, self.slots)
        else:
            gained = world.go_on(self.reward, self.slots)
        seen, info = self._seen()
        return seen, gained, world.is_over, False, info

    def action_masks(self) -> numpy.ndarray[Any, Any]:
        """By the name that maskable agents ask for."""
        return numpy.array(self.world.choice.mask(), dtype=numpy.int8)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        world = self.world
        free = sum([pool.free for pool in world.state.cluster.pools])
        seen = observation(world.choice, self.cluster.gpu_total, free)
        info = {"action_mask": self.action_masks(), "now_s": world.state.now_s, "jct_s": world.jct_s}
        return numpy.array(seen, dtype=numpy.float32), info


class World:
    """One episode: the state, the simulator, and the planner that the agent commands."""

    def __init__(self, cluster: Cluster, trace: Trace, restart_s: float) -> None:
        self.state = State(cluster)
        self.planner = Commanded()
        self.scheduler = Scheduler(self.state, self.planner)
        self.engine = Simulator(trace.jobs, cluster, restart_s=restart_s)
        self.works = {job.spec.id: max(job.work_s, 10.0) for job in trace.jobs}
        self.is_over = False
        self.jct_s = 0.0
        """Of all jobs together, so far."""
        self.choice = Choice(self.state, self.planner.pending)

    def start(self, job: JobView, slots: int) -> None:
        plan, allocation = self.state.new_plan(), self.choice.place(job)
        assert allocation is not None
        plan.start(job, allocation)
        del self.planner.pending[job.seq]
        self.planner.next = plan
        self.state.wake()
        self._apply(self.state.now_s, [])
        self.choice = Choice(self.state, self.planner.pending, slots)

    def go_on(self, reward: Reward, slots: int) -> float:
        """To the next instant with a choice, or the end."""
        gained = 0.0
        while not self.is_over:
            batch = self.engine.observe(self.state.next_timer_s)
            if batch is None:
                self.is_over = True
                break
            gained += self._pass(batch.at_s - self.state.now_s, reward)
            self._apply(batch.at_s, batch.events)
            self.choice = Choice(self.state, self.planner.pending, slots)
            if any(self.choice.fits):
                return gained
        self.choice = Choice(self.state, self.planner.pending, slots)
        return gained

    def _apply(self, at_s: float, events: list[Event]) -> None:
        actions = self.scheduler.step(at_s, events)
        while actions:
            actions = self.scheduler.step(at_s, self.engine.execute(at_s, actions))

    def _pass(self, seconds: float, reward: Reward) -> float:
        present = self.state.open_jobs
        self.jct_s += seconds * len(present)
        if reward == "jct":
            return -seconds * len(present) / HOUR_S
        if reward == "slowdown":
            return -sum([seconds / self.works[job.id] for job in present.values()])
        return seconds / HOUR_S * part_in_use(self.state.held_jobs, self.state.cluster.gpu_total)


def part_in_use(held: dict[int, Job], gpu_total: int) -> float:
    return sum([job.held_gpus for job in held.values()]) / gpu_total
