"""Series: what is submitted again and again. One is named by its name: the caller's own first, or that of the owner who is named."""

import msgspec

from federator.api.exchange import Call
from federator.model.series import Series
from federator.wire.http import SeriesDetail, SeriesRow


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which series to list."""

    mine: bool = False
    ended: bool = False
    """Also those that have ended."""


class WhoseQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose series is meant, where several people have one of that name."""

    owner: str = ""


async def list_series(call: Call) -> list[SeriesRow]:
    """Series, by name."""
    query = call.query(ListQuery)
    return call.core.series.rows(call.caller, mine=query.mine, ended=query.ended)


async def show(call: Call) -> SeriesDetail:
    """When its runs are due, and what became of those that were."""
    return call.core.series.detail(call.caller, _named(call))


async def pause(call: Call) -> SeriesDetail:
    """Submit no runs for now; one that is there goes on."""
    return await call.core.series.pause(call.caller, _named(call))


async def resume(call: Call) -> SeriesDetail:
    """Submit runs again, from the next that is due."""
    return await call.core.series.resume(call.caller, _named(call))


async def end(call: Call) -> SeriesDetail:
    """No more runs; one that is there goes on."""
    return await call.core.series.end(call.caller, _named(call))


def _named(call: Call) -> Series:
    return call.core.series.find(call.caller, call.path("name"), call.query(WhoseQuery).owner)
