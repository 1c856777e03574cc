"""Which addresses jobs may name: the site's credentials fetch for whoever names one, so the site may say which, and to whose jobs.

Without a word of it, every job may name every address, but for two. The agent's own folder is nobody's to name, even where the site names a folder above it.
And where jobs are kept apart from the agent, nothing is saved to files that the site has not named: the agent writes them with rights that no job has. Inputs that
are files are read where they lie, by the job itself, so its own rights hold. An address is allowed by one that it lies below, part by part: `s3://data` allows `s3://data/a` and
not `s3://database`. Of files also what links lead to has to lie there, as far as the agent's host knows them.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from federator.kernel.errors import Forbidden
from federator.model.jobs import JobSpec
from federator.model.whose import Whose, is_among
from federator.wire.inputs import Uri
from federator_agent.staging_errors import StagingRefused
from federator_agent.whose import Names


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An address that jobs may name, with all below it."""

    address: Uri
    """It."""
    queues: Names = ()
    """[Whose](#whose-work) jobs may name it. Left out: all that the site serves."""


Addresses = tuple[Uri | Allowed, ...]
"""A text alone is an address."""


def allowed_of(written: Addresses) -> tuple[Allowed, ...]:
    """`data_addresses` of the site file."""
    return tuple(Allowed(each) if isinstance(each, str) else each for each in written)


class DataRules(NamedTuple):
    """What an agent allows. `own`: its folders, which no job may name; `apart`: jobs have other rights than it has."""

    allowed: Sequence[Allowed] | None = None
    own: tuple[Path, ...] = ()
    apart: bool = False

    def check(self, spec: JobSpec, whose: Whose) -> None:
        """Before anything is fetched, and whatever is put afterwards. Raises `StagingRefused` for an address that such work may not name."""
        inputs = [each.uri for each in spec.inputs or ()]
        saved = spec.checkpoint.uri if spec.checkpoint and spec.checkpoint.uri else ""
        mine = addresses_of(self.allowed, whose)
        for uri in [*inputs, saved] if saved else inputs:
            if any(_overlaps(uri, own) for own in self.own):
                raise StagingRefused(f"{uri} is the agent's own; no job may name it")
            if mine is not None and not any(below(uri, address) for address in mine):
                raise StagingRefused(f"this site moves no data of {uri} for {whose.shown}")
        if mine is None and self.apart and urlsplit(saved).scheme == "file":
            raise StagingRefused(
                f"this site saves nothing to {saved}: its data_addresses name no files for checkpoints"
            )

    def check_folder(self, named: Path, real: Path) -> None:
        """Whenever a checkpoint is read or written there: what led inside when the job was checked may lead elsewhere now. Raises `Forbidden`."""
        tops = [
            unquote(parts.path)
            for parts in (urlsplit(each.address) for each in self.allowed or ())
            if parts.scheme == "file" and _within(str(named), unquote(parts.path))
        ]
        inside = any(_within(str(real), os.path.realpath(top)) for top in tops)
        if any(_near(str(real), own) for own in self.own) or (self.allowed is not None and not inside):
            raise Forbidden(
                f"{named} leads to {real}, where this site keeps no checkpoints of jobs",
                remedy="remove the link, or name the folder in data_addresses",
            )


def _overlaps(uri: str, own: Path) -> bool:
    """Whether a file's address is in that folder, or above it: who reads a folder reads what lies in it."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return False
    return _near(os.path.realpath(unquote(parts.path)), own)


def _near(real: str, own: Path) -> bool:
    """Whether a folder is that one, in it, or above it."""
    folder = os.path.realpath(own)
    return _within(real, folder) or _within(folder, real)


def addresses_of(allowed: Sequence[Allowed] | None, whose: Whose) -> tuple[str, ...] | None:
    """What such work may name; None: everything."""
    if allowed is None:
        return None
    return tuple(each.address for each in allowed if not each.queues or is_among(each.queues, whose))


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
