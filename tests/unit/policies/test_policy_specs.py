"""Policies by name, by knobs and from one's own file: what is wrong is said in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support import World, cluster, job, trace
from tests.support.world import WorldCourse

from skep.clusters.read import read_text
from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.core.refusal import Cause
from skep.core.state import State
from skep.core.step import Scheduler
from skep.experiments.simulate import Experiment, Options
from skep.files.text import Texts
from skep.policies import registry
from skep.policies.order.shares import CapacityQueues
from skep.policies.pipeline import Pipeline
from skep.policies.registry import (
    Knob,
    Knobs,
    Policy,
    Setting,
    build_planner,
    files_of,
    parse_policy,
    policies,
)
from skep.policies.shared.build import build_whole

SETTING = Setting(cluster("2x4"), vcs=("a", "b"))


@pytest.mark.parametrize(
    ("spec", "says", "hint"),
    [
        ("fifoo", "policy 'fifoo' is not known", "did you mean fifo"),
        ("", "policy '' is not known", "skep policies"),
        ("fifo:walk", "'walk' is not key=value", "for example"),
        ("fifo:walk=", "'walk=' is not key=value", "for example"),
        ("fifo:walk=skip,walk=easy", "knob 'walk' is given twice", ""),
        ("fifo:wlak=skip", "no knob 'wlak'", "did you mean walk"),
        ("fifo:walk=skipp", "expected one of strict, skip, easy", "did you mean skip"),
        ("fifo:patience=-1", "expected a number >= 0", ""),
        ("fifo:patience=1+x", "expected a number >= 0", ""),
        ("fifo:patience=nan", "expected a number >= 0", ""),
        ("las:compat=yes", "expected true or false", ""),
        ("las:lead=", "is not key=value", ""),
        ("las:lead=much", "expected a number >= 0", ""),
        ("las:lead=0", "preempt each other without end", "at least 0.1 s"),
        ("las:queues=5+5", "each above the one before", "queues="),
        ("las:queues=0+5", "limits above 0", "queues="),
        ("las:compat=true,place=any", "needs queues", "queues="),
        ("srtf:compat=true", "needs place=any", "place=any"),
        ("srtf:compat=true,place=any,walk=strict", "no other walk, no patience", "compat out"),
        ("las:queues=5,compat=true,place=any,patience=5", "no other walk, no patience", "compat out"),
        ("e-las:weight=2", "from 0 to 1", ""),
        ("e-las:scale=0", "above 0", ""),
        ("e-las:scale=inf", "a number from 1e-06 to 1e+12", ""),
        ("las:queues=1e308", "a number from 1e-06 to 1e+12", ""),
        ("allox:window=inf", "a number from 1e-06 to 1e+12", ""),
        ("gandiva-fair:quantum=1e-300", "a number from 1e-06 to 1e+12", ""),
        ("gandiva-fair:quantum=1e-6", "quantum=1e-6: expected at least 1", ""),
        ("gandiva:quantum=0.01", "quantum=0.01: expected at least 1", ""),
        ("themis:lease=0", "lease=0: expected at least 1", ""),
        ("singularity:turn=0.5", "turn=0.5: expected at least 1", ""),
        ("e-las:lead=0", "would switch without end", "at least 0.001"),
        ("e-las:form=product,lead=0,scale=100", "would switch without end", "at least 0.001"),
        ("fifo:patience=1+2+3", "one number, or two", "60+120"),
        ("srtf:walk=easy", "policies that do not preempt", "walk=skip"),
        ("tiresias-g:compat=true,place=any", "needs samples=FILE", ""),
        ("tiresias-g:samples=/nowhere/x.txt", "/nowhere/x.txt", ""),
        ("yarn-cs:quotas=/nowhere/x.csv", "/nowhere/x.csv", ""),
        ("yarn-cs:quotas=equals", "expected one of", "did you mean equal"),
        ("./nowhere.py:Mine", "does not exist", "file.py:Class"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(spec: str, says: str, hint: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        build_planner(spec, SETTING)
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "knob", "value"),
    [
        ("fifo", "walk", "strict"),
        ("fifo:patience=1+2.5", "patience", (1.0, 2.5)),
        ("fifo:patience=none", "patience", ()),
        ("las:queues=3250+7200", "queues", (3250.0, 7200.0)),
        ("las:compat=true", "compat", True),
        ("las:lead=10", "lead", 10.0),
        ("e-las:form=product", "form", "product"),
    ],
)
def test_knobs_are_read_by_their_type(spec: str, knob: str, value: object) -> None:
    assert parse_policy(spec)[1][knob] == value


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_can_be_built_as_it_is_and_says_what_it_is(name: str) -> None:
    policy = policies()[name]
    assert build_planner(name, SETTING).name == name
    assert policy.title.endswith(".")
    assert policy.paper
    assert policy.needs() <= frozenset(Need)
    assert all(knob.help for knob in policy.knobs)


ROUNDS = {"fifo": 60.0, "fifo:round_s=30": 30.0, "fifo:walk=skip,round_s=0": 0.0, "las:round_s=20,lead=0": 20.0}


@pytest.mark.parametrize("policy", ROUNDS)
def test_rounds_are_a_property_of_the_planner(policy: str) -> None:
    planner = Experiment(trace(job()), cluster("1x1"), Options(round_s=60.0)).planner(policy)
    assert planner.round_s == ROUNDS[policy]


def test_a_policy_of_ones_own_may_be_made_for_rounds(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    round_s = 360.0\n    def plan(self, view, memory, trigger): ...\n")
    assert build_planner(f"{file}:Mine", SETTING).round_s == 360.0
    assert build_planner(f"{file}:Mine:round_s=12", SETTING).round_s == 12.0


@pytest.mark.parametrize("value", ["0.01", "inf", "x", "-1"])
def test_rounds_that_make_no_sense_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="round_s"):
        build_planner(f"fifo:round_s={value}", SETTING)


def test_a_vc_cannot_have_rounds_of_its_own() -> None:
    lab, layout = read_text("nodes: [{count: 2, name: n, gpus: 4}]\nvcs: {a: 1 node, b: 1 node}\n", "lab")
    assert layout is not None
    assert build_whole("fifo:round_s=60", Setting(lab), layout).round_s == 60.0
    layout.vcs["a"].policy = "las:round_s=20"
    with pytest.raises(InputError, match=r"VC a: its policy decides in rounds of 20 s, the others have no rounds"):
        build_whole("fifo", Setting(lab), layout)
    assert build_whole("fifo:round_s=20", Setting(lab), layout).round_s == 20.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("vc,gpus\n", "no quotas"),
        ("a,1\na,2\n", ":2: expected vc,gpus with each VC once"),
        ("a\n", ":1: expected vc,gpus"),
        ("a,many\n", ":1: expected a number"),
        ("a,1\n", "no quota for VC b"),
    ],
)
def test_what_is_wrong_with_a_file_of_quotas_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "quotas.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(says)):
        build_planner(f"yarn-cs:quotas={path}", SETTING)


def test_quotas(tmp_path: Path) -> None:
    path = tmp_path / "quotas.csv"
    path.write_text("vc,gpus\na,1\nb,7\n")
    for kind, quotas in [("equal", {"a": 4, "b": 4}), ("usage", {"a": 4, "b": 4}), (str(path), {"a": 1, "b": 7})]:
        planner = build_planner(f"yarn-cs:quotas={kind}", SETTING)
        assert isinstance(planner, Pipeline)
        assert isinstance(planner.order, CapacityQueues)
        planner.attach(State(cluster("2x4")), {})
        assert planner.order.quotas == quotas


def test_quotas_by_usage_know_the_past_and_nothing_else() -> None:
    """b works later, and much; until then it counts as an average VC."""
    jobs = [job(4, vc="a", work=100.0), job(2, vc="b", at=50.0, work=100.0), job(8, vc="b", at=200.0, work=1e6)]
    course = World(trace(*jobs), cluster("2x4"), "yarn-cs:quotas=usage").begin()
    order = course.scheduler.planner.order
    seen = []
    while course.advance():
        seen.append((course.state.now_s, order.quotas))
    assert seen[:3] == [(0.0, {"a": 4, "b": 4}), (50.0, {"a": 4, "b": 4}), (100.0, {"a": 4, "b": 4})]
    assert seen[3][0] == 150.0
    assert seen[3][1] == pytest.approx({"a": 8 * 400 / 600, "b": 8 * 200 / 600})


@pytest.mark.parametrize("kind", ["equal", "usage"])
def test_vcs_that_nobody_named_are_known_by_their_jobs(kind: str) -> None:
    """As in a live cluster without a file of VCs: one VC has all, and nobody is told to wait for quota."""
    planner = build_planner(f"yarn-cs:quotas={kind}", Setting(cluster("1x4")))
    world = World(trace(job(4), job(4)), cluster("1x4"), "fifo")
    state = State(world.cluster.blank())
    course = WorldCourse(Scheduler(state, planner), world.engine(state.cluster))
    course.advance()
    assert planner.order.quotas == {"default": 4}
    assert planner.explain(state, state.memory, state.jobs["j1"]).cause is Cause.CAPACITY
    course.finish()
    assert [row.queue_quota_s for row in course.rows()] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\n", "at least two"),
        ("service\n5\nx\n", ":3: 'x' is not a number"),
        ("5\n-1\n", "at least two"),
    ],
)
def test_what_is_wrong_with_a_file_of_samples_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "samples.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(says)):
        build_planner(f"tiresias-g:samples={path}", SETTING)


# One's own ---------------------------------------------------------------------------------------------------------

OWN = """
from skep.policies import Order

class Largest(Order):
    preemptive = True
    def __init__(self, sign: float = -1.0) -> None:
        self.sign = sign
    def key(self, job, now_s):
        return self.sign * job.gpus

class Nothing:
    pass

class Broken(Order):
    def key(self, job, now_s):
        return 1 / 0
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_a_policy_of_ones_own_runs_and_takes_knobs(own: str) -> None:
    jobs = (job(1, id="small"), job(4, id="large", at=10.0, work=10.0))
    largest = World(trace(*jobs), cluster("1x4"), f"{own}:Largest").run().rows()
    smallest = World(trace(*jobs), cluster("1x4"), f"{own}:Largest:sign=1,place=any").run().rows()
    assert [row.preemptions for row in largest] == [1, 0]
    assert [row.preemptions for row in smallest] == [0, 0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Lagest", "has no class 'Lagest'"),
        ("Nothing", "neither an order nor a planner"),
        ("Largest:size=3", "Largest({'size': 3.0}) failed: TypeError"),
        ("Largest:walk=easy", "do not preempt"),
        ("Largest:place=nowhere", "expected one of"),
    ],
)
def test_what_is_wrong_with_a_policy_of_ones_own_is_said(own: str, name: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        build_planner(f"{own}:{name}", SETTING)


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import nowhere_at_all\n")
    with pytest.raises(InputError, match=r"bad\.py is broken: ModuleNotFoundError"):
        build_planner(f"{path}:Mine", SETTING)


def test_an_order_that_does_not_declare_what_it_has_is_told_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "silent.py"
    path.write_text("from skep.policies import Order\nclass Mine(Order):\n    def changes_at(self, job, now_s): ...\n")
    with pytest.raises(InputError, match=r"silent\.py is broken: .* has the method changes_at: declare `jumps = True`"):
        build_planner(f"{path}:Mine", SETTING)


def test_an_error_while_it_runs_names_the_line(own: str) -> None:
    from skep.experiments.simulate import Experiment

    with pytest.raises(InputError, match=r"own\.py:16: ZeroDivisionError"):
        Experiment(trace(job(id="a")), cluster("1x1")).run(f"{own}:Broken")


def test_compat_goes_on_where_integer_division_leaves_nothing() -> None:
    world = World(
        trace(job(1, work=100.5), job(1, at=9.5, work=10.0)), cluster("1x1"), "las:compat=true,place=any,queues=10+20"
    )
    assert [row.state for row in world.run().rows()] == ["succeeded", "succeeded"]


def test_only_a_knob_that_is_declared_a_file_can_be_read(tmp_path: Path) -> None:
    """A new knob that names a file and does not say so fails in its first use."""
    path = tmp_path / "quotas.csv"
    path.write_text("a,1\n")

    def build(knobs: Knobs, setting: Setting) -> Planner:
        setting.texts.load(knobs["quotas"], what="quotas")
        return build_planner("fifo", setting)

    known = policies()
    for is_file in (True, False):
        knob = Knob("quotas", "none", "", ("none",) if is_file else (), is_file=is_file)
        odd = Policy("odd", "", "", build, knobs=(knob,))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(registry, "policies", lambda odd=odd: {**known, "odd": odd})
            assert files_of(f"odd:quotas={path}") == ([str(path)] if is_file else [])
            if is_file:
                assert build_planner(f"odd:quotas={path}", Setting(cluster("2x4")))
            else:
                with pytest.raises(InputError, match="files are not read here"):
                    build_planner(f"odd:quotas={path}", Setting(cluster("2x4")))


def test_where_no_files_are_read_every_file_of_a_policy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,1\n")
    sealed = Setting(cluster("1x4"), texts=Texts(openable=()))
    for spec in (f"yarn-cs:quotas={path}", f"antman:quotas={path}", f"tiresias-g:samples={path}"):
        assert files_of(spec) == [str(path)]
        with pytest.raises(InputError, match="files are not read here"):
            build_planner(spec, sealed)
    own = tmp_path / "own.py"
    own.write_text("raise SystemExit")
    assert files_of(f"{own}:Mine") == [str(own)]
    with pytest.raises(InputError, match="files are not read here"):
        build_planner(f"{own}:Mine", sealed)
    assert build_planner("fifo", sealed)
