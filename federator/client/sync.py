"""The same verbs without asyncio, for scripts and notebooks.

Each verb is the asyncio one, run to its end over a transport that blocks: nothing is written twice, and nothing
can be forgotten that a type checker would not see.
"""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from federator.client.blocking import BlockingTransport, finish
from federator.client.credentials import SignIns
from federator.client.notebook import in_notebook
from federator.client.progress import Bars
from federator.client.settings import read_settings
from federator.client.verbs import Verbs
from federator.kernel.errors import FederatorError
from federator.kernel.route import Way

P = ParamSpec("P")
R = TypeVar("R")


def _runs(
    verb: Callable[Concatenate[Verbs, P], Coroutine[Any, Any, R]],
) -> "Callable[Concatenate[Client, P], R]":
    @wraps(verb)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return in_notebook(finish(verb(self.verbs, *args, **kwargs)))
        finally:
            self.bars.close()

    return call


def _iterates(
    verb: Callable[Concatenate[Verbs, P], AsyncIterator[R]],
) -> "Callable[Concatenate[Client, P], Iterator[R]]":
    @wraps(verb)
    def call(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        stream = verb(self.verbs, *args, **kwargs)

        async def step() -> tuple[R] | None:
            async for item in stream:
                return (item,)
            return None

        while (item := finish(step())) is not None:
            yield item[0]

    return call


class Client:
    """One federation, asked by one person, blocking; a method at a time.

    What is not given is as for the `federator` command: FEDERATOR_SERVER, FEDERATOR_TOKEN, `config.yaml`, what `federator login` keeps, and last
    the dispatcher on this machine. `patience_s` is for how long calls are repeated while the dispatcher does not answer; `on_wait` hears of each repetition. With `progress`, packing,
    uploads, downloads and waits are shown beside standard output, or in the notebook. Raises `Invalid` for settings that cannot be used.

        with Client() as client:
            submitted = client.submit({"run": "python train.py"})
            detail = client.wait(submitted.jobs[0])
    """

    def __init__(
        self,
        server: str | None = None,
        token: str | None = None,
        *,
        patience_s: float = 60.0,
        on_wait: Callable[[FederatorError], None] | None = None,
        ca: str | None = None,
        progress: bool = False,
    ) -> None:
        settings = read_settings(server, token, ca=ca)
        transport = BlockingTransport(
            settings.server,
            partial(SignIns(os.environ).bearer_now, settings.server)
            if settings.signed_in
            else settings.token,
            patience_s=patience_s,
            on_wait=on_wait,
            way=Way(ca=settings.ca, proxy=settings.proxy, environ=os.environ),
        )
        self.bars = Bars()
        self.verbs = Verbs(transport, progress=self.bars.tell if progress else None)

    def now(self) -> float:
        """The dispatcher's time by its last answer, seconds since the epoch."""
        return self.verbs.now()

    def close(self) -> None:
        """Let go of all connections."""
        self.bars.close()
        finish(self.verbs.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    submit = _runs(Verbs.submit)
    submit_many = _iterates(Verbs.submit_many)
    preview = _runs(Verbs.preview)
    preview_change = _runs(Verbs.preview_change)
    upload = _runs(Verbs.upload)
    jobs = _runs(Verbs.jobs)
    all_jobs = _iterates(Verbs.all_jobs)
    job = _runs(Verbs.job)
    array = _runs(Verbs.array)
    tasks = _runs(Verbs.tasks)
    cancel = _runs(Verbs.cancel)
    act = _runs(Verbs.act)
    rerun = _runs(Verbs.rerun)
    explain = _runs(Verbs.explain)
    forecasts = _runs(Verbs.forecasts)
    gpus = _runs(Verbs.gpus)
    events = _iterates(Verbs.events)
    changes = _iterates(Verbs.changes)
    history = _runs(Verbs.history)
    steps = _runs(Verbs.steps)
    wait = _runs(Verbs.wait)
    wait_all = _runs(Verbs.wait_all)
    logs = _iterates(Verbs.logs)
    log_parts = _iterates(Verbs.log_parts)
    outputs = _runs(Verbs.outputs)
    download = _runs(Verbs.download)
    download_all = _runs(Verbs.download_all)

    all_series = _runs(Verbs.all_series)
    series = _runs(Verbs.series)
    pause_series = _runs(Verbs.pause_series)
    resume_series = _runs(Verbs.resume_series)
    end_series = _runs(Verbs.end_series)

    apply_service = _runs(Verbs.apply_service)
    services = _runs(Verbs.services)
    service = _runs(Verbs.service)
    promote_service = _runs(Verbs.promote_service)
    rollback_service = _runs(Verbs.rollback_service)
    delete_service = _runs(Verbs.delete_service)
    tell_gateway = _runs(Verbs.tell_gateway)

    sign_in_way = _runs(Verbs.sign_in_way)
    whoami = _runs(Verbs.whoami)
    notifications = _runs(Verbs.notifications)
    set_notifications = _runs(Verbs.set_notifications)
    teams = _runs(Verbs.teams)
    overview = _runs(Verbs.overview)
    sites = _runs(Verbs.sites)
    site = _runs(Verbs.site)
    drain = _runs(Verbs.drain)
    preview_drain = _runs(Verbs.preview_drain)
    undrain = _runs(Verbs.undrain)
    evict = _runs(Verbs.evict)
    ledger_parts = _iterates(Verbs.ledger_parts)
    statement = _runs(Verbs.statement)
    trust_member = _runs(Verbs.trust_member)
    declare_dead = _runs(Verbs.declare_dead)
    remove_site = _runs(Verbs.remove_site)
    remove_member = _runs(Verbs.remove_member)
    revoke_key = _runs(Verbs.revoke_key)
    queues = _runs(Verbs.queues)
    offers = _runs(Verbs.offers)
    leases = _runs(Verbs.leases)
    burst = _runs(Verbs.burst)
    waiting = _runs(Verbs.waiting)
    alerts = _runs(Verbs.alerts)
    budgets = _runs(Verbs.budgets)
    spending = _runs(Verbs.spending)
    policies = _runs(Verbs.policies)
    policy_history = _runs(Verbs.policy_history)
    validate_policies = _runs(Verbs.validate_policies)
    diff_policies = _runs(Verbs.diff_policies)
    apply_policies = _runs(Verbs.apply_policies)
    rollback_policies = _runs(Verbs.rollback_policies)
    replay_policies = _runs(Verbs.replay_policies)
    pause_bursting = _runs(Verbs.pause_bursting)
    resume_bursting = _runs(Verbs.resume_bursting)
    approve_rental = _runs(Verbs.approve_rental)
    decisions = _runs(Verbs.decisions)
    plan = _runs(Verbs.plan)
    decision = _runs(Verbs.decision)
    told_decision = _runs(Verbs.told_decision)
    replay = _runs(Verbs.replay)
    recorded_jobs = _runs(Verbs.recorded_jobs)
    recorded_world = _runs(Verbs.recorded_world)
    ledger = _runs(Verbs.ledger)
    usage = _runs(Verbs.usage)
    revoke_tokens = _runs(Verbs.revoke_tokens)
    rotate_token = _runs(Verbs.rotate_token)
    tokens = _runs(Verbs.tokens)
    create_token = _runs(Verbs.create_token)
