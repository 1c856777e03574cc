"""What a request to etcd came to, when one attempt was not answered."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from federator.kernel.errors import OutcomeUnknown, Unavailable
from federator.store.etcd_link import FULL, EtcdLink


def failing(*errors: tuple[grpc.StatusCode, str]) -> Callable[[object], Any]:
    """A method of a member, of which each attempt ends in one of these."""
    left = list(errors)

    async def method(_request: object, *, timeout: float) -> object:
        del timeout
        code, said = left.pop(0)
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), said)

    return lambda _member: method


SILENCE = (grpc.StatusCode.DEADLINE_EXCEEDED, "no answer")
REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, FULL)


@pytest.fixture
async def link() -> EtcdLink:
    """Made while the loop runs: the channels of grpc belong to it."""
    return EtcdLink(["127.0.0.1:1", "127.0.0.1:2"], None, 5.0)


async def test_a_write_that_may_have_happened_is_not_told_as_refused(link: EtcdLink) -> None:
    with pytest.raises(OutcomeUnknown, match="full"):
        await link.call(failing(SILENCE, REFUSED), object(), writes=True)
    with pytest.raises(Unavailable, match="full") as refused:
        await link.call(failing(REFUSED), object(), writes=True)
    assert not isinstance(refused.value, OutcomeUnknown)
    with pytest.raises(Unavailable, match="full") as read:
        await link.call(failing(SILENCE, REFUSED), object())
    assert not isinstance(read.value, OutcomeUnknown)
    await asyncio.wait_for(link.close(), 5.0)
