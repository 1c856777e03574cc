"""Machines as EC2 describes them, and what they say about ours: name, offer, price, status, end.

All that must outlive the dispatcher stands in a machine's tags. Times are EC2's own, which are UTC.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from federator.kernel.errors import Invalid
from federator.model.capacity import Instance, InstanceStatus, LaunchRequest
from federator_providers.billing import metered_usd

NAME, FEDERATION, OFFER, USD_H = (f"federator:{key}" for key in ("name", "federation", "offer", "usd-h"))
MINIMUM_BILLING_S = 60.0
NOTICE_S = 120.0
"""From the notice of an interruption until the machine is taken."""
NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
"""With the zone they are a client token, of which EC2 takes 64 characters."""
_ENDED = "terminated"
_TAKEN_BACK = "Server.SpotInstanceTermination"
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def tags(request: LaunchRequest, usd_h: float) -> list[dict[str, str]]:
    """As they go into a launch. Raises `Invalid` for a name that cannot be a token."""
    if not NAMES.fullmatch(request.name):
        raise Invalid(
            f"{request.name!r} cannot name an instance",
            field="name",
            remedy="use up to 48 letters, digits, '.', '_', '-'",
        )
    own = {
        NAME: request.name,
        FEDERATION: request.federation,
        OFFER: request.offer.name,
        USD_H: repr(usd_h),
    }
    return [
        {"Key": key, "Value": value} for key, value in ({"Name": request.name} | request.tags | own).items()
    ]


def tagged(machine: Any, key: str) -> str:
    """The value of one of its tags; empty without."""
    return next((str(tag["Value"]) for tag in machine.get("Tags", ()) if tag["Key"] == key), "")


def alive(machine: Any) -> bool:
    """Whether it still costs, or may."""
    return bool(machine["State"]["Name"] != _ENDED)


def oldest(machines: Iterable[Any]) -> dict[str, Any]:
    """One machine per name: the first that was launched."""
    found: dict[str, Any] = {}
    for machine in sorted(machines, key=lambda each: (each["LaunchTime"], each["InstanceId"])):
        found.setdefault(tagged(machine, NAME), machine)
    return found


def ended_at(machine: Any) -> float | None:
    """When EC2 says that it ended; None where it says nothing."""
    match = _WHEN.search(machine.get("StateTransitionReason") or "")
    if match is None:
        return None
    return datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def instance(machine: Any, now: float, reclaim_at: float | None) -> Instance:
    """In our words. `reclaim_at`: of a notice that was seen. An end of unknown time counts as now."""
    launched_at = machine["LaunchTime"].timestamp()
    over_at = None
    if not alive(machine):
        over_at = max(launched_at, ended_at(machine) or now)
        if reclaim_at is None and machine.get("StateReason", {}).get("Code") == _TAKEN_BACK:
            reclaim_at = over_at
    own = {tag["Key"]: tag["Value"] for tag in machine.get("Tags", ())}
    return Instance(
        name=own[NAME],
        offer=own[OFFER],
        status=_status(machine, reclaim_at),
        launched_at=launched_at,
        ended_at=over_at,
        tags={key: value for key, value in own.items() if key != "Name" and not key.startswith("federator:")}
        | {"federation": own[FEDERATION]},
        billed_usd=metered_usd(
            float(own[USD_H]), MINIMUM_BILLING_S, launched_at, now if over_at is None else over_at
        ),
        reclaim_at=reclaim_at,
        zone=machine["Placement"]["AvailabilityZone"],
    )


def _status(machine: Any, reclaim_at: float | None) -> InstanceStatus:
    state = machine["State"]["Name"]
    if state == _ENDED:
        return InstanceStatus.ENDED
    if reclaim_at is not None:
        return InstanceStatus.INTERRUPTING
    return InstanceStatus.BOOTING if state == "pending" else InstanceStatus.RUNNING
