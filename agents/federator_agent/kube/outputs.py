"""Outputs of pods: each rank's as one archive, fetched as soon as the rank has ended, and all of them together as one.

Every rank has a work directory of its own, while the federation knows one archive for each placement: of files with one name in several, that of the lowest
rank counts. Only plain files are taken; what a link points to is taken under its own name.
"""

import asyncio
import os
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from federator.kernel.errors import Unavailable
from federator_agent.globs import matching
from federator_agent.kube import commands
from federator_agent.kube.api import Api
from federator_agent.spool import write_durably


async def fetch(api: Api, pod_path: str, uid: str, patterns: Sequence[str], archive: Path) -> None:
    """Pack what matches in a rank's work directory, into a file that is there only when it is whole. Raises `FederatorError`."""
    listed = await commands.done(api, pod_path, commands.LIST, uid)
    names = matching((name.removeprefix("./") for name in listed.split("\0") if "\n" not in name), patterns)
    if not names:
        write_durably(archive, b"")
        return
    wanted = "".join(f"./{name}\n" for name in names).encode()
    temporary = archive.with_name(f".{archive.name}.new")
    async with commands.run(api, pod_path, commands.PACK, uid, str(len(wanted)), stdin=True) as command:
        await command.send(wanted)
        with temporary.open("wb") as file:
            async for data in command.output():
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
    await asyncio.to_thread(_check, temporary)
    temporary.rename(archive)


def _check(archive: Path) -> None:
    """Whether all of it has come. Raises `Unavailable`."""
    try:
        with tarfile.open(archive, "r:gz", ignore_zeros=True) as tar:
            for _ in tar:
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise Unavailable(f"the outputs did not come whole: {error}") from None


def merge(archives: Iterable[Path], into: Path) -> int:
    """Put the archives of all ranks together, the lowest rank first; how many files there are."""
    names: set[str] = set()
    with tarfile.open(into, "w:gz", compresslevel=3) as target:
        for archive in archives:
            if not archive.exists() or not archive.stat().st_size:
                continue
            with tarfile.open(archive, "r:gz", ignore_zeros=True) as tar:
                for member in tar:
                    name = str(PurePosixPath(member.name))
                    if member.isfile() and name not in names:
                        names.add(name)
                        target.addfile(member.replace(name=name, deep=False), tar.extractfile(member))
    return len(names)
