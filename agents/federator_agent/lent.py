"""`lend` of a site file: what of a site the federation may use, when, and for whom."""

import re
from collections.abc import Collection
from typing import Annotated

import msgspec

from federator.kernel.errors import Invalid
from federator.wire import fields
from federator.wire.every import Zone
from federator.wire.nearest import nearest
from federator_agent.core.lent_capacity import Hours, Lending, unparted
from federator_agent.whose import Names

_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]|24):([0-5]\d)")


def _hours(value: object, path: str) -> tuple[int, int]:
    """From and to, in minutes of the day."""
    match = _HOURS.fullmatch(fields.text(value, path, limit=100).strip())
    if match is None:
        remedy = "write 'from-to' by the clock, for example 18:00-08:00"
        raise Invalid("is not a window of hours", field=path, remedy=remedy)
    start_h, start_m, end_h, end_m = (int(part) for part in match.groups())
    return start_h * 60 + start_m, end_h * 60 + end_m


WrittenHours = Annotated[tuple[int, int], fields.written(_hours, "18:00-08:00", pattern=_HOURS.pattern)]
"""From and to, in minutes of the day."""


class Lend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of the site the federation may use. Left out: everything."""

    gpus: dict[fields.Name, Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]] = {}
    """Most GPUs lent, by pool, such as `{a100: 6}`. Left out: all; of MIG instances, those of GPUs that the limit of their pool leaves when the whole ones are lent."""
    pools: Annotated[tuple[fields.Name, ...], fields.alone()] = ()
    """Pools that are lent at all. Left out: all."""
    hours: WrittenHours | None = None
    """When new work may start, by the clock of `timezone`. Left out: always."""
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
    hours = None if lend.hours is None else Hours(*lend.hours, lend.timezone)
    return Lending(gpus=lend.gpus, pools=lend.pools, hours=hours, queues=lend.queues)
