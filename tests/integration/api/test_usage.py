"""What was used, over HTTP: one's own for everybody, all of it for those who may see it."""

from typing import Any

import pytest

from federator.control.queries import usage_report
from federator.kernel.quantities import format_instant
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import JobStatus
from tests.integration.api.rig import Rig


@pytest.fixture
async def used(rig: Rig) -> Rig:
    """Ada and Bob have each had a job of an hour on two GPUs."""
    await rig.world.add_site("hall", gpus=4)
    for who in ("ada", "bob"):
        job = await rig.submit(
            who,
            resources={"gpus": 2},
            deadline=format_instant(rig.world.clock.now() + 86400.0),
            placement={"sites": ["hall"]},
        )
        await rig.world.turn()
        rig.world.clock.advance(3600.0)
        rig.world.report()
        await rig.world.sites["hall"].finish(job)
        assert rig.world.job(job).status is JobStatus.SUCCEEDED
    return rig


async def answer(rig: Rig, who: str, query: str) -> Any:
    found = await rig.ask("GET", f"/v1/usage?{query}", who)
    assert found.status == 200, found.data
    return found.json()


async def test_everybody_sees_their_own_and_platform_sees_all(used: Rig) -> None:
    own = await answer(used, "ada", "by=user")
    assert [row["user"] for row in own["rows"]] == ["ada"]
    row = own["rows"][0]
    assert row["gpu_s"] == pytest.approx(7200.0, rel=0.01)
    assert (row["jobs"], row["succeeded"], row["deadlines"], row["deadlines_met"]) == (1, 1, 1, 1)
    assert row["wait_s"] is not None
    assert (row["starts_told"], row["starts_kept"], row["finishes_told"]) == (1, 1, 1)
    assert (row["costs_told"], row["costs_kept"]) == (1, 1)
    same = await answer(used, "ada", "by=user&everybody=true")
    assert same["rows"] == own["rows"], "who administers nothing sees nothing more"
    everything = await answer(used, "pat", "by=user,queue&everybody=true")
    assert [row["user"] for row in everything["rows"]] == ["ada", "bob"]
    assert everything["whose"] == "everybody"
    assert not (await answer(used, "pat", "by=user"))["rows"]


async def test_a_deadline_is_met_by_what_succeeds(used: Rig) -> None:
    """Not by what fails in time; and what is cancelled before it says nothing of it, neither way."""
    due = format_instant(used.world.clock.now() + 86400.0)
    failed, cancelled = [await used.submit("ada", deadline=due) for _ in range(2)]
    await used.world.turn()
    await used.world.sites["hall"].finish(failed, exit_code=1)
    await used.ask("DELETE", f"/v1/jobs/{cancelled}", "ada")
    await used.world.sites["hall"].finish(cancelled, exit_code=1)
    (row,) = (await answer(used, "ada", "by=user"))["rows"]
    assert (row["jobs"], row["deadlines"], row["deadlines_met"]) == (3, 2, 1)


async def test_it_equals_the_ledger(used: Rig) -> None:
    lines: list[LedgerEntry] = await used.world.core.views.ledger()
    found = await answer(used, "pat", "by=site,model,month&everybody=true")
    assert sum(row["usd"] for row in found["rows"]) == pytest.approx(
        sum(line.usd for line in lines), abs=0.005
    )
    uses = [line.gpu_s for line in lines if line.kind is LedgerKind.USAGE]
    assert found["total"]["gpu_s"] == pytest.approx(sum(uses))
    assert len(uses) == 2


async def test_a_time_without_use_is_empty(used: Rig) -> None:
    now = used.world.clock.now()
    assert not (await answer(used, "pat", f"everybody=true&since={now - 9e6}&until={now - 8e6}"))["rows"]


@pytest.mark.parametrize(
    ("query", "field"), [("by=colour", "?by"), ("since=20&until=10", "?since"), ("since=soon", "?since")]
)
async def test_what_makes_no_sense_is_refused_by_name(rig: Rig, query: str, field: str) -> None:
    refused = await rig.ask("GET", f"/v1/usage?{query}")
    assert refused.status in (400, 422)
    assert refused.problem["field"] == field


async def test_too_many_groups_are_refused(used: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_report, "MOST_ROWS", 1)
    refused = await used.ask("GET", "/v1/usage?by=user&everybody=true", "pat")
    assert refused.problem["field"] == "?by"
    assert "shorter time" in refused.problem["remedy"]
