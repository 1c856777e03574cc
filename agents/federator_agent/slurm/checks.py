"""What an installation beside Slurm needs, proved one by one for `federator-agent check`: each a line, with the remedy where it fails."""

import asyncio
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from federator.model.jobs import in_gpus
from federator.model.whose import EVERYBODY, in_words
from federator_agent import ownership
from federator_agent.core.lent_capacity import Seen
from federator_agent.slurm import output
from federator_agent.slurm.capacity import lent_partitions, view
from federator_agent.slurm.cluster import nodes_of
from federator_agent.slurm.commands import Commands, Rejected, Unreachable
from federator_agent.slurm.settings import Account, SlurmSettings

ELSEWHERE = (
    "where that file is not in its usual place, name it by conf under slurm; SLURM_CONF does not count"
)
PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel")


async def check(settings: SlurmSettings, environment: dict[str, str], state_dir: Path) -> list[str]:
    """Lines that begin with `ok`, or say what is wrong and what to do. `environment`: what jobs get of the agent's own."""
    path = environment.get("PATH", os.defpath)
    if lacking := [program for program in PROGRAMS if shutil.which(program, path=path) is None]:
        return [
            f"{', '.join(lacking)} cannot be found in {path}; install Slurm's client commands on this host"
        ]
    lines = [await asyncio.to_thread(_shared, settings.shared_dir, state_dir)]
    if settings.conf is not None and not await asyncio.to_thread(settings.conf.is_file):
        # Slurm's commands would look for it for a minute.
        return [*lines, f"conf: {settings.conf} is not there; name this cluster's slurm.conf"]
    commands = Commands(settings, environment)
    try:
        version = (await commands.run("scontrol", "--version")).strip()
        partitions = output.read_partitions(await commands.run("scontrol", "show", "partition", "--oneliner"))
        nodes = await nodes_of(commands, settings)
        gathers = await commands.run("scontrol", "show", "config")
    except (Unreachable, Rejected) as error:
        return [
            *lines,
            f"{error.describe()}; is slurmctld up, and is this host in its cluster, with munge and slurm.conf? {ELSEWHERE}",
        ]
    lines.append(f"ok    {version} answers")
    lines += _measures(gathers)
    lines += _users(settings)
    known = {partition.name for partition in partitions}
    lines += [
        f"partition {name} is not in the cluster; it has {', '.join(sorted(known))}"
        for name in settings.partitions
        if name not in known
    ]
    lines += _lent(view(settings, nodes, partitions, (), (), ()).seen)
    targets = [partition.name for partition in lent_partitions(settings, partitions)]
    return lines + [
        await _submits(commands, whose, account, target)
        for whose, account in _accounts(settings)
        for target in targets
    ]


def _lent(seen: Seen) -> Iterator[str]:
    """What is amiss with pools, and what they are."""
    if seen.health != "ok":
        yield f"WARN  {seen.health}"
    for pool in seen.pools:
        gpus = f", each {pool.gpus_per_node} GPUs {pool.model}" if pool.gpus_per_node else ""
        if pool.shares:
            part, has = (in_gpus(milli, shared=True) for milli in (pool.cut_milli, pool.host_milli))
            gpus = f", each {has} GPUs {pool.model} in parts of {part}"
        yield f"ok    pool {pool.name}: {pool.nodes} hosts{gpus}"


def _measures(config: str) -> list[str]:
    """Whether what jobs use can be known."""
    if re.search(r"^JobAcctGatherType\s*=\s*jobacct_gather/(?!none)", config, re.MULTILINE):
        return ["ok    what jobs use is gathered"]
    remedy = "set JobAcctGatherType=jobacct_gather/cgroup in slurm.conf"
    return [f"WARN  what jobs use is not gathered, so max_idle ends none and efficiency lists none; {remedy}"]


def _users(settings: SlurmSettings) -> list[str]:
    """Who jobs are on the cluster's hosts."""
    if not settings.maps:
        if os.geteuid() == 0:
            return [
                "WARN  the agent is root, and so are all jobs; name their users in slurm.users or slurm.queues, or run it as another user"
            ]
        return [
            "WARN  all jobs run as the agent's user, and can read what is the agent's; run it as root and name their users in slurm.users or slurm.queues"
        ]
    if os.geteuid() != 0:
        return ["slurm.users, slurm.queues: the agent must be root to submit jobs as other users"]
    named = sorted({*settings.users.values(), *(account.user for account in settings.queues.values())} - {""})
    return [_account(name) for name in named]


def _account(name: str) -> str:
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return (
            f"user {name} has no account on this host; create it here and on all nodes, with the same user id"
        )
    if uid == 0:
        return f"user {name} is root; name an account without privileges"
    return f"ok    user {name}: jobs can be given to it"


def _shared(directory: Path, state_dir: Path) -> str:
    try:
        if why := ownership.foreign(directory, state_dir):
            return f"shared_dir: {why}; {ownership.remedy(directory / ownership.FILE)}"
        with tempfile.TemporaryFile(dir=directory):
            return f"ok    shared_dir {directory} can be written; the nodes must see it under the same path"
    except OSError as error:
        return f"shared_dir {directory}: {error.strerror}; mount it here and on all nodes, and make it writable for this user"


def _accounts(settings: SlurmSettings) -> list[tuple[str, Account]]:
    """In whose name jobs are submitted, each with whose jobs these are."""
    named = [(in_words([name]), each) for name, each in settings.queues.items() if name != EVERYBODY]
    return [*named, ("all others", settings.queues.get(EVERYBODY, Account()))]


async def _submits(commands: Commands, whose: str, account: Account, partition: str) -> str:
    """Whether Slurm would take a small job of theirs; nothing is submitted."""
    options = [
        f"--partition={account.partition or partition}",
        "--ntasks=1",
        "--time=1",
        "--mem=1M",
        "--wrap=true",
    ]
    for option, value in (("account", account.account), ("qos", account.qos), ("uid", account.user)):
        options += [f"--{option}={value}"] if value else []
    try:
        await commands.run("sbatch", "--test-only", *options)
    except (Unreachable, Rejected) as error:
        return f"{whose}, partition {account.partition or partition}: {error.message}; see slurm.queues in the site file"
    return f"ok    {whose}: Slurm takes jobs in partition {account.partition or partition}"
