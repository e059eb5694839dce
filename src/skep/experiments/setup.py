"""An experiment made of what a user names: a cluster, options, a profile. Everything is checked before anything runs.

The command line and the Python API name the same options differently: `named` gives the name that a message shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import InputError
from skep.experiments.owners import ERROR_MAX
from skep.experiments.sharing import check_vcs, hardware_cluster, read_shared
from skep.experiments.simulate import Experiment, Options
from skep.policies.registry import ROUND_MIN_S
from skep.policies.shared.vc import CELLS, PRIVATE
from skep.traces.trace import Trace

if TYPE_CHECKING:
    from skep.profiles.profile import Profile

Naming = Callable[[str], str]


def make_experiment(
    trace: Trace, cluster: str, options: Options, profile: Profile | None, sharing: str, named: Naming
) -> Experiment:
    """`sharing`: how virtual clusters share the hardware (`policies/shared/vc.py`)."""
    hardware, layout = read_shared(cluster)
    if layout is not None and sharing == PRIVATE:
        hardware = hardware_cluster(layout, sharing)
    if layout is None and sharing != CELLS:
        raise InputError(
            f"{cluster} has no virtual clusters", hint=f"{named('private')} and {named('by_number')} need some"
        )
    if options.failures:
        from skep.engines.sim.outages import parse_failures

        parse_failures(options.failures, hardware, seed=options.seed)
    if layout is not None:
        check_vcs(trace, layout)
    if profile is None and any(pool.nodes[0].spec.speeds for pool in hardware.pools):
        from skep.profiles.declared import declared_profile

        profile = declared_profile(hardware)
    return Experiment(trace, hardware, options, profile.speed if profile is not None else None, layout, sharing)


def check_options(options: Options, policies: Sequence[str], named: Naming) -> Options:
    for field in ("restart_s", "checkpoint_s", "round_s", "solve_s"):
        value = getattr(options, field)
        if not 0 <= value < 1e12:
            raise InputError(f"{named(field)} is {value}, expected a number of seconds >= 0")
    if not 0 <= options.estimate_error <= ERROR_MAX:
        raise InputError(
            f"{named('estimate_error')} is {options.estimate_error}, expected 0 to {ERROR_MAX:g}", hint="0.3 is usual"
        )
    if 0 < options.round_s < ROUND_MIN_S:
        raise InputError(f"{named('round_s')} is {options.round_s:g}, expected at least {ROUND_MIN_S:g} s")
    in_rounds = options.round_s or any("round_s=" in policy for policy in policies)
    if options.finish_at_boundary and not in_rounds:
        raise InputError(f"{named('round_finish')} boundary needs {named('round_s')}")
    return options


def with_vcs(trace: Trace, names: Mapping[str, str], option: str) -> Trace:
    """The trace with other names of virtual clusters: old → new."""
    if not names:
        return trace
    known = {job.spec.vc for job in trace.jobs}
    for old in names:
        if old not in known:
            raise InputError(f"{option}: the trace has no VC '{old}'", hint=f"it has {', '.join(sorted(known)[:20])}")
    replace = msgspec.structs.replace
    jobs = [
        replace(job, spec=replace(job.spec, vc=names[job.spec.vc])) if job.spec.vc in names else job
        for job in trace.jobs
    ]
    return replace(trace, jobs=jobs)
