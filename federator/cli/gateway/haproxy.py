"""The process of HAProxy: started or taken over, told what to do by its runtime API, and heard by its log.

It is no child that ends with us: a gateway that is started again finds it with its ports, and takes it over.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from federator.kernel.errors import Invalid, Unavailable

PROGRAM = "haproxy"
MOST_ANSWERS = 10_000
"""Times of answers that are kept of each service between two reports: the newest."""
START_S = 10.0
"""Real seconds in which HAProxy has to answer."""
SERVER_ERROR = 500


class Answers:
    """How the requests of one service were answered since the last report."""

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.seconds: deque[float] = deque(maxlen=MOST_ANSWERS)
        self.slots = Counter[str]()
        """How many by which slot,"""
        self.slot_errors = Counter[str]()
        """and how many of those with an error."""

    def add(self, slot: str, status: int, seconds: float) -> None:
        """One was."""
        wrong = status >= SERVER_ERROR or status < 0
        self.count += 1
        self.errors += wrong
        self.slots[slot] += 1
        self.slot_errors[slot] += wrong
        self.seconds.append(seconds)

    def p95_s(self) -> float | None:
        """Within so long 95 of a hundred were."""
        times = sorted(self.seconds)
        return times[(95 * len(times) - 1) // 100] if times else None

    def slow(self, within_s: float | None) -> int:
        """How many of them took longer than that."""
        if within_s is None or not self.seconds:
            return 0
        return round(self.count * sum(each > within_s for each in self.seconds) / len(self.seconds))

    def met(self, within_s: float | None) -> int:
        """How many of them were answered without an error, and within that time."""
        return min(self.count - self.errors, self.count - self.slow(within_s))


class ServerState(NamedTuple):
    """A slot, as HAProxy has it."""

    up: bool
    at_once: int


class Seen(NamedTuple):
    """Requests of a service at this moment, those that wait among them, and its slots."""

    at_once: int
    slots: dict[str, ServerState]


class _Log(asyncio.DatagramProtocol):
    def __init__(self, answers: dict[str, Answers]) -> None:
        self._answers = answers

    def datagram_received(self, data: bytes, addr: object) -> None:
        """A line: service, slot, status, milliseconds."""
        del addr
        words = data.decode("ascii", "replace").split()
        with contextlib.suppress(ValueError, IndexError):
            self._answers.setdefault(words[0], Answers()).add(words[1], int(words[2]), int(words[3]) / 1000)


class Haproxy:
    """HAProxy, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, Answers] = {}
        self._log: asyncio.DatagramTransport | None = None

    async def listen(self) -> None:
        """Hear its log from now on."""
        path = self._folder / "log.sock"
        path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(path))
        path.chmod(0o600)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        self._log, _ = await loop.create_datagram_endpoint(lambda: _Log(self._answers), sock=sock)

    def close(self) -> None:
        """Hear it no more."""
        if self._log is not None:
            self._log.close()

    def answers(self, service: str) -> Answers:
        """What was answered since this was last asked."""
        return self._answers.pop(service, Answers())

    def forget(self, service: str, slot: str) -> None:
        """Nothing was answered by that slot: another replica is behind it from now on."""
        answers = self._answers.get(service)
        if answers is not None:
            del answers.slots[slot], answers.slot_errors[slot]

    async def load(self, text: str) -> bool:
        """Have it work by that configuration; whether it did not before. Connections that are established stay. Raises `Invalid` for one that HAProxy refuses, `Unavailable` where it is not installed or does not start."""
        config, written = self._folder / "haproxy.cfg", self._folder / "haproxy.cfg.new"
        if config.is_file() and config.read_text() == text and await self._answers_us():
            return False
        written.write_text(text)
        if refused := await self._run("-c", "-f", str(written)):
            raise Invalid(
                f"HAProxy refuses its configuration: {refused}", remedy="see --bind, --ports and --hosts"
            )
        written.rename(config)
        pid = self._pid()
        if pid is not None and await self._answers_us():
            former = await self._worker()
            os.kill(pid, signal.SIGUSR2)
            await self._until_answers(former)
            return True
        options = (
            "-W",
            "-S",
            str(self._folder / "master.sock"),
            "-D",
            "-p",
            str(self._folder / "haproxy.pid"),
        )
        if failed := await self._run(*options, "-f", str(config)):
            raise Unavailable(f"HAProxy does not start: {failed}")
        await self._until_answers("")
        return True

    async def _run(self, *words: str) -> str:
        """Run it; what it says if it fails."""
        try:
            process = await asyncio.create_subprocess_exec(
                PROGRAM,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Unavailable("HAProxy is not installed", remedy="install it: apt install haproxy") from None
        assert process.stderr is not None
        said: list[bytes] = []
        with contextlib.suppress(TimeoutError):  # what it leaves behind may keep the pipe
            async with asyncio.timeout(START_S):
                said.append(await process.stderr.read(4000) if words[0] == "-c" else b"")
        code = await process.wait()
        return "" if code == 0 else (b"".join(said).decode(errors="replace").strip() or f"exit code {code}")

    def _pid(self) -> int | None:
        try:
            return int((self._folder / "haproxy.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    async def _worker(self) -> str:
        info = await self.command("show info")
        return next((line for line in info.splitlines() if line.startswith("Pid:")), "")

    async def _answers_us(self) -> bool:
        with contextlib.suppress(Unavailable):
            return bool(await self._worker())
        return False

    async def _until_answers(self, former: str) -> None:
        """Wait for a worker that is not the former one. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(START_S):
                while True:
                    with contextlib.suppress(Unavailable):
                        if await self._worker() != former:
                            return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise Unavailable(f"HAProxy does not answer within {START_S:g} s") from None

    async def command(self, *commands: str) -> str:
        """What its runtime API answers. Raises `Unavailable`."""
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._folder / "haproxy.sock"))
            try:
                writer.write((";".join(commands) + "\n").encode())
                await writer.drain()
                return (await reader.read()).decode(errors="replace")
            finally:
                writer.close()
        except OSError as error:
            raise Unavailable(f"HAProxy does not answer: {error}") from error

    async def seen(self) -> dict[str, Seen]:
        """Services and their slots at this moment. Raises `Unavailable`."""
        lines = (await self.command("show stat -1 6 -1")).splitlines()
        return _seen(lines)


def _seen(lines: Iterable[str]) -> dict[str, Seen]:
    """From HAProxy's statistics as CSV."""
    rows = iter(lines)
    titles = next(rows, "").lstrip("# ").split(",")
    found: dict[str, Seen] = {}
    for line in rows:
        row = dict(zip(titles, line.split(","), strict=False))
        if "svname" not in row:
            continue
        seen = found.setdefault(row["pxname"], Seen(0, {}))
        at_once = int(row["scur"] or 0)
        if row["svname"] == "BACKEND":
            found[row["pxname"]] = seen._replace(at_once=at_once)
        else:
            seen.slots[row["svname"]] = ServerState(row["status"].startswith("UP"), at_once)
    return found
