"""Skep's own profile: factors per model, in a small YAML or JSON file (docs/reference/profiles.md).

    rate = type factor * scaling * locality * sharing

each relative to the job's reference. A model takes from `default` every section that it does not have itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skep.core.knowledge import GpuUse
from skep.files.document import Field, read_document
from skep.profiles.profile import CPU, FactorProfile, Neighbour, Situation, nearest_count, shared
from skep.profiles.sharing import saturation

TOP = ("name", "reference", "default", "models")
SECTIONS = ("types", "scaling", "locality", "sharing", "use", "loss")
OTHERS = "default"
"""The key for neighbours that are not named."""

TYPE_MAX = 1e6
SCALING_MAX = 10.0
"""Twice the GPUs may give more than twice the speed (caches); ten times more is a typing error."""
GPUS_MAX = 1_000_000
STEPS_MAX = 1e12


class ModelLoss(NamedTuple):
    """1 / (a x steps + b) + c"""

    a: float
    b: float
    c: float

    def at(self, steps: float) -> float:
        return 1 / (self.a * steps + self.b) + self.c


class Factors(NamedTuple):
    """The figures of a model."""

    types: dict[str, float]
    """Speed of one GPU of a type, relative to one of factor 1."""
    scaling: dict[int, float]
    """Speed of a gang, relative to as many times one GPU."""
    locality: dict[str, float]
    """The factor if the smallest cell around the gang is of this level."""
    sharing: dict[str, float]
    """The factor beside a neighbour of this model."""
    steps_per_s: float | None = None
    """Steps per second of one GPU of the reference type."""
    use: GpuUse | None = None
    """What it uses of a GPU when it is alone."""
    loss: ModelLoss | None = None
    """The loss that it reports after so many steps."""


NOTHING = Factors({}, {1: 1.0}, {}, {})


def read_native(text: str, path: str) -> NativeProfile:
    document = read_document(text, path)
    top = document.fields(TOP)
    if "default" not in top and "models" not in top:
        raise document.trouble("neither default nor models is given, expected at least one")
    if "name" in top:
        top["name"].text()
    reference = top["reference"].text("a GPU type").lower() if "reference" in top else ""
    default = _factors(top["default"].fields(SECTIONS), NOTHING) if "default" in top else NOTHING
    models = {}
    if "models" in top:
        for name, field in top["models"].fields().items():
            models[name] = _factors(field.fields((*SECTIONS, "steps_per_s")), default)
    return NativeProfile(reference, default, models)


def _factors(given: dict[str, Field], default: Factors) -> Factors:
    """The given sections, and those of the default for the others."""
    steps = given.get("steps_per_s")
    return Factors(
        types=_types(given["types"]) if "types" in given else default.types,
        scaling=_scaling(given["scaling"]) if "scaling" in given else default.scaling,
        locality=_locality(given["locality"]) if "locality" in given else default.locality,
        sharing=_sharing(given["sharing"]) if "sharing" in given else default.sharing,
        steps_per_s=None if steps is None else steps.number(above=0, most=STEPS_MAX),
        use=_use(given["use"]) if "use" in given else default.use,
        loss=_loss(given["loss"]) if "loss" in given else default.loss,
    )


def _types(field: Field) -> dict[str, float]:
    return {name.lower(): each.number(above=0, most=TYPE_MAX) for name, each in field.fields().items()}


def _scaling(field: Field) -> dict[int, float]:
    factors = {1: 1.0}
    for key, each in field.fields().items():
        if not (key.isascii() and key.isdigit() and len(key) < 8 and 1 <= int(key) <= GPUS_MAX):
            raise each.trouble(f"{each.path} is not a number of GPUs, expected 1 to {GPUS_MAX:,}")
        factors[int(key)] = each.number(above=0, most=SCALING_MAX)
    if factors[1] != 1.0:
        raise field.fields()["1"].fault("1, because the other factors are relative to one GPU")
    return factors


def _locality(field: Field) -> dict[str, float]:
    return {level: each.number(above=0, most=1) for level, each in field.fields().items()}


def _sharing(field: Field) -> dict[str, float]:
    if not field.is_mapping:
        return {OTHERS: field.number(above=0, most=1)}
    return {model: each.number(above=0, most=1) for model, each in field.fields().items()}


def _use(field: Field) -> GpuUse:
    given = field.fields(GpuUse._fields, required=("sm",))
    parts = {name: each.number(above=0 if name == "sm" else None, most=1) for name, each in given.items()}
    return GpuUse(parts["sm"], parts.get("bandwidth", 0.0), parts.get("pcie", 0.0))


def _loss(field: Field) -> ModelLoss:
    given = field.fields(ModelLoss._fields, required=ModelLoss._fields)
    return ModelLoss(given["a"].number(least=0), given["b"].number(above=0), given["c"].number(least=0))


class NativeProfile(FactorProfile):
    """Factors per model."""

    def __init__(self, reference: str, default: Factors, models: dict[str, Factors]) -> None:
        self.reference = reference
        self.default = default
        self.by_model = models
        self.knows_sharing = any(factors.sharing or factors.use for factors in (default, *models.values()))

    def models(self) -> set[str]:
        return set(self.by_model)

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None:
        factors = self.by_model.get(model)
        if factors is None or factors.steps_per_s is None or gpus < 1:
            return None
        relative = factors.types.get(gpu_type or self.reference, 1.0) / factors.types.get(self.reference, 1.0)
        return factors.steps_per_s * relative * _width(factors, gpus)

    def knows(self, model: str, gpu_type: str, neighbours: Iterable[Neighbour]) -> bool:
        """A missing section means that all types, or all neighbours, are equal for the model; a given section says
        nothing about entries that it leaves out."""
        factors = self.by_model.get(model, self.default)
        if factors is NOTHING or (factors.types and gpu_type not in factors.types):
            return False
        models = [other for other, _ in neighbours]
        if all(other in factors.sharing or OTHERS in factors.sharing for other in models):
            return True
        return factors.use is not None and all(self.use(other) is not None for other in models)

    def beside(self, model: str, other: str, gpu_type: str) -> float | None:
        return None if other == OTHERS else self._of(model).sharing.get(other)

    def usual_beside(self, model: str) -> float | None:
        return self._of(model).sharing.get(OTHERS)

    def use(self, model: str) -> GpuUse | None:
        return self._of(model).use

    def loss(self, model: str, steps: float) -> float | None:
        curve = self._of(model).loss
        return None if curve is None else curve.at(steps)

    def _of(self, model: str) -> Factors:
        return self.by_model.get(model, self.default)

    def rate(self, situation: Situation, levels: Sequence[str]) -> float:
        factors = self.by_model.get(situation.model, self.default)
        asked_type = situation.asked_type or self.reference
        types = min(factors.types.get(gpu_type, 1.0) for gpu_type in situation.types)
        rate = types / factors.types.get(asked_type, 1.0)
        if situation.types == (CPU,) or not situation.asked_gpus:
            return rate
        rate *= _width(factors, situation.gpus) / _width(factors, situation.asked_gpus)
        rate *= _nearness(factors, situation.level, levels)
        return rate * self._left(factors, [model for model, _ in situation.neighbours], situation.gpus)

    def _left(self, factors: Factors, models: list[str], gpus: int) -> float:
        """The part of a job's speed that is left beside neighbours: as measured, else by saturation, else the default
        factor."""
        uses = [use for model in models if (use := self.use(model)) is not None]
        if factors.use is None or len(uses) < len(models) or all(model in factors.sharing for model in models):
            return shared([_beside(factors, model) for model in models], gpus)
        if gpus <= 1:
            return 1 / saturation(factors.use, [(use, 1.0) for use in uses])
        return min(1 / saturation(factors.use, [(use, 1.0)]) for use in uses)


def _width(factors: Factors, gpus: int) -> float:
    """The speed relative to one GPU; a number that is not listed scales like the nearest one."""
    return gpus * factors.scaling[nearest_count(factors.scaling, gpus)]


def _nearness(factors: Factors, level: str, levels: Sequence[str]) -> float:
    """A level that is not listed counts as the next one inside it: a larger distance is never better."""
    for inner in reversed(levels[: levels.index(level) + 1]):
        if inner in factors.locality:
            return factors.locality[inner]
    return 1.0


def _beside(factors: Factors, model: str) -> float:
    return factors.sharing.get(model, factors.sharing.get(OTHERS, 1.0))
