"""A Kubernetes engine on a real node, for tests that start few pods and look closely."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import msgspec
from tests.support.images import files_of_package, files_of_python, files_of_tools, libraries, write_tar
from tests.support.kube_node import ADDRESS, RealNode
from tests.support.kube_plane import free_port
from tests.support.kube_world import KubeWorld

from skep.core.cluster import Cluster, NodeSpec
from skep.jobs.request import Request, TaskRole

IMAGE, TORCH_IMAGE = "localhost/skep-python:1", "localhost/skep-torch:1"
PACKAGES = (
    "torch",
    "torchgen",
    "numpy",
    "numpy.libs",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "fsspec",
    "filelock",
)


class RealWorld(KubeWorld):
    def __init__(self, node: RealNode, folder: Path) -> None:
        self.node = node
        super().__init__(node.plane, folder)

    def join_nodes(self) -> None:
        self.cluster = Cluster([NodeSpec(self.node.name, 8)])
        (self.folder / "checkpoints").mkdir()
        self.settings = msgspec.structs.replace(
            self.settings, image=IMAGE, unreachable_s=300.0, reports=f"http://{ADDRESS}:{free_port()}"
        )

    def leave_nodes(self) -> None:
        pass

    def submit(self, job_id: str, command: str, *, grace_s: float = 20.0, **role) -> None:
        self.requests[job_id] = Request("job", {"main": TaskRole(command=command, **role)}, grace_s=grace_s)

    def log(self, job_id: str = "1", launch: int = 0) -> bytes:
        with contextlib.closing(self.engine.open_log(job_id, "", launch)) as reader:
            return b"".join(iter(reader.read, b""))


def add_python_image(node: RealNode) -> None:
    node.add_layer(IMAGE, write_tar(node.folder / "python.tar", [*files_of_tools(), *files_of_python()]))


def add_torch_image(node: RealNode) -> str:
    """With this machine's Python and torch. Returns the folder of the packages, which is the same in the image."""
    packages = Path(torch_folder()).parent
    files = [path for name in PACKAGES if (packages / name).is_dir() for path in files_of_package(packages / name)]
    files += [packages / "typing_extensions.py", *libraries(packages / "torch" / "lib" / "libtorch_python.so")]
    node.add_layer(TORCH_IMAGE, write_tar(node.folder / "torch.tar", [*files_of_tools(), *files_of_python(), *files]))
    return str(packages)


def torch_folder() -> str:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)
