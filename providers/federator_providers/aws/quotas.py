"""What machines that are none of ours take of the account's quotas. These count vCPUs of a family in a market, whoever rented them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from federator_providers.aws.catalogue import CATALOGUE
from federator_providers.aws.settings import QuotaSettings, quota_of

_COUNTED = frozenset({"pending", "running", "stopping", "shutting-down"})
"""What has stopped takes nothing."""


def counted(quotas: Iterable[QuotaSettings], machines: Iterable[Any]) -> Counter[str]:
    """vCPUs of these machines, by the quota that they count towards; machines are as EC2 describes them."""
    quotas, used = tuple(quotas), Counter[str]()
    for machine in machines:
        market = "spot" if machine.get("InstanceLifecycle") == "spot" else "on-demand"
        quota = quota_of(quotas, machine["InstanceType"], market)
        if quota is not None and machine["State"]["Name"] in _COUNTED:
            used[quota.name] += _vcpus(machine)
    return used


def _vcpus(machine: Any) -> int:
    row = CATALOGUE.rows.get(machine["InstanceType"])
    if row is not None:
        return row.vcpus
    cpus = machine.get("CpuOptions", {})
    return int(cpus.get("CoreCount", 1)) * int(cpus.get("ThreadsPerCore", 1))
