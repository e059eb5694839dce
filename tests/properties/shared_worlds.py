"""Random clusters with virtual clusters, and traces of their tenants, run under any policies."""

from __future__ import annotations

import msgspec
from cells_layouts import all_specs, make_layout, make_plan
from hypothesis import strategies as st
from tests.support import World, job, role, trace
from tests.support.shared_invariants import check_shared
from tests.support.world import WorldCourse
from worlds import outages

from skep.core.cells.layout import Layout, VcLayout
from skep.core.errors import InvariantBroken
from skep.core.events import Event
from skep.core.ports import Planner
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Options
from skep.policies.shared.planner import VcPlanner
from skep.policies.shared.vc import CELLS
from skep.traces.trace import TraceJob

POLICIES = (
    "fifo",
    "fifo:walk=skip",
    "fifo:walk=easy",
    "srsf",
    "tiresias-l:queues=100+400",
    "drf",
    "yarn-cs",
    "sjf:walk=skip",
)


class SharedWorld(World, frozen=True):
    """A world whose cluster is shared as `sharing` says. The policy of a VC goes before the one for all."""

    layout: Layout = msgspec.field(default_factory=lambda: Layout({}, []))
    sharing: str = CELLS

    def __repr__(self) -> str:
        rest = (self.restart_s, self.checkpoint_s, self.round_s)
        plain = World(self.trace, self.cluster, self.policy, *rest, outages=self.outages)
        pins = [(spec.address, spec.pinned) for top in self.layout.cells for spec in all_specs(top) if spec.pinned]
        vcs = "\n  ".join(map(repr, self.layout.vcs.values()))
        return f"{plain!r}\n  {vcs}\n  {self.sharing} {pins}"

    def planner(self) -> Planner:
        options = Options(seed=self.seed, round_s=self.round_s)
        return Experiment(self.trace, self.cluster, options, None, self.layout, self.sharing).planner(self.policy)

    def shared_as(self, sharing: str) -> SharedWorld:
        cluster = hardware_cluster(self.layout, sharing)
        outages = tuple(outage for outage in self.outages if outage[0] < len(cluster.nodes))
        return msgspec.structs.replace(self, sharing=sharing, cluster=cluster, outages=outages)

    def without_opportunistic(self) -> SharedWorld:
        return msgspec.structs.replace(self, trace=trace(*(job for job in self.trace.jobs if job.spec.priority >= 0)))

    def policy_of(self, vc: str) -> str:
        return self.layout.vcs[vc].policy or self.policy

    def run(self, *, batches_max: int = 20_000) -> WorldCourse:
        """To the end, jobs and cells checked after every step."""
        course = self.begin()
        checker = self.checker(course.state)

        def look(at_s: float, events: list[Event]) -> None:
            checker(at_s, events)
            if not self.round_s or at_s % self.round_s == 0:  # in between, what happened is only gathered
                check_shared(course.state, planner_of(course))

        while course.advance(look):
            if course.batches > batches_max:
                raise InvariantBroken(f"no end after {batches_max} batches")
        checker.check_done()
        return course


def planner_of(course: WorldCourse) -> VcPlanner:
    planner = course.scheduler.planner
    assert isinstance(planner, VcPlanner)
    return planner


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Several chains, perhaps one that nobody owns; racks, cells smaller than a node, pinned cells."""
    return make_layout(make_plan(lambda count: draw(st.integers(0, count - 1))))


@st.composite
def jobs(draw: st.DrawFn, vcs: list[VcLayout], *, guaranteed: bool, plain: bool) -> TraceJob:
    vc = draw(st.sampled_from(vcs))
    common = {
        "work": float(draw(st.integers(1, 200))),
        "at": float(draw(st.integers(0, 200))),
        "vc": vc.name,
        "pinned": draw(st.sampled_from(["", *vc.pinned])),
        "priority": draw(st.sampled_from([0, 0, 0, 5] if guaranteed else [0, 0, 0, -1, -1, 5])),
    }
    kind = "plain" if plain else draw(st.sampled_from(["plain", "plain", "plain", "typed", "gang", "share"]))
    gpus = draw(st.sampled_from([1, 1, 2, 3, 4, 6, 8]))
    if kind == "typed":
        return job(gpus, gpu_type=draw(st.sampled_from(["k80", "v100"])), **common)
    if kind == "gang":
        return job(roles=(role(draw(st.integers(1, 3)), draw(st.integers(1, 2))), role(1, 1, name="head")), **common)
    if kind == "share":
        return job(draw(st.sampled_from([1, 1, 2])), gpu_milli=draw(st.sampled_from([300, 500])), **common)
    return job(gpus, **common)


@st.composite
def shared_worlds(
    draw: st.DrawFn,
    *,
    borrow: str = "",
    guaranteed: bool = False,
    calm: bool = False,
    rounds: bool = True,
    policies: tuple[str, ...] = (),
) -> SharedWorld:
    """`guaranteed`: no opportunistic jobs; `calm`: no failures; `rounds`: perhaps decisions only once a minute."""
    layout = draw(layouts())
    borrows = borrow or draw(st.sampled_from(["auto", "auto", "never"]))
    one = draw(st.sampled_from(policies or POLICIES))
    for vc in layout.vcs.values():
        if draw(st.sampled_from([False, False, True])):
            own = borrow or draw(st.sampled_from(["auto", "never"]))
            vc.policy = with_borrow(draw(st.sampled_from(policies or POLICIES)), own)
    plain = draw(st.booleans())
    drawn = draw(st.lists(jobs(list(layout.vcs.values()), guaranteed=guaranteed, plain=plain), min_size=1, max_size=14))
    where = hardware_cluster(layout)
    return SharedWorld(
        trace(*drawn),
        where,
        with_borrow(one, borrows),
        restart_s=draw(st.sampled_from([0.0, 7.0])),
        round_s=draw(st.sampled_from([0.0, 0.0, 0.0, 60.0])) if rounds else 0.0,
        checkpoint_s=draw(st.sampled_from([0.0, 25.0])),
        outages=draw(outages(len(where.nodes))) if not calm and draw(st.booleans()) else (),
        layout=layout,
    )


def with_borrow(policy: str, borrow: str) -> str:
    return f"{policy}{',' if ':' in policy else ':'}borrow={borrow}"
