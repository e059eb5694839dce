"""The simulator for Python: `skep.trace`, `skep.simulate`, `skep.compare` and `skep.study`."""

from skep.research.runs import ComparedRuns, SimulatedRun
from skep.research.simulated import compare, simulate, trace
from skep.research.studied import StudyResult, study

__all__ = ["ComparedRuns", "SimulatedRun", "StudyResult", "compare", "simulate", "study", "trace"]
