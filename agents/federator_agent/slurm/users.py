"""In whose name jobs run, by queue, team and owner, where that is another user than the agent's: what is theirs is given to them, and nothing of theirs runs as the agent."""

import asyncio
import pwd
from pathlib import Path

from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator_agent.core.state import PlacementRecord
from federator_agent.slurm.settings import SlurmSettings
from federator_agent.staging_errors import StagingError, StagingRefused


def other_user(settings: SlurmSettings, record: PlacementRecord) -> str:
    """Who that is; empty: the agent's own user."""
    return settings.account(record.entry.whose).user


def refuse_nobodys(settings: SlurmSettings, record: PlacementRecord) -> None:
    """Where the agent is root so that jobs can be others', it does not run what is nobody's. Raises `StagingRefused`."""
    if settings.maps and not other_user(settings, record):
        raise StagingRefused(
            f"the site file names no user for jobs of {record.entry.whose.shown}, and none runs as the agent's; "
            "slurm.users names one for each owner, and slurm.queues for each queue or team"
        )


def refuse_setup(settings: SlurmSettings, record: PlacementRecord, spec: JobSpec) -> None:
    """A set-up runs beside the agent, as the agent's user, which is root where others are. Raises `StagingRefused`."""
    if spec.setup is not None and (user := other_user(settings, record)):
        raise StagingRefused(f"jobs of {record.entry.whose.shown} run as {user} here, without a set-up")


def become(user: str) -> list[str]:
    """What a command of the agent's begins with that is to be that user's. Raises `OSError` for one that this host does not know."""
    if not user:
        return []
    return ["setpriv", f"--reuid={user}", f"--regid={_group(user)}", "--init-groups", "--"]


def group_options(user: str) -> list[str]:
    """Of `sbatch`, beside the user: it would take the agent's own group, root's. Raises `StagingRefused` for one that this host does not know."""
    try:
        return [f"--gid={_group(user)}"] if user else []
    except OSError as error:
        raise StagingRefused(str(error)) from None


def _group(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        raise OSError(f"this host knows no user {user}") from None


async def give(settings: SlurmSettings, record: PlacementRecord, *paths: Path) -> None:
    """Make what lies there that user's. Raises `StagingError`."""
    user = other_user(settings, record)
    if not user:
        return
    words = ["chown", "-R", "-h", "--", f"{user}:", *map(str, paths)]
    chown = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    _, said = await chown.communicate()
    if chown.returncode != 0:
        why = said.decode(errors="replace").strip()[:200]
        raise StagingError(Cause.STAGING, f"its files cannot be given to {user}: {why}")
