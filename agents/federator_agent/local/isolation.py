"""`isolation` of a site file: how the jobs of this host are kept apart from each other and from the agent.

Three modes. `users`: the agent is root, and each job runs as a Unix user that is not the agent's, in namespaces of its own. `sandbox`: the agent is an ordinary user, and each
job runs in namespaces of its own as that user. `shared-trust`: jobs run as the agent's user with nothing between them; such a site takes only the work of those whom it trusts.
The first two need bubblewrap. Without a mode in the file the agent takes the strongest one that works.
"""

import grp
import pwd
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.sites import SHARED_TRUST
from federator.model.whose import EVERYBODY
from federator.wire import fields
from federator_agent.whose import Named

VARIABLE = "FEDERATOR_ISOLATION"
"""`shared`: the agent's file says nothing, and all work that comes belongs together. Set by who makes up machines, such as the demonstration."""
DEFAULT_RANGE = (200_000, 265_535)
MAX_ID = 2**32 - 2
MAX_TRUSTS = 200
_RANGE = re.compile(r"(\d{1,10})\s*-\s*(\d{1,10})")


class Mode(StrEnum):
    """How jobs are kept apart."""

    USERS = "users"
    SANDBOX = "sandbox"
    SHARED_TRUST = SHARED_TRUST


class UnixUser(msgspec.Struct, frozen=True, kw_only=True):
    """The Unix user of a job. `name` empty: one of the range, which no file of the host names."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = ""
    shell: str = ""


def _user(value: object, path: str) -> str:
    account = fields.text(value, path, limit=100)
    try:
        found = pwd.getpwnam(account)
    except KeyError:
        raise Invalid(f"{account!r} is not a user of this host", field=path, remedy="make it first") from None
    if found.pw_uid == 0:
        raise Invalid("jobs do not run as root", field=path, remedy="name an ordinary user")
    return account


def _range(value: object, path: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(fields.text(value, path).strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1000 <= first <= last <= MAX_ID:
        remedy = "write 'first-last' of user ids that nobody on this host has, for example 200000-265535"
        raise Invalid("is not a range of user ids from 1000 on", field=path, remedy=remedy)
    return first, last


def _folder(value: object, path: str) -> str:
    text = fields.text(value, path, limit=1000)
    if not Path(text).is_absolute() or ".." in Path(text).parts or Path(text) == Path("/"):
        raise Invalid(
            f"{text!r} is not the path of a folder", field=path, remedy="write for example /scratch"
        )
    return text


Users = dict[fields.Text, Annotated[str, fields.written(_user, "ada")]]
Range = Annotated[tuple[int, int], fields.written(_range, "200000-265535", pattern=_RANGE.pattern)]


class Isolation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are kept apart from each other and from the agent, where they are processes of this host."""

    mode: Mode | None = None
    """`users`: the agent is root, each job runs as a Unix user of its own in namespaces of its own. `sandbox`: in namespaces, as the agent's user. Both want bubblewrap. `shared-trust`: nothing keeps jobs apart. With a mode that does not work the agent does not start. Left out: the strongest that works."""
    users: Users = {}
    """Owners in the federation, each with the account of this host that their jobs run as."""
    range: Range = DEFAULT_RANGE
    """User ids for all other jobs, one for each placement. Nobody else on the host has them; of two agents on one host each has its own. Left out: 200000-265535."""
    shared: Annotated[tuple[Annotated[str, fields.written(_folder, "/scratch")], ...], fields.alone()] = ()
    """Folders that jobs use as the host has them, although they lie where jobs see nothing (the agent's home, `/tmp`, `/run`) or, in a sandbox, may write nothing."""
    processes: Annotated[int, msgspec.Meta(ge=16, le=4_194_304)] = 16_384
    """Most processes and threads of a job's user; in a sandbox of each rank."""
    limits: bool = True
    """Whether each rank has a control group of its own, where the agent may make some: the memory that its job asked for is its limit, CPUs are a weight, and `processes` holds for each rank. `federator-agent check` says whether they hold."""
    trusts: Annotated[tuple[Named, ...], fields.alone(MAX_TRUSTS)] = ()
    """With `shared-trust`: [whose work](#whose-work) is taken. Left out: that of the administrators of the federation and of the site."""


TRUSTING = Isolation(mode=Mode.SHARED_TRUST, trusts=(EVERYBODY,), limits=False)
"""All work belongs together."""


def isolation_of(written: Mode | Isolation | None, environ: Mapping[str, str]) -> Isolation:
    """What a site file says of it, or what the environment does. Raises `Invalid`."""
    if written is None:
        return TRUSTING if environ.get(VARIABLE) == "shared" else Isolation()
    isolation = Isolation(mode=written) if isinstance(written, Mode) else written
    if isolation.trusts and isolation.mode not in (None, Mode.SHARED_TRUST):
        remedy = "leave it out: work that is kept apart needs no trust"
        raise Invalid(
            f"does not go with the mode {isolation.mode}", field="$.isolation.trusts", remedy=remedy
        )
    return isolation


def account_of(name: str) -> UnixUser:
    """An account of this host, with its groups. Raises `KeyError` when it is gone."""
    found = pwd.getpwnam(name)
    groups = tuple(each.gr_gid for each in grp.getgrall() if name in each.gr_mem)
    return UnixUser(
        uid=found.pw_uid,
        gid=found.pw_gid,
        groups=groups,
        name=name,
        home=found.pw_dir,
        shell=found.pw_shell,
    )


def device_groups() -> tuple[int, ...]:
    """The groups that GPUs of other makers than NVIDIA belong to."""
    return tuple(each.gr_gid for each in grp.getgrall() if each.gr_name in ("video", "render"))
