"""What is handed to Slurm and to the ranks: the options of `sbatch`, the batch script, and each rank's command.

One placement is one Slurm job with a task for each rank, so that Slurm starts all or none. `--gpus-per-task` with `--ntasks` lets several ranks share a node, unevenly too.
But the step is told nothing of it: Slurm 22.05 would give each task devices of its own choice, and none where it cannot tell devices apart; the ranks
divide what the job has on their node among themselves.
"""

import math
import re
import secrets
import shlex
from pathlib import Path
from typing import NamedTuple

from federator.model.jobs import APART, ON_ONE_HOST, WHOLE_MILLI, Accelerators, Resources, cuts_of
from federator_agent import images
from federator_agent.core.state import PlacementRecord
from federator_agent.local.confinement import exports
from federator_agent.slurm.settings import Account

RANK_SCRIPT = (Path(__file__).with_name("rank.sh")).read_text()
"""Read once: an upgrade that replaces the file under a running agent must not meet the old arguments."""
GATE_S = 240
"""So long ranks wait at their gate for an agent that is away, before they give their nodes back."""
_SHELLS = re.compile(
    r"(?!(?:BASH\w*|DIRSTACK|E?UID|FUNCNAME|GROUPS|HISTCMD|LINENO|PPID|S?RANDOM|SECONDS|SHELLOPTS)$)[A-Za-z_]\w*",
    re.ASCII,
)
"""Variables that bash takes from a script as any others."""
_MARGIN_S = GATE_S + 120.0
"""What Slurm's time limit allows for beyond the job's: the wait at the gate counts there, and the limit is only for when the agent is not."""


class SlurmPool(NamedTuple):
    """Where in the cluster a pool is, and what its nodes are like."""

    partition: str
    gpu_type: str
    max_time_s: float | None
    node_cpus: int
    node_gpus: int
    node_memory_mib: int
    default_memory: bool
    host_milli: int = WHOLE_MILLI
    """Of GPUs in parts: what of one each host of the pool has."""
    cut_milli: int = 0
    """Of GPUs in parts: each part is so many thousandths of one."""
    shards: bool = False
    """These parts are what Slurm calls shards; else each is a GPU to it."""
    switch: str = ""
    """All its nodes are below that leaf switch; empty: below none, or it is not asked for."""
    exclude: str = ""
    """A list of the nodes that are below no switch or another one; empty: all are below this."""


def sbatch_options(
    record: PlacementRecord, need: Resources, target: SlurmPool, account: Account, together: str = ""
) -> list[str]:
    """The options for a placement, without those of its files. Sizes are per rank; `together` says how ranks lie."""
    entry = record.entry
    cpus = max(1, math.ceil(need.cpus_milli / 1000))
    options = [
        "--parsable",
        "--no-requeue",
        f"--job-name={entry.placement}",
        f"--comment=federator job={entry.job} epoch={entry.epoch}",
        f"--partition={account.partition or target.partition}",
        f"--ntasks={len(record.slots)}",
        f"--cpus-per-task={cpus}",
        f"--time={_time_limit(record, target)}",
    ]
    options += [f"--exclude={target.exclude}"] if target.exclude else []
    if together == ON_ONE_HOST:
        options.append("--nodes=1")
    elif together == APART:
        options += [f"--nodes={len(record.slots)}", "--ntasks-per-node=1"]
    kind = f"{target.gpu_type}:" if target.gpu_type else ""
    if need.gpus.count and target.shards:
        ranks = len(record.slots)
        options.append(f"--gres=shard:{kind}{shards_per_node(ranks, need, target, together)}")
        if ranks > 1 and together not in (ON_ONE_HOST, APART):
            options += [f"--nodes={ranks}", "--ntasks-per-node=1"]
    elif need.gpus.count:
        options.append(f"--gpus-per-task={kind}{need.gpus.count}")
    memory_mib = need.memory_mib or _share_mib(cpus, need.gpus, target)
    if memory_mib:
        options.append(f"--mem-per-cpu={math.ceil(memory_mib / cpus)}M")
    for option, value in (("account", account.account), ("qos", account.qos), ("uid", account.user)):
        options += [f"--{option}={value}"] if value else []
    return options


def shards_per_node(ranks: int, need: Resources, target: SlurmPool, together: str) -> int:
    """How many to ask for. Slurm counts them by node, and all that a job has there are of one GPU: so ranks are apart, or all on one; 0: the pool has none."""
    if not need.gpus.count or not target.shards:
        return 0
    return cuts_of(need.gpus.each, target.cut_milli) * (ranks if together == ON_ONE_HOST else 1)


def _time_limit(record: PlacementRecord, target: SlurmPool) -> str:
    """In minutes. Never more than the partition takes: there the job's own limit comes first, or the person is told."""
    max_duration_s = record.entry.max_duration_s
    if max_duration_s is None:
        return "UNLIMITED" if target.max_time_s is None else str(int(target.max_time_s // 60))
    limit_s = max_duration_s + record.entry.grace_s + _MARGIN_S
    if target.max_time_s is not None:
        limit_s = min(limit_s, target.max_time_s)
    return str(max(1, math.floor(limit_s / 60)))


def _share_mib(cpus: int, gpus: Accelerators, target: SlurmPool) -> int:
    """For a rank that names no memory: as much of a node's as it takes of its CPUs or GPUs. Slurm would give it all of the node's."""
    if target.default_memory or not target.node_cpus:
        return 0
    share = cpus / target.node_cpus
    if gpus.share_milli:
        share = max(share, gpus.share_milli / target.host_milli)
    elif target.node_gpus:
        share = max(share, gpus.count / target.node_gpus)
    return max(1, math.floor(target.node_memory_mib * min(1.0, share)))


def batch_script(directory: Path, ranks: int, need: Resources, shards: int = 0) -> str:
    """Runs on the first node: says that it is there, then starts the ranks and waits for them. `shards`: of each node; a step of Slurm 22.05 finds them only by their number."""
    gres = f" --gres=shard:{shards}" if shards else ""
    where = shlex.quote(str(directory))
    cpus = max(1, math.ceil(need.cpus_milli / 1000))
    return f"""#!/bin/bash
unset SLURM_GPUS_PER_TASK SLURM_TRES_PER_TASK SLURM_GPU_BIND SLURM_TRES_BIND SLURM_GPUS
cd {where} || exit 74
mkdir begun || exit 77 # a slurmctld that has lost its latest state may start a job again that has run
printf '%s\\n' "$SLURM_JOB_ID $SLURM_JOB_NODELIST $(cat /proc/sys/kernel/random/boot_id)" >begun/by
srun --input=none --kill-on-bad-exit=0 --wait=0 --ntasks={ranks} --cpus-per-task={cpus}{gres} \\
    --output=slurm.out --open-mode=append bash {where}/rank.sh {where} {need.gpus.count} {GATE_S}
"""


def container_script(text: str, environment: dict[str, str]) -> str:
    """The same where it runs in a container: the variables come by a descriptor, and are taken up inside."""
    end = f"END-{secrets.token_hex(8)}"
    given = exports(images.given(environment, {})).decode()
    return f"cd work || exit 126\nexec {images.GIVEN}<<'{end}'\n{given}{end}\n{text}\n"


def command_script(command: list[str], environment: dict[str, str]) -> str:
    """A rank's command, on top of the environment that Slurm has given it.

    The shell itself takes up the variables: of a program that did, all users of the node could read the arguments, secrets among them. It cannot take up those
    that have no name to it, or are its own; with them goes `env`, which would take a command with a = in its name for another one.
    """
    plain = {name: value for name, value in environment.items() if _SHELLS.fullmatch(name)}
    others = [f"{name}={value}" for name, value in environment.items() if name not in plain]
    if others:
        others = [
            "/usr/bin/env",
            *others,
            *(("/bin/sh", "-c", 'exec "$@"', "sh") if "=" in command[0] else ()),
        ]
    return f"cd work || exit\n{exports(plain).decode()}exec {shlex.join([*others, *command])}\n"
