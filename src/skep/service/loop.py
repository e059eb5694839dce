"""The main loop of a simulation: events go in, actions come out, an engine executes them."""

from __future__ import annotations

from collections.abc import Callable

from skep.core.events import Event
from skep.core.ports import SimulatedWorld
from skep.core.step import Scheduler
from skep.policies.search import judge

Observer = Callable[[float, list[Event]], None]
"""Called with every event, in order, after the state has applied it."""


def run(
    scheduler: Scheduler,
    engine: SimulatedWorld,
    observer: Observer | None = None,
    settled: Callable[[float], None] | None = None,
) -> None:
    """Run until the engine has no more events. `settled` is called once for each instant, when everything that follows
    from it is decided and executed."""
    state = scheduler.state
    step = scheduler.step
    while (batch := engine.observe(state.next_timer_s if state.timers.by_job else state.wake_s)) is not None:
        at_s, events = batch.at_s, batch.events
        actions = step(at_s, events)
        if observer is not None:
            observer(at_s, events)
        verdicts = judge(state, events) if state.groups else ()
        while actions or scheduler.solved or verdicts:
            events = engine.execute(at_s, actions)
            if scheduler.solved or verdicts:
                events = [*events, *verdicts, *scheduler.take_solved()]
            actions = step(at_s, events)
            if observer is not None:
                observer(at_s, events)
            verdicts = judge(state, events) if state.groups else ()
        if settled is not None:
            settled(at_s)
