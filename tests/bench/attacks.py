"""One attacker, in a process of its own: `python -m tests.bench.attacks ITEM SERVER TOKEN JOIN_TOKEN`. Bounded in count and time; stops by itself.

What it is answered does not count: refusals are what it should get.
"""

import asyncio
import contextlib
import gzip
import hashlib
import io
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import aiohttp
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federator.model.capacity import Pool, Shape
from federator.model.sites import SiteReport
from federator.wire import link

LIMIT_S = 15.0
FLOOD = 5_000


class Attacker:
    """What one user, or a stranger, can send."""

    def __init__(self, server: str, http: aiohttp.ClientSession, token: str, join_token: str) -> None:
        self.url = server
        self.http = http
        self.headers = {"Authorization": f"Bearer {token}"}
        self.join_token = join_token

    async def pattern(self) -> None:
        """Text on which a pattern went back and forth without end."""
        for _ in range(5):
            await self._send("POST", "/v1/preview", {"run": "x", "image": "a" + "_" * 47 + "!"})

    async def report(self) -> None:
        """An agent that reports 13 million hosts."""
        key = Ed25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw().hex()
        headers = {"Authorization": f"Bearer {self.join_token}"}
        async with self.http.post("/agent/v1/join", json={"public_key": public}, headers=headers) as answer:
            member = (await answer.json())["member"]
        async with self.http.ws_connect("/agent/v1/link") as socket:
            hello = link.Hello(link.PROTOCOL, member, "boot", "test", "local")
            await socket.send_str(link.encode(hello).decode())
            challenge = link.decode_down(await socket.receive_str())
            assert isinstance(challenge, link.Challenge)
            signature = key.sign(link.challenge_bytes(challenge, member)).hex()
            await socket.send_str(link.encode(link.Proof(signature)).decode())
            await socket.receive_str()
            hosts = Shape(gpus=8, cpus_milli=64_000, memory_mib=2**18, count=65_536)
            pools = tuple(
                Pool(
                    name=f"p{number}",
                    model="A100",
                    gpu_memory_mib=81_920,
                    nodes=65_536,
                    gpus_per_node=8,
                    cpus_milli_per_node=64_000,
                    memory_mib_per_node=2**18,
                    free=(hosts,),
                    lent_gpus=524_288,
                )
                for number in range(200)
            )
            report = link.Report(SiteReport(taken_at=time.time(), pools=pools))
            await socket.send_str(link.encode(report).decode())
            async for _ in socket:
                pass  # until it is refused, or the time is over

    async def stranger(self) -> None:
        """An unknown field of 16 MB, gzipped, without a token."""
        body = gzip.compress(b'{"' + b"x" * (16 * 2**20 - 16) + b'": 1}')
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        for path in ("/agent/v1/join", "/agent/v1/key") * 5:
            async with self.http.post(path, data=body, headers=headers):
                pass

    async def yaml(self) -> None:
        """A MiB of YAML that is nothing but brackets."""
        body = b"[" + b"[]," * (2**20 // 3) + b"[]]"
        for _ in range(3):
            headers = self.headers | {"Content-Type": "application/yaml"}
            async with self.http.post("/v1/preview", data=body, headers=headers):
                pass

    async def connections(self) -> None:
        """Thousands of connections with half a head."""
        address = urlsplit(self.url)
        held = []
        for _ in range(FLOOD):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(address.hostname, address.port)
                writer.write(b"GET /v1/jobs HTTP/1.1\r\nX-Half: ")
                held.append(writer)
        await asyncio.sleep(2.0)
        for writer in held:
            writer.close()

    async def uploads(self) -> None:
        """Five uploads that inflate to half a GiB each."""
        body = gzip.compress(b"\x1f\x8b" + bytes(500 * 2**20), 1)
        headers = self.headers | {"Content-Encoding": "gzip"}
        path = f"/v1/blobs/{'0' * 64}"
        await asyncio.gather(*(self._put(path, body, headers) for _ in range(5)))
        large = b"\x1f\x8b" + bytes(64 * 2**20)
        path = f"/v1/blobs/{hashlib.sha256(large).hexdigest()}"
        await asyncio.gather(*(self._put(path, large, self.headers) for _ in range(5)))

    async def jobs(self) -> None:
        """Twenty thousand jobs at once."""
        line = b'{"run":"sleep 1","resources":{"gpus":1}}\n'
        headers = self.headers | {"Content-Type": "application/x-ndjson"}
        async with self.http.post("/v1/jobs", data=io.BytesIO(line * 20_000), headers=headers) as answer:
            await answer.read()

    async def _send(self, method: str, path: str, body: object) -> None:
        async with self.http.request(method, path, json=body, headers=self.headers):
            pass

    async def _put(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with self.http.put(path, data=io.BytesIO(body), headers=headers):
                pass


ITEMS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    "1 pattern": Attacker.pattern,
    "2 report": Attacker.report,
    "3 stranger's body": Attacker.stranger,
    "4 YAML": Attacker.yaml,
    "5 idle connections": Attacker.connections,
    "6 uploads": Attacker.uploads,
    "7 jobs": Attacker.jobs,
}


async def main(item: str, server: str, token: str, join_token: str) -> None:
    """Do one of them."""
    async with aiohttp.ClientSession(server) as http:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, ConnectionError, TypeError, KeyError):
            async with asyncio.timeout(LIMIT_S):
                await ITEMS[item](Attacker(server, http, token, join_token))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
