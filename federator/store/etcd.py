"""The replicated store: an etcd cluster, for a dispatcher that survives the loss of its machine.

Ideal semantics: those of `federator.ports.Store`, whose revisions are etcd's own. Departures: a key lives a little longer than it was given (etcd
counts whole seconds, and a new etcd leader grants each lease its whole time again), never shorter; and others' writes to the cluster count in its
revisions.

What is large stays outside. etcd takes 1.5 MiB in one request and keeps everything in memory, so values over `INLINE_BYTES`, and under the
prefixes that are named as `outside` values over what is said there, are kept as blobs by hash, and the key holds the hash. That bounds what a page or a transaction can weigh:
`PAGE` inline values fit into gRPC's 4 MiB, and a whole transaction into etcd's 1.5 MiB, whatever is in them.

A write that got no answer is sent again as it was. Should its comparisons fail then, the keys themselves tell whether the first attempt had taken
effect. Only when no member answers at all does the outcome stay unknown (`OutcomeUnknown`).
"""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType

from aetcd import rpc

from federator.kernel.errors import Damaged, Invalid, StoreConflict, Unavailable
from federator.ports import Blobs, Item, Page, Put, Transaction
from federator.settings import EtcdSettings
from federator.store.etcd_link import EtcdLink, Member, read_credentials, read_endpoints
from federator.store.etcd_upkeep import Upkeep
from federator.store.etcd_writer import TransactionOutcome, Writer
from federator.store.transactions import MAX_OPERATIONS, check_key, check_range, check_transaction

INLINE_BYTES = 8192
NOTHING: Mapping[str, int] = MappingProxyType({})
PAGE = 400
"""Keys in one page: 400 of at most 8 KiB and their keys are below 4 MiB."""
RESTORING = b"restoring"
AFTER_ASCII = b"\x80"
INLINE, OUTSIDE = b"\0", b"\1"
"""The first byte of each stored value."""


class EtcdStore:
    """`federator.ports.Store` in an etcd cluster, below one prefix. Made by `open`; used from one event loop.

    `blobs` keeps large values; every dispatcher of a federation must be given the same.
    """

    MAX_OPERATIONS = MAX_OPERATIONS

    def __init__(
        self, link: EtcdLink, settings: EtcdSettings, blobs: Blobs, outside: Mapping[str, int]
    ) -> None:
        self.link = link
        self._writer = Writer(link)
        self._blobs = blobs
        self._outside = outside
        self._root = settings.prefix.rstrip("/").encode() + b"/"
        self.data = self._root + b"data/"
        self._incarnation = ""
        self.lineage = ""
        """A random name that outlives restores: of which store this is a state."""
        self.half_restored = False
        """Whether a restore was begun and has not come to its end."""
        self.upkeep = Upkeep(link, blobs, self.data, settings)

    @classmethod
    async def open(
        cls,
        settings: EtcdSettings,
        blobs: Blobs,
        *,
        outside: Mapping[str, int] = NOTHING,
        to_restore: bool = False,
    ) -> "EtcdStore":
        """Connect, and make the store if it is not there yet. Raises `Unavailable` when the cluster does not answer, `Invalid` when a restore has not come to its end."""
        addresses, secure = read_endpoints(settings.endpoints)
        credentials = (
            read_credentials(settings.ca_file, settings.cert_file, settings.key_file) if secure else None
        )
        store = cls(EtcdLink(addresses, credentials, settings.patience_s), settings, blobs, outside)
        try:
            await store._name()
            if not to_restore:
                store.refuse_half()
        except BaseException:
            await store.link.close()
            raise
        store.upkeep.start()
        return store

    @property
    def incarnation(self) -> str:
        """The random name made with the store, or when a restored one was adopted."""
        return self._incarnation

    async def get(self, key: str) -> Item | None:
        """The key's present value, or None."""
        check_key(key)
        answer = await self.link.call(_range, rpc.RangeRequest(key=self.data + key.encode()))
        items = await self._items(answer.message.kvs)
        return items[0] if items else None

    async def range(self, prefix: str, *, after: str | None = None, limit: int = 1000) -> Page:
        """Keys that start with `prefix`, strictly after `after`, in order, at most `limit`, and at most `PAGE`."""
        check_range(prefix, after, limit)
        first = max(self.data + prefix.encode(), self.data + (after or "").encode() + b"\0")
        last = self.data + prefix.encode() + AFTER_ASCII
        if after is None:
            first = self.data + prefix.encode()
        elif first >= last:
            first = last
        request = rpc.RangeRequest(key=first, range_end=last, limit=min(limit, PAGE))
        if first == last:
            request = rpc.RangeRequest(key=first, count_only=True)
        message = (await self.link.call(_range, request)).message
        items = await self._items(message.kvs)
        more = items[-1].key if message.more and items else None
        return Page(items=tuple(items), revision=message.header.revision, next_after=more)

    async def commit(self, transaction: Transaction) -> int:
        """Do it atomically and durably; return its revision. Raises `StoreConflict` when a comparison fails."""
        check_transaction(transaction)
        # Behind thousands of submissions a leader's renewal would come too late, and with the term all of them would fail.
        urgent = any(put.expires_in_s is not None for put in transaction.puts)
        if self._writer.full and not urgent:
            raise Unavailable("too many transactions are waiting for the etcd cluster already")
        request = await self.request_of(transaction)
        outcome = await self._writer.send(request, urgent=urgent)
        if outcome.message.succeeded:
            return outcome.revision
        if outcome.repeated:
            written = await self._written(request, transaction)
            if written is not None:
                return written
        raise StoreConflict(_first_changed(transaction, outcome))

    async def request_of(self, transaction: Transaction) -> rpc.TxnRequest:
        """What etcd is sent."""
        return rpc.TxnRequest(
            compare=[self._compare(each.key, each.revision) for each in transaction.compares],
            success=[
                *(_delete(self.data + key.encode()) for key in transaction.deletes),
                *(rpc.RequestOp(request_put=put) for put in await self._puts(transaction.puts)),
            ],
            failure=[_look(self.data + each.key.encode(), keys_only=True) for each in transaction.compares],
        )

    def refuse_if_full(self) -> None:
        """Raise `Unavailable` while etcd says that it is full, or is larger than the settings allow."""
        self.upkeep.refuse_if_full()

    async def adopt(self) -> str:
        """Give the store another incarnation, and return it: after a restore, and with no dispatcher running."""
        self._incarnation = secrets.token_hex(8)
        put = rpc.PutRequest(key=self._root + b"incarnation", value=self._incarnation.encode())
        await self.link.call(lambda member: member.kv.Put, put, writes=True)
        return self._incarnation

    def refuse_half(self) -> None:
        """Raise `Invalid` when a restore has not come to its end."""
        if self.half_restored:
            raise Invalid(
                "this store was being restored, and not all of it is there",
                field="$.store.etcd",
                remedy="run federator store restore again",
            )

    async def revision(self) -> int:
        """The present one."""
        request = rpc.RangeRequest(key=self._root, count_only=True)
        return int((await self.link.call(_range, request)).message.header.revision)

    async def rows_at(self, revision: int) -> AsyncIterator[tuple[str, bytes]]:
        """All keys and values as they were at that revision. Raises `Permanent` once it is compacted away."""
        first, last = self.data, self.data + AFTER_ASCII
        while True:
            request = rpc.RangeRequest(key=first, range_end=last, limit=PAGE, revision=revision)
            message = (await self.link.call(_range, request)).message
            for item in await self._items(message.kvs):
                yield item.key, item.value
            if not message.more:
                return
            first = message.kvs[-1].key + b"\0"

    async def begin_restore(self) -> None:
        """Have nobody open the store before `end_restore`."""
        put = rpc.PutRequest(key=self._root + RESTORING, value=b"1")
        await self.link.call(lambda member: member.kv.Put, put, writes=True)

    async def call_off_restore(self) -> None:
        """Take back `begin_restore`, as long as nothing else was changed."""
        request = rpc.TxnRequest(success=[_delete(self._root + RESTORING)])
        await self.link.call(_txn, request, writes=True)

    async def end_restore(self, lineage: str) -> str:
        """Adopt what was restored, as a state of that store; empty: of the present one. Returns the new incarnation."""
        self.lineage = lineage or self.lineage
        self._incarnation = secrets.token_hex(8)
        names = {b"incarnation": self._incarnation, b"lineage": self.lineage}
        puts = [rpc.PutRequest(key=self._root + key, value=name.encode()) for key, name in names.items()]
        whole = [_delete(self._root + RESTORING), *(rpc.RequestOp(request_put=put) for put in puts)]
        await self.link.call(_txn, rpc.TxnRequest(success=whole), writes=True)
        return self._incarnation

    async def close(self) -> None:
        """End the upkeep and all connections, once what is being written is written."""
        await self._writer.finish()
        await self.upkeep.stop()
        await self.link.close()
        await asyncio.to_thread(self._blobs.close)

    async def _name(self) -> None:
        """Read the names; whoever comes first makes them."""
        keys = (self._root + b"incarnation", self._root + b"lineage")
        puts = [rpc.PutRequest(key=key, value=secrets.token_hex(8).encode()) for key in keys]
        request = rpc.TxnRequest(
            compare=[_unchanged(keys[0], 0)], success=[rpc.RequestOp(request_put=put) for put in puts]
        )
        await self.link.call(_txn, request, writes=True)
        found = [(await self.link.call(_range, rpc.RangeRequest(key=key))).message.kvs[0] for key in keys]
        self._incarnation, self.lineage = (kv.value.decode() for kv in found)
        restoring = await self.link.call(_range, rpc.RangeRequest(key=self._root + RESTORING))
        self.half_restored = bool(restoring.message.kvs)

    def _compare(self, key: str, revision: int) -> rpc.Compare:
        return _unchanged(self.data + key.encode(), revision)

    async def _puts(self, puts: Sequence[Put]) -> list[rpc.PutRequest]:
        """As etcd takes them. Those that need something done first, all at once: each waits for a disk or for a lease."""
        special = [put for put in puts if put.expires_in_s is not None or self._is_outside(put)]
        made = dict(
            zip((put.key for put in special), await asyncio.gather(*map(self._put, special)), strict=True)
        )
        return [
            made.get(put.key) or rpc.PutRequest(key=self.data + put.key.encode(), value=INLINE + put.value)
            for put in puts
        ]

    def _is_outside(self, put: Put) -> bool:
        most = (size for prefix, size in self._outside.items() if put.key.startswith(prefix))
        return len(put.value) > next(most, INLINE_BYTES)

    async def _put(self, put: Put) -> rpc.PutRequest:
        key = self.data + put.key.encode()
        value = INLINE + put.value
        if self._is_outside(put):
            digest = await asyncio.to_thread(self._blobs.put, key + b"\n" + put.value)
            value = OUTSIDE + digest.encode()
        lease = 0
        if put.expires_in_s is not None:
            # A key may only live longer: its time counts from its own lease, granted now and shared with nobody.
            grant = rpc.LeaseGrantRequest(TTL=math.ceil(put.expires_in_s))
            lease = (await self.link.call(lambda member: member.lease.LeaseGrant, grant)).message.ID
        return rpc.PutRequest(key=key, value=value, lease=lease)

    async def _written(self, request: rpc.TxnRequest, transaction: Transaction) -> int | None:
        """The revision of an attempt that was not answered and had taken effect all the same; None: it had not."""
        puts = [op.request_put for op in request.success if op.HasField("request_put")]
        keys = [put.key for put in puts] + [self.data + key.encode() for key in transaction.deletes]
        looks = rpc.TxnRequest(success=[_look(key) for key in keys])
        message = (await self.link.call(_txn, looks)).message
        found = [op.response_range.kvs for op in message.responses]
        revisions = {kvs[0].mod_revision for kvs in found[: len(puts)] if kvs}
        as_put = all(kvs and kvs[0].value == put.value for put, kvs in zip(puts, found, strict=False))
        if not as_put or any(found[len(puts) :]) or len(revisions) > 1:
            return None
        return int(revisions.pop() if revisions else message.header.revision)

    async def _items(self, kvs: Sequence[rpc.KeyValue]) -> list[Item]:
        outside = {kv.key: kv for kv in kvs if kv.value[:1] == OUTSIDE}
        # Side by side: where they are in a bucket, each waits for its server.
        read = await asyncio.gather(*(asyncio.to_thread(self._item, kv) for kv in outside.values()))
        items = dict(zip(outside, read, strict=True))
        return [items.get(kv.key) or self._item(kv) for kv in kvs]

    def _item(self, kv: rpc.KeyValue) -> Item:
        value = kv.value[1:]
        if kv.value[:1] == OUTSIDE:
            kept = self._blobs.get(value.decode())
            head = kv.key + b"\n"
            if kept is None or not kept.startswith(head):
                raise Damaged(
                    f"{kv.key.decode()} is kept outside etcd, under {value.decode()}, and is not there",
                    remedy="give all dispatchers the same `store.etcd.shared_dir` or `store.s3`, and restore what it held",
                )
            value = kept[len(head) :]
        return Item(kv.key[len(self.data) :].decode(), value, kv.mod_revision)


def _range(member: Member) -> object:
    return member.kv.Range


def _txn(member: Member) -> object:
    return member.kv.Txn


def _unchanged(key: bytes, revision: int) -> rpc.Compare:
    return rpc.Compare(result=rpc.Compare.EQUAL, target=rpc.Compare.MOD, key=key, mod_revision=revision)


def _delete(key: bytes) -> rpc.RequestOp:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def _look(key: bytes, *, keys_only: bool = False) -> rpc.RequestOp:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, keys_only=keys_only))


def _first_changed(transaction: Transaction, outcome: TransactionOutcome) -> str:
    for compare, op in zip(transaction.compares, outcome.message.responses, strict=True):
        kvs = op.response_range.kvs
        if (kvs[0].mod_revision if kvs else 0) != compare.revision:
            return compare.key
    raise Damaged("etcd refused a transaction of which every comparison holds")
