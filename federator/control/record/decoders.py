"""Bytes of the store into records, kept where the same are asked for again and again."""

from functools import lru_cache
from typing import Any

import msgspec

from federator.kernel.errors import Damaged
from federator.model.jobs import JobSpec
from federator.ports import Item


def decoded(decoder: msgspec.json.Decoder[Any], item: Item) -> Any:
    """A row's record. Raises `Damaged` that names the row."""
    try:
        return decoder.decode(item.value)
    except msgspec.MsgspecError as error:
        raise Damaged(
            f"row {item.key} of the store cannot be read: {error}",
            remedy="start the version that wrote it, or restore the store from a backup",
        ) from error


class _Labels(msgspec.Struct):
    labels: dict[str, str] = {}


MOST_LABELLED = 65_536
_labels: dict[str, dict[str, str]] = {}
"""By the hash of a spec, so that nobody holds its bytes for them."""


def labels_of(digest: str, data: bytes) -> dict[str, str]:
    """The labels in the bytes of the spec of that hash."""
    found = _labels.get(digest)
    if found is None:
        if len(_labels) >= MOST_LABELLED:
            _labels.clear()
        found = _labels[digest] = msgspec.json.decode(data, type=_Labels).labels
    return found


LONG_BYTES = 2**14
"""Of longer specs fewer are kept: each takes its bytes several times."""


def decode_spec(data: bytes) -> JobSpec:
    """The spec of these bytes: few of them are asked for again and again."""
    return long_specs(data) if len(data) > LONG_BYTES else short_specs(data)


def _decoded(data: bytes) -> JobSpec:
    return msgspec.json.decode(data, type=JobSpec)


short_specs = lru_cache(maxsize=8192)(_decoded)
long_specs = lru_cache(maxsize=1024)(_decoded)
