"""The agenda of the simulator: when each run reaches its next milestone."""

from __future__ import annotations

from tests.support import cluster, job

from skep.engines.sim.rates import AGENDA_LEAST, Rates
from skep.engines.sim.task import SimTask


def test_milestones_of_earlier_runs_do_not_pile_up() -> None:
    rates = Rates(cluster("1x1"), None, None, "rate", 0.0)
    other, often = (SimTask(row, job(id=f"job-{row}"), None) for row in range(2))
    rates.note(other, 50.0)
    for number in range(3 * AGENDA_LEAST):
        often.run += 1
        rates.note(often, 100.0 + number)
    assert len(rates.agenda) <= AGENDA_LEAST + 1
    assert rates.next_s() == 50.0
    assert rates.take(50.0) == [other]
    assert rates.next_s() == 99.0 + 3 * AGENDA_LEAST
