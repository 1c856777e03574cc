"""People hear of their jobs: a dispatcher as it is started, a mail server and chat webhooks on loopback, one of which is dead."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from federator.client import AsyncClient
from federator.wire.http import TokenRequest
from tests.support.fleet import Dispatcher
from tests.support.waiting import until
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
