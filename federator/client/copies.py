"""Files to and from a running job: a gzipped tar through a tunnel, which a shell and `tar` in the job make or unpack.

It is kept on disk, in the folder of what is copied, before anything is unpacked, so a connection that breaks leaves nothing half done; what comes
from the job is unpacked as outputs are, never beyond where it is meant to go.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from federator.client.tunnels import Tunnel, TunnelVerbs
from federator.kernel.errors import Conflict, Invalid, NotFound, TooLarge
from federator.kernel.globs import matching
from federator.kernel.quantities import format_bytes
from federator.kernel.tasks import cancel_and_wait
from federator.wire import tunnel

if TYPE_CHECKING:
    from tarfile import TarInfo

MOST_BYTES = 256 * 2**30
"""Of one archive, packed."""
ON_DISK = "/var/tmp"  # noqa: S108 - a file without a name
"""Where what is sent is packed, if its own folder may not be written: the usual folder for such files is memory on many machines."""
MOST_SAID = 2000
MOST_NAMES_BYTES = 64 * 2**20
"""Of the names of a job's files, all together."""
CHANGED, THERE, MISSING = 1, 95, 96
"""Exit codes: GNU tar's where a file grew while it was read, and our scripts' own."""
_OUT = f"""[ -e "$1" ] || exit {MISSING}
p=$1; [ ! -d "$p" ] || p=$(cd "$p" && pwd -P) || exit 2
flat=; if tar --help 2>&1 | grep -q hard-dereference; then flat=--hard-dereference; fi
exec tar $flat -c -z -f - -C "$(dirname -- "$p")" -- "$(basename -- "$p")"
"""
_IN = f"""p=$1 n=$2; if [ -d "$p" ]; then d=$p; else d=$(dirname -- "$p"); n=$(basename -- "$p"); fi
[ -d "$d" ] || exit {MISSING}; [ ! -d "$d/$n" ] || exit {THERE}
t=$(mktemp -d "$d/.federator-copy.XXXXXX") || exit 2
trap 'rm -rf "$t"' EXIT; trap 'exit 129' HUP TERM INT
tar -x -z -o -f - -C "$t" && mv -f -- "$t/$2" "$d/$n"
"""
# Without reading names from a file, which not every tar does: so one archive may follow another. What changes or goes meanwhile is no fault.
_SOME = "{ xargs -0 tar -c -f - 2>/dev/null; :; } | gzip"
_LIST = 'for p in find xargs tar gzip; do command -v $p >/dev/null || { echo "the job has no $p" >&2; exit 127; }; done; find . -type f -print0'


class _Ended(NamedTuple):
    code: int
    said: str
    """On standard error, the last of it."""


class CopyVerbs(TunnelVerbs):
    """Copies, as users make them."""

    async def copy_from(self, job: str, path: str, into: Path | str, *, rank: int = 0) -> Path:
        """Copy a file or folder of a running job, named from its work folder or by its whole path, to `into`, or into that if it is a folder; where it is now.

        Raises `NotFound` when it is not there, `Conflict` when a folder of that name is here already, `Invalid` for a link that leads out of it.
        """
        target = Path(into)
        folder = _folder_of(target, into_it=str(into).endswith("/"))
        with TemporaryFile(prefix=".federator-copy-", dir=folder) as archive:
            ended = await self._piped(job, rank, ("sh", "-c", _OUT, "sh", path), None, archive)
            if ended.code == MISSING:
                raise NotFound(
                    f"the job has no {path}", remedy="name it from its work folder, or by its whole path"
                )
            if ended.code and not (ended.code == CHANGED and " as we read it" in ended.said):
                raise Conflict(f"{path} cannot be copied: {ended.said or f'exit code {ended.code}'}")
            archive.seek(0)
            return await asyncio.to_thread(_unpacked, archive, target, folder)

    async def outputs_so_far(
        self, job: str, ranks: int, patterns: Sequence[str], into: Path | str
    ) -> list[Path]:
        """Fetch the files of a running job that match at this moment, of all ranks (of one name the lowest rank's), and unpack them below `into`; the files written. They may be half written.

        Raises `Conflict` where the job does not run, or has no `find`, `xargs`, `tar` and `gzip`.
        """
        from federator.client.workdir import nearest_folder, unpack

        folder, written, had = nearest_folder(Path(into)), list[Path](), set[str]()
        for rank in range(ranks):
            names = await self._outputs_of(job, rank, patterns, folder)
            wanted = [name for name in names if name not in had]
            had.update(wanted)
            if not wanted:
                continue
            with (
                TemporaryFile(prefix=".federator-copy-", dir=folder) as asked,
                TemporaryFile(prefix=".federator-copy-", dir=folder) as archive,
            ):
                asked.write("".join(f"./{name}\0" for name in wanted).encode(errors="surrogateescape"))
                asked.seek(0)
                await self._whole(job, rank, ("sh", "-c", _SOME), asked, archive)
                archive.seek(0)
                written += await asyncio.to_thread(unpack, archive, Path(into), several=True)
        return written

    async def _outputs_of(self, job: str, rank: int, patterns: Sequence[str], folder: Path) -> list[str]:
        """The files of a rank that match now."""
        with TemporaryFile(prefix=".federator-copy-", dir=folder) as listed:
            await self._whole(job, rank, ("sh", "-c", _LIST), None, listed, most_bytes=MOST_NAMES_BYTES)
            listed.seek(0)
            text = listed.read().decode(errors="surrogateescape")
        return matching((name.removeprefix("./") for name in text.split("\0")), patterns)

    async def _whole(
        self,
        job: str,
        rank: int,
        command: tuple[str, ...],
        given: IO[bytes] | None,
        into: IO[bytes],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        ended = await self._piped(job, rank, command, given, into, most_bytes)
        if ended.code:
            raise Conflict(f"its outputs cannot be copied: {ended.said or f'exit code {ended.code}'}")

    async def copy_to(self, job: str, source: Path | str, path: str, *, rank: int = 0) -> None:
        """Copy a file or folder of this machine into a running job, to `path`, or into that if it is a folder. Links go along as links; sockets and devices do not.

        Raises `NotFound` when the folder round it is not there, `Conflict` when `path` has a folder of that name.
        """
        given = Path(source)
        found, beside = _source(given)
        with TemporaryFile(prefix=".federator-copy-", dir=beside) as archive:
            await asyncio.to_thread(_pack, found, archive)
            archive.seek(0)
            ended = await self._piped(job, rank, ("sh", "-c", _IN, "sh", path, found.name), archive, None)
        if ended.code == MISSING:
            raise NotFound(
                f"the job has no folder for {path}", remedy="make it with federator exec, or name another"
            )
        if ended.code == THERE:
            raise Conflict(
                f"the folder {path} of the job has a folder {found.name} already",
                remedy="remove it there, or name another",
            )
        if ended.code:
            raise Conflict(f"{given} cannot be copied: {ended.said or f'exit code {ended.code}'}")

    async def _piped(
        self,
        job: str,
        rank: int,
        command: tuple[str, ...],
        given: IO[bytes] | None,
        into: IO[bytes] | None,
        most_bytes: int = MOST_BYTES,
    ) -> _Ended:
        """Run a command with that as input, and its output there. Raises `TooLarge` for too much of it."""
        said, size = b"", 0
        async with self.tunnel(job, tunnel.Exec(command=command), rank=rank) as inside:
            sending = asyncio.ensure_future(_send(inside, given))
            try:
                async for channel, data in inside.frames():
                    if channel == tunnel.STDOUT and into is not None:
                        size += len(data)
                        if size > most_bytes:
                            raise TooLarge(
                                f"it is over {format_bytes(most_bytes)}", remedy="copy less at a time"
                            )
                        into.write(data)
                    elif channel == tunnel.STDERR:
                        said = (said + data)[-MOST_SAID:]
                    elif channel == tunnel.END:
                        return _ended(tunnel.read_end(bytes((channel,)) + data), said)
            finally:
                await cancel_and_wait(sending)
        raise AssertionError("a tunnel ends with its end")


async def _send(inside: Tunnel, given: IO[bytes] | None) -> None:
    while given is not None and (data := await asyncio.to_thread(given.read, tunnel.DATA_BYTES)):
        await inside.send(tunnel.STDIN, data)
    await inside.close_input()


def _ended(end: tunnel.End, said: bytes) -> _Ended:
    if end.exit_code is None:
        raise end.fault()
    shown = "".join(each if each.isprintable() else " " for each in said.decode(errors="replace"))
    return _Ended(end.exit_code, shown.strip())


def _folder_of(target: Path, *, into_it: bool) -> Path:
    """Where something of that name, or into that folder, is put."""
    folder = target if into_it or target.is_dir() else target.parent
    if not folder.is_dir():
        raise Invalid(f"there is no folder {folder}", field="TARGET", remedy="make it, or name another")
    return folder


def _refuse_links_out_of(found: Path) -> None:
    """Where it goes, they would lead to what is there already."""
    for link in found.rglob("*"):
        if link.is_symlink() and not Path(os.path.realpath(link)).is_relative_to(found):
            raise Invalid(
                f"the link {link.relative_to(found.parent)} leads out of what is copied",
                remedy="copy the folder round both, or what it leads to",
            )


def _source(given: Path) -> tuple[Path, Path | str]:
    """What is sent, and the folder for what it is packed into."""
    if not given.exists():
        raise Invalid(f"{given} is not there", field="SOURCE")
    found = given.resolve()
    return found, found.parent if os.access(found.parent, os.W_OK) else ON_DISK


def _unpacked(archive: IO[bytes], target: Path, folder: Path) -> Path:
    """Beside where it goes, then moved there in one step."""
    with TemporaryDirectory(prefix=".federator-copy-", dir=folder) as scratch:
        from federator.client.workdir import unpack

        unpack(archive, Path(scratch))
        found = list(Path(scratch).resolve().iterdir())
        if len(found) != 1:
            raise Invalid(f"the job has sent {len(found)} things in place of one")
        _refuse_links_out_of(found[0])
        place = target / found[0].name if folder == target else target
        folders = [each for each in (place, found[0]) if each.is_dir() and not each.is_symlink()]
        if folders and (place.exists() or place.is_symlink()):
            what = "a folder" if place in folders else "a file"
            raise Conflict(f"there is {what} {place} already", remedy="remove it, or name another")
        found[0].replace(place)
    return place


def _pack(source: Path, archive: IO[bytes]) -> None:
    """It under its own name."""
    import tarfile

    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        tar.add(source, arcname=source.name, filter=_plain)
    if archive.tell() > MOST_BYTES:
        raise TooLarge(f"{source} is over {format_bytes(MOST_BYTES)}, packed", remedy="copy less at a time")


def _plain(entry: "TarInfo") -> "TarInfo | None":
    """Whose it is here says nothing there."""
    if not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = stat.S_IMODE(entry.mode) & 0o777
    return entry
