"""Signing in: where, and as whom; and the teams that people are in."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from federator.api.exchange import Call
from federator.assembly import Core
from federator.control.queries.rows import rights_row, team_rows
from federator.kernel.errors import NotFound
from federator.model.identity import Caller
from federator.wire.administration import MyAddress, MyNotifications
from federator.wire.rights import TeamRow
from federator.wire.sign_in import SignInWay, WhoAmI


async def sign_in(call: Call) -> SignInWay:
    """Where people sign in, for a command that knows this address alone."""
    oidc = call.core.settings.oidc
    if oidc is None:
        raise NotFound(
            "sign-in with OpenID Connect is not set up here",
            remedy="ask an admin for a token: federator token create",
        )
    return SignInWay(
        issuer=oidc.issuer,
        client_id=oidc.client_id,
        scopes=oidc.scopes,
        parameters=oidc.parameters,
        client_secret=oidc.client_secret,
        bearer="access_token" if oidc.audience not in ("", oidc.client_id) else "id_token",
        ca=await asyncio.to_thread(Path(oidc.ca).read_text) if oidc.ca else "",
    )


async def whoami(call: Call) -> WhoAmI:
    """Who the credential is taken for, and until when."""
    return who_is(call.core, call.caller)


def who_is(core: Core, caller: Caller) -> WhoAmI:
    """What somebody is told of themselves."""
    authority = core.authority.now
    return WhoAmI(
        name=caller.name,
        role=caller.role,
        site=next(iter(caller.sites), ""),
        sites=caller.sites,
        default_queue=caller.default_queue,
        groups=caller.groups,
        scopes=caller.scopes,
        signed_in_by=caller.signed_in_by,
        expires_at=caller.expires_at,
        teams=authority.teams_of(caller),
        open=not authority.closed,
        queues=tuple(rights_row(authority, caller, queue) for queue in authority.usable(caller)),
    )


async def notifications(call: Call) -> MyNotifications:
    """How whoever asks is told of their own jobs."""
    core, settings, name = call.core, call.core.settings.notifications, call.caller.name
    own = core.notifications.addresses.of(name)
    return MyNotifications(
        reachable=core.notifications.reachable(name),
        own=MyAddress() if own is None else MyAddress(own.mail, _host_of(own.webhook), own.format),
        mail_domains=settings.own_mail_domains if settings.smtp is not None else (),
        webhook_hosts=settings.own_webhook_hosts,
    )


async def set_notifications(call: Call) -> MyNotifications:
    """Say where to be told of one's own jobs."""
    await call.core.notifications.addresses.put(call.caller, await call.body(MyAddress))
    return await notifications(call)


def _host_of(url: str) -> str:
    """Of a webhook no more is shown."""
    return f"https://{urlsplit(url).hostname}/…" if url else ""


async def teams(call: Call) -> list[TeamRow]:
    """Which teams there are, who is in them, and what they may do."""
    return team_rows(call.core.authority.now, call.caller)
