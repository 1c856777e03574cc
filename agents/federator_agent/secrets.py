"""Named secrets: a job says `secrets: [wandb]`, and only its site knows what that is.

The site file names for each a file of `NAME=value` lines, or on a Kubernetes site a Secret of the namespace. Values are read when a rank starts and given to it as
variables: they are in no spec, no report and no log. On a Slurm site the rank's command file, which only its user can read, holds them until the placement is discarded. Who may use which is the site's to say.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.model.whose import Whose, in_words, is_among
from federator.wire import fields
from federator_agent.staging_errors import StagingError, StagingRefused
from federator_agent.whose import Names

MAX_BYTES = 2**16
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


class Secret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one is kept, and for whom. Exactly one of `file` and `kubernetes`."""

    file: fields.FilePath | None = None
    """A file of `NAME=value` lines."""
    kubernetes: Annotated[str, fields.short(1000)] = ""
    """The Secret's name in the namespace of the jobs' pods; each of its keys is a variable."""
    queues: Names = ()
    """Whose jobs get it. Left out: all that the site serves."""


Secrets = dict[fields.Name, Annotated[str, fields.short(1000)] | Secret]
"""A text alone says where it is kept."""


def secrets_of(written: Mapping[str, str | Secret], path: str, *, kube: bool) -> dict[str, Secret]:
    """`secrets` of the site file. Raises `Invalid` for a secret that such a site cannot have."""
    found = {}
    for name, each in written.items():
        secret = each if isinstance(each, Secret) else _alone(each, kube=kube)
        if bool(secret.kubernetes) != kube or (secret.file is None) != kube:
            wanted = "kubernetes" if kube else "file"
            what = "the name of a Secret" if kube else "the path of a file of NAME=value lines"
            raise Invalid(
                f"takes only '{wanted}'", field=f"{path}.{name}", remedy=f"write '{wanted}: …', {what}"
            )
        found[name] = secret
    return found


def _alone(where: str, *, kube: bool) -> Secret:
    return Secret(kubernetes=where) if kube else Secret(file=Path(where))


def check(known: Mapping[str, Secret], spec: JobSpec, whose: Whose) -> None:
    """Before anything is prepared. Raises `StagingRefused` for one that is not here, or not for such work."""
    for name in spec.secrets or ():
        if name not in known:
            raise StagingRefused(f"this site has no secret {name!r}")
        given_to = known[name].queues
        if given_to and not is_among(given_to, whose):
            raise StagingRefused(f"this site gives the secret {name!r} only to {in_words(given_to)}")


def variables(known: Mapping[str, Secret], spec: JobSpec) -> dict[str, str]:
    """What a job's secrets are, of those that are in files; later ones go before earlier. Raises `StagingError` without a word of their contents."""
    found: dict[str, str] = {}
    for name in spec.secrets or ():
        file = known[name].file
        if file is not None:
            found |= _read(name, file)
    return found


def _read(name: str, file: Path) -> dict[str, str]:
    try:
        with file.open() as lines:
            text = lines.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a text"
        raise StagingError(Cause.STAGING, f"the site's secret {name!r} cannot be read: {why}") from None
    if len(text) > MAX_BYTES:
        raise StagingError(Cause.STAGING, f"the site's secret {name!r} is over {MAX_BYTES >> 10} KiB")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise StagingError(Cause.STAGING, f"the site's secret {name!r}, line {number}: is not NAME=value")
        found[match[1]] = _unquoted(match[2])
    return found


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
