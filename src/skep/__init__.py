"""Skep: a cluster manager for deep learning. One scheduler, three worlds."""

TYPE_CHECKING = False  # instead of that of `typing`, whose import would slow down training scripts

if TYPE_CHECKING:
    from skep.client import Client as Client
    from skep.research import compare as compare
    from skep.research import simulate as simulate
    from skep.research import study as study
    from skep.research import trace as trace

__version__ = "0.1.0"

PACKAGES = {
    "Client": "client",
    "compare": "research",
    "simulate": "research",
    "study": "research",
    "trace": "research",
}
"""The public names, with the packages that have them."""


def __getattr__(name: str) -> object:
    """`from skep import Client` works, and `import skep` in a training script costs nothing."""
    if name not in PACKAGES:
        raise AttributeError(f"module 'skep' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"skep.{PACKAGES[name]}"), name)
