"""A rented machine's agent asks its metadata service whether the machine is taken back, and tells the dispatcher."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from federator.kernel.quantities import parse_instant
from federator_agent import metadata
from federator_agent.core.events import Noticed
from tests.integration.agent.conftest import AgentProcess
from tests.integration.agent.fake_dispatcher import FakeDispatcher
from tests.support.waiting import until
from tests.testbeds.ec2 import MetadataService


@pytest.fixture
async def service() -> AsyncIterator[MetadataService]:
    made = MetadataService()
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def told(service: MetadataService, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Noticed]]:
    """What a watch beside the test has told."""
    monkeypatch.setattr(metadata, "EVERY_S", {"ec2": 0.01, "gce": 0.01})
    notices: list[Noticed] = []
    task = asyncio.create_task(metadata.watch(metadata.Notices("ec2", service.url), notices.append))
    yield notices
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
async def test_a_notice_is_told_once(service: MetadataService, told: list[Noticed], action: str) -> None:
    await until(lambda: service.asked >= 3)
    assert not told
    service.give_notice(1_800_000_000, action)
    await until(lambda: told)
    assert told == [Noticed(1_800_000_000.0)]


async def test_tokens_that_run_out_and_nonsense_are_got_over(
    service: MetadataService, told: list[Noticed], caplog: pytest.LogCaptureFixture
) -> None:
    await until(lambda: service.asked >= 1)
    service.forget_tokens()
    await until(lambda: service.refused >= 1)
    service.notice = {"action": "terminate", "time": "soon"}
    asked = service.asked
    await until(lambda: service.asked >= asked + 3)
    assert not told
    assert sum("does not answer as it should" in line for line in caplog.messages) <= 2, (
        "not at each question"
    )
    service.give_notice(1_800_000_000)
    await until(lambda: told)


async def test_a_preemption_by_compute_engine_is_told_with_half_a_minute_left(
    service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "EVERY_S", {"gce": 0.01})
    told: list[Noticed] = []
    service.preempted = "maybe"
    task = asyncio.create_task(metadata.watch(metadata.Notices("gce", service.url), told.append))
    await until(lambda: service.asked >= 2)
    service.preempted, asked = "FALSE", service.asked
    await until(lambda: service.asked >= asked + 2)
    assert not told
    service.preempted, before = "TRUE", time.time()
    await asyncio.wait_for(task, 10)
    (notice,) = told
    assert before + 30 <= notice.reclaim_at <= time.time() + 30


async def test_a_machine_of_compute_engine_whose_host_is_maintained_has_an_hour_left(
    service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "EVERY_S", {"gce": 0.01})
    told: list[Noticed] = []
    service.maintenance = "MIGRATE_ON_HOST_MAINTENANCE"
    task = asyncio.create_task(metadata.watch(metadata.Notices("gce", service.url), told.append))
    await until(lambda: service.asked >= 4)
    assert not told, "what is moved goes on"
    service.maintenance, before = "TERMINATE_ON_HOST_MAINTENANCE", time.time()
    await asyncio.wait_for(task, 10)
    (notice,) = told
    assert before + 3600 <= notice.reclaim_at <= time.time() + 3600


async def test_a_machine_of_azure_hears_of_its_eviction_and_not_of_a_restart(
    service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "EVERY_S", {"azure": 0.01})
    told: list[Noticed] = []
    about: dict[str, object] = {
        "EventStatus": "Scheduled",
        "Resources": ["lease-a"],
        "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
    }
    service.events = [about | {"EventType": "Freeze"}]
    task = asyncio.create_task(metadata.watch(metadata.Notices("azure", service.url), told.append))
    await until(lambda: service.asked >= 3)
    assert not told
    service.events += [about | {"EventType": "Preempt"}]
    await asyncio.wait_for(task, 10)
    assert told == [Noticed(parse_instant("2016-09-19T18:29:47Z"))]


async def test_an_agent_on_such_a_machine_reports_the_notice_and_another_does_not_ask(
    dispatcher: FakeDispatcher, agent: AgentProcess, service: MetadataService
) -> None:
    await agent.end()
    service.give_notice(time.time() + 120)
    agent.environment = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}
    before = len(dispatcher.reports)
    await agent.start()
    await dispatcher.until(lambda: len(dispatcher.reports) > before)
    await agent.end()
    assert service.asked == 0, "a host of one's own has no such service"
    agent.environment |= {"FEDERATOR_NOTICES": "ec2"}
    await agent.start()
    assert service.notice is not None
    at = parse_instant(service.notice["time"])
    await dispatcher.until(lambda: dispatcher.reports[-1].reclaim_at == at)
