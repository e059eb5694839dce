"""A policy that was trained in the environment: `skep simulate … --policy ./learned.py:Learned`.

It sees what the agent saw: the oldest eight pending jobs, their requests, how long they have waited, what fits.
"""

from skep.core.memory import Memory
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.view import JobView, Trigger, View
from skep.gym.observe import Choice, observation, scores

WEIGHTS = (-1.0, -0.233, 0.0)
"""Of the part of the GPUs, the waiting time, and whether it fits; written by train.py."""


class Learned:
    def __init__(self) -> None:
        self.pending: dict[int, JobView] = {}

    def attach(self, view: View, memory: Memory) -> None:
        jobs = view.open_jobs.values()
        self.pending = {job.seq: job for job in jobs if job.state == "pending" and job.is_ready}

    def plan(self, view: View, memory: Memory, trigger: Trigger) -> Plan:
        for job in (*trigger.submitted, *trigger.returned):
            self.pending[job.seq] = job
        for job in trigger.withdrawn:
            self.pending.pop(job.seq, None)
        plan, total = view.new_plan(), view.cluster.gpu_total
        while True:
            choice = Choice(view, self.pending)
            if not any(choice.fits):
                return plan
            free = sum(pool.free for pool in view.cluster.pools)
            rated = scores(observation(choice, total, free), WEIGHTS)
            best = max((slot for slot, fits in enumerate(choice.fits) if fits), key=lambda slot: (rated[slot], -slot))
            job = choice.jobs[best]
            place = choice.place(job)
            assert place is not None
            plan.start(job, place)
            del self.pending[job.seq]

    def explain(self, view: View, memory: Memory, job: JobView) -> Refusal:
        return Refusal("no-room", Cause.ORDER, "it does not fit, or jobs with a higher score go first", "a job ending")
