"""People hear of their jobs and the platform team of its sites: programs as they are started, a mail server and chat webhooks on loopback, one of which is dead."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from federator.cli.demo.federation import DemoFederation
from federator.cli.demo.processes import Processes
from federator.client import AsyncClient
from federator.wire.http import TokenRequest
from federator_agent.config import UNWATCHED_VARIABLE
from tests.support.fleet import Dispatcher
from tests.support.waiting import until
from tests.testbeds.nvml import A100, StubDriver
from tests.testbeds.smtp import MailServer

pytestmark = pytest.mark.system
SECRET = "services/T000/very-secret"
JOB = {"run": "true", "notify": ["end"]}


class Chat:
    """Webhooks of chat systems: what was posted, by path."""

    def __init__(self) -> None:
        self.posted: list[dict[str, object]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.posted.append(await request.json())
        return web.Response()


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    there = Chat()
    app = web.Application()
    app.router.add_post("/{tail:.*}", there.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    there.url = f"http://127.0.0.1:{runner.addresses[0][1]}/{SECRET}"
    yield there
    await runner.cleanup()


async def test_people_hear_of_their_jobs_whoever_cannot_be_reached(tmp_path: Path, chat: Chat) -> None:
    async with MailServer() as mail, MailServer() as dead:
        dead.silent = True
        smtp = {"host": "localhost", "port": mail.port, "tls": "none", "sender": "federator@example.org"}
        people = {
            "ada": {"mail": "ada@example.org", "webhook": chat.url, "format": "slack"},
            "ben": {"webhook": f"http://127.0.0.1:{dead.port}/{SECRET}"},
        }
        given = {"smtp": smtp, "people": people, "gather_s": 0.2, "per_hour": 3600}
        dispatcher = Dispatcher(tmp_path, notifications=given)
        await dispatcher.start()
        try:
            async with AsyncClient(dispatcher.url, dispatcher.token) as root:
                tokens = {
                    name: (await root.create_token(TokenRequest(name=name, role="user"))).secret
                    for name in ("ben", "ada")
                }
            for name, token in tokens.items():
                async with AsyncClient(dispatcher.url, token) as client:
                    submitted = await client.submit({**JOB, "name": f"of-{name}"})
                    await client.cancel(submitted.jobs[0])
            await until(lambda: mail.mails and chat.posted, "Ada's messages")
            await until(lambda: dead.connections, "Ben's message to be tried")
            (got,) = mail.mails
            assert mail.recipients == ["ada@example.org"]
            assert "of-ada" in got["Subject"]
            assert "CANCELLED" in got.get_content()
            assert "of-ada" in str(chat.posted[0]["text"])
            assert "of-ben" not in got.get_content() + str(chat.posted)
            assert SECRET not in dispatcher.log()
        finally:
            dispatcher.end()


QUEUES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: lazy}
spec: {max_idle: 2m}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: stuck}
"""


class _Processes(Processes):
    """On a host whose two GPUs are watched, and do nothing."""

    @property
    def environment(self) -> dict[str, str]:
        """As those of a demonstration, with a driver."""
        kept = {name: value for name, value in super().environment.items() if name != UNWATCHED_VARIABLE}
        driver = StubDriver(self.folder, A100, A100)
        return kept | driver.environment


class _World(DemoFederation):
    """A minute of the world is a second."""

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        super().__init__(folder, 60.0)
        self.processes = _Processes(folder)
        self._given = given

    def _settings(self) -> dict[str, Any]:
        settings = super()._settings()
        return settings | self._given | {"link": settings["link"] | {"unreachable_after_s": 180.0}}


async def test_what_goes_wrong_is_told_to_owners_and_to_the_platform_team(tmp_path: Path, chat: Chat) -> None:
    async with MailServer() as mail:
        smtp = {"host": "localhost", "port": mail.port, "tls": "none", "sender": "federator@example.org"}
        told = {"smtp": smtp, "mail_domain": "example.org", "gather_s": 0.2, "per_hour": 360_000}
        alerts = {"webhook": chat.url, "format": "teams", "lost_site_s": 60.0, "stuck_queue_s": 60.0}
        world = _World(tmp_path / "world", {"notifications": told, "alerts": alerts})
        world.folder.mkdir()

        def mailed(*words: str) -> bool:
            texts = [f"{each['Subject']} {each.get_content()}" for each in mail.mails]
            return any(all(word in text for word in words) for text in texts)

        def posted(*words: str) -> bool:
            return any(all(word in str(card) for word in words) for card in chat.posted)

        try:
            await world.start_dispatcher()
            await world.apply_policies(QUEUES)
            pool = {"name": "main", "model": "A100", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 8}
            await world.start_sites([{"site": "north", "kind": "onprem", "pools": [pool]}])
            ada = await world.as_person("ada")
            await ada.submit({"name": "broken", "run": "exit 3", "notify": ["fail"]})
            works = {"run": "sleep 600", "resources": {"gpus": 1}}
            late = {"estimate": "10h", "finish_within": "1h", "notify": ["deadline-at-risk"]}
            await ada.submit({"name": "late", **works, **late})
            lazy = (await ada.submit({"name": "lazy", **works, "queue": "lazy", "notify": ["end"]})).jobs[0]
            await until(lambda: mailed("broken", "is FAILED"), "the failure to be told")
            await until(lambda: mailed("late", "is due at"), "the deadline at risk to be told")
            await until(lambda: posted("late", "is due at"), "the same to the platform team")
            await until(lambda: mailed("lazy", "is CANCELLED"), "the end of what has done nothing")
            assert "did nothing" in (await ada.job(lazy)).job.because
            wide = {"run": "true", "resources": {"gpus": 2}, "queue": "stuck"}
            await ada.submit({"name": "wide", **wide})
            await until(lambda: posted("queue stuck", "nothing of it runs"), "the stuck queue to be told")
            world.processes.kill("north")
            await until(lambda: posted("site north"), "the lost site to be told")
            assert set(mail.recipients) == {"ada@example.org"}
        finally:
            await world.end()
