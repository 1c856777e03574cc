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


@lru_cache(maxsize=65536)
def labels_of(data: bytes) -> dict[str, str]:
    """The labels in the bytes of a spec."""
    return msgspec.json.decode(data, type=_Labels).labels


@lru_cache(maxsize=8192)
def decode_spec(data: bytes) -> JobSpec:
    """The spec of these bytes: few of them are asked for again and again."""
    return msgspec.json.decode(data, type=JobSpec)
