"""The `slurm:` part of a site file: where the cluster is, what of it is lent, and in whose name jobs are submitted there."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from federator.kernel.errors import Invalid
from federator.model.whose import Whose
from federator.wire import fields
from federator.wire.accelerators import read_accelerators
from federator_agent import whose as naming

KEYS = ("shared_dir", "partitions", "gpus", "shared", "queues", "users", "start_within", "conf")
QUEUE_KEYS = ("account", "qos", "partition", "user")
UNTYPED = "gpu"
"""How `gpus` names GPUs for which the cluster's gres.conf says no type."""
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")


class GpuType(msgspec.Struct, frozen=True):
    """What a type of the cluster's GPUs is called in the federation."""

    model: str
    memory_mib: int = 0
    part_milli: int = 0
    """One of that type is so many thousandths of such a GPU; 0: as its name says, which may be all of it."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """In whose name some jobs are submitted; empty: as Slurm decides."""

    account: str = ""
    qos: str = ""
    partition: str = ""
    """Instead of the one that the pool is named after: say, one whose jobs local work may preempt."""
    user: str = ""
    """Runs them as this user; the agent must be root for it."""


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the cluster, and what of it to use."""

    shared_dir: Path
    """A directory of this agent's alone, on a file system that all nodes and this host see under the same path."""
    partitions: tuple[str, ...] = ()
    """The partitions to lend; empty: all that are up."""
    gpus: dict[str, GpuType] = {}
    """By the type in gres.conf; a type that is not here is a model of that name, of unknown memory."""
    shared: dict[str, int] = {}
    """By partition: so many GPUs of each node that has shards go to jobs that ask for a part of one, and the others to those that ask for whole ones."""
    queues: dict[str, Account] = {}
    """By whose work it is, as `federator_agent.whose` reads it; `*`: all others."""
    users: dict[str, str] = {}
    """Owners in the federation, each with the account that his jobs run as, whatever their queue and team."""
    start_within_s: float = 600.0
    """So long may a job wait in Slurm's queue before the site gives it back to the federation."""
    conf: Path | None = None
    """The slurm.conf of the cluster; None: as Slurm's commands find it."""

    def account(self, whose: Whose) -> Account:
        """In whose name that work is submitted."""
        account = naming.said_of(self.queues, whose) or Account()
        user = self.users.get(whose.owner)
        return account if user is None else msgspec.structs.replace(account, user=user)

    @property
    def maps(self) -> bool:
        """Whether jobs run as other users than the agent: then none runs as the agent's, which is root."""
        return bool(self.users) or any(account.user for account in self.queues.values())


def parse(value: Mapping[str, object], path: str) -> SlurmSettings:
    """Settings from the site file. Raises `Invalid` that names the field."""
    fields.known_only(value, path, KEYS)
    if "shared_dir" not in value:
        remedy = (
            "name a directory that all nodes and this host see under the same path, such as /shared/federator"
        )
        raise Invalid("is missing", field=f"{path}.shared_dir", remedy=remedy)
    settings = SlurmSettings(
        shared_dir=_absolute(value["shared_dir"], f"{path}.shared_dir"),
        partitions=fields.words(value.get("partitions", ()), f"{path}.partitions", fields.name),
        gpus=_gpus(value.get("gpus", {}), f"{path}.gpus"),
        shared={
            fields.name(name, f"{path}.shared"): fields.whole(each, f"{path}.shared.{name}", low=0, high=1024)
            for name, each in fields.mapping(value.get("shared", {}), f"{path}.shared").items()
        },
        queues=naming.read(value.get("queues", {}), f"{path}.queues", _account),
        users={
            owner: _user(name, f"{path}.users.{owner}")
            for owner, name in fields.pairs(value.get("users", {}), f"{path}.users", limit=10_000).items()
        },
        conf=_absolute(value["conf"], f"{path}.conf") if "conf" in value else None,
    )
    if "start_within" in value:
        start_within_s = fields.duration_s(value["start_within"], f"{path}.start_within", low_s=1.0)
        settings = msgspec.structs.replace(settings, start_within_s=start_within_s)
    return settings


def _absolute(value: object, path: str) -> Path:
    text = fields.text(value, path, limit=1000)
    if not text.startswith("/") or "%" in text or "\n" in text:
        # Slurm replaces what follows a % in the names of files.
        remedy = "write the whole path, from /, and without %"
        raise Invalid(f"{text[:80]!r} is not the path of a place", field=path, remedy=remedy)
    return Path(text)


def _gpus(value: object, path: str) -> dict[str, GpuType]:
    return {
        _word(name, f"{path}.{name}"): _gpu(each, f"{path}.{name}")
        for name, each in fields.mapping(value, path).items()
    }


def _gpu(value: object, path: str) -> GpuType:
    found = read_accelerators(value, path)
    if len(found.models) != 1 or found.count != 1:
        remedy = "write the model, its memory if jobs ask for that, and what part of one it is: A100, A100:80GB or A100:80GB:0.5"
        raise Invalid("is not one model of GPU", field=path, remedy=remedy)
    return GpuType(found.models[0], found.memory_mib, found.share_milli or 0)


def _account(value: object, path: str) -> Account:
    given = fields.mapping(value, path)
    fields.known_only(given, path, QUEUE_KEYS)
    readers = {"user": _user}
    return Account(**{key: readers.get(key, _word)(each, f"{path}.{key}") for key, each in given.items()})


def _user(value: object, path: str) -> str:
    """An account of the cluster's hosts."""
    word = _word(value, path)
    if word == "root" or (word.isdigit() and int(word) == 0):
        remedy = "name an account without privileges"
        raise Invalid("jobs do not run as root", field=path, remedy=remedy)
    return word


def _word(value: object, path: str) -> str:
    """A name of Slurm's: nothing that a command could take for an option or for more than one word."""
    word = fields.text(value, path, limit=128)
    if not _WORD.fullmatch(word):
        raise Invalid(
            f"{word!r} is not a name of Slurm's", field=path, remedy="write it as Slurm's commands show it"
        )
    return word
