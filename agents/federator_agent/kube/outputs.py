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
from typing import Any, cast

from federator.kernel.errors import TooLarge, Unavailable
from federator.kernel.files import write_durably
from federator.kernel.globs import matching
from federator.kernel.quantities import format_bytes
from federator.kernel.tars import MAX_BYTES, members
from federator.kube.api import Api
from federator_agent.kube import commands


async def fetch(api: Api, pod_path: str, uid: str, patterns: Sequence[str], archive: Path) -> None:
    """Pack what matches in a rank's work directory, into a file that is there only when it is whole. Raises `FederatorError`."""
    listed = await commands.done(api, pod_path, commands.LIST, uid)
    names = matching((name.removeprefix("./") for name in listed.split("\0") if "\n" not in name), patterns)
    if not names:
        write_durably(archive, b"")
        return
    wanted = "".join(f"./{name}\n" for name in names).encode()
    temporary = archive.with_name(f".{archive.name}.new")
    try:
        async with commands.run(api, pod_path, commands.PACK, uid, str(len(wanted)), stdin=True) as command:
            await command.send(wanted)
            with temporary.open("wb") as file:
                async for data in command.output():
                    file.write(data)
                    if file.tell() > MAX_BYTES:
                        raise TooLarge(
                            f"the outputs are over {format_bytes(MAX_BYTES)}", remedy="collect less"
                        )
                file.flush()
                os.fsync(file.fileno())
        await asyncio.to_thread(check, temporary)
        temporary.rename(archive)
    finally:
        temporary.unlink(missing_ok=True)


def check(archive: Path) -> None:
    """Whether all of it has come. Raises `Unavailable`, or `Invalid` for what is over the limits of archives."""
    try:
        with archive.open("rb") as file:
            for _ in members(file, several=True):
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise Unavailable(f"the outputs did not come whole: {error}") from None


def merge(archives: Iterable[Path], into: Path) -> int:
    """Put the archives of all ranks together, the lowest rank first; how many files there are. Raises `Invalid` for more than one archive may have."""
    names: set[str] = set()
    left = MAX_BYTES
    with tarfile.open(into, "w:gz", compresslevel=3) as target:
        for archive in archives:
            if not archive.exists() or not archive.stat().st_size:
                continue
            with archive.open("rb") as file:
                for tar, member in members(file, most_bytes=left, several=True):
                    name = str(PurePosixPath(member.name))
                    if member.isfile() and name not in names:
                        names.add(name)
                        left -= member.size
                        target.addfile(member.replace(name=name, deep=False), tar.extractfile(member))
                        cast("Any", target).members.clear()  # or it keeps one of each for ever
    return len(names)
