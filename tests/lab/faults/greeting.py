"""How an agent introduces itself."""

import asyncio
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator import __version__
from federator.kernel.errors import Unavailable
from federator.wire import link
from tests.lab.faults.network import Connection


def key_of(member: str) -> Ed25519PrivateKey:
    """Its key: made from its name."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(member.encode()).digest())


async def greet(
    connection: Connection, heard: "asyncio.Queue[str | None]", hello: link.Hello
) -> link.Welcome | link.Refusal:
    """Say who calls, and prove it. Raises `Unavailable` where the connection ends meanwhile."""
    connection.up.say(link.encode(hello).decode())
    challenge = await _next(heard)
    if not isinstance(challenge, link.Challenge):
        return _as_refusal(challenge)
    signature = key_of(hello.member).sign(link.challenge_bytes(challenge, hello.member)).hex()
    connection.up.say(link.encode(link.Proof(signature)).decode())
    welcome = await _next(heard)
    return welcome if isinstance(welcome, link.Welcome) else _as_refusal(welcome)


def hello_of(member: str, boot_id: str, runtime: str, instance: str, knows: tuple[str, ...]) -> link.Hello:
    """The first word."""
    return link.Hello(link.PROTOCOL, member, boot_id, __version__, runtime, instance, member, knows)


async def _next(heard: "asyncio.Queue[str | None]") -> link.Down:
    text = await heard.get()
    if text is None:
        raise Unavailable("the connection is gone")
    return link.decode_down(text)


def _as_refusal(message: link.Down) -> link.Refusal:
    """Out of order is as good as refused."""
    return (
        message
        if isinstance(message, link.Refusal)
        else link.Refusal("disorder", type(message).__name__, 1.0)
    )
