"""The data that a job reads, as its file names it: `inputs: [{uri: s3://datasets/imagenet, size: 150GB}]`.

An address is written as programs write it, and only of kinds that agents can fetch. What one address cannot mean is refused here,
before anything is moved: a password in it would be shown to anyone who may see the job.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Annotated, ClassVar
from urllib.parse import unquote, urlsplit

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.globs import may_hold
from federator.model.jobs import Follows, Input, InputFrom
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


def read_output(value: object, path: str) -> str:
    """A file or folder below a working directory. Raises `Invalid`."""
    word = fields.text(value, path, limit=1000)
    found = PurePosixPath(word)
    if found.is_absolute() or ".." in found.parts or word.startswith("~"):
        remedy = "name a file or folder as that job has it, such as results/model.pt"
        raise Invalid(f"{word[:80]!r} leaves the working directory", field=path, remedy=remedy)
    return "" if str(found) == "." else str(found)


class InputFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Data that a job reads. A text alone is its address."""

    elsewhere: ClassVar = {"url": "uri", "path": "uri", "source": "uri", "job": "from", "outputs": "output"}

    uri: Uri | None = None
    """What it is: an address that begins with `file`, `http`, `https` or `s3`. Exactly one of `uri` and `from`."""
    job: fields.NameOrId | None = msgspec.field(default=None, name="from")
    """A job whose collected `outputs` it reads, by name or id. It follows that job, as if `after` named it; of an array it reads those of all tasks, each below its index, or with `after: {each: …}` those of the task with its own index."""
    output: Annotated[str, fields.written(read_output, "results/model.pt")] = ""
    """With `from`: a file or folder of these outputs, by its path. Left out: all of them."""
    name: fields.Name | None = None
    """With `from`: what it is called in `FEDERATOR_INPUTS_DIR`. Left out: the last part of `output`, else as `from` says."""
    size_bytes: Annotated[int, fields.size("150GB", high_mib=MAX_SIZE_MIB, read=fields.size_bytes)] | None = (
        msgspec.field(default=None, name="size")
    )
    """How much it is. Left out: as its `Dataset` policy says. Data whose size or whereabouts nobody says costs nothing in plans, and `explain` says so."""


Inputs = Annotated[tuple[Uri | InputFile, ...], fields.alone(MAX_INPUTS)]


def inputs_of(written: tuple[str | InputFile, ...], path: str) -> tuple[Input, ...]:
    """Those with an address, as a spec has them. Raises `Invalid` for one that is listed twice."""
    inputs = {
        index: Input(each) if isinstance(each, str) else Input(each.uri or "", each.size_bytes)
        for index, each in enumerate(written)
        if isinstance(each, str) or each.job is None
    }
    first: dict[str, int] = {}
    for index, each in inputs.items():
        if not each.uri:
            raise Invalid("is missing", field=f"{path}[{index}].uri", remedy="write either uri or from")
        if first.setdefault(each.uri, index) != index:
            raise Invalid(
                f"is the same as {path}[{first[each.uri]}]", field=f"{path}[{index}]", remedy="write it once"
            )
    return tuple(inputs.values())


def inputs_from(
    written: tuple[str | InputFile, ...], follows: Collection[tuple[str, Follows]], path: str
) -> tuple[InputFrom, ...]:
    """Those that are outputs of other jobs. `follows`: what the job must follow, as its file says. Raises `Invalid`, for two with one name too."""
    found: list[InputFrom] = []
    taken = set(names_of([each.uri for each in inputs_of(written, path)]))
    for index, each in enumerate(written):
        where = f"{path}[{index}]"
        if isinstance(each, str) or _has_address(each, where):
            continue
        assert each.job is not None
        name = each.name or PurePosixPath(each.output).name or each.job
        if name in taken:
            raise Invalid(
                f"is called {name!r}, as another input is",
                field=where,
                remedy="give it a name of its own: {from: …, name: …}",
            )
        taken.add(name)
        found.append(InputFrom(each.job, name, each.output, (each.job, Follows.EACH) in follows))
    return tuple(found)


def _has_address(each: InputFile, where: str) -> bool:
    """Whether it is no output of another job. Raises `Invalid` where it has fields of both kinds."""
    if each.job is None:
        found = next((field for field in ("output", "name") if getattr(each, field)), None)
        why = "goes with from, for outputs of another job"
    else:
        found = "uri" if each.uri is not None else "size" if each.size_bytes is not None else None
        why = "cannot be combined with from"
    if found is not None:
        raise Invalid(why, field=f"{where}.{found}", remedy="leave it out")
    return each.job is None


def check_collected(
    source: InputFrom, job: str, patterns: Sequence[str], field: str, maker: str = ""
) -> None:
    """Raise `Invalid` where a job of these `outputs` cannot leave what is read of it. `job`, `maker`: its name, and that of another that may."""
    if not patterns:
        remedy = f"write them under outputs in its file, such as 'outputs: [{source.output or 'results/**'}]'"
        raise Invalid(f"{job} collects no outputs", field=field, remedy=remedy)
    if source.output and not may_hold(patterns, source.output):
        other = f"{maker} collects it: write from: {maker}; or " if maker else ""
        raise Invalid(
            f"{job} collects no {source.output}: its outputs are {', '.join(patterns[:10])}",
            field=field,
            remedy=f"{other}name a file or folder that one of these matches, or add {source.output} to them",
        )


def name_of(uri: str) -> str:
    """What an input is called where a job looks for it: the end of its address, and never a way to somewhere else."""
    parts = urlsplit(uri)
    name = re.sub(r"[/\x00-\x1f]", "_", unquote(PurePosixPath(parts.path).name) or parts.netloc)[:200]
    return name if name.strip(".") else "input"


def names_of(uris: Sequence[str]) -> list[str]:
    """That of each of a job's addresses: with its number where an earlier one ends alike."""
    names = [name_of(uri) for uri in uris]
    return [f"{name}-{number}" if name in names[:number] else name for number, name in enumerate(names)]


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
