"""Opens the store that several dispatchers share: records in etcd, everything large in a folder that all of them see.

The folder has to be one and the same for all. A dispatcher with another would lead and find no work directory, so the folder carries the name of
the store it belongs to, and the store of a folder that does not is not opened.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from federator.kernel.errors import Invalid, Unavailable
from federator.ports import Blobs
from federator.settings import EtcdSettings
from federator.store.blobs import FileBlobs

if TYPE_CHECKING:
    from federator.store.etcd import EtcdStore

OUTSIDE = ("spec/", "decision/")
"""Rows that are kept in the folder whatever their size: many or large, never changed, and known by their keys."""
MARK = "store"
"""The file in the folder that names the store."""


async def open_shared(settings: EtcdSettings) -> "tuple[EtcdStore, Blobs]":
    """The store and the blobs beside it. Raises `Unavailable` when the cluster or the folder does not answer, `Invalid` for another store's folder."""
    try:
        from federator.store.etcd import EtcdStore  # noqa: PLC0415 - an extra that most dispatchers go without
    except ImportError as error:
        raise Invalid(
            f"{error.name} is not installed", field="$.store.etcd", remedy="pip install federator[etcd]"
        ) from error
    folder, values, blobs = await asyncio.to_thread(_open_folder, settings.shared_dir)
    store = await EtcdStore.open(settings, values, outside=OUTSIDE)
    try:
        empty = not (await store.range("", limit=1)).items
        await asyncio.to_thread(_check_mark, folder / MARK, store.lineage, empty)
    except BaseException:
        await store.close()
        raise
    return store, blobs


def _open_folder(path: str) -> tuple[Path, FileBlobs, FileBlobs]:
    folder = Path(path).expanduser()
    return folder, FileBlobs(folder / "values", shared=True), FileBlobs(folder / "blobs", shared=True)


def _check_mark(file: Path, lineage: str, empty: bool) -> None:  # noqa: FBT001 - one caller
    try:
        if empty and not file.exists():
            file.write_text(lineage + "\n")
        marked = file.read_text().strip() if file.exists() else ""
    except OSError as error:
        raise Unavailable(
            f"{file} cannot be used: {error.strerror}", remedy="look at the shared folder"
        ) from error
    if marked != lineage:
        raise Invalid(
            f"{file.parent} is not the folder of this store ({marked or 'none'} in place of {lineage})",
            field="$.store.etcd.shared_dir",
            remedy="give every dispatcher the folder that the first one had, on storage that all of them share",
        )
