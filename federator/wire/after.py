"""`after` of a job file: which jobs it must follow, and what each of them must come to."""

from typing import Annotated, ClassVar

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import Follows
from federator.wire.fields import NameOrId, alone

Jobs = Annotated[tuple[NameOrId, ...], alone()]


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that it must follow, by what each must come to. One that is never to start fails, and is cancelled where what it needed to fail has succeeded."""

    elsewhere: ClassVar = {"afterok": "ok", "afternotok": "failed", "afterany": "any", "aftercorr": "each"}

    ok: Jobs = ()
    """These have succeeded."""
    failed: Jobs = ()
    """These have ended, not in success."""
    any: Jobs = ()
    """These have ended."""
    each: Jobs = ()
    """Of these arrays the task with the same index has succeeded."""


def followed(after: tuple[str, ...] | After) -> tuple[tuple[str, ...], tuple[Follows, ...]]:
    """Names or ids, and what each must come to: none where all are to succeed. Raises `Invalid`."""
    if not isinstance(after, After):
        return after, ()
    pairs = [(name, how) for how in Follows for name in getattr(after, how)]
    if not pairs:
        raise Invalid("is empty", field="$.after", remedy="write for example 'after: {any: preprocess}'")
    hows = tuple(how for _, how in pairs)
    return tuple(name for name, _ in pairs), () if set(hows) <= {Follows.OK} else hows
