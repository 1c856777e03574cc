"""`lend` of a site file: what of a site the federation may use, when, and for whom."""

import re
from collections.abc import Mapping
from zoneinfo import ZoneInfo

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator_agent import whose
from federator_agent.core.lending import Hours, Lending

LEND_KEYS = ("gpus", "pools", "hours", "timezone", "queues")
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]|24):([0-5]\d)")


def parse(lend: Mapping[str, object], pools: tuple[str, ...] | None) -> Lending:
    """`lend`, in words. `pools`: the names that there are; None: the cluster knows. Raises `Invalid` that names the field."""
    fields.known_only(lend, "$.lend", LEND_KEYS)

    def pool(name: object, path: str) -> str:
        return fields.name(name, path) if pools is None else fields.one_of(name, path, pools)

    limits = fields.mapping(lend.get("gpus", {}), "$.lend.gpus")
    for name in limits:
        pool(name, f"$.lend.gpus.{name}")
    return Lending(
        gpus={
            name: fields.whole(limit, f"$.lend.gpus.{name}", low=0, high=10_000_000)
            for name, limit in limits.items()
        },
        pools=fields.words(lend.get("pools", ()), "$.lend.pools", pool),
        hours=_hours(lend),
        queues=whose.names(lend.get("queues", ()), "$.lend.queues"),
    )


def _hours(lend: Mapping[str, object]) -> Hours | None:
    if "hours" not in lend:
        return None
    match = _HOURS.fullmatch(fields.text(lend["hours"], "$.lend.hours").strip())
    if match is None:
        remedy = "write 'from-to' by the clock, for example 18:00-08:00"
        raise Invalid("is not a window of hours", field="$.lend.hours", remedy=remedy)
    zone = fields.text(lend.get("timezone", "UTC"), "$.lend.timezone", limit=100)
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        remedy = "write for example Europe/Zurich; on a small system the package tzdata may be missing"
        raise Invalid(f"{zone!r} is not a time zone", field="$.lend.timezone", remedy=remedy) from None
    start_h, start_m, end_h, end_m = (int(part) for part in match.groups())
    return Hours(start_h * 60 + start_m, end_h * 60 + end_m, zone)
