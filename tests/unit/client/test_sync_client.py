"""The client for scripts and notebooks: whom it asks, what it shows, and how far it says it is."""

from pathlib import Path

import pytest
from aiohttp import web

import federator
from federator import Client
from federator.client import progress
from federator.client.blocking import BlockingTransport, finish
from federator.client.progress import Step
from federator.client.verbs import Verbs
from federator.wire.html import html_table
from federator.wire.http import JobPage, QueueRow, Submitted
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.answers import row


@pytest.fixture
def environment(fake: FakeDispatcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDERATOR_SERVER", fake.url)
    monkeypatch.setenv("FEDERATOR_TOKEN", "of-the-environment")


@pytest.mark.usefixtures("environment")
def test_it_asks_whom_the_command_asks(fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/queues", [])
    with Client() as client:
        assert client.queues() == []
    with Client(token="mine") as client:
        client.queues()
    assert [heard.headers["Authorization"] for heard in fake.heard] == [
        "Bearer of-the-environment",
        "Bearer mine",
    ]


def test_the_package_names_its_clients_and_nothing_else() -> None:
    assert federator.AsyncClient.__name__ == "AsyncClient"
    with pytest.raises(AttributeError, match="has no attribute 'Clint'"):
        _ = federator.Clint  # type: ignore[attr-defined]


@pytest.mark.usefixtures("environment")
def test_lists_are_tables_and_lists(fake: FakeDispatcher) -> None:
    fake.answer("GET /v1/queues", [QueueRow(queue="<b>research</b>", gpus=3)])
    fake.answer("GET /v1/jobs", JobPage((row(1), row(2)), total=2))
    with Client() as client:
        queues = client.queues()
        assert queues[0].gpus == 3
        table = queues._repr_html_()  # type: ignore[attr-defined]
        assert "<th>queue</th>" in table
        assert "<td>&lt;b&gt;research&lt;/b&gt;</td>" in table
        assert "2025-10-09 08:52:20" in client.jobs()._repr_html_()


def test_a_long_table_says_that_it_is_cut() -> None:
    assert html_table([row(number) for number in range(300)]).endswith("<p>200 of 300 rows</p>")


def test_packing_uploads_and_downloads_say_how_far_they_are(fake: FakeDispatcher, tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    fake.handle_any("PUT", _accepted)
    told: list[Step] = []
    verbs = Verbs(BlockingTransport(fake.url, "secret", patience_s=1.0), progress=told.append)
    finish(verbs.submit({"run": "x"}, workdir=str(folder)))
    finish(verbs.close())
    assert [step.what for step in told if step.done == step.total][:2] == ["packing", "uploading"]


def test_bars_come_for_what_takes_long_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = progress.Bars()

    def drawn() -> list[str]:
        return [task.description for task in bars.drawn.tasks] if bars.drawn is not None else []

    bars.tell(Step("packing", 5, 10))
    assert not drawn(), "it is done before anybody has read it"
    monkeypatch.setattr(progress, "LONG_BYTES", 8)
    bars.tell(Step("packing", 5, 10))
    bars.tell(Step("train PENDING"))
    bars.tell(Step("train RUNNING"))
    assert drawn() == ["packing", "train RUNNING"]
    bars.tell(Step("packing", 10, 10))
    assert drawn() == ["train RUNNING"]
    bars.close()
    assert not drawn()


async def _accepted(request: web.Request) -> web.StreamResponse:
    await request.read()
    return web.Response(status=201)
