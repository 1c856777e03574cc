"""A hash opens nothing by itself: work directories are kept once, and used only by those who have uploaded them."""

import io
import tarfile

import msgspec

from federator.control.record.holders import Held, Holder
from federator.kernel.ids import content_hash
from tests.integration.api.rig import Rig


def packed(name: str) -> bytes:
    """A work directory with one empty file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


async def uploaded(rig: Rig, who: str, data: bytes) -> str:
    digest = content_hash(data)
    assert (await rig.ask("PUT", f"/v1/blobs/{digest}", who, data=data)).status == 201
    return digest


async def test_anothers_work_directory_cannot_be_named(rig: Rig) -> None:
    digest = await uploaded(rig, "ada", packed("secret.key"))
    job = {"run": "cat secret.key", "workdir": f"sha256:{digest}"}
    for path, body in (
        ("/v1/jobs", job),
        ("/v1/preview", job),
        ("/v1/jobs", {**job, "name": "nightly", "every": "1h"}),
    ):
        problem = (await rig.ask("POST", path, "bob", json=body)).problem
        assert (problem["status"], problem["field"]) == (400, "$.workdir"), body
        assert problem["detail"] == "you have uploaded no such work directory"
        assert "upload it first" in problem["remedy"]
    lines = msgspec.json.encode(job)
    many = await rig.ask(
        "POST", "/v1/jobs", "bob", data=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert many.json()["problem"]["field"] == "$.workdir"
    assert (await rig.ask("POST", "/v1/jobs", "ada", json=job)).status == 201


async def test_whether_another_has_uploaded_something_is_not_told(rig: Rig) -> None:
    digest = await uploaded(rig, "ada", packed("known.bin"))
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "ada")).status == 200
    for who in ("bob", "sam", "root"):
        assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", who)).status == 404
    unknown = (
        await rig.ask("POST", "/v1/jobs", "bob", json={"run": "x", "workdir": f"sha256:{'0' * 64}"})
    ).problem
    known = (
        await rig.ask("POST", "/v1/jobs", "bob", json={"run": "x", "workdir": f"sha256:{digest}"})
    ).problem
    assert unknown == known
    assert (await rig.ask("GET", f"/v1/blobs/{digest}", "bob")).status == 405
    agent = await rig.agent("south")
    assert (await agent.ask("GET", f"/agent/v1/blobs/{digest}")).status == 404


async def test_who_has_the_bytes_uploads_them_and_they_are_kept_once(rig: Rig) -> None:
    data = packed("shared.py")
    digest = await uploaded(rig, "ada", data)
    before = rig.world.core.blobs.usage().blobs_bytes
    assert await uploaded(rig, "bob", data) == digest
    assert rig.world.core.blobs.usage().blobs_bytes == before
    job = {"run": "true", "workdir": f"sha256:{digest}"}
    assert (await rig.ask("POST", "/v1/jobs", "bob", json=job)).status == 201


async def test_a_hash_named_elsewhere_in_a_series_is_not_made_ones_own(rig: Rig) -> None:
    """A series keeps its right to its own folder, and to nothing that its environment happens to mention."""
    digest = await uploaded(rig, "ada", packed("secret.key"))
    series = {"run": "true", "name": "nightly", "every": "1h", "env": {"X": f'"workdir":"sha256:{digest}"'}}
    assert (await rig.ask("POST", "/v1/jobs", "bob", json=series)).status == 201
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "bob")).status == 404


async def test_one_person_cannot_fill_the_list_of_owners(rig: Rig) -> None:
    core = rig.world.core
    limits = msgspec.structs.replace(core.settings.limits, person_blobs=2)
    core.settings = msgspec.structs.replace(core.settings, limits=limits)
    for name in ("one", "two"):
        await uploaded(rig, "bob", packed(name))
    third = packed("three")
    problem = (await rig.ask("PUT", f"/v1/blobs/{content_hash(third)}", "bob", data=third)).problem
    assert (problem["status"], problem["code"]) == (429, "too-many")
    assert "limits.person_blobs" in problem["detail"]
    await uploaded(rig, "bob", packed("two"))
    await uploaded(rig, "ada", third)


async def test_an_owner_is_forgotten_with_the_bytes(rig: Rig) -> None:
    core = rig.world.core
    await uploaded(rig, "ada", packed("old"))
    rig.world.clock.advance(core.settings.retention.unused_blob_s - 1)
    await core.sweeper.sweep()
    assert core.records.blob_owners
    rig.world.clock.advance(2)
    await core.sweeper.sweep()
    assert not core.records.blob_owners
    assert core.blobs.usage().blobs_bytes == 0


TEAM = """
apiVersion: federator/v1
kind: Team
metadata: {name: vision}
spec: {members: [ada, bob]}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {allow: [{users: ["*"]}]}
"""


async def test_a_team_mate_names_what_the_team_has_uploaded_and_nobody_else(rig: Rig) -> None:
    await rig.world.policies(TEAM)
    digest = await uploaded(rig, "ada", packed("ours.py"))
    job = {"run": "true", "workdir": f"sha256:{digest}"}
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "bob")).status == 200
    assert (await rig.ask("POST", "/v1/jobs", "bob", json=job)).status == 201
    for who in ("sam", "root"):
        assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", who)).status == 404
        assert (await rig.ask("POST", "/v1/jobs", who, json=job)).problem["field"] == "$.workdir"
    # To use it is not to own it: who leaves the team may name it no more.
    await rig.world.policies(TEAM.replace("[ada, bob]", "[ada]"))
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "bob")).status == 404
    assert (await rig.ask("POST", "/v1/jobs", "bob", json=job)).problem["field"] == "$.workdir"
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "ada")).status == 200


async def test_what_a_team_may_name_counts_for_its_uploader_alone(rig: Rig) -> None:
    await rig.world.policies(TEAM)
    core = rig.world.core
    digest = await uploaded(rig, "ada", packed("ours.py"))
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}", "bob")).status == 200
    await core.sweeper.sweep()
    for what in (Held.WORKDIRS, Held.BLOB_BYTES):
        assert [holder for holder, _ in core.records.held_counts.all(what)] == [Holder("user", "ada")]
    assert core.records.held_counts.of(Held.WORKDIRS, Holder("user", "ada")) == 1
