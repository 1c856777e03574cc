"""What it costs to accept jobs into a replicated store: on three members of etcd, beside SQLite and beside what etcd itself does, and how soon another leader accepts."""

import asyncio
import json
import signal
import time

import aiohttp
import msgspec
from aetcd import rpc

from federator.settings import EtcdSettings
from federator.store.etcd_link import EtcdLink
from tests.bench.figures import Figure
from tests.bench.harness import Bench, Document
from tests.bench.load import request_bytes, send_all
from tests.bench.measuring import cpu_s, median
from tests.bench.scenarios.submit import job
from tests.testbeds.dispatchers import Dispatchers
from tests.testbeds.etcd import EtcdCluster

CLIENTS = 64
VALUE = b"x" * 1024
PAUSE_S = 0.01
USUAL = {
    each.name: each.default
    for each in msgspec.structs.fields(EtcdSettings)
    if each.default is not msgspec.NODEFAULT and each.name != "shared_dir"
}
"""The settings as people have them, where the tests have quicker ones."""
NOTE = """\
Three members on loopback that sync to disk, on the same machine as the dispatcher and the clients; the same jobs and clients against SQLite in the same run.
etcd's own limit: puts of 1 KiB through the same link, 64 at once. Failover: two dispatchers with the default term, of which the one that leads is
ended; from the signal until the other has accepted a job, asked for every 10 ms.
"""


async def run(bench: Bench) -> list[Figure]:
    """One cluster for throughput, another for failover."""
    figures = await _submissions(bench, "SQLite", None)
    cluster = EtcdCluster(bench.folder / "etcd")
    try:
        await asyncio.to_thread(cluster.__enter__)
        store = {"etcd": {"endpoints": list(cluster.endpoints), "shared_dir": str(bench.folder / "shared")}}
        figures += await _submissions(bench, "etcd", store)
        figures.append(Figure("etcd: puts of 1 KiB, 64 at once", await _puts(bench, cluster), "puts/s"))
    finally:
        await asyncio.to_thread(cluster.end)
    with EtcdCluster(bench.folder / "failover-etcd") as second:
        for name, how in (("kill -9", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
            took_s = await _failover(bench, second, how)
            what = f"etcd: leader's {name} to the next accepted job"
            figures.append(Figure(what, took_s, "s"))
    return figures


async def _submissions(bench: Bench, name: str, store: Document | None) -> list[Figure]:
    """To one dispatcher without sites: many clients, then one alone, then all in one request."""
    single, alone, many = bench.many(3000), bench.many(300), bench.many(10_000)
    async with bench.federation([], folder=f"on-{name}", settings={"store": store} if store else {}) as world:
        server, token = world.server, world.admin_token
        pid = bench.pid(world, "dispatcher")

        def requests(first: int, count: int) -> list[bytes]:
            return [request_bytes("POST", server, "/v1/jobs", token, job(first + n)) for n in range(count)]

        used_s, begun = cpu_s(pid), time.perf_counter()
        await send_all(server, requests(0, single), CLIENTS)
        single_s = time.perf_counter() - begun
        used_ms = (cpu_s(pid) - used_s) * 1000 / single
        bench.say(f"{name}: {single} one by one: {single_s:.1f} s")
        alone_s = await send_all(server, requests(single, alone), 1)
        lines = b"\n".join(job(single + alone + number) for number in range(many)) + b"\n"
        batch = request_bytes("POST", server, "/v1/jobs", token, lines, "application/x-ndjson")
        begun = time.perf_counter()
        await send_all(server, [batch], 1)
        many_s = time.perf_counter() - begun

    def beside(what: str) -> str:
        return f"SQLite: {what}" if name != "SQLite" else ""

    one_by_one, by_one, as_one = "submit, 64 clients", "submit, one client, median", "submit as NDJSON"
    return [
        Figure(f"{name}: {one_by_one}", single / single_s, "jobs/s", against=beside(one_by_one)),
        Figure(f"{name}: {one_by_one}, dispatcher's CPU", used_ms, "ms/job"),
        Figure(f"{name}: {by_one}", median(alone_s) * 1000, "ms", against=beside(by_one)),
        Figure(f"{name}: {as_one}", many / many_s, "jobs/s", against=beside(as_one)),
    ]


async def _puts(bench: Bench, cluster: EtcdCluster) -> float:
    """Puts a second, each answered before its client sends the next."""
    count = bench.many(10_000)
    numbers = iter(range(count))
    link = EtcdLink([each.removeprefix("http://") for each in cluster.endpoints], None, 10.0)

    async def client() -> None:
        for number in numbers:
            put = rpc.PutRequest(key=b"bench/%d" % number, value=VALUE)
            await link.call(lambda member: member.kv.Put, put, writes=True)

    try:
        begun = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return count / (time.perf_counter() - begun)
    finally:
        await link.close()


async def _failover(bench: Bench, cluster: EtcdCluster, how: signal.Signals) -> float:
    """Seconds from the signal to the leader until a job is accepted by the other one."""
    etcd = USUAL | {"prefix": f"/{how.name}"}
    async with Dispatchers(bench.folder / how.name, cluster, etcd=etcd) as world:
        first = await world.leader()
        (second,) = world.ports.keys() - {first}
        body = json.dumps(world.job(0.1, resources={"gpus": "H100:1"})).encode()
        begun = time.perf_counter()
        world.signal(first, how)
        while True:
            try:
                status, _ = await world.ask(second, "POST", "/v1/jobs", data=body)
            except (aiohttp.ClientError, OSError, TimeoutError):
                status = 0
            if status in (200, 201):
                return time.perf_counter() - begun
            await asyncio.sleep(PAUSE_S)
