"""Named secrets: a job says `secrets: [wandb]`, and only its site knows what that is.

The site file names for each a file of `NAME=value` lines, or on a Kubernetes site a Secret of the namespace. Values are read when a rank starts and given to it as
variables: they are in no spec, no report and no log. On a Slurm site the rank's command file, which only its user can read, holds them until the placement is discarded. Who may use which is the site's to say.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import JobSpec
from federator.model.placements import Cause
from federator.model.whose import Whose, in_words, is_among
from federator.wire import fields
from federator_agent import whose as naming
from federator_agent.staging_errors import StagingError, StagingRefused

KEYS = ("file", "kubernetes", "queues")
MAX_BYTES = 2**16
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """Where one is kept, and for whom. One of `file` and `kubernetes` is given."""

    file: Path | None = None
    kubernetes: str = ""
    """The Secret's name in the namespace of the jobs' pods; each of its keys is a variable."""
    queues: tuple[str, ...] = ()
    """Whose jobs get it, as `federator.model.whose` reads it; empty: all that the site serves."""


def parse(value: object, path: str, *, kube: bool) -> dict[str, Secret]:
    """`secrets` of the site file. Raises `Invalid` that names the field."""
    given = fields.mapping(value, path)
    return {
        fields.name(name, path): _secret(each, f"{path}.{name}", kube=kube) for name, each in given.items()
    }


def _secret(value: object, path: str, *, kube: bool) -> Secret:
    if isinstance(value, str):
        value = {"kubernetes" if kube else "file": value}
    given = fields.mapping(value, path)
    fields.known_only(given, path, KEYS)
    wanted, other = ("kubernetes", "file") if kube else ("file", "kubernetes")
    if wanted not in given or other in given:
        what = "the name of a Secret" if kube else "the path of a file of NAME=value lines"
        raise Invalid(f"takes only '{wanted}'", field=path, remedy=f"write '{wanted}: …', {what}")
    word = fields.text(given[wanted], f"{path}.{wanted}", limit=1000)
    queues = naming.names(given.get("queues", ()), f"{path}.queues")
    return Secret(kubernetes=word, queues=queues) if kube else Secret(file=Path(word), queues=queues)


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
