"""`submit --by`: the price of being done by then, before anything is submitted."""

import json
import time
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from federator.kernel.quantities import parse_instant
from federator.model.capacity import Market
from federator.model.plans import ArrayPreview, Explanation, PricePoint
from federator.wire.http import Preview, Submitted
from tests.support.fake_dispatcher import FakeDispatcher
from tests.unit.cli.conftest import Command

HOUR = 3600.0
NOW = time.time()
SOON = PricePoint(
    site="cloud",
    pool="p4",
    market=Market.ON_DEMAND,
    start_at=NOW,
    finish_low_at=NOW + HOUR,
    finish_at=NOW + HOUR,
    finish_high_at=NOW + HOUR,
    cost_usd=6.101,
    at_most_usd=9.4,
)
LATER = PricePoint(
    site="",
    pool="",
    market=Market.OWNED,
    start_at=NOW + 2 * HOUR,
    finish_low_at=NOW + 3 * HOUR,
    finish_at=NOW + 3 * HOUR,
    finish_high_at=NOW + 3 * HOUR,
    cost_usd=0.0,
)


@pytest.fixture
def job_yaml(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text("name: train\nrun: x\n")
    return str(tmp_path / "job.yaml")


@pytest.fixture(autouse=True)
def asked(fake: FakeDispatcher) -> FakeDispatcher:
    """A dispatcher that plans to rent once that is worth something."""

    async def preview(request: web.Request) -> web.StreamResponse:
        given = await request.json()
        late = parse_instant(given["deadline"]) < LATER.finish_at and "value" not in given
        end_at = LATER.finish_at if late or "value" not in given else SOON.finish_at
        told = Explanation(
            job="", status="PENDING", because="as told", curve=(SOON, LATER), expected_finish_at=end_at
        )
        of = given.get("array", "")
        array = (
            _forty(rented=given.get("value") == "9.40 USD", planned=4 if "%" in of else 40) if of else None
        )
        return web.Response(body=msgspec.json.encode(Preview("train", "default", told, array=array)))

    fake.handle("POST /v1/preview", preview)
    fake.answer("POST /v1/jobs", Submitted(("job-1",), "train"), 201)
    return fake


def _forty(*, rented: bool, planned: int) -> ArrayPreview:
    """An array of which one task is done in time for nothing, and all only where some are rented for."""
    end_at, usd = (SOON.finish_at, 170.828) if rented else (LATER.finish_at + 2 * HOUR, 0.0)
    return ArrayPreview(
        tasks=40,
        planned=planned,
        finish_at=end_at,
        in_time=40 if rented else 12,
        rented=28 * rented,
        cost_usd=usd,
    )


def test_the_price_is_told_and_submitted_once_agreed_to(
    federator: Command, fake: FakeDispatcher, job_yaml: str
) -> None:
    refused = federator("submit", job_yaml, "--by", "2h")
    assert refused.code == 6
    assert "6.10 USD (at most 9.40 USD); by " in refused.err
    assert " free" in refused.err
    assert "write --yes to agree to it" in refused.err
    assert not fake.of("POST /v1/jobs")
    assert federator("submit", job_yaml, "--by", "2h", "--yes").code == 0
    sent = json.loads(fake.of("POST /v1/jobs")[0].body)
    assert parse_instant(sent["deadline"]) == pytest.approx(time.time() + 2 * HOUR, abs=60)
    assert (sent["max_cost"], sent["value"]) == ("9.40 USD", "9.40 USD")


@pytest.mark.parametrize(("own", "most"), [("500 USD", "9.40 USD"), ("7 USD", "7.00 USD"), ("8", "8.00 USD")])
def test_the_price_that_is_told_is_the_limit_that_is_sent(
    federator: Command, fake: FakeDispatcher, job_yaml: str, own: str, most: str
) -> None:
    with Path(job_yaml).open("a") as file:
        file.write(f"max_cost: {own}\nvalue: 500 USD\n")
    ran = federator("submit", job_yaml, "--by", "2h", "--yes")
    assert f"6.10 USD (at most {most}); by " in ran.err
    sent = json.loads(fake.of("POST /v1/jobs")[0].body)
    assert (sent["max_cost"], sent["value"]) == (most, "500 USD")


def test_what_is_free_by_then_is_submitted_without_a_question(
    federator: Command, fake: FakeDispatcher, job_yaml: str
) -> None:
    ran = federator("submit", job_yaml, "--by", "4h")
    assert (ran.code, "free" in ran.err) == (0, True), ran.err
    sent = json.loads(fake.of("POST /v1/jobs")[0].body)
    assert sent["max_cost"] == "0.00 USD"
    assert "value" not in sent


def test_what_cannot_be_done_by_then_is_refused_with_when_it_can(
    federator: Command, fake: FakeDispatcher, job_yaml: str
) -> None:
    ran = federator("submit", job_yaml, "--by", "10m", "--yes")
    assert ran.code == 6
    assert "at any price" in ran.err
    assert "6.10 USD" in ran.err
    assert not fake.of("POST /v1/jobs")


def test_of_an_array_the_price_is_that_of_all_tasks(
    federator: Command, fake: FakeDispatcher, job_yaml: str
) -> None:
    ran = federator("submit", job_yaml, "--array", "0-39", "--by", "4h", "--yes")
    assert "all 40 tasks done by" in ran.err
    assert "170.83 USD (at most 9.40 USD for each, 376.00 USD in all)" in ran.err
    sent = json.loads(fake.of("POST /v1/jobs")[0].body)
    assert (sent["max_cost"], sent["value"], sent["array"]) == ("9.40 USD", "9.40 USD", "0-39")
    assert "estimate" not in ran.err
    some = federator("submit", job_yaml, "--array", "0-39%4", "--by", "4h", "--yes")
    assert "376.00 USD in all); an estimate from a plan of 4 tasks" in some.err
    with Path(job_yaml).open("a") as file:
        file.write("value: 1 USD\n")
    late = federator("submit", job_yaml, "--array", "0-39", "--by", "4h", "--yes")
    assert late.code == 6
    assert "12 of 40 tasks would be done by" in late.err
