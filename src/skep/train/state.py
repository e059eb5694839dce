"""The content of a checkpoint: the state of the kept objects and of every random source, read and restored in place."""

from __future__ import annotations

import functools
import pickle
import random  # noqa: TID251 - the script's own chance is what has to be kept
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, BinaryIO

ZIP = b"PK"  # how a file of torch.save begins; a pickle never does


class KeptState:
    """One object of the script: how its state is read and restored, and which rank saves it."""

    def __init__(
        self, get: Callable[[], Any], put: Callable[[Any], object], is_shared: bool = False, is_chance: bool = False
    ) -> None:
        self.get = get
        self.put = put
        self.is_shared = is_shared  # rank 0 saves it for all; else each rank its own
        self.is_chance = is_chance  # a random generator: a new rank after a resize must not draw the numbers of rank 0


def kept(name: str, thing: Any) -> KeptState:
    """Models and optimizers are large and equal on all ranks: rank 0 saves them for all. Anything else may differ from
    rank to rank (samplers, generators, counters), so each rank saves its own."""
    thing = _unwrap(thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return KeptState(thing.state_dict, thing.load_state_dict, is_shared=_is_model_or_optimizer(thing))
    if hasattr(thing, "bit_generator"):
        bits = thing.bit_generator
        return KeptState(lambda: bits.state, lambda state: setattr(bits, "state", state), is_chance=True)
    for get, put in (("get_state", "set_state"), ("getstate", "setstate")):
        if hasattr(thing, get) and hasattr(thing, put):
            return KeptState(getattr(thing, get), getattr(thing, put), is_chance=True)
    if isinstance(thing, dict):
        return KeptState(lambda: thing, functools.partial(_refill, thing))
    if isinstance(thing, list) or _is_array(thing):
        return KeptState(lambda: thing, lambda state: thing.__setitem__(slice(None), state))
    raise TypeError(
        f"cannot keep {name!r} ({type(thing).__name__}): it needs state_dict() and load_state_dict(state), "
        "or to be a dict, a list, a numpy array or a random generator"
    )


def _refill(thing: dict[Any, Any], state: dict[Any, Any]) -> None:
    thing.clear()
    thing.update(state)


def _unwrap(thing: Any) -> Any:
    """A model inside DistributedDataParallel is saved without its wrapper, so that it also fits a run of one rank."""
    torch = sys.modules.get("torch")
    wrapper = getattr(getattr(getattr(torch, "nn", None), "parallel", None), "DistributedDataParallel", None)
    return thing.module if wrapper is not None and isinstance(thing, wrapper) else thing


def _is_model_or_optimizer(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, (torch.nn.Module, torch.optim.Optimizer))


def _is_array(thing: Any) -> bool:
    """An array without dimensions is a number: it cannot be changed in place by `a[:] = …`."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray) and thing.ndim > 0


def random_state(generators: Iterable[Any] = ()) -> dict[str, Any]:
    """The state of all global random sources of this process, and of these torch generators."""
    state: dict[str, Any] = {"python": random.getstate(), "generators": [each.get_state() for each in generators]}
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = numpy.random.get_state()
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random(state: Mapping[str, Any], generators: Iterable[Any] = ()) -> None:
    random.setstate(state["python"])
    if "numpy" in state and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(state["numpy"])
    if (torch := sys.modules.get("torch")) is not None:
        if "torch" in state:
            torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])
    restore_generators(state, generators)


def restore_generators(state: Mapping[str, Any], generators: Iterable[Any]) -> None:
    for each, saved in zip(generators, state["generators"]):
        each.set_state(saved)


def dump(value: Any, file: BinaryIO) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.save(value, file)
    else:
        pickle.dump(value, file, protocol=5)


def load(file: BinaryIO) -> Any:
    """On the CPU: every rank reads the file of rank 0, and must not fill rank 0's GPU with it."""
    is_torch = file.read(2) == ZIP
    file.seek(0)
    if not is_torch:
        return pickle.load(file)
    torch: Any = __import__("torch")  # the script that wrote the file had it, too
    return torch.load(file, map_location="cpu", weights_only=False)
