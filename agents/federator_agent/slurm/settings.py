"""The `slurm:` part of a site file: where the cluster is, what of it is lent, and in whose name jobs are submitted there."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.model.jobs import APART, ON_ONE_HOST
from federator.model.whose import Whose
from federator.wire import fields
from federator.wire.accelerators import read_accelerators
from federator.wire.whereabouts import read_together
from federator_agent import whose as naming

UNTYPED = "gpu"
"""How `gpus` names GPUs for which the cluster's gres.conf says no type."""
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,127}")


def _absolute(value: object, path: str) -> Path:
    text = fields.text(value, path, limit=1000)
    if not text.startswith("/") or "%" in text or "\n" in text:
        # Slurm replaces what follows a % in the names of files.
        remedy = "write the whole path, from /, and without %"
        raise Invalid(f"{text[:80]!r} is not the path of a place", field=path, remedy=remedy)
    return Path(text)


def _word(value: object, path: str) -> str:
    """A name of Slurm's: nothing that a command could take for an option or for more than one word."""
    word = fields.text(value, path, limit=128)
    if not _WORD.fullmatch(word):
        raise Invalid(
            f"{word!r} is not a name of Slurm's", field=path, remedy="write it as Slurm's commands show it"
        )
    return word


def _user(value: object, path: str) -> str:
    """An account of the cluster's hosts."""
    word = _word(value, path)
    if word == "root" or (word.isdigit() and int(word) == 0):
        remedy = "name an account without privileges"
        raise Invalid("jobs do not run as root", field=path, remedy=remedy)
    return word


def _domain(value: object, path: str) -> str:
    """What gangs may ask to lie in one of."""
    word = read_together(fields.name(value, path), path)
    if word in (ON_ONE_HOST, APART):
        remedy = "write another word for what is below one switch, such as rack"
        raise Invalid(f"{word!r} means something else to jobs", field=path, remedy=remedy)
    return word


class GpuType(msgspec.Struct, frozen=True):
    """What a type of the cluster's GPUs is called in the federation."""

    model: str
    memory_mib: int = 0
    part_milli: int = 0
    """One of that type is so many thousandths of such a GPU; 0: as its name says, which may be all of it."""


def _gpu(value: object, path: str) -> GpuType:
    found = read_accelerators(value, path)
    if len(found.models) != 1 or found.count != 1:
        remedy = "write the model, its memory if jobs ask for that, and what part of one it is: A100, A100:80GB or A100:80GB:0.5"
        raise Invalid("is not one model of GPU", field=path, remedy=remedy)
    return GpuType(found.models[0], found.memory_mib, found.share_milli or 0)


Word = Annotated[str, fields.written(_word, pattern=f"^{_WORD.pattern}$")]
Labels = Annotated[
    dict[str, str], fields.written(partial(fields.pairs, limit=15), "{rack: r1}", **fields.PAIRS)
]
"""One less than a report may have of a pool: `topology` adds one."""
User = Annotated[str, fields.written(_user, pattern=f"^{_WORD.pattern}$")]
Absolute = Annotated[Path, fields.written(_absolute, "/shared/federator", pattern="^/[^%]*$")]
Gpu = Annotated[
    GpuType, fields.written(_gpu, "A100", "A100:80GB", "A100:80GB:0.5", type=["string", "object"])
]


class Account(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In whose name some jobs are submitted. What is left out is as Slurm decides."""

    account: Word = ""
    """The account in Slurm's books."""
    qos: Word = ""
    """The quality of service."""
    partition: Word = ""
    """Instead of the one that the pool is named after: say, one whose jobs local work may preempt."""
    user: User = ""
    """Runs them as this user; the agent must be root for it."""


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Slurm cluster whose jobs run the work, instead of `pools`."""

    shared_dir: Absolute
    """A directory of this agent's alone that all nodes and this host see under the same path."""
    partitions: Annotated[tuple[fields.Name, ...], fields.alone()] = ()
    """Partitions that are lent: each is a pool. A node of several belongs to the first. Left out: all that are up."""
    gpus: dict[Word, Gpu] = {}
    """Model and memory by GPU type in gres.conf, such as `{a100: "A100:80GB"}`; `gpu` stands for those without a type. Of a type that is but a part of a GPU also that part, as `A100:40GB:0.5`; left out, the name of a MIG instance tells it. A type that is not here is a model of that name, of unknown memory."""
    shared: dict[fields.Name, Annotated[int, msgspec.Meta(ge=0, le=1024)]] = {}
    """By partition, so many GPUs of each node that has shards go to jobs that ask for parts: a pool of their own, `PARTITION-shared`. `lend` names it by that."""
    labels: dict[fields.Name, Labels] = {}
    """By partition, what its nodes have in common beyond the site's labels, such as `{gpu-r1: {rack: r1}}`."""
    topology: Annotated[str, fields.written(_domain, "rack")] = ""
    """What jobs call the leaf switches of Slurm's topology plugin, or its blocks, such as `rack`. Each pool is then one for each, with that label. Left out: pools are whole."""
    queues: dict[naming.Key, Account] = {}
    """By [whose work](#whose-work) it is, in whose name it is submitted, such as `{research/*: {account: res, qos: low}, team:vision: {account: vision}}`. `*`: all others."""
    users: dict[fields.Text, User] = {}
    """By owner in the federation, the account that runs his jobs, whatever their queue and team, such as `{ann@example.org: ann}`. The agent must be root; what then has no user, neither here nor by `queues`, is refused."""
    start_within_s: Annotated[float, fields.duration("10m", low_s=1.0)] = msgspec.field(
        name="start_within", default=600.0
    )
    """How long a job may wait in Slurm's queue before it is given back with Slurm's reason. Left out: 10m."""
    conf: Absolute | None = None
    """The slurm.conf of the cluster, where there are several. Left out: as Slurm's commands find it."""

    def account(self, whose: Whose) -> Account:
        """In whose name that work is submitted."""
        account = naming.said_of(self.queues, whose) or Account()
        user = self.users.get(whose.owner)
        return account if user is None else msgspec.structs.replace(account, user=user)

    @property
    def maps(self) -> bool:
        """Whether jobs run as other users than the agent: then none runs as the agent's, which is root."""
        return bool(self.users) or any(account.user for account in self.queues.values())
