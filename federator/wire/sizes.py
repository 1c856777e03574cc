"""What one node of a job needs, as users write it."""

import re
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.jobs import Accelerators, Resources
from federator.wire import fields
from federator.wire.accelerators import read_widths

MAX_CPUS = 4096
MAX_MEMORY_MIB = 64 * 2**20


def read_sizes(value: object, path: str, among: Collection[int] | None = None) -> tuple[Resources, ...]:
    """What one node needs; of a range of GPUs each size, or those `among` the given, the narrowest first. Raises `Invalid`."""
    given = fields.mapping(value, path)
    known = ("gpus", "accelerators", "cpus", "memory", "shm")
    elsewhere = {
        "gpu": "gpus",
        "mem": "memory",
        "cpu": "cpus",
        "shm_size": "shm",
        "use_spot": "spot_policy, outside of resources",
    }
    fields.known_only(given, path, known, elsewhere=elsewhere)
    if "gpus" in given and "accelerators" in given:
        raise Invalid(
            "cannot be combined with gpus", field=f"{path}.accelerators", remedy="write one of the two"
        )
    key = "accelerators" if "accelerators" in given else "gpus"
    gpus = read_widths(given[key], f"{path}.{key}", among) if key in given else (Accelerators(),)
    rest = Resources(
        cpus_milli=_cpus_milli(given["cpus"], f"{path}.cpus") if "cpus" in given else Resources().cpus_milli,
        memory_mib=_size_mib(given, path, "memory"),
        shm_mib=_size_mib(given, path, "shm"),
    )
    return tuple(replace(rest, gpus=each) for each in gpus)


def _size_mib(given: Mapping[str, object], path: str, key: str) -> int:
    return fields.size_mib(given[key], f"{path}.{key}", high_mib=MAX_MEMORY_MIB) if key in given else 0


def _cpus_milli(value: object, path: str) -> int:
    """Cores as a number, or thousandths of one as Kubernetes writes them: 0.5 is 500m."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}m", value):
        value = int(value[:-1]) / 1000
    return round(fields.number(value, path, low=0.001, high=MAX_CPUS) * 1000)
