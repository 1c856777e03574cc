"""Virtual machines as Azure describes them, and what they say about ours: name, offer, price, status, end.

A machine is called what its lease is called, and its tags say whose it is. Its disk and network interface are made and deleted with it.
"""

import base64
import re
from typing import Any

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market
from federator_providers.azure.settings import AzureSettings
from federator_providers.billing import metered_usd
from federator_providers.boot import boot_script

FEDERATION, OFFER, USD_H = "federator:federation", "federator:offer", "federator:usd-h"
OWN = frozenset({FEDERATION, OFFER, USD_H})
MINIMUM_BILLING_S = 60.0
NAMES = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
LONGEST_TAG = 256
NETWORK_API_VERSION = "2020-11-01"


def to_create(request: LaunchRequest, settings: AzureSettings, zone: str) -> dict[str, Any]:
    """The body of a launch; an empty zone leaves it to Azure. Raises `Invalid` for a name that no machine can have."""
    if not NAMES.fullmatch(request.name):
        remedy = "use up to 64 letters, digits and '-', at both ends no '-'"
        raise Invalid(f"{request.name!r} cannot name a machine", field="name", remedy=remedy)
    usd_h = request.offer.price_usd_h
    tags = request.tags | {
        FEDERATION: request.federation,
        OFFER: request.offer.name,
        USD_H: repr(usd_h),
    }
    if max(map(len, tags.values())) > LONGEST_TAG:
        raise Invalid(f"one has over {LONGEST_TAG} characters", field="tags", remedy="shorten it")
    script = boot_script(request.user_data, settings.boot, "azure")
    key = {"path": "/home/federator/.ssh/authorized_keys", "keyData": settings.ssh_public_key}
    disk = {
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": -(-settings.disk_mib // 1024),
    }
    disk["managedDisk"] = {"storageAccountType": settings.disk_type}
    address = {"name": "first", "properties": {"primary": True, "subnet": {"id": settings.subnet}}}
    interface = {"primary": True, "deleteOption": "Delete", "ipConfigurations": [address]}
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": request.offer.instance_type},
        "storageProfile": {"imageReference": {"id": settings.image}, "osDisk": disk},
        "osProfile": {
            "computerName": request.name,
            "adminUsername": "federator",
            "customData": base64.b64encode(script.encode()).decode(),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": [key]},
            },
        },
        "networkProfile": {
            "networkApiVersion": NETWORK_API_VERSION,
            "networkInterfaceConfigurations": [{"name": request.name, "properties": interface}],
        },
    }
    if request.offer.market is Market.SPOT:
        properties |= {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": round(usd_h, 5)},
        }
    body: dict[str, Any] = {"location": settings.region, "tags": tags, "properties": properties}
    return body | ({"zones": [zone]} if zone else {})


def federation_of(machine: Any) -> str:
    """Whose it is; empty: none of ours."""
    tags = machine.get("tags") or {}
    return str(tags.get(FEDERATION, "")) if tags.keys() >= OWN else ""


def offer_of(machine: Any) -> str:
    """The offer that it was rented as."""
    return str(machine["tags"][OFFER])


def zone_of(machine: Any) -> str:
    """Its availability zone; empty: Azure was left to choose, and does not say."""
    return str((machine.get("zones") or [""])[0])


def never_ran(machine: Any) -> bool:
    """Whether Azure has made the record and found no room for the machine."""
    return bool(machine["properties"].get("provisioningState") in ("Failed", "Canceled"))


def is_spot(machine: Any) -> bool:
    """Whether it may be taken back."""
    return bool(machine["properties"].get("priority") == "Spot")


def instance(
    machine: Any, now: float, ended_at: float | None = None, *, taken_back: bool = False
) -> Instance:
    """In our words. `ended_at`: of a machine that is gone. One that failed never cost anything."""
    own, properties = machine["tags"], machine["properties"]
    made = properties.get("timeCreated")
    begun_at = parse_instant(made) if made else now
    billed = not never_ran(machine)
    if ended_at is None and not billed:
        ended_at = now
    over_at = None if ended_at is None else max(begun_at, ended_at)
    if over_at is not None:
        status = InstanceStatus.ENDED
    else:
        creating = properties.get("provisioningState") == "Creating"
        status = InstanceStatus.BOOTING if creating else InstanceStatus.RUNNING
    until_at = now if over_at is None else over_at
    return Instance(
        name=machine["name"],
        offer=offer_of(machine),
        status=status,
        launched_at=begun_at,
        ended_at=over_at,
        tags={key: value for key, value in own.items() if key not in OWN}
        | {"federation": federation_of(machine)},
        billed_usd=metered_usd(float(own[USD_H]), MINIMUM_BILLING_S, begun_at, until_at) if billed else 0.0,
        reclaim_at=over_at if taken_back else None,
        no_capacity="" if billed else "Azure found no room for it after it had accepted it",
        zone=zone_of(machine),
    )
