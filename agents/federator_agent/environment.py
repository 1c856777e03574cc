"""The variables that each rank of a job sees, so that a plain `torchrun train.py` joins its gang."""

from pathlib import Path
from typing import NamedTuple

from federator.model.jobs import JobSpec
from federator_agent.core.lending import Slot
from federator_agent.core.state import Record


class Where(NamedTuple):
    """What the agent knows of itself and a job's directories. `address` is for gangs that have all their ranks here."""

    site: str
    address: str
    checkpoints: Path


def rank_environment(
    base: dict[str, str], record: Record, spec: JobSpec, slot: Slot, where: Where
) -> dict[str, str]:
    """The whole environment of a rank; the job's own `env` is on top of everything else."""
    entry, gpus = record.entry, spec.resources.gpus.count
    endpoint = entry.rendezvous or f"{where.address}:{record.master_port}"
    address, _, port = endpoint.rpartition(":")
    address = address.strip("[]")
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in slot.gpus),
        "FEDERATOR_JOB_ID": entry.job,
        "FEDERATOR_JOB_NAME": entry.job_name,
        "FEDERATOR_PLACEMENT_ID": entry.placement,
        "FEDERATOR_NODE_RANK": str(slot.rank),
        "FEDERATOR_NUM_NODES": str(spec.nodes),
        "FEDERATOR_GPUS_PER_NODE": str(gpus),
        "FEDERATOR_CHECKPOINT_DIR": str(where.checkpoints),
        "FEDERATOR_RESUME": "1" if entry.resume else "0",
        "FEDERATOR_SITE": where.site,
        "FEDERATOR_POOL": entry.pool,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(spec.nodes * max(gpus, 1)),
        "PET_NNODES": str(spec.nodes),
        "PET_NODE_RANK": str(slot.rank),
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": endpoint,
        "PET_RDZV_ID": entry.placement,
    }
    if spec.checkpoint is not None and spec.checkpoint.every_s is not None:
        values["FEDERATOR_CHECKPOINT_EVERY_S"] = f"{spec.checkpoint.every_s:g}"
    if entry.array_index is not None:
        values["FEDERATOR_ARRAY_INDEX"] = str(entry.array_index)
    return base | values | spec.env


def setup_environment(base: dict[str, str], spec: JobSpec, where: Where) -> dict[str, str]:
    """The environment of a set-up script: nothing of one placement, since its result is shared by many."""
    return base | {"FEDERATOR_SITE": where.site} | spec.env
