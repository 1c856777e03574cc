"""The data that a job reads, as its file names it: `inputs: [{uri: s3://datasets/imagenet, size: 150GB}]`.

An address is written as programs write it, and only of kinds that agents can fetch. What one address cannot mean is refused here,
before anything is moved: a password in it would be shown to anyone who may see the job.
"""

import re
from typing import Annotated, ClassVar
from urllib.parse import unquote, urlsplit

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import Input
from federator.wire import fields

SCHEMES = ("file", "http", "https", "s3")
MAX_INPUTS = 100
MAX_URI = 2000
MAX_SIZE_MIB = 2**40
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ODD = re.compile(r"[\s\x00-\x1f\x7f]")
_EXAMPLE = "write for example s3://datasets/imagenet"


def read_uri(value: object, path: str) -> str:
    """The address of something that agents can fetch, without a slash at its end. Raises `Invalid`."""
    word = fields.text(value, path, limit=MAX_URI).strip()
    try:
        parts = urlsplit(word)
        host, user = parts.hostname or "", parts.username
    except ValueError as error:
        raise Invalid(f"{word[:80]!r} is not an address: {error}", field=path, remedy=_EXAMPLE) from None
    if parts.scheme not in SCHEMES or "://" not in word or _ODD.search(word):
        raise Invalid(
            f"{word[:80]!r} is not an address that can be fetched",
            field=path,
            remedy=f"use {', '.join(SCHEMES)}; {_EXAMPLE}",
        )
    if user is not None:
        raise Invalid(
            "holds a user name or password, which others would see",
            field=path,
            remedy="leave it out: sites have their own credentials",
        )
    if parts.query or parts.fragment:
        raise Invalid(
            "has a '?' or '#': what follows would be shown to anyone who may see the job",
            field=path,
            remedy="give the address only: sites have their own credentials",
        )
    if ".." in unquote(parts.path).split("/"):
        raise Invalid("has '..' in its path", field=path, remedy="write the path that is meant")
    _check_place(word, parts.scheme, host, parts.path, path)
    return word.rstrip("/")


def read_place(value: object, path: str) -> str:
    """The address of something that agents can fetch and put. Raises `Invalid`."""
    uri = read_uri(value, path)
    if uri.startswith("http"):
        raise Invalid(
            "is a web address: nothing can be put there",
            field=path,
            remedy="use s3://bucket/path, or file:///path",
        )
    return uri


Uri = Annotated[
    str, fields.written(read_uri, "s3://datasets/imagenet", pattern=r"^\s*(file|https?|s3)://[^\s?#]+\s*$")
]
Place = Annotated[
    str,
    fields.written(read_place, "s3://team/saved", "file:///shared", pattern=r"^\s*(file|s3)://[^\s?#]+\s*$"),
]


class InputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Data that a job reads. A text alone is its address."""

    elsewhere: ClassVar = {"url": "uri", "path": "uri", "source": "uri"}

    uri: Uri
    """What it is: an address that begins with `file`, `http`, `https` or `s3`."""
    size_bytes: Annotated[int, fields.size("150GB", high_mib=MAX_SIZE_MIB, read=fields.size_bytes)] | None = (
        msgspec.field(default=None, name="size")
    )
    """How much it is. Left out: as its `Dataset` policy says. Data whose size or whereabouts nobody says costs nothing in plans, and `explain` says so."""


Inputs = Annotated[tuple[Uri | InputFile, ...], fields.alone(MAX_INPUTS)]


def inputs_of(written: tuple[str | InputFile, ...], path: str) -> tuple[Input, ...]:
    """As a spec has them. Raises `Invalid` for one that is listed twice."""
    inputs = tuple(
        Input(each) if isinstance(each, str) else Input(each.uri, each.size_bytes) for each in written
    )
    first: dict[str, int] = {}
    for index, each in enumerate(inputs):
        if first.setdefault(each.uri, index) != index:
            raise Invalid(
                f"is the same as {path}[{first[each.uri]}]", field=f"{path}[{index}]", remedy="write it once"
            )
    return inputs


def _check_place(word: str, scheme: str, host: str, place: str, path: str) -> None:
    """What each kind of address must have."""
    if scheme == "file" and (host or not place.strip("/")):
        raise Invalid(
            f"{word[:80]!r} is not the path of a file at the site",
            field=path,
            remedy="write three slashes and the whole path: file:///data/imagenet",
        )
    if scheme == "s3" and not _BUCKET.fullmatch(host):
        raise Invalid(f"{host[:80]!r} is not the name of a bucket", field=path, remedy=_EXAMPLE)
    if scheme in ("http", "https") and not host:
        raise Invalid(f"{word[:80]!r} names no host", field=path, remedy="write https://host/path")
