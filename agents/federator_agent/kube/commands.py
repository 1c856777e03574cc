"""Commands in a pod's side container: the only way into a pod, and nothing but the API server is asked.

The scripts are arguments, not files of the image, so that any image with a shell, `tar` and `head` will do. Each first makes sure that it is in the very
pod that was meant, by its uid.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from federator.kernel.errors import FederatorError, TooLarge, Unavailable
from federator.kube.api import Api, decoded
from federator_agent.kube.manifests import SIDE

CHUNK_BYTES = 64 * 1024
SAID_BYTES = 64 * 2**20
"""So long may the names of a job's files be, in all."""
LINE_BYTES = 4096
"""And so long one line of what is read line by line, which are words of our own scripts."""
WRONG_POD, MAIN_OVER, UNBROUGHT = 97, 98, 99
# What is in `gate` is ours, and the job's container may only read it; what that has to say is in `job`. Pods of earlier agents have one folder for both.
_CHECK = (
    f'[ "$FEDERATOR_POD_UID" = "$1" ] || exit {WRONG_POD}; cd /federator; job=job; [ -d job ] || job=gate; '
)
# Argument 2: bytes of the archive of its work directory that comes in; 3: something, where data is brought besides; 4: bytes of the archive of what it reads of
# other jobs' outputs; 5: where its inputs are.
STAGE = (
    _CHECK
    + f"""
unbrought() {{
  cat gate/unbrought >&2
  exit {UNBROUGHT}
}}
"""
    + """
if [ ! -e gate/staged ]; then
  in=in.$$
  mkdir $in
  unpacked() {
    echo "want $1"
    head -c "$2" >$in/archive
    [ "$(wc -c <$in/archive)" -eq "$2" ] && mkdir "$in/$1" && tar -x -z -o -f $in/archive -C "$in/$1"
  }
  if [ "$2" -gt 0 ]; then
    unpacked work "$2" || exit 1
    chmod -R a+rwX $in/work
    [ -e gate/staged ] || { rm -rf work && mv $in/work work; } || exit 1
  fi
  if [ "$4" -gt 0 ]; then
    unpacked inputs "$4" || exit 1
  fi
  while [ -n "$3" ] && [ ! -e gate/brought ]; do
    [ ! -e gate/unbrought ] || unbrought
    sleep 0.1
  done
  if [ "$4" -gt 0 ]; then
    mkdir -p "$5"
    for each in $in/inputs/* $in/inputs/.[!.]* $in/inputs/..?*; do
      [ ! -e "$each" ] || { rm -rf "$5/${each##*/}" && mv "$each" "$5/"; } || exit 1
    done
  fi
  rm -rf $in
  : >gate/staged
fi
echo staged
while [ ! -e $job/ready ]; do
"""
    + f'  if [ -s $job/pid ] && ! kill -0 "$(cat $job/pid)" 2>/dev/null; then exit {MAIN_OVER}; fi\n'
    + """  sleep 0.1
done
echo ready
"""
)
# Argument 2: what the wrapper reads before it runs the command.
OPEN = _CHECK + """[ -e gate/go ] || { printf '%s\\n' "$2" >gate/go.$$ && mv gate/go.$$ gate/go; }"""
LOOK = _CHECK + "[ ! -e gate/go ] || cat gate/go"
# busybox complains of `--` and kills all the same: then there may be nothing left for the second one.
SIGNAL = (
    _CHECK
    + """pid=$(cat $job/pid) && { kill -s "$2" -- "-$pid" || kill -s "$2" "$pid" || ! kill -0 "$pid" 2>/dev/null; }"""
)
# Arguments 2 and 3: a signal, and the process group of a command that entered the job. It fails when nothing of that is left.
HANG_UP = _CHECK + """kill -s "$2" -- "-$3" || kill -s "$2" "$3" """
LIST = _CHECK + "cd work && find . -type f -print0"
# Argument 2: bytes of the list of names that comes in, one a line. What comes out is one archive after another: not every tar reads names from a file.
PACK = (
    _CHECK
    + """head -c "$2" >gate/names && cd work || exit 1
{ tr '\\n' '\\0' <../gate/names | xargs -0 tar -c -f - || : >../gate/failed; } | gzip
[ ! -e ../gate/failed ]
"""
)
LEAVE = _CHECK + ": >gate/leave"
# Nothing of the placement runs: whether what it has saved is away, and what is to be told of that.
SAVED = _CHECK + ": >gate/over; [ ! -e gate/saved ] || { echo saved && cat gate/saved; }"


class CommandFailed(FederatorError):
    """It ended with another exit code than 0; `said` is what it complained of."""

    def __init__(self, code: int, said: str) -> None:
        self.exit_code, self.said = code, said
        super().__init__(f"a command in the pod ended with exit code {code}: {said or 'it said nothing'}")


class _Detail(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Detail, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details = _Details()


class Command:
    """One that runs. What it writes is read by `output`, which ends when it has ended well."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._complaints = b""

    async def send(self, data: bytes) -> None:
        """Write to its standard input. There is no way to close it: it must know how much comes."""
        for start in range(0, len(data), CHUNK_BYTES):
            await self._socket.send_bytes(b"\0" + data[start : start + CHUNK_BYTES])

    async def send_file(self, path: Path) -> None:
        """The same with a file."""
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                await self._socket.send_bytes(b"\0" + chunk)

    async def output(self) -> AsyncIterator[bytes]:
        """What it writes, piece by piece. Raises `CommandFailed`, or `Unavailable` when its end cannot be known."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == 1 and data:
                yield data
            elif channel == 2:
                self._complaints = (self._complaints + data)[-2000:]
            elif channel == 3:
                judge(data, self._complaints.decode(errors="replace").strip())
                return
        raise Unavailable("the connection to a command in the pod was cut")

    async def lines(self) -> AsyncIterator[str]:
        """What it writes, line by line. Raises `TooLarge` for a line of more than `LINE_BYTES`."""
        rest = b""
        async for data in self.output():
            *lines, rest = (rest + data).split(b"\n")
            if max(map(len, (*lines, rest))) > LINE_BYTES:
                raise TooLarge(f"a command in the pod wrote a line of over {LINE_BYTES} bytes")
            for line in lines:
                yield line.decode(errors="replace")


def judge(data: bytes, said: str) -> None:
    """What the API server says of a command that has ended. `said`: what that complained of. Raises `CommandFailed`, `Unavailable`."""
    status = decoded(data, _Status)
    if status.status == "Success":
        return
    for cause in status.details.causes:
        if cause.reason == "ExitCode":
            raise CommandFailed(int(cause.message), said)
    raise Unavailable(f"a command in the pod could not be run: {status.message}")


@asynccontextmanager
async def run(
    api: Api, pod_path: str, script: str, uid: str, *arguments: str, stdin: bool = False
) -> AsyncIterator[Command]:
    """Run a script in the side container of that very pod."""
    words = (script, "agent", uid, *arguments)
    async with in_container(api, pod_path, SIDE, *words, stdin=stdin) as command:
        yield command


@asynccontextmanager
async def in_container(
    api: Api, pod_path: str, container: str, *script: str, stdin: bool = False
) -> AsyncIterator[Command]:
    """Run a script with its arguments in a container of a pod."""
    query = [("command", word) for word in ("sh", "-c", *script)]
    query += [
        ("container", container),
        ("stdout", "true"),
        ("stderr", "true"),
        *([("stdin", "true")] if stdin else []),
    ]
    async with api.command(f"{pod_path}/exec", query) as socket:
        yield Command(socket)


async def done(api: Api, pod_path: str, script: str, uid: str, *arguments: str) -> str:
    """Run a short one to its end; what it wrote. Raises `CommandFailed`, `Unavailable`, `NotFound`, and `TooLarge` for more than `SAID_BYTES`."""
    said = bytearray()
    async with run(api, pod_path, script, uid, *arguments) as command:
        async for data in command.output():
            said += data
            if len(said) > SAID_BYTES:
                raise TooLarge(
                    f"a command in the pod wrote over {SAID_BYTES >> 20} MiB", remedy="use fewer files"
                )
    return said.decode(errors="replace")
