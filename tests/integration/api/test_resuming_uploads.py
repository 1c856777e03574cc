"""Outputs that a thin link cuts again and again: what has come counts, what is damaged begins anew, and nobody else's is touched."""

import random

from federator.kernel.ids import content_hash
from tests.integration.api.rig import Answer, HttpAgent, Rig, archive, names_in
from tests.integration.api.test_agents import placed

NOISE = random.Random(7).randbytes(50_000).hex()
DATA = archive(model=NOISE)
OTHER = archive(model=NOISE[::-1])


async def put(agent: HttpAgent, placement: str, offset: int, body: bytes, data: bytes = DATA) -> Answer:
    """These bytes of the archive, from that offset on."""
    query = f"digest={content_hash(data)}&size={len(data)}&offset={offset}"
    return await agent.ask("PUT", f"/agent/v1/outputs/{placement}?{query}", data=body)


async def length(agent: HttpAgent, placement: str, data: bytes = DATA) -> int:
    """How much has come."""
    return int((await put(agent, placement, 0, b"", data)).json()["length"])


async def collected(rig: Rig, job: str) -> bytes:
    """What people are given, or nothing."""
    answer = await rig.ask("GET", f"/v1/jobs/{job}/outputs")
    return answer.data if answer.status == 200 else b""


async def test_an_upload_goes_on_where_it_was_cut_and_counts_once_it_is_whole(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north", outputs=["**"])
    assert await length(agent, row.id) == 0
    assert (await put(agent, row.id, 0, DATA[:20_000])).json() == {"length": 20_000}
    assert await collected(rig, row.job) == b""
    assert (await put(agent, row.id, 15_000, DATA[15_000:30_000])).json() == {"length": 30_000}, "overlaps"
    assert (await put(agent, row.id, 40_000, DATA[40_000:])).json() == {"length": 30_000}, "leaves no gap"
    assert (await put(agent, row.id, 30_000, DATA[30_000:])).json() == {"length": len(DATA)}
    assert await collected(rig, row.job) == DATA
    assert await length(agent, row.id) == len(DATA), "the answer may have been lost"
    assert rig.world.core.blobs.usage().logs[row.id] == 0, "no second copy stays"


async def test_what_was_damaged_on_the_way_begins_again(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north", outputs=["**"])
    await put(agent, row.id, 0, DATA[:20_000])
    assert (await put(agent, row.id, 20_000, bytes(len(DATA) - 20_000))).json() == {"length": 0}
    assert await collected(rig, row.job) == b""
    assert (await put(agent, row.id, 0, DATA)).json() == {"length": len(DATA)}
    assert await collected(rig, row.job) == DATA


async def test_another_archive_of_the_same_host_takes_the_place_of_what_was_begun(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north", outputs=["**"])
    await put(agent, row.id, 0, DATA[:20_000])
    await put(agent, row.id, 0, OTHER[:10_000], OTHER)
    assert rig.world.core.blobs.usage().logs[row.id] == 10_000
    assert await length(agent, row.id) == 0


async def test_hosts_of_a_gang_upload_beside_each_other(rig: Rig) -> None:
    north, south = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", "south", outputs=["**"])
    await put(north, row.id, 0, DATA[:20_000])
    await put(south, row.id, 0, archive(b="2"), archive(b="2"))
    await put(north, row.id, 20_000, DATA[20_000:])
    assert names_in(await collected(rig, row.job)) == ["b", "model"]


async def test_what_is_no_archive_of_that_size_is_refused(rig: Rig) -> None:
    agent, stranger = await rig.agent("north"), await rig.agent("south")
    row = await placed(rig, "north", outputs=["**"])
    huge = 1 + rig.world.core.settings.limits.blob_mib * 2**20
    digest = content_hash(DATA)
    for query, status in (
        (f"digest={digest}&size={huge}&offset=0", 413),
        ("digest=..%2f..%2fetc&size=1&offset=0", 400),
        (f"digest={digest}&size=4&offset=-1", 400),
        (f"digest={digest}&size=4&offset=0", 400),
    ):
        answer = await agent.ask("PUT", f"/agent/v1/outputs/{row.id}?{query}", data=b"no archive")
        assert (answer.status, query) == (status, query)
    plain = b"plain text"
    assert (await put(agent, row.id, 0, plain, plain)).status == 400
    assert (await put(stranger, row.id, 0, DATA)).status == 404
    assert await collected(rig, row.job) == b""


async def test_a_download_goes_on_where_it_was_cut(rig: Rig) -> None:
    agent = await rig.agent()
    row = await placed(rig, "north", outputs=["**"])
    await put(agent, row.id, 0, DATA)
    path = f"/v1/jobs/{row.job}/outputs"
    rest = await rig.ask("GET", path, headers={"Range": "bytes=1000-"})
    assert (rest.status, rest.data) == (206, DATA[1000:])
    assert rest.headers["Content-Range"] == f"bytes 1000-{len(DATA) - 1}/{len(DATA)}"
    for other in ("bytes=0-10", "bytes=-5", f"bytes={len(DATA)}-", "lines=1-", "bytes=" + "9" * 40 + "-"):
        whole = await rig.ask("GET", path, headers={"Range": other})
        assert (whole.status, whole.data) == (200, DATA)
