"""What each rank of a job runs, and the variables that it sees, so that a plain `torchrun train.py` joins its gang."""

from typing import NamedTuple

from federator.model.jobs import WHOLE_MILLI, JobSpec
from federator.model.spans import traceparent
from federator_agent.core.lent_capacity import Slot
from federator_agent.core.state import PlacementRecord
from federator_agent.gpus import CUDA_VISIBLE_DEVICES

GANG_VARIABLE = "FEDERATOR_GANG_SECRET"


class Where(NamedTuple):
    """What the runtime knows of a placement. `address`: of rank 0, for gangs that have all their ranks here; `checkpoints`, `inputs`: as the ranks see those directories."""

    site: str
    address: str
    checkpoints: str
    inputs: str = ""
    resumes: bool = False
    """There is a checkpoint, wherever it comes from."""
    gang_secret: str = ""
    """By which the ranks know each other; empty: they are not all here, or there is only one."""


def command_of(spec: JobSpec) -> list[str]:
    """What a rank runs, as an argument vector."""
    return list(spec.launch or spec.asked)


def rank_environment(record: PlacementRecord, spec: JobSpec, rank: int, where: Where) -> dict[str, str]:
    """What the federation adds to a rank's environment, with the job's own `env` on top. Devices are for the runtime to name."""
    entry, gpus = record.entry, spec.resources.gpus.count
    endpoint = entry.rendezvous or f"{where.address}:{record.master_port}"
    address, _, port = endpoint.rpartition(":")
    address = address.strip("[]")
    values = {
        "FEDERATOR_JOB_ID": entry.job,
        "FEDERATOR_JOB_NAME": entry.job_name,
        "FEDERATOR_PLACEMENT_ID": entry.placement,
        "FEDERATOR_NODE_RANK": str(rank),
        "FEDERATOR_NUM_NODES": str(spec.nodes),
        "FEDERATOR_GPUS_PER_NODE": str(gpus),
        "FEDERATOR_CPUS_PER_NODE": str(max(1, spec.resources.cpus_milli // 1000)),
        "FEDERATOR_CHECKPOINT_DIR": where.checkpoints,
        "FEDERATOR_RESUME": "1" if entry.resume or where.resumes else "0",
        "FEDERATOR_SITE": where.site,
        "FEDERATOR_POOL": entry.pool,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(spec.nodes * max(gpus, 1)),
        "PET_NNODES": str(spec.nodes),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": entry.placement,
    }
    for slot in record.slots:
        values |= _share_environment(slot) if slot.rank == rank else {}
    if spec.checkpoint is not None and spec.checkpoint.every_s is not None:
        values["FEDERATOR_CHECKPOINT_EVERY_S"] = f"{spec.checkpoint.every_s:g}"
    if spec.resources.memory_mib:
        values["FEDERATOR_MEMORY_MIB_PER_NODE"] = str(spec.resources.memory_mib)
    if where.gang_secret:
        values[GANG_VARIABLE] = where.gang_secret
    if spec.inputs or spec.inputs_from:
        values["FEDERATOR_INPUTS_DIR"] = where.inputs
    if entry.traced:
        values["TRACEPARENT"] = traceparent(entry.job, entry.placement)
    if entry.array_index is not None:
        values["FEDERATOR_ARRAY_INDEX"] = str(entry.array_index)
    return values | spec.env


def device_environment(slot: Slot, visible: str = CUDA_VISIBLE_DEVICES) -> dict[str, str]:
    """Which GPUs a rank sees, by the variable of their kind; of one that it has a part of, also how much that is.

    That part is for programs to keep to: CUDA holds them to it only where an MPS server runs at the host, which reads the `CUDA_MPS_*` variables. A MIG instance holds them by itself.
    """
    values = {visible: slot.uuid or ",".join(map(str, slot.gpus))}
    if visible != CUDA_VISIBLE_DEVICES:
        return values | _share_environment(slot)
    values["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    values |= _share_environment(slot)
    if not slot.share_milli or slot.uuid:
        return values
    values["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{slot.share_milli * 100 / WHOLE_MILLI:g}"
    if slot.share_mib:
        # By the numbers of the GPUs that it sees: the one is 0.
        values["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={slot.share_mib}M"
    return values


def _share_environment(slot: Slot) -> dict[str, str]:
    """How much of a GPU a rank has; nothing where its GPUs are its own."""
    if not slot.share_milli:
        return {}
    values = {"FEDERATOR_GPU_SHARE": f"{slot.share_milli / WHOLE_MILLI:g}"}
    if slot.share_mib:
        values["FEDERATOR_GPU_MEMORY_MIB"] = str(slot.share_mib)
    return values


def setup_environment(base: dict[str, str], spec: JobSpec, site: str) -> dict[str, str]:
    """The environment of a set-up script: nothing of one placement, since its result is shared by many."""
    return base | {"FEDERATOR_SITE": site} | lasting_environment(spec)


def lasting_environment(spec: JobSpec) -> dict[str, str]:
    """What its file says, without what tells one run of a series from another."""
    return {name: value for name, value in spec.env.items() if not name.startswith("FEDERATOR_")}
