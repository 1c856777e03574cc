"""What people have begun to upload counts as theirs until it is whole, or dropped."""

from federator.control.maintenance.unfinished_uploads import UnfinishedUploads
from federator.store.blobs import MemoryBlobs


async def test_what_was_dropped_for_its_age_counts_no_more() -> None:
    uploads = UnfinishedUploads(MemoryBlobs())
    folder = await uploads.folder("ada", "a" * 64, 100)
    assert uploads.others("ada", "b" * 64) == 100
    uploads.sweep({folder: 40}, now=0.0, unused_s=60.0)
    uploads.sweep({folder: 40}, now=59.0, unused_s=60.0)
    assert uploads.others("ada", "b" * 64) == 100
    uploads.sweep({folder: 40}, now=60.0, unused_s=60.0)
    assert uploads.others("ada", "b" * 64) == 0
