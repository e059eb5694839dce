"""The simulator for Python: `skep.trace`, `skep.simulate` and `skep.compare`."""

from skep.research.runs import Comparison, SimulatedRun
from skep.research.simulate import compare, simulate, trace

__all__ = ["Comparison", "SimulatedRun", "compare", "simulate", "trace"]
