"""The environment of a task: its identity, the addresses of the others, its GPUs.

A task is one process and counts as one rank, with any number of GPUs. It sees only its own GPUs, so from its view it is
alone on its node: `LOCAL_RANK` is 0 and `LOCAL_WORLD_SIZE` 1, and the usual `cuda:{LOCAL_RANK}` is right. A task with
several GPUs may start `torchrun --nproc-per-node` itself, with `--nnodes $WORLD_SIZE --node-rank $NODE_RANK`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skep.jobs.request import Completion, Request, TaskRole

MASTER = "master"
"""Label of the rendezvous port of a launch, which the first task has."""

Ports = Mapping[str, Sequence[int]]
"""The ports of a task by label."""


class TaskPlace(msgspec.Struct, frozen=True):
    """Where one task of a launch runs."""

    role: str
    index: int
    node: str
    gpus: tuple[int, ...] = ()
    """As `CUDA_VISIBLE_DEVICES` counts them on its node."""
    address: str = "127.0.0.1"
    gpu_mem_mib: int = 0
    """The memory of each of its GPUs that it may use; 0: not stated."""
    mps_percent: float = 0.0
    """The percentage of threads of each of its GPUs that it may use under NVIDIA MPS; 0: not stated."""
    devices: tuple[str, ...] = ()
    """MIG instances that it sees instead of whole GPUs."""

    @property
    def task(self) -> str:
        return f"{self.role}-{self.index}"


class Folders(msgspec.Struct, frozen=True):
    task: str
    """The folder of this task of this launch."""
    checkpoint: str
    """The folder of the job, the same for all launches and tasks."""


def ports_wanted(request: Request, places: Sequence[TaskPlace]) -> list[dict[str, int]]:
    """The number of ports of each label that every task of a launch gets."""
    wanted = [dict(request.tasks[place.role].ports) for place in places]
    wanted[0][MASTER] = max(wanted[0].get(MASTER, 0), 1)
    return wanted


def command_line(role: TaskRole) -> list[str]:
    return list(role.argv) if role.argv else ["bash", "-c", role.command]


def task_env(
    request: Request,
    job_id: str,
    launch: int,
    places: Sequence[TaskPlace],
    rank: int,
    ports: Sequence[Ports],
    folders: Folders,
) -> dict[str, str]:
    """The variables of task number `rank` of a launch, on top of those of every process.

    `places` and `ports` are those of all tasks of the launch, role by role and by index. Skep's own names come last: a
    job cannot claim GPUs that it was not given.
    """
    place = places[rank]
    return {
        **request.tasks[place.role].env,
        **request.secrets,
        **_of_pai(request, places, rank, ports),
        **_of_torch(places, rank, ports),
        **_of_share(place),
        **_of_search(request),
        **_of_skep(request, job_id, launch, place, folders),
    }


def _of_torch(places: Sequence[TaskPlace], rank: int, ports: Sequence[Ports]) -> dict[str, str]:
    place = places[rank]
    alike = [other.index for other in places if other.role == place.role]
    return {
        "MASTER_ADDR": places[0].address,
        "MASTER_PORT": str(ports[0][MASTER][0]),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(places)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "NODE_RANK": str(rank),
        "ROLE_NAME": place.role,
        "ROLE_RANK": str(alike.index(place.index)),
        "ROLE_WORLD_SIZE": str(len(alike)),
        # A restart under torchrun can find keys of the previous start in a shared store (pytorch issue 135712).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "CUDA_VISIBLE_DEVICES": ",".join(place.devices or map(str, place.gpus)),
    }


def _of_share(place: TaskPlace) -> dict[str, str]:
    """Limits of a job on GPUs that it shares. `skep.train` applies the memory limit, the driver those of MPS."""
    env = {}
    if place.gpu_mem_mib:
        env["SKEP_GPU_MEM_MIB"] = str(place.gpu_mem_mib)
    if place.mps_percent:
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{place.mps_percent:g}"
        if place.gpu_mem_mib:
            limits = [f"{number}={place.gpu_mem_mib}M" for number in range(len(place.gpus))]
            env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(limits)
    return env


def _of_search(request: Request) -> dict[str, str]:
    """Where the trials of a search are compared: `skep.train` notes their metric at exactly these steps."""
    search = request.of_group.search
    if search is None or search.rule == "none":
        return {}
    factor = 1.0 if search.rule == "median" else search.eta
    return {"SKEP_RUNGS": f"{search.metric} {search.first!r} {factor!r}"}


def _of_skep(request: Request, job_id: str, launch: int, place: TaskPlace, folders: Folders) -> dict[str, str]:
    return {
        "SKEP_JOB_ID": job_id,
        "SKEP_JOB_NAME": request.name,
        "SKEP_USER": request.user,
        "SKEP_VC": request.vc,
        "SKEP_LAUNCH": str(launch),
        "SKEP_TASK": f"{job_id}/{launch}/{place.task}",
        "SKEP_TASK_ROLE": place.role,
        "SKEP_TASK_INDEX": str(place.index),
        "SKEP_NODE": place.node,
        "SKEP_TASK_DIR": folders.task,
        "SKEP_CHECKPOINT_DIR": folders.checkpoint,
    }


def _of_pai(request: Request, places: Sequence[TaskPlace], rank: int, ports: Sequence[Ports]) -> dict[str, str]:
    """The variables that OpenPAI sets, including old names, except those of its file system."""
    place = places[rank]
    name = f"{request.user}~{request.name}"
    counts = _task_counts(request, places)
    roles = ",".join(request.tasks)
    env = {
        "PAI_JOB_NAME": name,
        "PAI_FRAMEWORK_NAME": name,
        "PAI_USER_NAME": request.user,
        "PAI_USERNAME": request.user,
        "PAI_VIRTUAL_CLUSTER": request.vc,
        "PAI_CURRENT_TASK_ROLE_NAME": place.role,
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(place.index),
        "PAI_TASK_INDEX": str(place.index),
    }
    env.update(dict.fromkeys(("PAI_TASK_ROLE_LIST", "PAI_JOB_TASK_ROLE_LIST"), roles))
    role_counts = ("PAI_TASK_ROLE_COUNT", "PAI_TASK_ROLES_NUM", "PAI_JOB_TASK_ROLE_COUNT")
    env.update(dict.fromkeys(role_counts, str(len(request.tasks))))
    env.update(dict.fromkeys(("PAI_TASKS_NUM", "PAI_JOB_TASK_COUNT"), str(sum(counts.values()))))
    for role_name, role in request.tasks.items():
        env.update(_of_pai_role(role_name, role, counts[role_name]))
    _add_pai_hosts(env, places, rank, ports)
    return env


def _task_counts(request: Request, places: Sequence[TaskPlace]) -> dict[str, int]:
    """Tasks by role: the present number for an elastic role, the requested number for any other."""
    counts = {name: role.count for name, role in request.tasks.items()}
    if request.elastic is not None:
        elastic = request.elastic.role
        counts[elastic] = sum(place.role == elastic for place in places)
    return counts


def _of_pai_role(name: str, role: TaskRole, count: int) -> dict[str, str]:
    completion: Completion = role.completion
    return {
        f"PAI_TASK_ROLE_TASK_COUNT_{name}": str(count),
        f"PAI_RESOURCE_{name}": f"{role.gpus},{role.cpu:g},{role.memory_gib * 1024:.0f},0",
        f"PAI_MIN_FAILED_TASK_COUNT_{name}": _pai_number(completion.min_failed),
        f"PAI_MIN_SUCCEEDED_TASK_COUNT_{name}": _pai_number(completion.min_succeeded),
    }


def _pai_number(value: int | None) -> str:
    return "-1" if value is None else str(value)


def _add_pai_hosts(env: dict[str, str], places: Sequence[TaskPlace], rank: int, ports: Sequence[Ports]) -> None:
    for place, labels in zip(places, ports, strict=True):
        where = f"{place.role}_{place.index}"
        env[f"PAI_HOST_IP_{where}"] = place.address
        for label, numbers in labels.items():
            env[f"PAI_PORT_LIST_{where}_{label}"] = ",".join(map(str, numbers))
    for label, numbers in ports[rank].items():
        env[f"PAI_CONTAINER_HOST_{label}_PORT_LIST"] = ",".join(map(str, numbers))
    hosts: dict[str, list[str]] = {}
    for place in places:
        hosts.setdefault(place.role, []).append(place.address)
    for role, addresses in hosts.items():
        env[f"PAI_TASK_ROLE_{role}_HOST_LIST"] = ",".join(addresses)
