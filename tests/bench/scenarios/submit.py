"""How fast jobs are accepted: each durable before it is answered."""

import json
import time

from tests.bench.figures import Figure
from tests.bench.harness import Bench
from tests.bench.load import request_bytes, send_all
from tests.bench.measuring import cpu_s, percentile

CLIENTS = 32
NOTE = """\
Each job has a spec and a client id of its own, and is on disk before it is answered. No site takes them, so they queue up, and turns go over the
queue meanwhile. One by one: 32 connections, each sending its next job when the last is answered. NDJSON: one request with all of them.
"""


def job(number: int) -> bytes:
    """A job file such as people write."""
    return json.dumps(
        {
            "name": f"train-{number}",
            "run": "python train.py",
            "env": {"SEED": str(number)},
            "resources": {"gpus": 1, "cpus": 4, "memory": "16GiB"},
            "estimate": "2h",
            "max_duration": "8h",
            "client_id": f"bench-{number}",
        }
    ).encode()


async def run(bench: Bench) -> list[Figure]:
    """Both ways, each to a fresh dispatcher."""
    single, many = bench.many(3000), bench.many(10_000)
    async with bench.federation([]) as world:
        server, token = world.server, world.admin_token
        requests = [request_bytes("POST", server, "/v1/jobs", token, job(number)) for number in range(single)]
        pid = bench.pid(world, "dispatcher")
        used_s, begun = cpu_s(pid), time.perf_counter()
        took_s = await send_all(server, requests, CLIENTS)
        single_s = time.perf_counter() - begun
        used_ms = (cpu_s(pid) - used_s) * 1000 / single
    bench.say(f"{single} one by one: {single_s:.1f} s")
    async with bench.federation([], folder="second") as world:
        server, token = world.server, world.admin_token
        lines = b"\n".join(job(number) for number in range(many)) + b"\n"
        batch = request_bytes("POST", server, "/v1/jobs", token, lines, "application/x-ndjson")
        pid = bench.pid(world, "dispatcher")
        used_s, begun = cpu_s(pid), time.perf_counter()
        await send_all(server, [batch], 1)
        many_s = time.perf_counter() - begun
        many_used_ms = (cpu_s(pid) - used_s) * 1000 / many
    return [
        Figure(
            "submit one by one, 32 clients",
            single / single_s,
            "jobs/s",
            1000,
            against="Slurm: sbatch, 32 at once",
        ),
        Figure("submit one by one, time of an answer, p99", percentile(took_s, 99) * 1000, "ms"),
        Figure("submit one by one, dispatcher's CPU", used_ms, "ms/job"),
        Figure("submit as NDJSON", many / many_s, "jobs/s", 10_000),
        Figure("submit as NDJSON, dispatcher's CPU", many_used_ms, "ms/job"),
    ]
