"""What a policy has not declared cannot be read, and the error says what to declare."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import cluster, job, trace

from skep.core.errors import InputError
from skep.core.model import INFORMS
from skep.core.needs import Need
from skep.experiments.owners import knows_durations
from skep.experiments.sharing import read_shared
from skep.experiments.simulate import Experiment
from skep.policies.registry import needs_of, policies
from skep.traces.trace import Trace

OWN = """
import msgspec

from skep.core.model import told
from skep.policies import Order


class Mine(Order):
    {declares}

    def attach(self, view):
        self.known = view.knowledge

    def key(self, job, now_s):
        {reads}
        return 0.0
"""

JOBS = trace(
    *(job(1, id=f"j{at}", at=float(at), work=50.0, steps=10, epochs=2, deadline_s=99.0, model="m") for at in range(4))
)

READS = {
    "job.spec.expect_s": Need.ORACLE,
    "job.spec.steps": Need.PROGRESS,
    "job.spec.epochs": Need.PROGRESS,
    "job.spec.deadline_s": Need.DEADLINE,
    "getattr(job.spec, 'expect_s', None)": Need.ORACLE,
    "hasattr(job.spec, 'steps')": Need.PROGRESS,
    "self.known.progress": Need.PROGRESS,
    "self.known.history": Need.HISTORY,
    "self.known.rate(job.spec, job.spec.shapes[0], '')": Need.THROUGHPUT,
    "self.known.steps_per_s('m', '', 1)": Need.THROUGHPUT,
    "self.known.throughput('m', '', 1)": Need.THROUGHPUT,
    "self.known.use('m')": Need.THROUGHPUT,
}


def own(folder: Path, reads: str, *needs: str) -> str:
    declares = f"needs = {set(map(str, needs))!r}" if needs else "name = 'mine'"
    (folder / "mine.py").write_text(OWN.format(declares=declares, reads=reads))
    return f"{folder}/mine.py:Mine"


def experiment() -> Experiment:
    return Experiment(JOBS, cluster("1x2"))


@pytest.mark.parametrize(("reads", "need"), READS.items())
def test_what_is_not_declared_cannot_be_read_and_what_is_can(tmp_path: Path, reads: str, need: Need) -> None:
    others = sorted(INFORMS - {need})
    with pytest.raises(
        InputError, match=rf"does not declare that it needs `{need}`: declare it with `needs = "
    ) as raised:
        experiment().run(own(tmp_path, reads, *others))
    assert f'{{"{need}"}}' in str(raised.value)
    assert experiment().run(own(tmp_path, reads, need)).summary.finished == 4


def test_the_truth_is_not_there_by_any_other_name(tmp_path: Path) -> None:
    """In a simulation what nobody declares is not submitted at all."""
    reads = "assert not {5e1, 10, 2} & set(msgspec.structs.astuple(job.spec) + msgspec.structs.astuple(told(job.spec)))"
    assert experiment().run(own(tmp_path, reads)).summary.finished == 4
    with pytest.raises(InputError, match="AssertionError"):
        experiment().run(own(tmp_path, reads, "oracle"))


def test_a_policy_may_not_widen_what_it_sees(tmp_path: Path) -> None:
    reads = "self.known.of_vc('default', frozenset(self.wants)).history"
    text = own(tmp_path, f"from skep.core.needs import Need; self.wants = [Need.HISTORY]; {reads}")
    with pytest.raises(InputError, match="needs `history`"):
        experiment().run(text)


CLUSTER = (
    "nodes: [{{name: a, gpus: 2}}, {{name: b, gpus: 2}}]\nvcs: {{red: {{cells: 1 nodes, policy: srsf}}, blue: {own}}}\n"
)


@pytest.mark.parametrize("needs", [(), ("oracle",)])
def test_a_vc_does_not_see_what_the_policy_of_another_declares(tmp_path: Path, needs: tuple[str, ...]) -> None:
    policy = own(tmp_path, "job.spec.expect_s", *needs)
    (tmp_path / "lab.yaml").write_text(CLUSTER.format(own=f"{{cells: 1 nodes, policy: '{policy}'}}"))
    where, layout = read_shared(str(tmp_path / "lab.yaml"))
    jobs = trace(*(job(1, vc=vc, work=50.0) for vc in ("red", "blue", "red", "blue")))
    shared = Experiment(jobs, where, layout=layout)
    if needs:
        assert shared.run("fifo").summary.finished == 4
    else:
        with pytest.raises(InputError, match="needs `oracle`"):
            shared.run("fifo")


def test_a_vc_with_an_oracle_marks_the_run(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER.format(own="1 nodes"))
    where, layout = read_shared(str(tmp_path / "lab.yaml"))
    jobs = trace(job(1, vc="red"), job(1, vc="blue"))
    assert Experiment(jobs, where, layout=layout).run("fifo").summary.oracle


def test_e_las_is_an_oracle_on_every_trace_because_progress_follows_from_the_duration() -> None:
    assert experiment().run("e-las").summary.oracle
    assert Experiment(trace(job(1)), cluster("1x1")).run("e-las").summary.oracle


@pytest.mark.parametrize(
    ("needs", "format", "knows"),
    [
        ({Need.PROGRESS}, "native", True),
        ({Need.DEADLINE}, "native", False),
        ({Need.DEADLINE}, "gavel", True),
        ({Need.HISTORY, Need.THROUGHPUT}, "gavel", False),
    ],
)
def test_who_reads_what_follows_from_durations_knows_them(needs: set[Need], format: str, knows: bool) -> None:
    assert knows_durations(frozenset(needs), Trace("t", format, JOBS.jobs), 0.0) is knows
    assert not knows_durations(frozenset({Need.PROGRESS}), trace(job(1)), 0.0)


@pytest.mark.parametrize("name", sorted(policies()))
def test_what_a_policy_of_the_zoo_reads_it_declares(name: str) -> None:
    """With jobs that say everything about themselves; `test_every_policy.py` has all kinds of jobs and knobs."""
    assert experiment().run(name).summary.oracle == bool(needs_of(name) & {Need.ORACLE, Need.PROGRESS})
