"""Nonsense at every door: whatever is sent, the answer is a refusal or a result, never a fault of ours."""

import random
from typing import Any

import msgspec
import pytest

from federator.api.routes import ROUTES
from federator.api.table import Gate
from federator.wire import link
from federator.wire.jobfile import JobFile
from tests.integration.api.rig import Rig

ATOMS: list[Any] = [
    None, True, False, 0, -1, 1, 2**70, 1e308, -0.5, "", " ", "x", "\u0000", "ü" * 70, "4", "1h", "A100:8", "none", "sha256:" + "0" * 64,
    "0-99", "2026-12-01T08:00:00Z", "12 USD", [], {}, [[]], {"": ""}, "a/b", "../..", "x" * 5000,
]  # fmt: skip
REFUSALS = {400, 403, 404, 409, 413, 415, 422, 429}


def anything(chance: random.Random, depth: int = 2) -> Any:
    """Some JSON."""
    if depth and chance.random() < 0.3:
        keys = [
            chance.choice(["gpus", "cpus", "max", "on", "signal", "grace", "kinds", "x"]) for _ in range(2)
        ]
        return {key: anything(chance, depth - 1) for key in keys}
    if depth and chance.random() < 0.2:
        return [anything(chance, depth - 1) for _ in range(2)]
    return chance.choice(ATOMS)


@pytest.mark.parametrize("seed", range(5))
async def test_job_files_of_nonsense(rig: Rig, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        document = {"run": "true"} | {
            chance.choice(JobFile.__struct_fields__): anything(chance) for _ in range(chance.randint(1, 4))
        }
        for path in ("/v1/jobs", "/v1/preview"):
            answer = await rig.ask("POST", path, json=document)
            assert answer.status in REFUSALS | {200, 201}, (document, answer.data)
            assert answer.status < 300 or answer.problem["detail"]
        line = await rig.ask(
            "POST",
            "/v1/jobs",
            data=msgspec.json.encode(document),
            headers={"Content-Type": "application/x-ndjson"},
        )
        result = msgspec.json.decode(line.data)
        assert result["submitted"] or result["problem"]["status"] in REFUSALS, (document, line.data)


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.body not in (None, bytes)], ids=lambda r: f"{r.method} {r.path}"
)
async def test_bodies_of_nonsense(rig: Rig, route: Any) -> None:
    chance = random.Random(1)
    job = await rig.submit(name="some")
    await rig.world.add_site("north")
    path = route.path.replace("{id}", job).replace("{name}", "north")
    who = None if route.gate is Gate.OPEN else "root"
    headers = {} if who else {"Authorization": "Bearer x"}
    for _ in range(60):
        body = {
            key: anything(chance)
            for key in ("text", "reason", "name", "role", "site", "priority", "deadline", "public_key")
            if chance.random() < 0.4
        }
        for sent in (body, anything(chance)):
            answer = await rig.ask(route.method, path, who, json=sent, headers=headers)
            assert answer.status in REFUSALS | {200, 201, 401}, (sent, answer.data)


@pytest.mark.parametrize("route", [r for r in ROUTES if "{" in r.path], ids=lambda r: f"{r.method} {r.path}")
async def test_paths_of_nonsense(rig: Rig, route: Any) -> None:
    agent = await rig.agent()
    for nonsense in (
        "%00",
        "%2e%2e%2f",
        "x" * 300,
        "%C3%BC",
        "a%20b",
        "-1",
        "9" * 30,
        "%F0%9F%98%80",
        "{id}",
    ):
        path = "/".join(nonsense if part.startswith("{") else part for part in route.path.split("/"))
        if route.gate is Gate.SESSION:
            answer = await agent.ask(route.method, path)
        else:
            answer = await rig.ask(route.method, path, "root")
        assert answer.status in {400, 404, 415}, (path, answer.status, answer.data)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"type":"hello"}',
        '{"type":"desired-ack","generation":"x","digest":1}',
        "\u0000",
        "[" * 5000,
    ],
)
async def test_frames_of_nonsense_end_the_session_and_leave_the_others_alone(rig: Rig, frame: str) -> None:
    other = await rig.agent("south")
    agent = await rig.agent("north")
    await agent.hear()
    assert agent.socket is not None
    await agent.socket.send_str(frame)
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "invalid"
    assert isinstance(await other.hear(), link.Desired)
