"""What one node of a job needs, as users write it."""

import re
from collections.abc import Collection
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.jobs import Accelerators, Resources
from federator.wire import fields
from federator.wire.accelerators import MAX_WIDTHS, Gpus, read_widths

MAX_CPUS = 4096
MAX_MEMORY_MIB = 64 * 2**20
Memory = Annotated[int, fields.size("256GiB", high_mib=MAX_MEMORY_MIB)]


def _cpus_milli(value: object, path: str) -> int:
    """Cores as a number, or thousandths of one as Kubernetes writes them: 0.5 is 500m."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}m", value):
        value = int(value[:-1]) / 1000
    return round(fields.number(value, path, low=0.001, high=MAX_CPUS) * 1000)


Cpus = Annotated[
    int, fields.written(_cpus_milli, "32", "500m", type=["number", "string"], minimum=0.001, maximum=MAX_CPUS, pattern=r"^\d{1,9}m$")
]  # fmt: skip


class NodeSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What each node needs."""

    elsewhere: ClassVar = {
        "gpu": "gpus", "mem": "memory", "cpu": "cpus", "shm_size": "shm", "use_spot": "spot_policy, outside of resources",
    }  # fmt: skip

    gpus: Gpus | None = None
    """GPUs per node: models, memory of each, count, in any order; `A100:1..8`: any number of them. A number alone takes any model. Below 1 (`0.5`, `A100:0.5`): a part of one, to the thousandth, at sites that share GPUs; the memory is that of the whole GPU."""
    accelerators: Gpus | None = None
    """Another name for `gpus`."""
    cpus: Cpus | None = None
    """Cores per node. Left out: 1."""
    memory: Memory | None = None
    """Memory per node. Left out: any."""
    shm: Memory | None = None
    """Shared memory per node. Left out: any."""


class Sizes(NodeSize, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What each node needs, or a list of sizes that would all do."""

    any_of: Annotated[tuple[NodeSize, ...], msgspec.Meta(min_length=1, max_length=MAX_WIDTHS)] | None = None
    """Resources that would all do, such as `[{gpus: "A100:8"}, {gpus: "H100:4"}]`: the cheapest is taken. What stands beside the list holds for each entry. `estimate` is of the first. At most 16 ways to run are planned, with ranges."""
    ordered: Annotated[tuple[NodeSize, ...], msgspec.Meta(min_length=1, max_length=MAX_WIDTHS)] | None = None
    """The same, but an earlier entry is taken where both could start."""


def sizes_of(size: NodeSize, path: str, among: Collection[int] | None = None) -> tuple[Resources, ...]:
    """What one node needs; of a range of GPUs each size, or those `among` the given, the narrowest first. Raises `Invalid`."""
    if size.gpus is not None and size.accelerators is not None:
        raise Invalid(
            "cannot be combined with gpus", field=f"{path}.accelerators", remedy="write one of the two"
        )
    key = "gpus" if size.accelerators is None else "accelerators"
    asked = getattr(size, key)
    gpus = (Accelerators(),) if asked is None else read_widths(asked, f"{path}.{key}", among)
    rest = Resources(
        cpus_milli=size.cpus or Resources().cpus_milli, memory_mib=size.memory or 0, shm_mib=size.shm or 0
    )
    return tuple(replace(rest, gpus=each) for each in gpus)
