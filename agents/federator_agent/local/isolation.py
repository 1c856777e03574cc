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

import msgspec

from federator.kernel.errors import Invalid
from federator.model.sites import SHARED_TRUST
from federator.model.whose import EVERYBODY
from federator.wire import fields
from federator_agent import whose as naming

KEYS = ("mode", "users", "range", "shared", "processes", "limits", "trusts")
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


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The Unix user of a job. `name` empty: one of the range, which no file of the host names."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = ""
    shell: str = ""


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What the site file says."""

    mode: Mode | None = None
    """None: the strongest that works here."""
    users: dict[str, str] = {}
    """Owners in the federation, each with the account of this host that his jobs run as."""
    range: tuple[int, int] = DEFAULT_RANGE
    """User ids for the jobs of all others: first and last."""
    shared: tuple[str, ...] = ()
    """Folders that jobs see and use as the host has them, although they lie where jobs see nothing else or may write nothing."""
    processes: int = 16_384
    """Processes and threads that a rank may have."""
    limits: bool = True
    """Whether each rank has a control group of its own, where the agent may make some."""
    trusts: tuple[str, ...] = ()
    """With `shared-trust`: whose work is taken, as `federator.model.whose` reads it. Empty: that of the federation's and the site's administrators."""


TRUSTING = Isolation(mode=Mode.SHARED_TRUST, trusts=(EVERYBODY,), limits=False)
"""All work belongs together."""


def read(top: Mapping[str, object], environ: Mapping[str, str]) -> Isolation:
    """What a site file says of it, or what the environment does. Raises `Invalid` that names the field."""
    if "isolation" not in top:
        return TRUSTING if environ.get(VARIABLE) == "shared" else Isolation()
    for cluster in ("kube", "slurm"):
        if cluster in top:
            remedy = f"leave it out: {cluster} keeps jobs apart by its own means"
            raise Invalid(f"does not go with '{cluster}'", field="$.isolation", remedy=remedy)
    return parse(top["isolation"], "$.isolation")


def parse(value: object, path: str) -> Isolation:
    """`isolation` of the site file: a mode, or a mapping. Raises `Invalid` that names the field."""
    if isinstance(value, str):
        value = {"mode": value}
    given = fields.mapping(value, path)
    fields.known_only(given, path, KEYS)
    isolation = Isolation(
        mode=Mode(fields.one_of(given["mode"], f"{path}.mode", tuple(Mode))) if "mode" in given else None,
        users=_users(fields.pairs(given.get("users", {}), f"{path}.users", limit=200), f"{path}.users"),
        range=_range(given["range"], f"{path}.range") if "range" in given else DEFAULT_RANGE,
        shared=fields.words(given.get("shared", ()), f"{path}.shared", _folder),
        processes=fields.whole(given.get("processes", 16_384), f"{path}.processes", low=16, high=4_194_304),
        limits=fields.truth(given.get("limits", True), f"{path}.limits"),
        trusts=naming.names(given.get("trusts", ()), f"{path}.trusts"),
    )
    if len(isolation.trusts) > MAX_TRUSTS:
        raise Invalid(f"has more than {MAX_TRUSTS} entries", field=f"{path}.trusts", remedy="name queues")
    if isolation.trusts and isolation.mode not in (None, Mode.SHARED_TRUST):
        remedy = "leave it out: work that is kept apart needs no trust"
        raise Invalid(f"does not go with the mode {isolation.mode}", field=f"{path}.trusts", remedy=remedy)
    return isolation


def _users(given: Mapping[str, str], path: str) -> dict[str, str]:
    for owner, account in given.items():
        try:
            found = pwd.getpwnam(account)
        except KeyError:
            raise Invalid(
                f"{account!r} is not a user of this host", field=f"{path}.{owner}", remedy="make it first"
            ) from None
        if found.pw_uid == 0:
            raise Invalid("jobs do not run as root", field=f"{path}.{owner}", remedy="name an ordinary user")
    return dict(given)


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


def account_of(name: str) -> Account:
    """An account of this host, with its groups. Raises `KeyError` when it is gone."""
    found = pwd.getpwnam(name)
    groups = tuple(each.gr_gid for each in grp.getgrall() if name in each.gr_mem)
    return Account(
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
