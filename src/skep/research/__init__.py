"""The simulator for Python: `skep.trace`, `skep.simulate`, `skep.compare` and `skep.study`."""

from skep.research.runs import ComparedRuns, SimulatedRun
from skep.research.simulate import compare, simulate, trace
from skep.research.study import StudyResult, study

__all__ = ["ComparedRuns", "SimulatedRun", "StudyResult", "compare", "simulate", "study", "trace"]
