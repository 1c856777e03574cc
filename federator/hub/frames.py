"""What goes over a connection, decoded and believed; and how a session ends when it cannot be.

Every refusal says whether it is of use to come back: permanent errors need a person, unless they are our own, and all others pass.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from federator import __version__
from federator.hub.outside import DirectPipe, Pipe
from federator.kernel.errors import Damaged, FederatorError, Invalid, Permanent, Transient
from federator.wire import link

SEND_S = 15.0
AGAIN_AFTER_INVALID_S = 60.0
"""An agent that says what cannot be true may come back: it is repaired, or brought up to date."""

M = TypeVar("M", link.Hello, link.Proof)
S = TypeVar("S")


class Ended(Exception):
    """The session ends; the agent is sent `refusal` if there is one."""

    def __init__(self, cause: str, detail: str = "", *, retry_after_s: float | None = None) -> None:
        self.cause = cause
        self.refusal = link.Refusal(cause, detail, retry_after_s) if detail else None
        super().__init__(cause)


class Goodbye(Ended):
    """The agent has ended the connection because it stops: it is not to be expected back before somebody starts it."""

    def __init__(self) -> None:
        super().__init__("goodbye")


async def expect(pipe: Pipe, kind: type[M]) -> M:
    """The next message, which has to be of this kind. Raises `Ended`."""
    text = await pipe.receive()
    if text is None:
        raise Ended("disconnected")
    message = decode(text)
    if not isinstance(message, kind):
        raise invalid(f"expected {kind.__name__}, got {type(message).__name__}")
    return message


def believe(check: Callable[[S], None], said: S) -> None:
    """End the session of whoever says what cannot be true."""
    try:
        check(said)
    except Invalid as error:
        raise invalid(error.describe()) from None


def decode(text: str | link.Up) -> link.Up:
    """What an agent said. Raises `Ended`."""
    if not isinstance(text, str):
        return text
    try:
        return link.decode_up(text)
    except msgspec.MsgspecError as error:
        remedy = f"where the agent is newer than this dispatcher ({__version__}), upgrade the dispatcher"
        raise invalid(f"{error}; {remedy}") from None


def invalid(detail: str) -> Ended:
    """The end of a session in which something was said that has no place there."""
    return Ended("invalid", detail, retry_after_s=AGAIN_AFTER_INVALID_S)


async def send(pipe: Pipe, message: link.Down) -> None:
    """Send a message. Raises TimeoutError where it is not taken, and ConnectionError."""
    if isinstance(pipe, DirectPipe):
        pipe.deliver(message)
        return
    # Not asyncio.wait_for: before Python 3.12 it may swallow the cancellation that ends a session.
    async with asyncio.timeout(SEND_S):
        await pipe.send(link.encode(message).decode())


def ended_by(error: FederatorError) -> Ended:
    """How an error of ours, or one that the agent made, ends its session."""
    if isinstance(error, Damaged):
        return Ended(error.code, "the dispatcher's store is damaged", retry_after_s=60.0)
    if isinstance(error, Permanent):
        return Ended(error.code, error.describe())
    retry_after_s = error.retry_after_s if isinstance(error, Transient) else 1.0
    return Ended(error.code, error.describe(), retry_after_s=retry_after_s)
