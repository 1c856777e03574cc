"""Machines reached by SSH, on loopback: a server for each, with a home of its own, that runs commands as this user."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Self

import asyncssh


class SshMachine:
    """One server. `prints`: what its shell says before every command."""

    def __init__(self, home: Path, client_key: asyncssh.SSHKey, *, prints: str = "") -> None:
        self.home = home
        self.prints = prints
        self.commands: list[str] = []
        self.port = 0
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._client_key = client_key
        self._server: asyncssh.SSHAcceptor | None = None

    @property
    def address(self) -> str:
        """As settings have it."""
        return f"somebody@127.0.0.1:{self.port}"

    @property
    def known_host(self) -> str:
        """Its line of known hosts."""
        return f"[127.0.0.1]:{self.port} {self._host_key.export_public_key().decode().strip()}\n"

    async def start(self) -> Self:
        """Begin, or begin again at the same port."""
        self.home.mkdir(exist_ok=True)
        authorized = asyncssh.import_authorized_keys(self._client_key.export_public_key().decode())
        self._server = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self._host_key],
            authorized_client_keys=authorized,
            process_factory=self._run,
            encoding=None,
        )
        self.port = self._server.get_port()
        return self

    async def stop(self) -> None:
        """Take no more connections; what runs on the machine goes on."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _run(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        command = process.command or "true"
        self.commands.append(command)
        child = await asyncio.create_subprocess_shell(
            f"{self.prints}\n{command}",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "FEDERATOR_ISOLATION": "shared",  # its jobs leave word in the test's folder
            },
            cwd=self.home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaint = await child.communicate(await process.stdin.read())
        with contextlib.suppress(OSError):  # it hung up
            process.stdout.write(said)
            process.stderr.write(complaint)
            process.exit(child.returncode or 0)


class SshMachines:
    """Some machines, and the files by which they are reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity_file = folder / "id_ed25519"
        self.known_hosts = folder / "known_hosts"
        self.machines: list[SshMachine] = []
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        folder.mkdir(exist_ok=True)
        self._key.write_private_key(str(self.identity_file))
        self.identity_file.chmod(0o600)
        self.known_hosts.touch()

    async def add(self, *, prints: str = "") -> SshMachine:
        """Start one more, and know its host key."""
        machine = await SshMachine(
            self.folder / f"machine-{len(self.machines)}", self._key, prints=prints
        ).start()
        self.machines.append(machine)
        with self.known_hosts.open("a") as hosts:
            hosts.write(machine.known_host)
        return machine

    def settings(self, python: str, *command: str, **more: object) -> dict[str, object]:
        """Of a provider that rents them as two-GPU machines."""
        box = {
            "instance_type": "box",
            "machines": [machine.address for machine in self.machines],
            "model": "A100",
            "gpu_memory": "40GiB",
            "gpus": 2,
            "cpus": 4,
            "memory": "16GiB",
            "price_usd_h": 3.6,
        }
        return {
            "offers": [box],
            "python": python,
            "command": list(command),
            "config_file": "/dev/null",
            "identity_file": str(self.identity_file),
            "known_hosts": str(self.known_hosts),
            **more,
        }

    async def close(self) -> None:
        """End the servers."""
        for machine in self.machines:
            await machine.stop()
