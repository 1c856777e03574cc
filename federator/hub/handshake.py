"""The handshake: who calls, whether it is true, and whether the seat is free.

**Not all at once.** After an outage every agent comes back. Those whose key is proven are let in a bounded number a second, so that people are
answered meanwhile; who would have to wait too long is told when to come again. A stranger takes nobody's turn: turns are given after the proof.

**One seat per identity.** A state directory that was copied, a machine that was cloned: two agents then have one key. An agent process never has two
sessions, so one that finds its seat taken by another process is a copy, or the seat's agent is dead. Whoever sits there is asked. If it answers it
stays, and the newcomer is turned away for long: what the seat's agent says of its work is true, and a copy would report work as lost that runs on.
If it does not, the newcomer takes the seat.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import NamedTuple

from federator.hub.frames import Ended, ended_by, expect, send
from federator.hub.outside import Doorkeeper, Pipe
from federator.hub.session import Session
from federator.kernel.errors import FederatorError
from federator.model.sites import Member
from federator.wire import link

SEATS_PER_S = 200.0
"""Sessions that may begin in a real second."""
LONGEST_QUEUE_S = 5.0
"""Real seconds for which an agent waits for its turn; after that it is asked to come again."""
ANSWERS_WITHIN_S = 8.0
"""Real seconds in which an agent that is alive acknowledges a desired set, or reports, should it not be told any just now."""


class Arrival(NamedTuple):
    """Who has proven to be there."""

    member: Member
    hello: link.Hello
    proven: Callable[[], Member]
    """Look again: whom that proof shows now. Raises `Ended`."""


class Turns:
    """Hands out turns, at most `SEATS_PER_S`."""

    def __init__(self) -> None:
        self._next_s = 0.0

    async def take(self) -> None:
        """Wait for a turn. Raises `Ended` when too many wait already."""
        now_s = asyncio.get_running_loop().time()
        at_s = max(now_s, self._next_s)
        if at_s - now_s > LONGEST_QUEUE_S:
            raise Ended("busy", "many agents come back at once", retry_after_s=LONGEST_QUEUE_S)
        self._next_s = at_s + 1 / SEATS_PER_S
        if at_s > now_s:
            await asyncio.sleep(at_s - now_s)


async def shake_hands(pipe: Pipe, doorkeeper: Doorkeeper, incarnation: str) -> Arrival:
    """Hear who calls, and have it proven. Raises `Ended`."""
    hello = await expect(pipe, link.Hello)
    if hello.protocol != link.PROTOCOL:
        raise Ended("protocol", f"this dispatcher speaks protocol {link.PROTOCOL}, not {hello.protocol}")
    challenge = link.Challenge(secrets.token_hex(32), incarnation)
    await send(pipe, challenge)
    proof = await expect(pipe, link.Proof)

    def proven() -> Member:
        try:
            return doorkeeper.verify_session(hello.member, challenge, proof.signature)
        except FederatorError as error:
            raise ended_by(error) from error

    return Arrival(proven(), hello, proven)


async def contest(incumbent: Session, hello: link.Hello, doorkeeper: Doorkeeper) -> None:
    """Let the one who sits there keep the seat if it is alive: raises `Ended` for the newcomer then.

    Two live agents with one key may be a copy of a disk, or a stolen key. Nothing new starts there until an admin has looked.
    """
    if not _is_another(incumbent.hello, hello) or not await incumbent.answers(ANSWERS_WITHIN_S):
        return
    seated, turned_away = _place(incumbent.hello), _place(hello)
    await doorkeeper.contested(
        incumbent.member,
        f"two agents have the identity {incumbent.member}: {seated} holds the session, {turned_away} was turned away; "
        "stop one of them, or revoke the key if it was stolen",
    )
    raise Ended(
        "duplicate",
        f"another agent with the identity {incumbent.member} is at work, {seated}: this one ({turned_away}) is a copy, or that one is. "
        "Stop one of the two; the one that is to be a member of its own needs an empty state_dir and a join token",
    )


def _is_another(seated: link.Hello, newcomer: link.Hello) -> bool:
    """Whether it is another process. Agents that do not name theirs are told apart by their hosts' boots alone: every job on a host can read its boot."""
    if seated.instance or newcomer.instance:
        return seated.instance != newcomer.instance
    return seated.boot_id != newcomer.boot_id


def _place(hello: link.Hello) -> str:
    return f"on {hello.host}" if hello.host else f"in boot {hello.boot_id}"
