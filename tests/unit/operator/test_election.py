"""One of several operators holds the lease; one that is silent is replaced, by one's own clock."""

import asyncio
import json
from typing import Any

import pytest

from federator.kernel.errors import Conflict, NotFound
from federator.operator import election
from federator.operator.election import Election


class Leases:
    """The one lease of an API server."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    async def ask(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if method == "GET":
            if self.lease is None:
                raise NotFound(path)
            return json.dumps(self.lease).encode()
        if method == "POST" and self.lease is not None:
            raise Conflict("there is one")
        if method == "PUT" and body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("it has changed")
        self.version += 1
        self.lease = body | {"metadata": {"name": "x", "resourceVersion": str(self.version)}}
        return b"{}"


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    monkeypatch.setattr(election, "HELD_S", 0.4)
    monkeypatch.setattr(election, "RENEW_S", 0.05)
    monkeypatch.setattr(election, "LOOK_S", 0.01)
    return Leases()


def candidate(leases: Leases, name: str) -> Election:
    api: Any = leases
    return Election(api, "federator", name)


async def test_another_works_once_the_first_is_silent_and_not_before(leases: Leases) -> None:
    one, other = candidate(leases, "one"), candidate(leases, "other")
    assert one.stands == "starting"
    await one.won()
    assert one.stands == "works"
    keeping = asyncio.create_task(one.lost())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.7):
            await other.won()
    assert other.stands == "stands by"
    keeping.cancel()
    async with asyncio.timeout(5):
        await other.won()
        await one.lost()
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "other"
    assert leases.lease["spec"]["leaseTransitions"] == 1


async def test_who_leaves_lets_the_next_work_at_once(leases: Leases) -> None:
    one, other = candidate(leases, "one"), candidate(leases, "other")
    await one.won()
    await one.leave()
    async with asyncio.timeout(0.3):
        await other.won()
    await one.leave()
    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "other"


async def test_of_two_at_the_same_moment_one_wins(leases: Leases) -> None:
    both = [asyncio.create_task(candidate(leases, name).won()) for name in ("one", "other")]
    done, waiting = await asyncio.wait(both, timeout=0.3)
    assert (len(done), len(waiting)) == (1, 1)
    for task in waiting:
        task.cancel()
