"""A tunnel into a running job: what opens one, and the frames that go through it.

A person's client opens a WebSocket at the dispatcher and says as its first frame, JSON text, what the tunnel is for. The dispatcher tells the job's agent
(`federator.wire.link.Dial`), which dials out a WebSocket for this one tunnel, and the two are coupled: frames pass as they are. They are those of
Kubernetes' remote commands, so that an agent in a cluster passes on the API server's own: binary, the first byte is the channel.

The job's side ends a tunnel with a frame of the channel `END`; a tunnel that closes without one was lost.
"""

from typing import Annotated

import msgspec

from federator.kernel.errors import Conflict, FederatorError, Unavailable
from federator.wire.jsontext import Reader

STDIN, STDOUT, STDERR, END, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
"""Channels. What follows the byte: of the first three, bytes of the stream; of `END`, an `End` as JSON; of `RESIZE`, a `Size` as JSON; of `CLOSE`, the number of the channel that ends."""
STDIN_ENDS = bytes((CLOSE, STDIN))
"""No more comes on standard input."""
DATA_BYTES = 2**15
"""Most bytes of a stream in one frame that we send."""
MAX_FRAME_BYTES = 2**16
"""A longer frame ends its tunnel."""
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")
"""What is run where no command is named."""
MAX_WORDS = 1000
MAX_ERROR_LETTERS = 500
PING_S = 20.0
"""Real seconds between the dispatcher's pings, to both sides, and between the pongs of an agent, which notices by them that its connection is gone."""
SILENT_S = 75.0
"""A side that has not heard so much as a ping for this long takes the tunnel for lost."""
PATH = "/agent/v1/tunnels"
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Word = Annotated[str, msgspec.Meta(pattern="^[^\\x00]*$")]
"""No program can be given a NUL."""
Cells = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class Size(msgspec.Struct, frozen=True, rename={"width": "Width", "height": "Height"}):
    """Of a terminal, in letters, spelt as Kubernetes has it."""

    width: Cells = 80
    height: Cells = 24


class Exec(msgspec.Struct, frozen=True, tag="exec", forbid_unknown_fields=True, omit_defaults=True):
    """Run a command beside that of the job: as its user, in its folder, with its environment, within its limits."""

    command: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1, max_length=MAX_WORDS)]
    tty: bool = False
    """In a terminal: standard error comes with standard output then."""
    term: Annotated[str, msgspec.Meta(max_length=50, pattern="^[A-Za-z0-9._+-]*$")] = ""
    """What kind of terminal it is, for the variable TERM."""
    size: Size = Size()
    keep: bool = False
    """With a terminal: it goes on without a tunnel, until `Attach` opens another."""


class Attach(msgspec.Struct, frozen=True, tag="attach", forbid_unknown_fields=True):
    """The terminal that a command in the rank was given to keep; who had it before is cut off."""

    size: Size = Size()


class Forward(msgspec.Struct, frozen=True, tag="forward", forbid_unknown_fields=True):
    """One TCP connection to a port of the node, on its loopback address."""

    port: Port


Request = Exec | Forward | Attach


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a tunnel ended: by the command's exit code, or because of an error."""

    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    error: str = ""
    lost: bool = False
    """The tunnel broke, or could not be made just now: trying again may help."""

    def fault(self) -> FederatorError:
        """The error that it tells of."""
        said = self.error or "it ended without an exit code"
        return Unavailable(said) if self.lost else Conflict(said)


_request: Reader[Request] = Reader(Request)
_end: Reader[End] = Reader(End)
_size: Reader[Size] = Reader(Size)
_encode = msgspec.json.Encoder().encode


def request_text(request: Request) -> str:
    """The first frame of a client."""
    return _encode(request).decode()


def read_request(text: str) -> Request:
    """It, read. Raises `msgspec.DecodeError` with the path of the fault."""
    return _request.decode(text)


def end_frame(end: End) -> bytes:
    """The frame that ends a tunnel."""
    return bytes((END,)) + _encode(end)


def read_end(frame: bytes) -> End:
    """What such a frame says, an error of bounded length and without letters that would steer a terminal; of one that cannot be read, that it cannot."""
    try:
        end = _end.decode(frame[1:])
    except msgspec.DecodeError as error:
        return End(error=f"the end of the tunnel cannot be read: {_harmless(str(error))}")
    return msgspec.structs.replace(end, error=_harmless(end.error))


def _harmless(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text[:MAX_ERROR_LETTERS])
    return shown if len(text) <= MAX_ERROR_LETTERS else f"{shown[:-1]}…"


def resize_frame(size: Size) -> bytes:
    """The frame that tells of a terminal's new size."""
    return bytes((RESIZE,)) + _encode(size)


def read_resize(frame: bytes) -> Size | None:
    """What such a frame says; None for one that cannot be read."""
    try:
        return _size.decode(frame[1:])
    except msgspec.DecodeError:
        return None
