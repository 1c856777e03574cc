"""A federation of real processes behind TLS: a dispatcher with a certificate of a private authority, agents, the command, and a forward proxy.

The dispatcher is called `dispatcher.test`, a name that nobody can look up: only the proxy knows where it is. So what reaches it under that name has gone
through the proxy.
"""

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import trustme

from federator.cli.demo.processes import Processes
from tests.support.waiting import PATIENCE_S, wait_until
from tests.testbeds.ports import free_ports

NAME = "dispatcher.test"


class Secured:
    """The processes, in one folder."""

    def __init__(self, folder: Path, **server: object) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.processes = Processes(folder)
        self.show("127.0.0.1", NAME)
        tls = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
        given = {"port": free_ports(1)[0], "tls": tls, "ca": str(self.ca)} | server
        settings = {"state_dir": str(folder / "state"), "server": given, "link": {"report_every_s": 1}}
        (folder / "dispatcher.yaml").write_text(json.dumps(settings))

    def __enter__(self) -> Self:
        self.serve()
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.end_all()
        for process in self.processes.started.values():
            process.wait()

    def show(self, *names: str, expired: bool = False, signed_by: trustme.CA | None = None) -> None:
        """Put another certificate in the place of the dispatcher's."""
        until = datetime(2021, 1, 1, tzinfo=UTC) if expired else None
        since = datetime(2020, 1, 1, tzinfo=UTC) if expired else None
        made = (signed_by or self.authority).issue_cert(*names, not_before=since, not_after=until)
        made.private_key_pem.write_to_path(self.folder / "key.pem")
        (self.folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))

    def serve(self) -> None:
        """Start the dispatcher, for the first time or again, and return once it answers."""
        address = self.folder / "state/address"
        address.unlink(missing_ok=True)
        settings = str(self.folder / "dispatcher.yaml")
        self.processes.start("dispatcher", "federator", ["serve", "--config", settings])
        wait_until(
            lambda: address.exists() or "dispatcher" in self.processes.ended(), "the dispatcher to answer"
        )
        assert address.exists(), self.said("dispatcher")

    @property
    def url(self) -> str:
        """Where it answers."""
        return (self.folder / "state/address").read_text().strip()

    @property
    def port(self) -> int:
        """The TCP port of that."""
        return int(self.url.rpartition(":")[2])

    @property
    def admin(self) -> str:
        """The first administrator's token."""
        return (self.folder / "state/admin.token").read_text().strip()

    def said(self, name: str) -> str:
        """What a process has printed so far."""
        return self.processes.log_file(name).read_text()

    def run(
        self, program: str, *words: str, given: str = "", environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run one of our programs to its end; what it says is in `stdout`."""
        return subprocess.run(
            [sys.executable, "-m", program, *words],
            env=self.processes.environment | {"HOME": str(self.folder)} | dict(environment or {}),
            input=given,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_S,
            check=False,
        )

    def command(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """`federator`, as an administrator on another machine who knows address, token and authority."""
        known = {
            "FEDERATOR_SERVER": self.url,
            "FEDERATOR_TOKEN": self.admin,
            "FEDERATOR_CA": str(self.ca),
            "FEDERATOR_STATE_DIR": str(self.folder / "nothing"),
        }
        return self.run("federator", *words, environment=known | dict(environment or {}))

    def site(self, name: str = "north", **fields: object) -> Path:
        """The site file of one more host of the site."""
        document: dict[str, Any] = {
            "site": "north",
            "kind": "onprem",
            "dispatcher": self.url,
            "ca": str(self.ca),
            "state_dir": str(self.folder / name),
            "report_every": "1s",
            "pools": [
                {
                    "name": "main",
                    "model": "A100",
                    "gpus_per_node": 1,
                    "cpus_per_node": 8,
                    "memory_per_node": "8GiB",
                }
            ],
        }
        file = self.folder / f"{name}.yaml"
        kept = {key: value for key, value in (document | fields).items() if value is not None}
        file.write_text(json.dumps(kept))
        return file

    def token(self, *words: str) -> str:
        """A join token for the site."""
        made = self.command("token", "create", "--site", "north", "--kind", "onprem", *words)
        assert made.returncode == 0, made.stdout
        return made.stdout.splitlines()[0]

    def agent(
        self,
        verb: str,
        site: Path,
        *words: str,
        given: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """A verb of `federator-agent`."""
        return self.run(
            "federator_agent", verb, "--config", str(site), *words, given=given, environment=environment
        )

    def join(self, site: Path, *words: str, environment: Mapping[str, str] | None = None) -> None:
        """Let the host join by a token of its own."""
        joined = self.agent(
            "join", site, "--token", "-", *words, given=self.token() + "\n", environment=environment
        )
        assert joined.returncode == 0, joined.stdout

    def start(self, site: Path, environment: Mapping[str, str] | None = None) -> str:
        """Start its agent, for the first time or again; the name of its log."""
        name = f"agent-{site.stem}"
        self.processes.start(name, "federator_agent", ["serve", "--config", str(site)], environment)
        return name

    def row(self) -> dict[str, Any]:
        """The site as `federator site show` has it."""
        shown = self.command("site", "show", "north", "-o", "json")
        assert shown.returncode == 0, shown.stdout
        row: dict[str, Any] = json.loads(shown.stdout)
        return row

    def until_ready(self, *members: str) -> None:
        """Wait until these are the members that are well."""
        wanted = set(members or ("north",))
        wait_until(lambda: self.ready() == wanted, f"{wanted} to be ready")

    def ready(self) -> set[str]:
        """The members that are well."""
        return {host["name"] for host in self.row()["hosts"] if host["status"] == "READY"}


class Proxy:
    """A forward proxy on loopback that knows one name, keeps count, and lets nobody in without the password if it has one."""

    def __init__(self, port: int, password: str = "", *, certificate: ssl.SSLContext | None = None) -> None:
        """With a certificate it is reached by TLS."""
        self._target = port
        self._certificate = certificate
        self._password = password
        self.connects: list[str] = []
        self.refused = 0
        self.url = ""

    def __enter__(self) -> Self:
        listening = Event()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        assert listening.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)

    def _run(self, listening: Event) -> None:
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._certificate)
        )
        port = server.sockets[0].getsockname()[1]
        scheme = "http" if self._certificate is None else "https"
        self.url = f"{scheme}://{self._password + '@' if self._password else ''}127.0.0.1:{port}"
        listening.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._hang_up())
        self._loop.close()

    async def _hang_up(self) -> None:
        """Close all connections before their loop is: what is only collected later complains in the middle of another test."""
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' own last words

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, where, _ = head.split(" ", 2)
            if self._password and "proxy-authorization: basic " not in head.lower():
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                return
            if method != "CONNECT" or where.partition(":")[0] != NAME:
                writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                return
            self.connects.append(where)
            theirs = await asyncio.open_connection("127.0.0.1", self._target)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, theirs[1]), _pass_on(theirs[0], writer))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(2**16):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()
