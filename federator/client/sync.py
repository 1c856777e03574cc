"""The same verbs without asyncio, for scripts and notebooks.

Each verb is the asyncio one, run to its end on an event loop that the client owns: nothing is written twice, and nothing
can be forgotten that a type checker would not see.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from federator.client.client import DEFAULT_SERVER, Client

P = ParamSpec("P")
R = TypeVar("R")


def _runs(
    verb: Callable[Concatenate[Client, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[SyncClient, P], R]":
    @wraps(verb)
    def call(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.runner.run(verb(self.client, *args, **kwargs))

    return call


def _iterates(
    verb: Callable[Concatenate[Client, P], AsyncIterator[R]],
) -> "Callable[Concatenate[SyncClient, P], Iterator[R]]":
    @wraps(verb)
    def call(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        stream = verb(self.client, *args, **kwargs)

        async def step() -> tuple[R] | None:
            async for item in stream:
                return (item,)
            return None

        while (item := self.runner.run(step())) is not None:
            yield item[0]

    return call


class SyncClient:
    """`Client`, blocking. Not to be used from inside a running event loop."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        token: str | None = None,
        *,
        patience_s: float = 60.0,
        ca: str = "",
        proxy: str = "",
    ) -> None:
        self.client = Client(server, token, patience_s=patience_s, ca=ca, proxy=proxy)
        self.runner = asyncio.Runner()

    def close(self) -> None:
        """Let go of all connections."""
        self.runner.run(self.client.close())
        self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    submit = _runs(Client.submit)
    submit_many = _iterates(Client.submit_many)
    preview = _runs(Client.preview)
    upload = _runs(Client.upload)
    jobs = _runs(Client.jobs)
    all_jobs = _iterates(Client.all_jobs)
    job = _runs(Client.job)
    tasks = _runs(Client.tasks)
    update = _runs(Client.update)
    cancel = _runs(Client.cancel)
    hold = _runs(Client.hold)
    release = _runs(Client.release)
    requeue = _runs(Client.requeue)
    act = _runs(Client.act)
    explain = _runs(Client.explain)
    events = _iterates(Client.events)
    history = _runs(Client.history)
    wait = _runs(Client.wait)
    logs = _iterates(Client.logs)
    log_parts = _iterates(Client.log_parts)
    download = _runs(Client.download)

    all_series = _runs(Client.all_series)
    series = _runs(Client.series)
    pause_series = _runs(Client.pause_series)
    resume_series = _runs(Client.resume_series)
    end_series = _runs(Client.end_series)

    sign_in_way = _runs(Client.sign_in_way)
    whoami = _runs(Client.whoami)
    teams = _runs(Client.teams)
    overview = _runs(Client.overview)
    sites = _runs(Client.sites)
    site = _runs(Client.site)
    drain = _runs(Client.drain)
    undrain = _runs(Client.undrain)
    evict = _runs(Client.evict)
    ledger_parts = _iterates(Client.ledger_parts)
    statement = _runs(Client.statement)
    trust_member = _runs(Client.trust_member)
    declare_dead = _runs(Client.declare_dead)
    remove_site = _runs(Client.remove_site)
    remove_member = _runs(Client.remove_member)
    revoke_key = _runs(Client.revoke_key)
    queues = _runs(Client.queues)
    offers = _runs(Client.offers)
    leases = _runs(Client.leases)
    burst = _runs(Client.burst)
    budgets = _runs(Client.budgets)
    policies = _runs(Client.policies)
    policy_history = _runs(Client.policy_history)
    validate_policies = _runs(Client.validate_policies)
    diff_policies = _runs(Client.diff_policies)
    apply_policies = _runs(Client.apply_policies)
    rollback_policies = _runs(Client.rollback_policies)
    pause_bursting = _runs(Client.pause_bursting)
    resume_bursting = _runs(Client.resume_bursting)
    approve_rental = _runs(Client.approve_rental)
    decisions = _runs(Client.decisions)
    decision = _runs(Client.decision)
    replay = _runs(Client.replay)
    recorded_jobs = _runs(Client.recorded_jobs)
    recorded_world = _runs(Client.recorded_world)
    ledger = _runs(Client.ledger)
    revoke_tokens = _runs(Client.revoke_tokens)
    rotate_token = _runs(Client.rotate_token)
    tokens = _runs(Client.tokens)
    create_token = _runs(Client.create_token)
