"""The page of environment variables. What each means is said here; that none is missing is checked against the sources."""

import re
from collections.abc import Mapping
from pathlib import Path

from tools.record_docs import page

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "federator",
    "agents/federator_agent",
    "providers/federator_providers",
    "policies/federator_policies",
)

RANK = {
    "FEDERATOR_JOB_ID": "The job's id.",
    "FEDERATOR_JOB_NAME": "Its name.",
    "FEDERATOR_PLACEMENT_ID": "The attempt; another one after each restart.",
    "FEDERATOR_NODE_RANK": "Number of this node in the gang, from 0.",
    "FEDERATOR_NUM_NODES": "Nodes of the gang, as it runs now.",
    "FEDERATOR_GROUP": "The group of its job that the rank is of, where the job file has `groups`; the numbers of nodes, CPUs and memory are then those of the group.",
    "FEDERATOR_GPUS_PER_NODE": "GPUs of each node.",
    "FEDERATOR_CPUS_PER_NODE": "Whole CPU cores of each node, at least 1.",
    "FEDERATOR_MEMORY_MIB_PER_NODE": "Memory of each node in MiB, where the job asks for some.",
    "FEDERATOR_GPU_SHARE": "Of a part of a GPU: how large it is, such as `0.5`.",
    "FEDERATOR_GPU_MEMORY_MIB": "Of a part of a GPU: its memory in MiB, where that is known.",
    "FEDERATOR_SITE": "The site.",
    "FEDERATOR_POOL": "The pool.",
    "FEDERATOR_ARRAY_INDEX": "The task's number, in an array.",
    "FEDERATOR_CHECKPOINT_DIR": "Where the job may save itself. It is there again when the job resumes.",
    "FEDERATOR_CHECKPOINT_EVERY_S": "How often it should, in seconds, where its file says `checkpoint.every`.",
    "FEDERATOR_GANG_SECRET": "By which the ranks of a gang prove to each other that they are of it; not where the gang is spread over several agents.",
    "FEDERATOR_RESUME": "`1` where that directory holds a checkpoint of an earlier attempt, else `0`.",
    "FEDERATOR_INPUTS_DIR": "Where its `inputs` are, if it has any.",
    "FEDERATOR_SERIES": "Name of the series that the job is a run of.",
    "FEDERATOR_RUN": "Number of that run, from 1.",
    "FEDERATOR_DUE": "When that run was due (UTC).",
}
LAUNCHERS = {
    "MASTER_ADDR`, `MASTER_PORT`, `WORLD_SIZE": "What `torch.distributed` reads: where rank 0 listens, and how many processes there are with one for each GPU.",
    "TRACEPARENT": "Where the spans of the job's own programs belong, in the words of W3C Trace Context, where the dispatcher traces jobs.",
    "PET_*": "What `torchrun` reads, so that it needs no options.",
    "CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER": "The GPUs of this rank, at a bare host. Where its site has `gpu_probe`, the variable that this names stands in their place.",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "Of a part of a GPU: the limits that an MPS server keeps the rank to, where one runs.",
}
COMMAND = {
    "FEDERATOR_SERVER": "The dispatcher's address. The option `--server` goes before it.",
    "FEDERATOR_TOKEN": "The token. Better than `--token`, which others on the host see in the list of processes.",
    "FEDERATOR_CA": "File with the certificate authority of the dispatcher, in PEM.",
}
DISPATCHER = {
    "FEDERATOR_STATE_DIR": "Directory of the dispatcher's state; the `federator` command looks there for the local admin's token.",
    "FEDERATOR_PORT": "Port of the dispatcher.",
    "FEDERATOR_CLOCK": "How many times as fast as life time goes by, for demonstrations and tests.",
}
AGENT = {
    "FEDERATOR_AGENT_SOCKET": "Where `federator local` finds the agent of its host, where `--socket` does not say.",
    "FEDERATOR_AGENT_STATE_DIR": "The agent's state directory, where its file names none.",
    "FEDERATOR_USER_DATA_FILE": "The site file of a rented machine, with its join token.",
    "FEDERATOR_INSTANCE": "Name of the rented machine, as its provider knows it.",
    "FEDERATOR_NOTICES": "`ec2`: interruptions are announced by EC2's metadata service.",
    "FEDERATOR_NO_GPU_WATCH": "Set where the declared GPUs are not those of the host: their health is not watched.",
    "FEDERATOR_ISOLATION": "`shared`: as `isolation: {mode: shared}`, where the file says nothing.",
}
INTERNAL = frozenset({"FEDERATOR_BOOT_DIR", "FEDERATOR_DEMO_DIR", "FEDERATOR_INSTANCE_DIR", "FEDERATOR_OPENED_AT", "FEDERATOR_POD_UID", "FEDERATOR_RANK_DIR"})  # fmt: skip
"""Marks by which our processes find each other's: nobody sets or reads them by hand."""


def environment() -> str:
    """Environment variables: what a job sees, and what commands and processes read."""
    known = {*RANK, *COMMAND, *DISPATCHER, *AGENT, *INTERNAL}
    found = {
        name
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bFEDERATOR_[A-Z_]*[A-Z]\b", path.read_text())
    }
    if found != known:
        raise SystemExit(
            f"tools/variable_docs.py: add {sorted(found - known)}, remove {sorted(known - found)}"
        )
    return page(
        [
            "# Environment variables",
            "## What a job sees",
            "Each rank has these, beside the job's own `env`. Names that begin with `FEDERATOR_` cannot be set by a job file.",
            _table(RANK),
            "For launchers and libraries:",
            _table(LAUNCHERS),
            "A `setup` script sees `FEDERATOR_SITE` and the job's `env`, since its result is shared by many placements.",
            "## What the `federator` command reads",
            _table(COMMAND),
            "## What the dispatcher reads",
            "They go before the settings file; options go before them.",
            _table(DISPATCHER),
            "## What the agent reads",
            "Set by what rents or makes machines; an agent installed by hand needs none.",
            _table(AGENT),
        ]
    )


def _table(rows: Mapping[str, str]) -> str:
    return "\n".join(
        [
            "| variable | meaning |",
            "| --- | --- |",
            *(f"| `{name}` | {says} |" for name, says in rows.items()),
        ]
    )
