"""Opens a store together with what is kept beside it: in a folder or in a bucket.

What is beside a store has to be one and the same whenever, and by whomever, it is opened. A dispatcher with another would lead and find no work
directory, and drop what it does not know. So it carries the name of the store that it belongs to, and the store of one that does not is not opened.
"""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from federator.kernel.errors import Invalid, Unavailable
from federator.ports import Blobs, Compare, Put, Store, Transaction
from federator.settings import EtcdSettings, S3Settings
from federator.store.blobs import FileBlobs

if TYPE_CHECKING:
    from federator.store.etcd import EtcdStore

OUTSIDE = {"decision/": -1, "spec/": 1024}
"""Of rows that never change, up to how many bytes are kept in etcd itself: what is larger, and every decision, is outside. A file of its own for each
small spec would cost a submission a sync to disk; large ones, of which one person may have very many, would fill etcd."""
MARK = "store"
"""The file or object that names the store."""
LINEAGE = "lineage"
"""The key of a store's own name where it has no other; it outlives restores."""


class Beside(NamedTuple):
    """What is kept beside a store."""

    name: str
    field: str
    """Of the settings."""
    blobs: Blobs
    values: Blobs
    """Large records of etcd."""
    read_mark: Callable[[], str]
    write_mark: Callable[[str], None]

    def claim(self, lineage: str) -> None:
        """Mark it as that store's. Raises `Invalid` when it is another's."""
        _check_mark(self, lineage, True)

    def close(self) -> None:
        """Release what is held."""
        self.blobs.close()
        self.values.close()


async def open_shared(
    settings: EtcdSettings, s3: S3Settings | None = None, scratch: Path | None = None
) -> "tuple[EtcdStore, Blobs]":
    """The store in etcd and the blobs beside it; `scratch` is this host's folder for what is on its way to a bucket.

    Raises `Unavailable` when the cluster, the folder or the bucket does not answer, `Invalid` for another store's.
    """
    store, beside = await _open(settings, s3, scratch, to_restore=False)
    try:
        empty = not (await store.range("", limit=1)).items
        await asyncio.to_thread(_check_mark, beside, store.lineage, empty)
    except BaseException:
        await store.close()
        raise
    return store, beside.blobs


async def open_to_restore(
    settings: EtcdSettings, s3: S3Settings | None, scratch: Path
) -> "tuple[EtcdStore, Beside]":
    """As `open_shared`, also what was restored by half, and without a look at whose is beside it."""
    return await _open(settings, s3, scratch, to_restore=True)


async def _open(
    settings: EtcdSettings, s3: S3Settings | None, scratch: Path | None, *, to_restore: bool
) -> "tuple[EtcdStore, Beside]":
    try:
        from federator.store.etcd import EtcdStore  # noqa: PLC0415 - an extra that most dispatchers go without
    except ImportError as error:
        raise Invalid(
            f"{error.name} is not installed", field="$.store.etcd", remedy="pip install federator[etcd]"
        ) from error
    if s3 is None:
        beside = await asyncio.to_thread(_folder, settings.shared_dir)
    else:
        assert scratch is not None
        beside = await asyncio.to_thread(beside_in, s3, scratch)
    return await EtcdStore.open(settings, beside.values, outside=OUTSIDE, to_restore=to_restore), beside


async def open_bucket(store: Store, s3: S3Settings, scratch: Path) -> Blobs:
    """The blobs of an embedded store in a bucket. Raises as `open_shared`."""
    beside = await asyncio.to_thread(beside_in, s3, scratch)
    empty = not (await store.range("", limit=1)).items
    await asyncio.to_thread(_check_mark, beside, await name_of(store), empty)
    return beside.blobs


async def name_of(store: Store) -> str:
    """The own name of an embedded store, given when it is first asked for."""
    item = await store.get(LINEAGE)
    if item is not None:
        return item.value.decode()
    name = secrets.token_hex(8)
    await store.commit(Transaction((Compare(LINEAGE, 0),), (Put(LINEAGE, name.encode()),)))
    return name


def _folder(path: str) -> Beside:
    folder = Path(path).expanduser()
    values, blobs = (FileBlobs(folder / name, shared=True) for name in ("values", "blobs"))
    file = folder / MARK

    def read() -> str:
        return file.read_text().strip() if file.exists() else ""

    def write(name: str) -> None:
        file.write_text(name + "\n")

    return Beside(str(folder), "$.store.etcd.shared_dir", blobs, values, read, write)


def beside_in(s3: S3Settings, scratch: Path) -> Beside:
    """What is in the bucket, whosever it is. Raises `Invalid` and `Unavailable`."""
    try:
        from federator.store.bucket import Bucket, Server  # noqa: PLC0415 - an extra that many dispatchers go without
        from federator.store.s3_blobs import S3Blobs  # noqa: PLC0415
    except ImportError as error:
        raise Invalid(
            f"{error.name} is not installed", field="$.store.s3", remedy="pip install federator[aws]"
        ) from error
    server = Server(s3)
    root = Bucket(server, s3.prefix)
    root.check()
    values, blobs = (
        S3Blobs(Bucket(server, f"{s3.prefix}/{name}"), scratch / name) for name in ("values", "blobs")
    )

    def read() -> str:
        return (root.get(MARK) or b"").decode(errors="replace").strip()

    return Beside(
        root.name, "$.store.s3", blobs, values, read, lambda name: root.put(MARK, name.encode() + b"\n")
    )


def _check_mark(beside: Beside, lineage: str, empty: bool) -> None:  # noqa: FBT001 - two callers
    try:
        marked = beside.read_mark()
        if empty and not marked:
            beside.write_mark(lineage)
            marked = beside.read_mark()
    except OSError as error:
        raise Unavailable(
            f"{beside.name} cannot be used: {error.strerror}", remedy="look at the shared folder"
        ) from error
    if marked != lineage:
        raise Invalid(
            f"{beside.name} does not belong to this store ({marked or 'none'} in place of {lineage})",
            field=beside.field,
            remedy="give every dispatcher what the first one had, and each store its own; what is in a folder comes into a bucket with federator store upload",
        )
