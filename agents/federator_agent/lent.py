"""`lend` of a site file: what of a site the federation may use, when, and for whom."""

import re
from collections.abc import Collection
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.every import Zone
from federator.wire.nearest import nearest
from federator_agent.core.lent_capacity import DAYS, Hours, Lending, unparted
from federator_agent.whose import Names

_HOURS = re.compile(
    r"(?:(mon|tue|wed|thu|fri|sat|sun)(?:-(mon|tue|wed|thu|fri|sat|sun))?\s+)?([01]?\d|2[0-3]):([0-5]\d)\s*-\s*(?:([01]?\d|2[0-3]):([0-5]\d)|24:00)"
)


def _hours(value: object, path: str) -> Hours:
    """A window, in UTC as long as nobody has said otherwise. Raises `Invalid`."""
    match = _HOURS.fullmatch(fields.text(value, path, limit=100).strip())
    if match is None:
        remedy = "write 'from-to' by the clock, for example 18:00-08:00, or sat-sun 00:00-24:00"
        raise Invalid("is not a window of hours", field=path, remedy=remedy)
    first, last, start_h, start_m, end_h, end_m = match.groups()
    start, end = int(start_h) * 60 + int(start_m), int(end_h or 24) * 60 + int(end_m or 0)
    if start == end:
        remedy = "write 00:00-24:00 for the whole day"
        raise Invalid("ends when it begins", field=path, remedy=remedy)
    if first is None:
        return Hours(start, end)
    from_day = DAYS.index(first)
    count = (DAYS.index(last or first) - from_day) % 7 + 1
    return Hours(start, end, days=tuple((from_day + more) % 7 for more in range(count)))


WrittenHours = Annotated[
    tuple[Annotated[Hours, fields.written(_hours, "18:00-08:00", pattern=_HOURS.pattern)], ...],
    fields.alone(),
]


def in_zone(hours: tuple[Hours, ...], timezone: str) -> tuple[Hours, ...]:
    """Windows as they were written, by the clock of a time zone."""
    return tuple(msgspec.structs.replace(each, timezone=timezone) for each in hours)


class Lend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of the site the federation may use. Left out: everything."""

    gpus: dict[fields.Name, Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]] = {}
    """Most GPUs lent, by pool, such as `{a100: 6}`. Left out: all; of MIG instances, those of GPUs that the limit of their pool leaves when the whole ones are lent."""
    pools: Annotated[tuple[fields.Name, ...], fields.alone()] = ()
    """Pools that are lent at all. Left out: all."""
    hours: WrittenHours = ()
    """When new work may start, by the clock of `timezone`: one window, or a list such as `[mon-fri 18:00-08:00, sat-sun 00:00-24:00]`. One that runs into the next day begins on the days that it names. Left out: always."""
    timezone: Zone = "UTC"
    """Time zone of `hours`. Left out: UTC."""
    queues: Names = ()
    """[Whose work](#whose-work) is taken. Left out: all."""


def lending_of(lend: Lend, pools: Collection[str] | None) -> Lending:
    """`lend` as it is kept to. `pools`: the names that there are; None: the cluster knows. Raises `Invalid` for another one."""
    named = [(name, f"gpus.{name}") for name in lend.gpus]
    named += [(name, f"pools[{number}]") for number, name in enumerate(lend.pools)]
    for name, where in named:
        if pools is not None and name not in pools and unparted(name) not in pools:
            near = nearest(name, pools)
            remedy = f"{f'did you mean {near}? ' if near else ''}there are {', '.join(pools)}"
            raise Invalid(f"there is no pool {name!r}", field=f"$.lend.{where}", remedy=remedy)
    hours = in_zone(lend.hours, lend.timezone)
    return Lending(gpus=lend.gpus, pools=lend.pools, hours=hours, queues=lend.queues)
