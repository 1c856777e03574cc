"""The etcd store where the cluster is the difference: members that die or hang, answers that are lost, limits of size, and room that runs out."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aetcd import rpc

from federator.kernel.errors import Damaged, Invalid, OutcomeUnknown, StoreConflict, Unavailable
from federator.ports import Compare, Put, Transaction
from federator.settings import EtcdSettings
from federator.store import etcd_writer
from federator.store.blobs import MemoryBlobs
from federator.store.etcd import INLINE_BYTES, PAGE, EtcdStore
from federator.store.etcd_link import Member, read_endpoints
from tests.testbeds.etcd import EtcdCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture
async def store(cluster: EtcdCluster, request: pytest.FixtureRequest) -> AsyncIterator[EtcdStore]:
    store = await opened(cluster, request.node.name)
    yield store
    await store.close()


async def opened(
    cluster: EtcdCluster, prefix: str, blobs: MemoryBlobs | None = None, **fields: Any
) -> EtcdStore:
    settings = EtcdSettings(endpoints=cluster.endpoints, shared_dir="", prefix=f"/{prefix}", **fields)
    return await EtcdStore.open(settings, blobs or MemoryBlobs(), outside={"spec/": -1})


async def put(store: EtcdStore, key: str, value: bytes = b"v") -> int:
    return await store.commit(Transaction(puts=(Put(key, value),)))


# ------------------------------------------------------------------------------------------------------------ members


async def test_it_goes_on_when_the_member_it_talks_to_is_killed(
    cluster: EtcdCluster, store: EtcdStore
) -> None:
    await put(store, "before")
    cluster.kill(0)
    revision = await put(store, "after")
    assert [item.key for item in (await store.range("")).items] == ["after", "before"]
    cluster.start(0)
    cluster.wait_healthy()
    assert (item := await store.get("after")) is not None
    assert item.revision == revision


async def test_a_renewal_is_taken_although_too_much_waits(
    store: EtcdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is asked for more than etcd can do would lose its term, and all that waits with it."""
    monkeypatch.setattr(etcd_writer, "MAX_WAITING", 0)
    with pytest.raises(Unavailable, match="too many"):
        await put(store, "job")
    await store.commit(Transaction(puts=(Put("alive", b"v", 60.0),)))
    assert await store.get("alive") is not None


async def test_it_goes_on_when_a_member_hangs(cluster: EtcdCluster, store: EtcdStore) -> None:
    present = store.link.present
    cluster.pause(present)
    try:
        await put(store, "a")
        assert store.link.present != present
    finally:
        cluster.resume(present)
        cluster.wait_healthy()


async def test_without_a_quorum_a_write_is_of_unknown_outcome_and_a_read_fails_and_then_all_is_well(
    cluster: EtcdCluster,
) -> None:
    store = await opened(cluster, "quorum", patience_s=1.5)
    revision = await put(store, "a")
    cluster.kill(0)
    cluster.kill(1)
    started_s = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="does not answer"):
        await put(store, "b")
    with pytest.raises(Unavailable, match="does not answer"):
        await store.get("a")
    assert time.monotonic() - started_s < 60, "it gives up"
    cluster.start(0)
    cluster.start(1)
    cluster.wait_healthy()
    assert await put(store, "c") > revision
    await store.close()


class Lossy:
    """A member that carries transactions out, and whose first answers to them are lost."""

    def __init__(self, member: Member, lost: int) -> None:
        self._member = member
        self.channel, self.lease = member.channel, member.lease
        self.maintenance = member.maintenance
        self.lost = lost
        self.kv = self
        self.Range = member.kv.Range

    async def Txn(self, request: rpc.TxnRequest, **options: Any) -> rpc.TxnResponse:  # noqa: N802 - gRPC's name
        answer = await self._member.kv.Txn(request, **options)
        if self.lost > 0:
            self.lost -= 1
            none = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, "the connection broke")
        return answer


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_write_whose_answer_is_lost_is_done_once_and_known_to_be(store: EtcdStore, lost: int) -> None:
    old = await put(store, "row")
    await put(store, "gone")
    store.link.members = [Lossy(member, lost) for member in store.link.members[:1]]  # type: ignore[misc]
    transaction = Transaction((Compare("row", old),), (Put("row", b"new"), Put("more", b"")), ("gone",))
    revision = await store.commit(transaction)
    page = await store.range("")
    assert {item.key: item.revision for item in page.items} == {"row": revision, "more": revision}


async def test_a_write_whose_answer_is_lost_and_that_lost_its_race_is_a_conflict(store: EtcdStore) -> None:
    await put(store, "row", b"another's")
    store.link.members = [Lossy(member, 1) for member in store.link.members[:1]]  # type: ignore[misc]
    with pytest.raises(StoreConflict):
        await store.commit(Transaction((Compare("row", 1),), (Put("row", b"ours"),)))
    assert (item := await store.get("row")) is not None
    assert item.value == b"another's"


# ------------------------------------------------------------------------------------------------------------- sizes


async def test_a_page_of_the_largest_inline_values_is_below_grpcs_limit(store: EtcdStore) -> None:
    keys = [f"row/{number:04d}/{'k' * 180}" for number in range(PAGE + 50)]
    for start in range(0, len(keys), store.MAX_OPERATIONS):
        batch = keys[start : start + store.MAX_OPERATIONS]
        await store.commit(Transaction(puts=tuple(Put(key, bytes(INLINE_BYTES)) for key in batch)))
    page = await store.range("row/", limit=5000)
    rest = await store.range("row/", after=page.next_after, limit=5000)
    assert [item.key for item in page.items + rest.items] == keys
    assert rest.next_after is None


async def test_large_values_and_specs_are_outside_etcd_by_hash(cluster: EtcdCluster) -> None:
    blobs = MemoryBlobs()
    store = await opened(cluster, "outside", blobs)
    large = bytes(3 * 2**20)
    await store.commit(Transaction(puts=(Put("large", large), Put("spec/1", b"small"), Put("row", b"in"))))
    assert [item.value for item in (await store.range("")).items] == [large, b"in", b"small"]
    assert len(blobs.usage().blobs) == 2
    kept = cluster.ctl("get", "--prefix", "/outside/data/", "--print-value-only")
    assert "small" not in kept
    assert "in" in kept
    for digest in blobs.usage().blobs:
        assert blobs.drop(digest, 0)
    assert (item := await store.get("row")) is not None
    assert item.value == b"in"
    with pytest.raises(Damaged, match="shared_dir"):
        await store.get("spec/1")
    await store.close()


async def test_large_values_that_no_key_names_are_dropped_after_a_day(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.store.etcd_upkeep.UNUSED_S", 0.0)
    monkeypatch.setattr("federator.store.etcd_upkeep.DROP_EVERY_S", 0.0)
    blobs = MemoryBlobs()
    store = await opened(cluster, "unused", blobs)
    await put(store, "spec/1", b"deleted")
    await put(store, "spec/2", b"replaced")
    await put(store, "spec/2", b"kept")
    await store.commit(Transaction(deletes=("spec/1",)))
    others = blobs.put(b"/of-another/data/spec/3\nkept")
    await store.upkeep.drop_unused()
    assert (item := await store.get("spec/2")) is not None
    assert item.value == b"kept"
    assert blobs.has(others)
    assert len(blobs.usage().blobs) == 2
    await store.close()


async def test_two_federations_on_one_cluster_do_not_see_each_other(cluster: EtcdCluster) -> None:
    one, two = await opened(cluster, "fed"), await opened(cluster, "fed2")
    await put(one, "a")
    assert await two.get("a") is None
    assert (await two.range("")).items == ()
    assert one.incarnation != two.incarnation
    await one.close()
    await two.close()


# -------------------------------------------------------------------------------------------------------------- upkeep


async def test_history_is_compacted_when_it_is_old(cluster: EtcdCluster) -> None:
    store = await opened(cluster, "compact", compact_after_s=0.01)
    first = await put(store, "a")
    for number in range(3):
        await put(store, "a", b"%d" % number)
    await store.upkeep.look()
    await asyncio.sleep(0.05)
    await store.upkeep.forget()
    message = (await store.link.call(lambda member: member.kv.Range, rpc.RangeRequest(key=b"x"))).message
    with pytest.raises(Exception, match="compacted"):
        await store.link.call(lambda member: member.kv.Range, rpc.RangeRequest(key=b"x", revision=first))
    assert message.header.revision >= first
    await store.close()


async def test_beyond_the_size_that_is_allowed_nothing_new_is_taken(cluster: EtcdCluster) -> None:
    store = await opened(cluster, "size", size_mib=0)
    await store.upkeep.look()
    with pytest.raises(Unavailable, match=r"is full: \d+ MiB are in use, 0 are allowed"):
        store.refuse_if_full()
    await put(store, "a")  # what is there already goes on
    await store.close()


async def test_a_cluster_without_room_says_so_and_is_well_again_once_it_has(tmp_path: Path) -> None:
    """The real alarm: a member with a quota of 2 MiB, filled, then compacted, defragmented and disarmed, as an operator would."""
    with EtcdCluster(
        tmp_path / "small", 1, durable=False, options=["--quota-backend-bytes", "2097152"]
    ) as small:
        store = await opened(small, "small")
        refusals: list[BaseException] = []
        for _ in range(
            100
        ):  # etcd measures itself only now and then, so the first writes too many may all get in
            fill = [put(store, "a", bytes(INLINE_BYTES)) for _ in range(300)]
            # To the last of them: one still on its way when there is room again would fill it again.
            answers = await asyncio.gather(*fill, return_exceptions=True)
            refusals = [answer for answer in answers if isinstance(answer, BaseException)]
            if refusals:
                break
        assert refusals
        for refusal in refusals:
            with pytest.raises(Unavailable, match=r"is full.*etcdctl alarm disarm"):
                raise refusal
        await store.upkeep.look()
        with pytest.raises(Unavailable, match="NOSPACE"):
            store.refuse_if_full()
        assert await store.get("a") is not None
        small.ctl("del", "/small/data/a")  # what etcd still allows
        revision = (await store.range("")).revision
        small.ctl("compact", str(revision), "--physical")
        small.ctl("defrag")
        small.ctl("alarm", "disarm")
        await store.upkeep.look()
        store.refuse_if_full()
        await put(store, "a")
        await store.close()


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "endpoints", [(), ("ftp://a:1",), ("a",), ("a:b",), ("http://a:1", "https://b:1"), (":1",)]
)
def test_endpoints_that_cannot_be_meant_are_refused_by_key(endpoints: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match=r"store\.etcd\.endpoints"):
        read_endpoints(endpoints)


def test_endpoints_with_and_without_tls() -> None:
    assert read_endpoints(("http://a:1", "b:2")) == (["a:1", "b:2"], False)
    assert read_endpoints(("https://a:1",)) == (["a:1"], True)


async def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = EtcdSettings(endpoints=("http://127.0.0.1:9",), shared_dir="", patience_s=0.3)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 does not answer"):
        await EtcdStore.open(settings, MemoryBlobs())


async def test_the_incarnation_outlives_the_process_and_changes_when_the_store_is_adopted(
    cluster: EtcdCluster,
) -> None:
    store = await opened(cluster, "incarnation")
    first = store.incarnation
    await store.close()
    with contextlib.suppress(Unavailable):
        store.refuse_if_full()
    store = await opened(cluster, "incarnation")
    assert store.incarnation == first
    second = await store.adopt()
    await store.close()
    store = await opened(cluster, "incarnation")
    assert store.incarnation == second != first
    await store.close()
