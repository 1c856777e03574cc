"""Uploads of archives that go on where they were cut: outputs from agents, work directories from people.

An upload that goes on says which bytes it is of, by their hash, and where it goes on. What has come of it is kept as a log:
that goes on at an offset in every kind of store. A loss of power may take its end, or damage it; so the hash of the whole is
compared before it counts, and what differs begins again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from federator.api.exchange import GZIP_MAGIC, MIB, READ_BYTES, Call
from federator.kernel.errors import Invalid, TooLarge
from federator.ports import Blobs


class Upload(NamedTuple):
    """What comes: the archive of this hash and of so many bytes, from this offset on. Its parts are kept as logs in a folder of its own."""

    folder: str
    digest: str
    size: int
    offset: int


async def take_up(
    call: Call,
    upload: Upload,
    kept: Callable[[], Awaitable[None]],
    may_go_on: Callable[[], None] = lambda: None,
) -> int:
    """Take up what is new of the body; once all has come and is what was said, keep the archive, and call `kept` before its parts are dropped.

    `may_go_on` raises when no more is to be written. Returns how much has come: less than before where it was damaged, and begins again. Raises `Invalid`, `TooLarge`, `TooMany`.
    """
    limit_mib = call.core.settings.limits.blob_mib
    if upload.size > limit_mib * MIB:
        raise TooLarge(f"the archive is larger than {limit_mib} MiB", remedy="send less, or raise the limit")
    blobs, name = call.core.blobs, f"{upload.folder}/{upload.digest}"
    with call.transfer():
        length = await asyncio.to_thread(blobs.log_length, name)
        if upload.offset > length:
            return length
        if not length:
            await asyncio.to_thread(blobs.drop_logs, upload.folder)  # of another archive, which this replaces
        offset = upload.offset
        async for data in call.chunks(limit_mib):
            if offset + len(data) > upload.size:
                raise Invalid(
                    "the archive is longer than that", field="?size", remedy="give its size in bytes"
                )
            may_go_on()
            length = await asyncio.to_thread(blobs.append_log, name, offset, data)
            offset += len(data)
        if length < upload.size:
            return length
        whole = await asyncio.to_thread(_keep, blobs, name, upload.digest)
        if whole:
            await kept()
        await asyncio.to_thread(blobs.drop_logs, upload.folder)
    return upload.size if whole else 0


def _keep(blobs: Blobs, name: str, digest: str) -> bool:
    """Keep the archive under its hash, if it is what was said. Blocks on disk. Raises `Invalid`."""
    if blobs.read_log(name, 0, len(GZIP_MAGIC)) != GZIP_MAGIC:
        raise Invalid("the body is not gzipped", field="$", remedy="send a gzipped tar")
    draft = blobs.draft()
    try:
        while part := blobs.read_log(name, draft.length, READ_BYTES):
            draft.write(part)
        if draft.digest != digest:
            return False
        draft.keep()
    finally:
        draft.discard()
    return True
