"""Skep: a cluster manager for deep learning. One scheduler, three worlds."""

TYPE_CHECKING = False  # instead of that of `typing`, whose import would slow down training scripts

if TYPE_CHECKING:
    from skep.client import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`from skep import Client` works, and `import skep` in a training script costs nothing."""
    if name == "Client":
        from skep.client import Client

        return Client
    raise AttributeError(f"module 'skep' has no attribute {name!r}")
