"""Gzipped tars from outside, read member by member within limits.

A few hundred KiB of gzip expand to GiB. The contents of a member can be copied in parts, but `tarfile` reads what stands before a member (long
names, extended headers, maps of sparse files) into memory whole, whatever size it declares. So the reading of headers has a budget of its own, and
the list of members that `tarfile` keeps is emptied.
"""

import gzip
import math
import tarfile
from collections.abc import Iterator
from typing import IO, Any, cast

from federator.kernel.errors import Invalid

HEADER_BYTES = 2**20
"""Most that may stand before one member; names and extended headers of honest archives take a few KiB."""
MAX_MEMBERS = 1_000_000
MAX_BYTES = 64 * 2**30


class TooMuch(Invalid):
    """An archive is larger than it may be, or has too many members."""


def members(
    archive: IO[bytes],
    *,
    most_bytes: float = MAX_BYTES,
    most_members: int = MAX_MEMBERS,
    several: bool = False,
) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Each member, with the tar to extract it from before the next is asked for.

    `several`: one archive may follow another. Raises `TooMuch` for what is larger than the limits, and what `tarfile` and `gzip` raise for what is no gzipped tar.
    """
    with gzip.GzipFile(fileobj=archive, mode="rb") as plain:
        source = _Budgeted(cast("IO[bytes]", plain))
        source.left = HEADER_BYTES
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r:", ignore_zeros=several) as tar:
            expanded, number = 0, 0
            while (member := tar.next()) is not None:
                number += 1
                expanded += member.size + (HEADER_BYTES - int(source.left))
                if number > most_members or expanded > most_bytes:
                    raise TooMuch(
                        f"the archive has over {most_members} members, or is larger than {_size(most_bytes)} when unpacked",
                        remedy="send less",
                    )
                source.left = math.inf
                yield tar, member
                cast("Any", tar).members.clear()
                source.left = HEADER_BYTES


class _Budgeted:
    """A stream of which only `left` bytes may be read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.left: float = 0

    def read(self, size: int = -1) -> bytes:
        if self.left is not math.inf and not 0 <= size <= self.left:
            raise Invalid(
                f"a member of the archive has over {HEADER_BYTES >> 20} MiB of headers",
                remedy="pack plain files with short names",
            )
        data = self._source.read(size)
        self.left -= len(data)
        return data

    def seek(self, position: int) -> int:
        return self._source.seek(position)

    def tell(self) -> int:
        return self._source.tell()


def _size(most_bytes: float) -> str:
    return f"{most_bytes / 2**30:g} GiB"
