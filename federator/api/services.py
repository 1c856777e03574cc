"""Services: replicas that answer requests. One is named by its name: the caller's own first, or that of the owner who is named."""

from typing import Annotated

import msgspec

from federator.api.exchange import JSON, YAML, Call, require_type
from federator.api.jobs import read_sent
from federator.model.services import Service
from federator.wire.servicefile import read_service
from federator.wire.services import (
    GatewayReport,
    Routed,
    ServiceDetail,
    ServiceRow,
)


class ApplyQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a changed file takes the place of the former."""

    canary: Annotated[int, msgspec.Meta(ge=0, le=99)] = 0
    """Of a hundred requests so many go to the new revision, until it is promoted or rolled back; 0: it takes the place of the former."""


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which services to list."""

    mine: bool = False


class WhoseQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose service is meant, where several people have one of that name."""

    owner: str = ""


async def apply(call: Call) -> ServiceDetail:
    """Begin a service, or give it another file."""
    kind = require_type(call.request, JSON, *YAML)
    asked, _, _ = await read_sent(call, kind, read_service)
    return await call.core.services.apply(call.caller, asked, canary=call.query(ApplyQuery).canary)


async def list_services(call: Call) -> list[ServiceRow]:
    """Services, by name."""
    return call.core.services.rows(call.caller, mine=call.query(ListQuery).mine)


async def show(call: Call) -> ServiceDetail:
    """A service with its replicas."""
    return call.core.services.detail(call.caller, _named(call))


async def promote(call: Call) -> ServiceDetail:
    """Let its canary take the place of the former revision."""
    return await call.core.services.promote(call.caller, _named(call))


async def rollback(call: Call) -> ServiceDetail:
    """Return to the former revision."""
    return await call.core.services.rollback(call.caller, _named(call))


async def delete(call: Call) -> ServiceDetail:
    """End it."""
    return await call.core.services.delete(call.caller, _named(call))


async def exchange(call: Call) -> Routed:
    """What a gateway has seen, and where it sends requests."""
    return call.core.services.tell(call.caller, await call.body(GatewayReport))


def _named(call: Call) -> Service:
    return call.core.services.find(call.caller, call.path("name"), call.query(WhoseQuery).owner)
