"""Several transactions in one request to etcd, so that many callers share what one of them costs.

A transaction costs etcd a round of its members and a sync to disk, and Python's gRPC a third of a millisecond of the processor, whatever is in it. So while
requests are on their way, those that come gather, and the next request takes all of them as transactions within one: each succeeds or fails by its own
comparisons. A lone caller waits for nobody.

etcd evaluates all comparisons of a request before it writes anything of it. Two transactions of which one writes what the other writes or compares
would be judged as if they were alone, so they are never in the same request: the later one waits for the next.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from aetcd import rpc

from federator.kernel.errors import OutcomeUnknown
from federator.store.etcd_link import EtcdLink, Member

IN_FLIGHT = 4
"""Requests that are on their way at once."""
SHARED = 32
"""Transactions in one request."""
SMALL = 64
"""Operations, and comparisons, of a transaction that may share a request: etcd takes 128 of each, with those around it counted."""
SHARED_BYTES = 512 * 1024
"""Of all transactions in one request; etcd takes 1.5 MiB."""
MAX_WAITING = 20_000
"""Transactions that wait before further ones are turned away."""


class TransactionOutcome(NamedTuple):
    """What became of a transaction. `repeated`: an earlier attempt got no answer, and may have taken effect."""

    message: rpc.TxnResponse
    revision: int
    repeated: bool


class _Waiting(NamedTuple):
    """A transaction on its way, and the keys by which it may be in another's way."""

    request: rpc.TxnRequest
    outcome: asyncio.Future[TransactionOutcome]
    written: frozenset[bytes]
    touched: frozenset[bytes]
    """Written or compared."""


class Writer:
    """Sends transactions, in the order in which they came, but for those that are urgent. Used from one event loop."""

    def __init__(self, link: EtcdLink) -> None:
        self._link = link
        self._waiting: deque[_Waiting] = deque()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether more would wait than is sensible."""
        return len(self._waiting) >= MAX_WAITING

    async def send(self, request: rpc.TxnRequest, *, urgent: bool = False) -> TransactionOutcome:
        """Its outcome. `urgent`: before all that waits. A caller that is cancelled does not take it back. Raises what the link does, `OutcomeUnknown` among it."""
        compared = frozenset(each.key for each in request.compare)
        written = frozenset(_written(op) for op in request.success)
        outcome: asyncio.Future[TransactionOutcome] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(request, outcome, written, compared | written)
        if urgent:
            self._waiting.appendleft(waiting)
        else:
            self._waiting.append(waiting)
        self._begin()
        return await outcome

    async def finish(self) -> None:
        """Return when nothing is on its way any more."""
        while self._sending:
            await asyncio.wait(self._sending)

    def _begin(self) -> None:
        """Send what waits, if there is room."""
        while self._waiting and len(self._sending) < IN_FLIGHT:
            task = asyncio.create_task(self._send(self._take()))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._begin()

    def _take(self) -> list[_Waiting]:
        """The first that waits, and as many behind it as may share its request."""
        taken = [self._waiting.popleft()]
        if not _small(taken[0].request):
            return taken
        size = taken[0].request.ByteSize()
        written, touched = set(taken[0].written), set(taken[0].touched)
        while self._waiting and len(taken) < SHARED:
            following = self._waiting[0]
            size += following.request.ByteSize()
            apart = following.written.isdisjoint(touched) and following.touched.isdisjoint(written)
            if not (apart and _small(following.request) and size <= SHARED_BYTES):
                break
            written |= following.written
            touched |= following.touched
            taken.append(self._waiting.popleft())
        return taken

    async def _send(self, taken: list[_Waiting]) -> None:
        alone = len(taken) == 1
        request = taken[0].request
        if not alone:
            request = rpc.TxnRequest(success=[rpc.RequestOp(request_txn=each.request) for each in taken])
        try:
            answer = await self._link.call(_txn, request, writes=True)
        except Exception as error:  # noqa: BLE001 - each caller is told, whatever it is
            if not alone and not isinstance(error, OutcomeUnknown):
                # Refused, with nothing written: what is wrong with one of them is not to cost the others.
                for each in taken:
                    await self._send([each])
                return
            for each in taken:
                if not each.outcome.done():
                    each.outcome.set_exception(error)
            return
        message = answer.message
        messages = [message] if alone else [op.response_txn for op in message.responses]
        for each, said in zip(taken, messages, strict=True):
            if not each.outcome.done():
                each.outcome.set_result(
                    TransactionOutcome(said, int(message.header.revision), answer.repeated)
                )


def _txn(member: Member) -> object:
    return member.kv.Txn


def _small(request: rpc.TxnRequest) -> bool:
    return max(len(request.compare), len(request.success)) <= SMALL


def _written(op: rpc.RequestOp) -> bytes:
    """The key that an operation writes or deletes."""
    is_put = op.HasField("request_put")
    return bytes(op.request_put.key if is_put else op.request_delete_range.key)
