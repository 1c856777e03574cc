"""`copy`: files to and from a running job."""

import asyncio
from typing import NamedTuple

from federator.cli.phrases import plain
from federator.cli.session import HERE, Connection, open_client
from federator.cli.tunnels import Rank
from federator.kernel.errors import Invalid


class There(NamedTuple):
    """A path in a job."""

    job: str
    path: str


def copy(source: str, target: str, *, rank: Rank = 0, connection: Connection = HERE) -> None:
    """Copy a file or folder out of a running job, or into it.

    One of the two is JOB:PATH, named from the job's work folder or by a whole path, as in `federator copy train:checkpoints .` and
    `federator copy fix.py train:`. A folder that is there already is neither replaced nor mixed with another. Only the job's owner may.

    Parameters
    ----------
    source:
        What to copy.
    target:
        Where to; if that is a folder, into it.
    rank:
        Which rank of a gang.
    """
    asyncio.run(_copy(connection, _place(source), _place(target), rank))


async def _copy(connection: Connection, source: There | str, target: There | str, rank: int) -> None:
    async with open_client(connection) as client:
        if isinstance(source, There) and isinstance(target, str):
            print(plain(str(await client.copy_from(source.job, source.path, target, rank=rank))))
        elif isinstance(source, str) and isinstance(target, There):
            await client.copy_to(target.job, source, target.path, rank=rank)
        else:
            remedy = "write for example federator copy train:checkpoints ."
            raise Invalid("one of the two has to be JOB:PATH", field="TARGET", remedy=remedy)


def _place(text: str) -> There | str:
    """As scp has it: a colon before the first slash names a job."""
    job, colon, path = text.partition(":")
    if not colon or not job or "/" in job:
        return text
    return There(job, path or ".")
