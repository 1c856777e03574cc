"""Instances as Compute Engine describes them, and what they say about ours: name, offer, price, status, end.

An instance is called what its lease is called, and the label `federator-federation` marks it as ours. Labels hold neither capitals nor slashes, so that all
that must outlive the dispatcher stands in the instance's description. Times are Google's own.
"""

import hashlib
import logging
import re
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.kernel.quantities import parse_instant
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest, Market
from federator.wire.jsontext import read
from federator_providers.billing import metered_usd
from federator_providers.boot import boot_script
from federator_providers.gce.settings import GceSettings

LABEL = "federator-federation"
MINIMUM_BILLING_S = 60.0
NOTICE_S = 30.0
"""From the notice of a preemption until the machine is taken, at most."""
NAMES = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LONGEST_RECORD = 2048
PREEMPTED = "compute.instances.preempted"
_LABEL_VALUES = re.compile(r"[a-z0-9_-]{1,63}")
_REQUESTS = uuid.UUID("5f1f0d0c-6a52-4d0b-9a4e-2f6d0f1b7c11")
log = logging.getLogger(__name__)


class InstanceRecord(msgspec.Struct, frozen=True):
    """What an instance's description says."""

    federation: str
    offer: str
    usd_h: float
    tags: dict[str, str]


def request_id(name: str, zone: str) -> str:
    """The same for each request for that name in that zone: Google does it once."""
    return str(uuid.uuid5(_REQUESTS, f"{name}/{zone}"))


def to_insert(request: LaunchRequest, settings: GceSettings, zone: str, usd_h: float) -> dict[str, Any]:
    """The body of a launch. Raises `Invalid` for a name that no instance can have."""
    if not NAMES.fullmatch(request.name):
        remedy = "use up to 63 lower-case letters, digits and '-', a letter first"
        raise Invalid(f"{request.name!r} cannot name an instance", field="name", remedy=remedy)
    record = msgspec.json.encode(
        InstanceRecord(request.federation, request.offer.name, usd_h, request.tags)
    ).decode()
    if len(record) > LONGEST_RECORD:
        raise Invalid(f"come to over {LONGEST_RECORD} characters", field="tags", remedy="shorten them")
    machine_type, _, attached = request.offer.instance_type.partition("+")
    disk = {"sourceImage": settings.image, "diskSizeGb": str(-(-settings.disk_mib // 1024))}
    disk["diskType"] = f"zones/{zone}/diskTypes/{settings.disk_type}"
    network: dict[str, Any] = (
        {"subnetwork": settings.subnetwork} if settings.subnetwork else {"network": settings.network}
    )
    if settings.public_ip:
        network["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    scheduling: dict[str, Any] = {"onHostMaintenance": "TERMINATE", "automaticRestart": False}
    if request.offer.market is Market.SPOT:
        scheduling |= {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    script = boot_script(request.user_data, settings.boot, "gce")
    body: dict[str, Any] = {
        "name": request.name,
        "description": record,
        "labels": {LABEL: _label(request.federation)},
        "machineType": f"zones/{zone}/machineTypes/{machine_type}",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
        "networkInterfaces": [network],
        "scheduling": scheduling,
        "metadata": {"items": [{"key": "startup-script", "value": script}]},
    }
    if attached:
        count, _, kind = attached.partition("x")
        accelerator = f"zones/{zone}/acceleratorTypes/{kind}"
        body["guestAccelerators"] = [{"acceleratorType": accelerator, "acceleratorCount": int(count)}]
    if settings.network_tags:
        body["tags"] = {"items": list(settings.network_tags)}
    if settings.service_account:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        body["serviceAccounts"] = [{"email": settings.service_account, "scopes": scopes}]
    return body


def _label(federation: str) -> str:
    """The name itself where a label can hold it, for people; what counts is in the record."""
    if _LABEL_VALUES.fullmatch(federation):
        return federation
    return hashlib.sha256(federation.encode()).hexdigest()[:32]


def record_of(machine: Any) -> InstanceRecord | None:
    """What its description says; None, with a warning, where somebody has changed that."""
    try:
        return read(machine.get("description", ""), InstanceRecord)
    except msgspec.MsgspecError:
        log.warning("instance %s has the label %s and no description of ours", machine["name"], LABEL)
        return None


def zone_of(machine: Any) -> str:
    """The last part of its zone's address."""
    return str(machine["zone"]).rpartition("/")[2]


def launched_at(machine: Any) -> float:
    """When it was made."""
    return parse_instant(machine["creationTimestamp"])


def alive(machine: Any) -> bool:
    """Whether it still costs, or may: one that has stopped by itself waits to be deleted."""
    return bool(machine["status"] != "TERMINATED")


def oldest(machines: Iterable[Any]) -> dict[str, Any]:
    """One machine per name: the first that was launched."""
    found: dict[str, Any] = {}
    for machine in sorted(machines, key=lambda each: (launched_at(each), zone_of(each))):
        found.setdefault(machine["name"], machine)
    return found


def instance(
    machine: Any,
    now: float,
    reclaim_at: float | None = None,
    ended_at: float | None = None,
    *,
    no_capacity: str = "",
) -> Instance:
    """In our words. `reclaim_at`: of a notice that was seen. `ended_at`: of a machine that is gone. `no_capacity`: why it never ran; then it cost nothing."""
    record, begun_at = read(machine["description"], InstanceRecord), launched_at(machine)
    if ended_at is None and not alive(machine):
        stopped = machine.get("lastStopTimestamp")
        ended_at = parse_instant(stopped) if stopped else now
    over_at = None if ended_at is None else max(begun_at, ended_at)
    if over_at is not None:
        status = InstanceStatus.ENDED
    elif reclaim_at is not None:
        status = InstanceStatus.INTERRUPTING
    else:
        booting = machine["status"] in ("PROVISIONING", "STAGING")
        status = InstanceStatus.BOOTING if booting else InstanceStatus.RUNNING
    bill_usd = metered_usd(record.usd_h, MINIMUM_BILLING_S, begun_at, now if over_at is None else over_at)
    return Instance(
        name=machine["name"],
        offer=record.offer,
        status=status,
        launched_at=begun_at,
        ended_at=over_at,
        tags=record.tags | {"federation": record.federation},
        billed_usd=0.0 if no_capacity else bill_usd,
        reclaim_at=reclaim_at,
        no_capacity=no_capacity,
        zone=zone_of(machine),
    )
