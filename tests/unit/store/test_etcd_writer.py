"""Transactions that share a request: in their order, apart from each other, and each with an outcome of its own."""

import asyncio
from collections.abc import Callable

import pytest
from aetcd import rpc
from hypothesis import given
from hypothesis import strategies as st

from federator.kernel.errors import FederatorError, OutcomeUnknown, Permanent
from federator.store import etcd_writer
from federator.store.etcd_link import EtcdReply
from federator.store.etcd_writer import Writer

KEYS = [b"a", b"b", b"c", b"d"]


class Etcd:
    """Takes requests one after another, as etcd does: all comparisons of one first, then its writes. What it `refuses` is refused whole."""

    def __init__(self) -> None:
        self.revisions: dict[bytes, int] = {}
        self.revision = 1
        self.requests: list[list[rpc.TxnRequest]] = []
        self.refuses: Callable[[list[rpc.TxnRequest]], FederatorError | None] = lambda _parts: None

    async def call(self, _pick: object, request: rpc.TxnRequest, *, writes: bool) -> EtcdReply:
        assert writes
        await asyncio.sleep(0)
        shared = [op.request_txn for op in request.success if op.HasField("request_txn")]
        parts = shared or [request]
        if error := self.refuses(parts):
            raise error
        self.requests.append(parts)
        hold = [all(self.revisions.get(c.key, 0) == c.mod_revision for c in part.compare) for part in parts]
        self.revision += any(hold)
        for part, holds in zip(parts, hold, strict=True):
            for op in part.success if holds else ():
                self.revisions[op.request_put.key] = self.revision
        header = rpc.ResponseHeader(revision=self.revision)
        said = [rpc.TxnResponse(succeeded=holds) for holds in hold]
        if not shared:
            return EtcdReply(rpc.TxnResponse(header=header, succeeded=hold[0]), repeated=False)
        responses = [rpc.ResponseOp(response_txn=each) for each in said]
        return EtcdReply(rpc.TxnResponse(header=header, succeeded=True, responses=responses), repeated=False)


def txn(*written: bytes, absent: tuple[bytes, ...] = ()) -> rpc.TxnRequest:
    return rpc.TxnRequest(
        compare=[
            rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=key, mod_revision=0)
            for key in absent
        ],
        success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key)) for key in written],
    )


def keys(requests: list[list[rpc.TxnRequest]]) -> list[list[bytes]]:
    return [[part.success[0].request_put.key for part in parts] for parts in requests]


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


async def send(etcd: Etcd, *requests: rpc.TxnRequest) -> list[bool | FederatorError]:
    writer = Writer(etcd)  # type: ignore[arg-type]
    outcomes = await asyncio.gather(*map(writer.send, requests), return_exceptions=True)
    await writer.finish()
    return [each if isinstance(each, FederatorError) else each.message.succeeded for each in outcomes]  # type: ignore[union-attr]


async def test_what_is_urgent_goes_before_all_that_waits(etcd: Etcd) -> None:
    writer = Writer(etcd)  # type: ignore[arg-type]
    many = [asyncio.create_task(writer.send(txn(b"%d" % number))) for number in range(500)]
    await asyncio.sleep(0)
    outcome = await writer.send(txn(b"alive"), urgent=True)
    assert outcome.message.succeeded
    await asyncio.gather(*many)
    sent = [key for request in keys(etcd.requests) for key in request]
    assert sent.index(b"alive") <= etcd_writer.IN_FLIGHT * etcd_writer.SHARED
    assert len(sent) == 501


async def test_what_comes_while_others_are_on_their_way_shares_a_request(etcd: Etcd) -> None:
    names = [b"%02d" % number for number in range(etcd_writer.IN_FLIGHT + etcd_writer.SHARED + 1)]
    assert await send(etcd, *map(txn, names)) == [True] * len(names)
    sizes = [len(parts) for parts in etcd.requests]
    assert sizes == [1] * etcd_writer.IN_FLIGHT + [etcd_writer.SHARED, 1]
    assert [name for parts in keys(etcd.requests) for name in parts] == names


async def test_what_is_refused_costs_only_itself(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_writer, "IN_FLIGHT", 1)
    etcd.refuses = lambda parts: Permanent("no") if any(txn(b"c") == part for part in parts) else None
    first, *rest = await send(etcd, txn(b"x"), *map(txn, KEYS))
    assert first is True
    assert [each if isinstance(each, bool) else type(each) for each in rest] == [True, True, Permanent, True]


async def test_where_nobody_answers_the_outcome_of_all_is_unknown(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_writer, "IN_FLIGHT", 1)
    etcd.refuses = lambda parts: OutcomeUnknown("silence") if len(parts) > 1 else None
    first, *rest = await send(etcd, txn(b"x"), *map(txn, KEYS))
    assert first is True
    assert {type(each) for each in rest} == {OutcomeUnknown}
    assert keys(etcd.requests) == [[b"x"]], "none was sent again"


async def test_a_caller_that_leaves_takes_nothing_back(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_writer, "IN_FLIGHT", 1)
    writer = Writer(etcd)  # type: ignore[arg-type]
    tasks = [asyncio.ensure_future(writer.send(txn(key))) for key in KEYS]
    await asyncio.sleep(0)
    tasks[1].cancel()
    assert (await tasks[2]).message.succeeded
    await writer.finish()
    assert set(etcd.revisions) == set(KEYS)


async def test_large_ones_go_alone(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_writer, "IN_FLIGHT", 1)
    large = txn(*(b"l%d" % number for number in range(etcd_writer.SMALL + 1)))
    await send(etcd, txn(b"x"), txn(b"a"), large, txn(b"b"), txn(b"c"))
    assert keys(etcd.requests) == [[b"x"], [b"a"], [b"l0"], [b"b", b"c"]]


written_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True).map(tuple)
compared_keys = st.sets(st.sampled_from(KEYS)).map(tuple)


@given(st.lists(st.tuples(written_keys, compared_keys), min_size=1, max_size=12))
async def test_outcomes_are_those_of_one_after_another(requests: list[tuple[tuple[bytes, ...], ...]]) -> None:
    """Whatever shares a request, what succeeds is what would succeed one by one in the order in which they came."""
    etcd, alone = Etcd(), Etcd()
    sent = [txn(*written, absent=absent) for written, absent in requests]
    expected = [(await send(alone, each))[0] for each in sent]
    before = etcd_writer.IN_FLIGHT
    etcd_writer.IN_FLIGHT = 1
    try:
        assert await send(etcd, *sent) == expected
    finally:
        etcd_writer.IN_FLIGHT = before
    assert set(etcd.revisions) == set(alone.revisions)
