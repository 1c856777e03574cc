"""What parent and child say to each other: frames with a length before them, msgpack inside.

Four bytes of length, then the message. A frame over the limit, or one that does not decode, ends the conversation: the parent kills the
child, the child exits.
"""

import msgspec

LEAD = "lead"
"""The stage that follows a plan of the whole line, where there is one."""
STAGES = ("greedy", LEAD, "lp")
"""The stages of deciding, in order; greedy always runs."""
HEADER_BYTES = 4
MAX_FRAME_BYTES = 256 * 2**20


class Ask(msgspec.Struct, frozen=True):
    """Decide this problem. `problem` is an encoded `Problem`."""

    number: int
    problem: bytes
    seed: int
    stages: tuple[str, ...]
    counts: tuple[int, ...] = ()
    """Not a decision is asked for, but an outlook: the problem's jobs stand for so many each."""
    certify: bytes = b""
    """Not a decision is asked for, but how good this one is: an encoded `Plan` of the problem."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to `number`: an encoded `Plan` (or `Outlook`, or `Proof`; empty: there is none), or what went wrong. Number 0 says that the child is ready."""

    number: int
    plan: bytes = b""
    error: str = ""


READY = Reply(number=0)


def pack(message: Ask | Reply) -> bytes:
    """A message with its length before it. Raises ValueError when it is over the limit."""
    body = msgspec.msgpack.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_length(header: bytes) -> int:
    """The length in a header. Raises ValueError when it is over the limit."""
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")
    return length
