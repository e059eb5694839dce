"""Nodes with tags and extras: under every policy a job runs only where its tags are, and never beyond the extras."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World
from worlds import examples, worlds

from skep.core.cluster import Cluster
from skep.core.model import Shape
from skep.policies.registry import policies
from skep.traces.trace import TraceJob

TAGS = [(), ("zone=a",), ("zone=b",), ("zone=a", "~batch")]
NEEDED = [(), (), ("zone=a",), ("zone!=a",), ("~",), ("~batch", "zone=a|b")]
EXTRAS = [(), (("pods", 3),), (("pods", 6), ("rdma", 1))]
WANTED = [(), (("pods", 1),), (("pods", 1), ("rdma", 1))]


def tagged(draw: st.DrawFn, world: World) -> World:
    specs = [
        msgspec.structs.replace(spec, tags=draw(st.sampled_from(TAGS)), extras=draw(st.sampled_from(EXTRAS)))
        for spec in world.cluster.specs
    ]
    jobs = [with_tags(draw, job) for job in world.trace.jobs]
    return msgspec.structs.replace(
        world, cluster=Cluster(specs, "tagged"), trace=msgspec.structs.replace(world.trace, jobs=jobs)
    )


def with_tags(draw: st.DrawFn, job: TraceJob) -> TraceJob:
    tags, extras = draw(st.sampled_from(NEEDED)), draw(st.sampled_from(WANTED))
    shapes = tuple(
        Shape(
            tuple(msgspec.structs.replace(role, tags=tags, extras=extras) for role in shape.roles),
            shape.gpu_types,
            shape.spans_types,
        )
        for shape in job.spec.shapes
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, shapes=shapes))


@st.composite
def tagged_worlds(draw: st.DrawFn, name: str) -> World:
    return tagged(draw, draw(worlds(name)))


@pytest.mark.parametrize("name", sorted(policies()))
@examples(5)
@given(data=st.data())
def test_jobs_run_where_their_tags_and_extras_are(name: str, data: st.DataObject) -> None:
    data.draw(tagged_worlds(name)).run()
