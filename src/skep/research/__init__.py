"""The simulator for Python: `skep.trace`, `skep.simulate` and `skep.compare`."""

from skep.research.runs import ComparedRuns, SimulatedRun
from skep.research.simulate import compare, simulate, trace

__all__ = ["ComparedRuns", "SimulatedRun", "compare", "simulate", "trace"]
