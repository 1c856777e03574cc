"""Signing in with OpenID Connect, signing out, and who one is."""

import os
import webbrowser
from typing import Annotated

from cyclopts import Parameter

from federator.cli.output import Output, say, show_data
from federator.cli.phrases import when
from federator.cli.rights import rights_in_words
from federator.cli.session import HERE, Connection, ask
from federator.client.credentials import SignIns
from federator.client.settings import read_settings
from federator.kernel.errors import FederatorError, Invalid
from federator.kernel.route import is_loopback

WAIT_S = 300.0
"""Seconds for which the browser is waited for."""


def login(
    server: Annotated[str, Parameter(name="SERVER")] = "",
    /,
    *,
    device: bool = False,
    browser: bool = True,
    port: int = 0,
    ca: str = "",
) -> None:
    """Sign in at a dispatcher with OpenID Connect; later commands ask this dispatcher where none is named.

    Parameters
    ----------
    server:
        Address of the dispatcher; else as for every command.
    device:
        Show a code to type in a browser on another machine; for hosts without one.
    browser:
        Open a browser here; the address is printed in any case.
    port:
        Port of this machine that the browser comes back to, where the provider wants a fixed one; 0: any.
    ca:
        PEM file of the authority behind the dispatcher's certificate.
    """
    import asyncio

    asyncio.run(_login(server, device=device, browser=browser, port=port, ca=ca))


async def _login(named: str, *, device: bool, browser: bool, port: int, ca: str) -> None:
    import aiohttp

    from federator.client import AsyncClient
    from federator.client.sign_in import Provider, credential

    settings = read_settings(named or None, ca=ca or None)
    _check_safe(settings.server)
    async with AsyncClient(settings.server, None, ca=settings.ca, proxy=settings.proxy) as client:
        way = await client.sign_in_way()
    async with aiohttp.ClientSession() as session:
        provider = Provider(way, session, os.environ)
        say(f"signing in at {way.issuer}")
        if device:
            tokens = await provider.by_device(
                lambda page, code: print(f"open {page}\ncode {code}", flush=True)
            )
        else:
            tokens = await provider.by_browser(
                lambda page: _show(page, browser=browser), port=port, wait_s=WAIT_S
            )
    made = credential(settings.server, settings.ca, way, tokens)
    # Before it is kept, the dispatcher is asked: who has no role there should hear of it now.
    async with AsyncClient(settings.server, made.token, ca=settings.ca, proxy=settings.proxy) as client:
        who = await client.whoami()
    SignIns(os.environ).keep(made, current=True)
    print(f"signed in at {settings.server} as {who.name}, {who.role}")
    if not made.refresh_token:
        say("the provider gave no refresh token: sign in again when this sign-in expires")
    if settings.token_source:
        say(
            f"a token in {settings.token_source} is used instead of this sign-in; remove it to use the sign-in"
        )


def logout(server: Annotated[str, Parameter(name="SERVER")] = "", /) -> None:
    """Sign out: the provider revokes the sign-in, and it is removed from this machine.

    Parameters
    ----------
    server:
        Address of the dispatcher; else as for every command.
    """
    settings = read_settings(server or None)
    kept = SignIns(os.environ)
    held = kept.find(settings.server)
    if held is None:
        print(f"you are not signed in at {settings.server}")
        return
    kept.forget(settings.server)

    async def revoke() -> None:
        import aiohttp

        from federator.client.sign_in import Provider

        async with aiohttp.ClientSession() as session:
            await Provider(held.way, session, os.environ).revoke(held.refresh_token)

    if held.refresh_token:
        import asyncio

        try:
            asyncio.run(revoke())
        except FederatorError as error:
            say(f"the provider could not be told: {error.message}")
    print(f"signed out at {settings.server}")


def whoami(*, output: Output = "table", connection: Connection = HERE) -> None:
    """Show who you are to the dispatcher: name, role, groups, teams, queues, and until when."""
    who, now = ask(connection, lambda client: client.whoami())
    if output in ("json", "yaml"):
        show_data(who, output)
        return
    facts = {
        "name": who.name,
        "role": who.role + (f" of {', '.join(who.sites or (who.site,))}" if who.site else ""),
        "queue": who.default_queue,
        "groups": ", ".join(who.groups),
        "teams": ", ".join(who.teams),
        "scopes": ", ".join(who.scopes),
        "by": who.signed_in_by,
        "expires": when(who.expires_at, now) if who.expires_at else "",
    }
    for name, fact in facts.items():
        if fact:
            print(f"{name:<8} {fact}")
    if who.open:
        print("queues   all: no policy limits who may submit")
    for number, rights in enumerate(who.queues if not who.open else ()):
        print(f"{'queues' if number == 0 else '':<8} {rights.queue}: {rights_in_words(rights)}")
    if not (who.open or who.queues):
        print("queues   none")


def _show(page: str, *, browser: bool) -> None:
    print(f"open {page}", flush=True)
    if browser:
        webbrowser.open(page)


def _check_safe(server: str) -> None:
    """A sign-in is worth more than one job: it does not go over the network as it is."""
    for each in server.split(","):
        host = each.partition("://")[2].partition("/")[0]
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if each.startswith("http://") and not is_loopback(name):
            raise Invalid(
                f"{each} is plain HTTP: the sign-in could be read on the way", remedy="write https://"
            )
