"""The agents' side over real connections: joining, the link, logs, outputs, and what one agent may not reach of another."""

import asyncio
import gzip
import io
import tarfile
from typing import Any

import msgspec
import pytest
from aiohttp import WSCloseCode

from federator.api import files as files_of_jobs
from federator.api import logs
from federator.kernel.errors import Conflict
from federator.kernel.ids import content_hash
from federator.kernel.route import Way
from federator.model.capacity import Lease, LeaseStatus, Market
from federator.model.jobs import JobStatus
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.sites import SiteKind, SiteReport
from federator.settings import LimitSettings
from federator.wire import link
from federator.wire.http import TokenRequest
from federator.wire.link import JoinRequest
from federator_agent.enrollment import join as dial
from federator_agent.keys import public
from tests.integration.api.rig import ROOT, HttpAgent, Rig, archive, names_in
from tests.support.dispatch import OFFER
from tests.support.waiting import PATIENCE_S, until


async def placed(rig: Rig, *members: str, **fields: Any) -> Placement:
    """A job of ada's with a placement at these members."""
    job = rig.world.job(await rig.submit(**fields))
    row = Placement(
        id=f"plc-{len(rig.world.core.records.placements) + 1}",
        job=job.id,
        epoch=job.epoch + 1,
        site="north",
        pool="main",
        members=members,
        market=Market.OWNED,
        status=PlacementStatus.ASSIGNED,
        order=Order.RUN,
        spec_hash=job.spec_hash,
        nodes=len(members),
    )
    placed_job = msgspec.structs.replace(job, status=JobStatus.PLACED, placement=row.id, epoch=row.epoch)
    await rig.world.put(row, placed_job)
    return row


async def join(rig: Rig, secret: str, **fields: object) -> int:
    agent = HttpAgent(rig)
    headers = {"Authorization": f"Bearer {secret}"}
    body = {"public_key": agent.public_key, **fields}
    return (await rig.ask("POST", "/agent/v1/join", None, json=body, headers=headers)).status


async def test_an_agent_joins_once_and_may_repeat_itself_and_no_other_key_gets_in(rig: Rig) -> None:
    made = await rig.ask("POST", "/v1/tokens", "root", json={"site": "north", "kind": "edge", "region": "eu"})
    secret = made.json()["secret"]
    agent = HttpAgent(rig)
    await agent.join(secret)
    first = agent.joined
    await agent.join(secret)
    assert agent.joined == first
    assert await join(rig, secret) == 401
    site = rig.world.core.records.sites["north"]
    assert (site.kind, site.region) == ("edge", "eu")
    assert list(rig.world.core.records.members) == ["north"]


async def test_a_join_token_expires_and_a_wrong_one_was_never_good(rig: Rig) -> None:
    made = await rig.ask("POST", "/v1/tokens", "root", json={"site": "n", "kind": "edge", "expires_in": "1h"})
    rig.world.clock.advance(3601)
    assert await join(rig, made.json()["secret"]) == 401
    assert await join(rig, "join_wrong") == 401
    assert rig.world.core.records.members == {}


async def test_a_token_for_another_site_than_the_file_names_is_refused_and_stays_good(rig: Rig) -> None:
    made = await rig.ask("POST", "/v1/tokens", "root", json={"site": "home", "kind": "onprem"})
    key = HttpAgent(rig).key
    url, secret = str(rig.client.make_url("")).rstrip("/"), made.json()["secret"]
    with pytest.raises(
        Conflict, match=r"says basel, the token is for home.*'site: home'.*a token for site basel"
    ):
        await dial(url, secret, JoinRequest(public(key)), "basel", way=Way())
    assert rig.world.core.records.members == {}
    assert (await dial(url, secret, JoinRequest(public(key)), "home", way=Way())).site == "home"


async def test_a_site_keeps_its_kind_and_a_member_its_name(rig: Rig) -> None:
    admission = rig.world.core.admission
    tokens = [
        (await admission.create_token(ROOT, TokenRequest(site="north", kind="onprem"))).secret
        for _ in range(4)
    ]
    other_kind = await rig.ask("POST", "/v1/tokens", "root", json={"site": "north", "kind": "edge"})
    assert other_kind.status == 201, "nobody has joined yet, so the kind is still open"
    assert await join(rig, tokens[0], member="box") == 200
    assert await join(rig, other_kind.json()["secret"]) == 409
    assert await join(rig, tokens[1], member="box") == 409
    assert await join(rig, tokens[2], member="Not a name") == 400
    assert await join(rig, tokens[1]) == 200
    assert await join(rig, tokens[2]) == 200
    assert set(rig.world.core.records.members) == {"box", "north", "north-2"}


async def test_a_rented_machine_joins_as_its_leases_member_at_its_market_whatever_it_wishes(rig: Rig) -> None:
    lease = Lease(
        id="lease-1",
        provider="cloudy",
        site="cloud",
        offer=msgspec.structs.replace(OFFER, market=Market.SPOT),
        status=LeaseStatus.BOOTING,
        requested_at=1.0,
        because="a deadline",
    )
    await rig.world.put(lease)
    secret = await rig.world.core.admission.make_join_token(
        "cloud", SiteKind.CLOUD, region="r1", provider="cloudy", lease=lease.id, member=lease.member
    )
    assert await join(rig, secret, member="somebody-else") == 200
    member = rig.world.core.records.members[lease.member]
    assert (member.site, member.lease, member.market) == ("cloud", "lease-1", Market.SPOT)
    site = rig.world.core.records.sites["cloud"]
    assert (site.kind, site.provider, site.region) == (SiteKind.CLOUD, "cloudy", "r1")
    assert list(rig.world.core.records.members) == [lease.member]


@pytest.mark.parametrize("key", ["", "zz", "00", "0" * 63])
async def test_a_key_that_is_none_is_refused(rig: Rig, key: str) -> None:
    made = await rig.world.core.admission.create_token(ROOT, TokenRequest(site="north", kind="onprem"))
    headers = {"Authorization": f"Bearer {made.secret}"}
    answer = await rig.ask("POST", "/agent/v1/join", None, json={"public_key": key}, headers=headers)
    assert answer.status == 400
    assert answer.problem["field"] == "$.public_key"


async def test_the_link_carries_desired_sets_down_and_statuses_up(rig: Rig) -> None:
    agent = await rig.agent()
    first = await agent.hear()
    assert isinstance(first, link.Desired)
    await agent.say(link.DesiredAck(first.generation, first.digest))
    row = await placed(rig, "north")
    second = await agent.hear()
    assert isinstance(second, link.Desired)
    assert [entry.placement for entry in second.entries] == [row.id]
    await agent.report(row, PlacementStatus.RUNNING, 1, started_at=1.0)
    assert rig.world.job(row.job).status == "RUNNING"


@pytest.mark.parametrize(
    ("code", "status", "because"),
    [
        (WSCloseCode.GOING_AWAY, "UNREACHABLE", "its agent was stopped "),
        (WSCloseCode.OK, "READY", "its agent is not connected, last heard "),
    ],
)
async def test_a_site_is_unreachable_at_once_when_its_agent_says_goodbye(
    rig: Rig, code: WSCloseCode, status: str, because: str
) -> None:
    """Any other end of a session may be followed by another session."""
    agent = await rig.agent("north")
    await agent.say(link.Report(SiteReport(taken_at=1.0, pools=())))
    inventory = rig.world.core.inventory
    await until(lambda: inventory.members["north"].report)
    assert (await rig.ask("GET", "/v1/sites", "ada")).json()[0]["status"] == "READY"
    assert agent.socket is not None
    await agent.socket.close(code=code)
    await until(lambda: not inventory.members["north"].session)
    row = (await rig.ask("GET", "/v1/sites", "ada")).json()[0]
    assert row["status"] == status
    assert row["because"].startswith(because)
    await agent.connect()
    await agent.say(link.Report(SiteReport(taken_at=2.0, pools=())))
    await until(lambda: inventory.members["north"].report)
    assert (await rig.ask("GET", "/v1/sites", "ada")).json()[0]["status"] == "READY"


async def test_a_frame_that_is_no_message_ends_the_session_with_a_reason(rig: Rig) -> None:
    agent = await rig.agent()
    assert agent.socket is not None
    await agent.hear()
    await agent.socket.send_str('{"type":"report"}')
    refusal = await agent.hear()
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "invalid"


async def test_an_agent_reads_specs_and_work_directories_of_its_own_open_placements_only(rig: Rig) -> None:
    tar = archive(main="print()")
    digest = content_hash(tar)
    assert (await rig.ask("PUT", f"/v1/blobs/{digest}", data=tar)).status == 201
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", workdir=f"sha256:{digest}", name="with-workdir")
    spec = await north.ask("GET", f"/agent/v1/specs/{row.spec_hash}")
    assert content_hash(spec.data) == row.spec_hash
    blob = await north.ask("GET", f"/agent/v1/blobs/{digest}")
    assert blob.data == tar
    for path in (f"/agent/v1/specs/{row.spec_hash}", f"/agent/v1/blobs/{digest}"):
        assert (await south.ask("GET", path)).status == 404
    await rig.world.put(msgspec.structs.replace(row, status=PlacementStatus.FAILED))
    assert (await north.ask("GET", f"/agent/v1/specs/{row.spec_hash}")).status == 404


async def test_blobs_are_kept_under_their_own_hash_only(rig: Rig) -> None:
    tar = archive(a="b")
    assert (await rig.ask("HEAD", f"/v1/blobs/{content_hash(tar)}")).status == 404
    assert (await rig.ask("PUT", f"/v1/blobs/{'0' * 64}", data=tar)).status == 400
    assert (await rig.ask("PUT", f"/v1/blobs/{content_hash(b'x')}", data=b"x")).status == 400
    assert (await rig.ask("PUT", f"/v1/blobs/{content_hash(tar)}", data=tar)).status == 201
    assert (await rig.ask("HEAD", f"/v1/blobs/{content_hash(tar)}")).status == 200
    assert (await rig.ask("PUT", "/v1/blobs/ABC", data=tar)).status == 400


async def test_a_blob_over_the_limit_is_refused(rig: Rig) -> None:
    limits = msgspec.structs.replace(LimitSettings(), blob_mib=1)
    rig.world.core.settings = msgspec.structs.replace(rig.world.core.settings, limits=limits)
    large = b"\x1f\x8b" + bytes(2**20)
    answer = await rig.ask("PUT", f"/v1/blobs/{content_hash(large)}", data=io.BytesIO(large))
    assert answer.status == 413


async def test_logs_are_appended_once_however_often_they_are_sent(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north")
    path = f"/agent/v1/logs/{row.id}/0"
    assert (await agent.ask("PUT", f"{path}?offset=0", data=b"one\n")).json()["length"] == 4
    assert (await agent.ask("PUT", f"{path}?offset=0", data=b"one\ntwo\n")).json()["length"] == 8
    assert (await agent.ask("PUT", f"{path}?offset=4", data=b"two\n")).json()["length"] == 8
    assert (await agent.ask("PUT", f"{path}?offset=0")).json()["length"] == 8
    log = await rig.ask("GET", f"/v1/jobs/{row.job}/logs")
    assert log.data == b"one\ntwo\n"
    assert (await rig.ask("GET", f"/v1/jobs/{row.job}/logs?offset=4")).data == b"two\n"


async def test_a_log_over_the_limit_is_cut_and_says_so(rig: Rig) -> None:
    limits = msgspec.structs.replace(LimitSettings(), log_mib=1)
    rig.world.core.settings = msgspec.structs.replace(rig.world.core.settings, limits=limits)
    agent = await rig.agent()
    row = await placed(rig, "north")
    path = f"/agent/v1/logs/{row.id}/0"
    half = b"x" * (3 * 2**18)
    assert (await agent.ask("PUT", f"{path}?offset=0", data=half)).json()["length"] == len(half)
    assert (await agent.ask("PUT", f"{path}?offset={len(half)}", data=half)).json()["length"] == 2 * len(half)
    more = await agent.ask("PUT", f"{path}?offset={2 * len(half)}", data=b"more")
    assert more.json()["length"] == 2 * len(half) + 4
    log = (await rig.ask("GET", f"/v1/jobs/{row.job}/logs")).data
    assert log[: 2**20] == b"x" * 2**20
    assert log[2**20 :] == b"\n[the log is cut here: over 1 MiB]\n"


async def test_an_agent_writes_logs_of_its_own_ranks_only(rig: Rig) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south")
    assert (await north.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset=0", data=b"x")).status == 200
    assert (await north.ask("PUT", f"/agent/v1/logs/{row.id}/1?offset=0", data=b"x")).status == 404
    assert (await south.ask("PUT", f"/agent/v1/logs/{row.id}/7?offset=0", data=b"x")).status == 404
    alone = await placed(rig, "north")
    assert (await south.ask("PUT", f"/agent/v1/logs/{alone.id}/0?offset=0", data=b"x")).status == 404
    assert (await south.ask("PUT", f"/agent/v1/outputs/{alone.id}", data=archive(a="b"))).status == 404
    assert (await north.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset=-1", data=b"x")).status == 400


async def test_a_compressed_part_of_a_log_is_kept_as_it_was_written(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north")
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    path = f"/agent/v1/logs/{row.id}/0?offset="
    await agent.ask("PUT", f"{path}0&zipped=true", data=gzip.compress(text))
    await agent.ask("PUT", f"{path}{len(text)}", data=b"and plain\n")
    assert (await rig.ask("GET", f"/v1/jobs/{row.job}/logs")).data == text + b"and plain\n"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzip.compress(bytes(2**24 + 1)), 413),
        (gzip.compress(b"a line\n")[:-1], 400),
        (gzip.compress(b"a line\n") + b"more", 400),
        (b"a line\n", 400),
        (b"", 400),
    ],
    ids=["a bomb", "cut", "more behind it", "plain", "empty"],
)
async def test_what_does_not_unpack_to_a_part_of_a_log_is_refused(rig: Rig, body: bytes, status: int) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north")
    path = f"/agent/v1/logs/{row.id}/0?offset=0&zipped=true"
    assert (await agent.ask("PUT", path, data=body)).status == status


async def test_the_last_lines_of_a_log(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north")
    text = b"".join(b"line %d\n" % number for number in range(20_000))
    await agent.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset=0", data=text)
    logs = f"/v1/jobs/{row.job}/logs"
    last = await rig.ask("GET", f"{logs}?tail=2")
    assert last.data == b"line 19998\nline 19999\n"
    assert int(last.headers["X-Federator-Offset"]) == len(text) - len(last.data)
    assert (await rig.ask("GET", f"{logs}?tail=15000")).data == text[text.index(b"line 5000\n") :]
    assert (await rig.ask("GET", f"{logs}?tail=90000")).data == text
    assert (await rig.ask("GET", f"{logs}?tail=0")).data == b""
    await agent.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset={len(text)}", data=b"unfinished")
    assert (await rig.ask("GET", f"{logs}?tail=1")).data == b"unfinished"


async def test_a_log_is_followed_from_before_the_start_over_a_second_attempt_to_the_end(rig: Rig) -> None:
    agent = await rig.agent()
    job_id = await rig.submit()
    async with rig.open("GET", f"/v1/jobs/{job_id}/logs?follow=true") as response:
        for attempt in (1, 2):
            job = rig.world.job(job_id)
            row = msgspec.structs.replace(
                await placed(rig, "north"), id=f"plc-try-{attempt}", job=job_id, epoch=attempt
            )
            await rig.world.put(
                row, msgspec.structs.replace(job, status=JobStatus.RUNNING, placement=row.id, epoch=attempt)
            )
            await agent.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset=0", data=b"try %d\n" % attempt)
            assert await response.content.readline() == b"try %d\n" % attempt
            await rig.world.put(msgspec.structs.replace(row, status=PlacementStatus.FAILED))
        await agent.ask("PUT", "/agent/v1/logs/plc-try-2/0?offset=6", data=b"last\n")
        await rig.world.put(msgspec.structs.replace(rig.world.job(job_id), status=JobStatus.FAILED))
        assert await asyncio.wait_for(response.content.read(), PATIENCE_S) == b"last\n"


async def test_the_log_of_a_success_ends_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent has brought it home before it said so: nobody waits whether more comes."""
    monkeypatch.setattr(logs, "SETTLE_S", 3600.0)
    agent = await rig.agent()
    row = await placed(rig, "north")
    await agent.ask("PUT", f"/agent/v1/logs/{row.id}/0?offset=0", data=b"all of it\n")
    done = msgspec.structs.replace(rig.world.job(row.job), status=JobStatus.SUCCEEDED)
    await rig.world.put(msgspec.structs.replace(row, status=PlacementStatus.SUCCEEDED), done)
    for which in ("", f"&placement={row.id}"):
        async with rig.open("GET", f"/v1/jobs/{row.job}/logs?follow=true{which}") as response:
            assert await asyncio.wait_for(response.content.read(), PATIENCE_S) == b"all of it\n"


async def test_outputs_of_a_gang_over_two_members_come_as_one_archive(rig: Rig) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", outputs=["**"])
    before = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    assert before.status == 404
    await north.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(a="1", both="x"))
    await north.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(a="2", both="x"))
    await south.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(b="1", both="y"))
    outputs = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    assert outputs.headers["Content-Type"] == "application/gzip"
    assert names_in(outputs.data) == ["a", "b", "both"]
    assert (await rig.ask("GET", f"/v1/jobs/{row.job}")).json()["outputs"] is True


async def test_outputs_are_listed_with_their_sizes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", outputs=["**"])
    path = f"/v1/jobs/{row.job}/outputs/files"
    assert (await rig.ask("GET", path)).status == 404
    await north.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(a="12345", both="x"))
    await south.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(b="1", both="yy"))
    found = (await rig.ask("GET", path)).json()
    files = [("a", 5), ("b", 1), ("both", 1)]
    assert [(each["path"], each["size"]) for each in found["files"]] == files
    assert found["complete"] is True
    assert (await rig.ask("GET", path, "bob")).status == 403
    for limit in ("MOST_LISTED", "LISTED_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(files_of_jobs, limit, 1)
            found = (await rig.ask("GET", path)).json()
        assert ([each["path"] for each in found["files"]], found["complete"]) == (["a"], False), limit


async def test_of_files_that_several_members_have_that_of_the_lowest_rank_is_kept(rig: Rig) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "south", "north", outputs=["**"])
    for agent, text in ((north, "rank 1"), (south, "rank 0")):
        await agent.ask("PUT", f"/agent/v1/outputs/{row.id}", data=archive(model=text))
    outputs = await rig.ask("GET", f"/v1/jobs/{row.job}/outputs")
    with tarfile.open(fileobj=io.BytesIO(outputs.data), mode="r:gz") as merged:
        kept = merged.extractfile("model")
        assert kept is not None
        assert kept.read() == b"rank 0"


async def test_the_logs_of_a_gang_over_two_members_are_kept_by_rank(rig: Rig) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", "north")
    for agent, rank in ((north, 0), (south, 1), (north, 2)):
        text = b"I am %d\n" % rank
        assert (await agent.ask("PUT", f"/agent/v1/logs/{row.id}/{rank}?offset=0", data=text)).status == 200
    for rank in range(3):
        log = await rig.ask("GET", f"/v1/jobs/{row.job}/logs?node={rank}")
        assert log.data == b"I am %d\n" % rank


async def test_an_older_attempts_outputs_do_not_replace_a_newer_ones(rig: Rig) -> None:
    agent = await rig.agent()
    old = await placed(rig, "north")
    new = msgspec.structs.replace(old, id="plc-new", epoch=2)
    await rig.world.put(new)
    await agent.ask("PUT", "/agent/v1/outputs/plc-new", data=archive(new="1"))
    await agent.ask("PUT", f"/agent/v1/outputs/{old.id}", data=archive(old="1"))
    assert names_in((await rig.ask("GET", f"/v1/jobs/{old.job}/outputs")).data) == ["new"]
