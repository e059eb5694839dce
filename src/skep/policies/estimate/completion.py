"""Unknown speeds of a model on GPU types, completed from models that were measured there (Gavel, OSDI'20).

The speeds of models on types are, in logarithms, nearly a matrix of low rank: the mean of all models, a factor of each
model, and one direction in which they differ most (how much a model gains from newer types). What is known of a model
gives its factor and its place in that direction, and these its other speeds. How far such an estimate is off is
measured on the reference models: the same entries of each are hidden and completed from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Array = NDArray[float64]

REFERENCES_MIN = 3
NOISE = 1e-4
"""The least variance of logarithms around the direction: measurements differ by a percent."""
FACTOR = 1e4
"""The variance of the factor of a model: anything."""


class CompletedSpeeds(NamedTuple):
    speeds: tuple[float, ...]
    error: float
    """By which part of it an estimate is typically off, up or down."""
    references: int


def complete(rows: Sequence[Sequence[float]], known: Sequence[float | None]) -> CompletedSpeeds | None:
    """Rows of reference models by type, and those of the speeds of another model that are known; 1 on the first type if
    none is. None: too few models are known on all types."""
    import numpy as np

    whole = [row for row in rows if all(speed > 0 for speed in row)]
    if len(whole) < REFERENCES_MIN:
        return None
    said = list(known) if any(known) else [1.0, *known[1:]]
    there = np.array([bool(speed) for speed in said])
    logs = np.log(np.array(whole))
    mine = np.log([speed or 1.0 for speed in said])
    found = _completed(logs, mine, there)
    misses = [
        (_completed(np.delete(logs, row, axis=0), logs[row], there) - logs[row])[~there] for row in range(len(logs))
    ]
    error = float(np.expm1(np.sqrt(np.mean(np.square(misses))))) if (~there).any() else 0.0
    speeds = [float(speed) if speed else float(np.exp(each)) for speed, each in zip(said, found, strict=True)]
    return CompletedSpeeds(tuple(speeds), error, len(whole))


def _completed(logs: Array, mine: Array, there: Array) -> Array:
    """The most likely row that has these entries."""
    import numpy as np

    around = logs - logs.mean(1, keepdims=True)
    mean = around.mean(0)
    _, sizes, directions = np.linalg.svd(around - mean, full_matrices=False)
    direction = directions[0] * sizes[0] / np.sqrt(len(logs))
    noise = max(float(np.square(sizes[1:]).sum()) / logs.size, NOISE)
    basis = np.stack([np.ones_like(mean), direction], axis=1)
    left = basis[there].T @ basis[there] / noise + np.diag([1 / FACTOR, 1.0])
    place = np.linalg.solve(left, basis[there].T @ (mine - mean)[there] / noise)
    return np.asarray(mean + basis @ place)
