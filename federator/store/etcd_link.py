"""The way to an etcd cluster: one channel per member, and the next member when one does not answer.

Why our own: aetcd's client knows one endpoint, reads ranges without limit or revision, and has no TLS. Its messages and stubs
are what is used here. A call is repeated at the next member until it is answered or the patience is over; the answer says whether an earlier attempt
may have taken effect, because whoever writes has to know.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from federator.kernel.errors import (
    FederatorError,
    Invalid,
    OutcomeUnknown,
    Permanent,
    TooLarge,
    Unavailable,
)
from federator.retry import Backoff, retried

ATTEMPT_S = 1.0
"""Real seconds that one member is given for one request: so little that a renewal of the usual term finds time for another member."""
BACKOFF = Backoff(0.02, 0.5)
FULL = "etcdserver: mvcc: database space exceeded"
FULL_REMEDY = "compact and defragment it, then 'etcdctl alarm disarm'; or give it a larger quota"
OPTIONS = (
    # etcd ends connections that are pinged more often than every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)
_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
)


class EtcdReply(NamedTuple):
    """What a member answered. `repeated`: an earlier attempt got no answer, and may have taken effect."""

    message: Any
    repeated: bool


class Member:
    """One endpoint and its stubs."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        if credentials is None:
            self.channel = rpc.insecure_channel(address, options=OPTIONS)
        else:
            self.channel = rpc.secure_channel(address, credentials, options=OPTIONS)
        self.kv = rpc.KVStub(self.channel)
        self.lease = rpc.LeaseStub(self.channel)
        self.maintenance = rpc.MaintenanceStub(self.channel)


class _Unanswered(Exception):
    """A member has not answered; another may."""


class EtcdLink:
    """Calls to whichever member answers. Used from one event loop."""

    def __init__(
        self, endpoints: Sequence[str], credentials: grpc.ChannelCredentials | None, patience_s: float
    ) -> None:
        self.members = [Member(address, credentials) for address in endpoints]
        self.present = 0
        self._patience_s = patience_s
        self.names = ", ".join(endpoints)

    async def call(self, pick: Callable[[Member], Any], request: Any, *, writes: bool = False) -> EtcdReply:
        """Ask until a member answers. Raises `Unavailable` (`OutcomeUnknown` if the request writes) or what the refusal means."""
        repeated = False

        async def once() -> EtcdReply:
            nonlocal repeated
            number = self.present
            try:
                return EtcdReply(await pick(self.members[number])(request, timeout=ATTEMPT_S), repeated)
            except grpc.aio.AioRpcError as error:
                if not _again(error):
                    meaning = self._meaning(error)
                    if repeated:
                        # It is this attempt that is refused; the one before it got no answer.
                        raise OutcomeUnknown(meaning.message, remedy=meaning.remedy) from error
                    raise meaning from error
                repeated = writes
                self.leave(number)
                raise _Unanswered(error.details()) from error

        try:
            return await retried(once, BACKOFF, on=_Unanswered, patience_s=self._patience_s)
        except _Unanswered as unanswered:
            kind = OutcomeUnknown if writes else Unavailable
            raise kind(
                f"the etcd cluster {self.names} does not answer: {unanswered}",
                remedy="see whether more than half of its members run",
            ) from unanswered

    def leave(self, number: int) -> None:
        """Ask another member next; whoever else noticed has left it already."""
        if self.present == number:
            self.present = (number + 1) % len(self.members)

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(member.channel.close() for member in self.members))

    def _meaning(self, error: grpc.aio.AioRpcError) -> FederatorError:
        code, said = error.code(), str(error.details())
        if said.startswith(FULL):
            return Unavailable(f"the etcd store {self.names} is full", retry_after_s=10.0, remedy=FULL_REMEDY)
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED or "too large" in said or "too many operations" in said:
            return TooLarge(f"etcd refuses it: {said}")
        if code is grpc.StatusCode.NOT_FOUND:
            return Unavailable(f"the time to write it was over: {said}")
        return Permanent(f"etcd at {self.names} refuses: {said}", remedy="see `store.etcd` in the settings")


def _again(error: grpc.aio.AioRpcError) -> bool:
    """Whether another attempt may be answered."""
    return error.code() in _AGAIN or "too many requests" in str(error.details())


def read_endpoints(endpoints: Sequence[str]) -> tuple[list[str], bool]:
    """`host:port` of each, and whether TLS is spoken. Raises `Invalid`."""
    bare, secure = [], set()
    for number, endpoint in enumerate(endpoints):
        scheme, _, rest = endpoint.rpartition("://")
        host, _, port = rest.rpartition(":")
        if scheme not in ("", "http", "https") or not host or not port.isdigit():
            raise Invalid(
                f"{endpoint!r} is not the address of an etcd member",
                field=f"$.store.etcd.endpoints[{number}]",
                remedy="write http://HOST:2379 or https://HOST:2379",
            )
        bare.append(rest)
        secure.add(scheme == "https")
    if len(secure) != 1:
        raise Invalid(
            "are some with TLS and some without, or none at all",
            field="$.store.etcd.endpoints",
            remedy="write all members of one cluster, all with http:// or all with https://",
        )
    return bare, secure.pop()


def read_credentials(ca_file: str, cert_file: str, key_file: str) -> grpc.ChannelCredentials:
    """What TLS is spoken with; empty: the system's authorities, and no certificate of ours. Raises `Invalid`."""
    given = []
    for name, path in (("ca_file", ca_file), ("key_file", key_file), ("cert_file", cert_file)):
        try:
            given.append(Path(path).expanduser().read_bytes() if path else None)
        except OSError as error:
            raise Invalid(
                f"{path} cannot be read: {error.strerror}",
                field=f"$.store.etcd.{name}",
                remedy="name a PEM file",
            ) from error
    credentials: grpc.ChannelCredentials = grpc.ssl_channel_credentials(*given)
    return credentials
