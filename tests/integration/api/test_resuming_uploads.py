"""Outputs and work directories that a thin link cuts again and again: what has come counts, what is damaged begins anew, and nobody else's is touched."""

import asyncio
import random
from collections.abc import AsyncIterator

from federator.kernel.ids import content_hash
from tests.integration.api.rig import Answer, HttpAgent, Rig, archive, names_in
from tests.integration.api.test_agents import placed
from tests.support.waiting import until

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


async def send(rig: Rig, offset: int, body: bytes, *, data: bytes = DATA, who: str = "ada") -> Answer:
    """These bytes of a work directory, from that offset on."""
    path = f"/v1/blobs/{content_hash(data)}?size={len(data)}&offset={offset}"
    return await rig.ask("PUT", path, who, data=body)


async def come(rig: Rig, *, data: bytes = DATA, who: str = "ada") -> int:
    """How much of it has come."""
    return int((await send(rig, 0, b"", data=data, who=who)).json()["length"])


async def test_a_work_directory_goes_on_where_it_was_cut_and_counts_once_it_is_whole(rig: Rig) -> None:
    path = f"/v1/blobs/{content_hash(DATA)}"
    assert await come(rig) == 0
    assert (await send(rig, 0, DATA[:20_000])).json() == {"length": 20_000}
    assert (await rig.ask("HEAD", path)).status == 404
    assert await come(rig, who="bob") == 0, "nobody learns of what others have begun"
    assert (await send(rig, 40_000, DATA[40_000:])).json() == {"length": 20_000}, "leaves no gap"
    assert (await send(rig, 20_000, bytes(len(DATA) - 20_000))).json() == {"length": 0}, "damaged"
    assert (await send(rig, 0, DATA[:20_000])).json() == {"length": 20_000}
    assert (await send(rig, 20_000, DATA[20_000:])).json() == {"length": len(DATA)}
    assert (await rig.ask("HEAD", path)).status == 200
    assert (await rig.ask("HEAD", path, "bob")).status == 404
    assert rig.world.core.blobs.usage().logs_bytes == 0, "no second copy stays"


async def test_what_people_have_begun_is_a_few_each_and_waits_for_a_while(rig: Rig) -> None:
    many = [archive(model=f"{number}{NOISE}") for number in range(6)]
    await send(rig, 0, many[0][:1000], data=many[0], who="bob")
    for data in many:
        await send(rig, 0, data[:1000], data=data)
    assert [await come(rig, data=data) > 0 for data in many[2:]] == [True] * 4
    assert rig.world.core.blobs.usage().logs_bytes == 5 * 1000
    retention = rig.world.core.sweeper.retention
    await retention.sweep()
    rig.world.clock.advance(retention.settings.unused_blob_s / 2)
    await send(rig, 1000, many[5][1000:2000], data=many[5])
    await retention.sweep()
    rig.world.clock.advance(retention.settings.unused_blob_s / 2)
    await retention.sweep()
    assert rig.world.core.blobs.usage().logs_bytes == 2000, "the one that has grown since"


async def test_what_is_no_work_directory_of_that_size_is_refused(rig: Rig) -> None:
    huge = 1 + rig.world.core.settings.limits.blob_mib * 2**20
    digest = content_hash(DATA)
    for path, status in (
        (f"{digest}?size={huge}", 413),
        (f"..%2f..%2fetc?size={len(DATA)}", 400),
        (f"{digest}?size=10", 400),
        (f"{digest}?size={len(DATA)}&offset=-1", 400),
    ):
        assert (await rig.ask("PUT", f"/v1/blobs/{path}", data=DATA)).status == status, path
    assert (await rig.ask("HEAD", f"/v1/blobs/{digest}")).status == 404


async def test_an_upload_whose_place_others_took_meanwhile_leaves_nothing_uncounted(rig: Rig) -> None:
    many = [archive(model=f"{number}{NOISE}") for number in range(5)]
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield many[0][:1000]
        await go_on.wait()
        yield many[0][1000:]

    path = f"/v1/blobs/{content_hash(many[0])}?size={len(many[0])}&offset=0"
    slow = asyncio.ensure_future(rig.ask("PUT", path, data=slowly()))
    await until(lambda: rig.world.core.blobs.usage().logs_bytes == 1000)
    for data in many[1:]:
        await send(rig, 0, data[:1000], data=data)
    go_on.set()
    assert (await slow).status == 429
    assert rig.world.core.blobs.usage().logs_bytes == 4 * 1000
