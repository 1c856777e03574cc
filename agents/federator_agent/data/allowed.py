"""Which addresses jobs may name: the site's credentials fetch for whoever names one, so the site may say which, and to which queues.

Without a word of it, every job may name every address. An address is allowed by one that it lies below, part by part: `s3://data` allows `s3://data/a` and
not `s3://database`. Of files also what links lead to has to lie there, as far as the agent's host knows them.
"""

import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import JobSpec
from federator.model.rules import admits_queue
from federator.wire import fields
from federator.wire.inputs import read_uri
from federator_agent.runtime import StagingRefused

KEYS = ("address", "queues")


class Allowed(msgspec.Struct, frozen=True):
    """An address, with all below it, and the queues whose jobs may name it, with all below them; none: all that the site serves."""

    address: str
    queues: tuple[str, ...] = ()


def parse(value: object, path: str) -> tuple[Allowed, ...]:
    """`data_addresses` of the site file. Raises `Invalid` that names the field."""
    if not isinstance(value, list):
        remedy = "write [s3://public, {address: s3://genomics, queues: [research]}]; [] allows none"
        raise Invalid("is not a list", field=path, remedy=remedy)
    return tuple(_allowed(each, f"{path}[{index}]") for index, each in enumerate(value))


def _allowed(value: object, path: str) -> Allowed:
    if isinstance(value, str):
        return Allowed(read_uri(value, path))
    given = fields.mapping(value, path)
    fields.known_only(given, path, KEYS)
    if "address" not in given:
        raise Invalid("is missing", field=f"{path}.address", remedy="write for example s3://genomics")
    queues = fields.words(given.get("queues", ()), f"{path}.queues", fields.queue)
    return Allowed(read_uri(given["address"], f"{path}.address"), queues)


def check(allowed: Sequence[Allowed] | None, spec: JobSpec, queue: str) -> None:
    """Before anything is fetched, and whatever is put afterwards. Raises `StagingRefused` for an address that is not the queue's; None allows all."""
    if allowed is None:
        return
    named = [each.uri for each in spec.inputs or ()]
    if spec.checkpoint and spec.checkpoint.uri:
        named.append(spec.checkpoint.uri)
    mine = of_queue(allowed, queue) or ()
    for uri in named:
        if not any(below(uri, address) for address in mine):
            raise StagingRefused(f"this site moves no data of {uri} for the queue {queue}")


def of_queue(allowed: Sequence[Allowed] | None, queue: str) -> tuple[str, ...] | None:
    """What jobs of a queue may name; None: everything."""
    if allowed is None:
        return None
    return tuple(each.address for each in allowed if admits_queue(each.queues, queue))


def below(uri: str, address: str) -> bool:
    """Whether an address is that one, or lies below it, part by part."""
    own, above = urlsplit(uri), urlsplit(address)
    if (own.scheme, own.netloc.lower()) != (above.scheme, above.netloc.lower()):
        return False
    path, top = unquote(own.path), unquote(above.path)
    if ".." in path.split("/"):
        return False
    return _within(path, top) and (
        own.scheme != "file" or _within(os.path.realpath(path), os.path.realpath(top))
    )


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
