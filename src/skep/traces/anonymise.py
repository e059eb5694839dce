"""A trace without names, to be shared.

Jobs, users, virtual clusters, models, groups and labels become `user-1`, `user-2`, … in an order that follows from a
secret number, so that neither names nor their order can be read from the result. Times start at 0. Sizes, durations,
GPU types and who submitted what together stay, because they are what a trace is for: who knows that a certain job ran
for 4,711 seconds will find it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC, GroupRef, JobSpec
from skep.core.share import Share
from skep.traces.trace import Trace, TraceJob

Rename = Callable[[str], str]

LABELS = ("affinity", "anti_affinity", "exclusion")


def anonymised(trace: Trace, secret: bytes) -> Trace:
    """The same jobs without names. The same secret gives the same names."""
    specs = [job.spec for job in trace.jobs]
    names = Names(specs, secret)
    begin_s = trace.jobs[0].submit_s
    jobs = [TraceJob(job.submit_s - begin_s, job.work_s, names.hide(job.spec)) for job in trace.jobs]
    if trace.groups:
        raise InputError(f"{trace.name}: describes its groups, which a trace without names cannot keep")
    return Trace(name="anonymised", format="native", jobs=jobs)


class Names:
    """New names by kind."""

    def __init__(self, specs: list[JobSpec], secret: bytes) -> None:
        self.job = numbered("job", (spec.id for spec in specs), secret)
        self.user = numbered("user", (spec.user for spec in specs), secret)
        self.vc = numbered("vc", (spec.vc for spec in specs if spec.vc != DEFAULT_VC), secret)
        self.model = numbered("model", (spec.model for spec in specs), secret)
        self.group = numbered("group", (spec.group.id for spec in specs if spec.group is not None), secret)
        shares = [spec.share for spec in specs if spec.share is not None]
        self.label = numbered("label", (getattr(share, name) for share in shares for name in LABELS), secret)

    def hide(self, spec: JobSpec) -> JobSpec:
        group, share = spec.group, spec.share
        return msgspec.structs.replace(
            spec,
            id=self.job(spec.id),
            user=self.user(spec.user),
            vc=spec.vc if spec.vc == DEFAULT_VC else self.vc(spec.vc),
            model=self.model(spec.model),
            needs=tuple(map(self.job, spec.needs)),
            group=None if group is None else GroupRef(self.group(group.id), index=group.index),
            share=None if share is None else self._share(share),
        )

    def _share(self, share: Share) -> Share:
        return msgspec.structs.replace(share, **{name: self.label(getattr(share, name)) for name in LABELS})


def numbered(kind: str, names: Iterable[str], secret: bytes) -> Rename:
    """A name stays empty if it is."""
    found = sorted(
        {name for name in names if name}, key=lambda name: hashlib.blake2b(name.encode(), key=secret).digest()
    )
    numbers = {name: f"{kind}-{number}" for number, name in enumerate(found, start=1)}
    return lambda name: numbers.get(name, "")
