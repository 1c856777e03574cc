"""`link` of a site file: how much of a thin or metered link the agent may use, and when."""

from functools import partial
from typing import Annotated

import msgspec

from federator.wire import fields
from federator.wire.every import Zone
from federator.wire.inputs import Uri
from federator_agent.core.lent_capacity import Hours
from federator_agent.lent import WrittenHours, in_zone

MAX_MIB = 2**30
LEAST_BYTES_S = 4096
"""The dispatcher ends a request whose body comes much more slowly."""
LEAST_BUDGET_BYTES = 2**20
Rate = Annotated[
    int, fields.size("64KiB", high_mib=MAX_MIB, read=partial(fields.size_bytes, low_bytes=LEAST_BYTES_S))
]
Budget = Annotated[
    int, fields.size("20MiB", high_mib=MAX_MIB, read=partial(fields.size_bytes, low_bytes=LEAST_BUDGET_BYTES))
]


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work directories, inputs, checkpoints and outputs, on their way from or to the dispatcher, `s3` or `http(s)`."""

    rate: Rate | None = None
    """Most bytes in a second, all of them together; at least 4 KiB. Left out: what the link gives."""
    hours: WrittenHours = ()
    """When those of more than 256 KiB move, written as those of [`lend`](#lend), by the clock of `timezone`: jobs begin and end when theirs have. Left out: always."""
    timezone: Zone = "UTC"
    """Time zone of `hours`. Left out: UTC."""
    on_site: tuple[Uri, ...] = ()
    """Addresses that lie at the site itself, such as `[s3://scratch]`: these and all below them are neither held nor counted."""


class LinkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of the site's link to the outside is used. Left out: as much as there is to say."""

    budget: Budget | None = None
    """Most bytes of reports and logs in an hour, half for each; at least 1 MiB. Logs wait for theirs, and of one that is longer than an eighth of the budget the middle is left out."""
    bulk: Bulk = Bulk()

    @property
    def bulk_hours(self) -> tuple[Hours, ...]:
        """When large ones move; empty: always."""
        return in_zone(self.bulk.hours, self.bulk.timezone)
