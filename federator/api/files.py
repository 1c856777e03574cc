"""Work directories in, outputs out: gzipped tars by content."""

import asyncio
import io
import tarfile

from aiohttp import web

from federator.api.exchange import Call
from federator.control.records import Outputs
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.ids import content_hash
from federator.ports import Blobs

GZIP = "application/gzip"


async def put_blob(call: Call) -> web.Response:
    """Keep a work directory under its hash; keeping it twice is the same as once."""
    wanted = call.path("hash")
    call.core.sweeper.retention.refuse_bytes_if_full()
    data = await call.archive()
    found = await asyncio.to_thread(content_hash, data)
    if found != wanted:
        raise Invalid(
            f"the bytes that arrived have the hash {found}",
            field="hash",
            remedy="send them again, or under their hash",
        )
    await asyncio.to_thread(call.core.blobs.put, data)
    return web.Response(status=201)


async def has_blob(call: Call) -> web.Response:
    """Whether it is here already: then it need not be uploaded."""
    found = await asyncio.to_thread(call.core.blobs.has, call.path("hash"))
    return web.Response(status=200 if found else 404)


async def outputs(call: Call) -> web.Response:
    """What `outputs` matched, of the newest attempt that collected any."""
    collected = call.core.records.outputs.get(call.job.id)
    if collected is None:
        spec = call.core.records.spec(call.job.spec_hash)
        why = "nothing has been collected yet" if spec.outputs else "its job file names none under `outputs`"
        raise NotFound(f"{call.job.name} has no outputs: {why}")
    data = await asyncio.to_thread(_archive, call.core.blobs, collected)
    name = f'attachment; filename="{call.job.id}.tar.gz"'
    return web.Response(body=data, content_type=GZIP, headers={"Content-Disposition": name})


def _archive(blobs: Blobs, collected: Outputs) -> bytes:
    """One archive of all members' parts; of files that several have, the first member's. Blocks on disk."""
    parts = [_part(blobs, part.digest) for part in sorted(collected.parts, key=lambda part: part.member)]
    if len(parts) == 1:
        return parts[0]
    merged = io.BytesIO()
    seen: set[str] = set()
    with tarfile.open(fileobj=merged, mode="w:gz") as target:
        for data in parts:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as source:
                for member in source:
                    if member.name not in seen:
                        seen.add(member.name)
                        target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return merged.getvalue()


def _part(blobs: Blobs, digest: str) -> bytes:
    data = blobs.get(digest)
    if data is None:
        raise NotFound("these outputs are no longer kept")
    return data
