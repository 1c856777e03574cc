"""What would become of a job if it were changed: asked, and nothing changed. And what attempts say of hosts and money."""

from datetime import UTC, datetime

from tests.integration.api.rig import Rig
from tests.support.dispatch import renting

ASKS = {"resources": {"gpus": 4}, "estimate": "1h"}


async def test_an_earlier_deadline_is_previewed_with_its_price(rig: Rig) -> None:
    await rig.world.add_site("hall", gpus=4)
    await rig.world.policies(renting(max_duration="6h", deadline_usd=50.0, usd_per_day=500.0))
    await rig.world.core.executor.poll()
    runs = await rig.submit("ada", name="runs", **{**ASKS, "estimate": "4h"})
    await rig.world.turn()
    job = await rig.submit("ada", name="waits", **ASKS)
    await rig.world.turn()
    told = (await rig.ask("GET", f"/v1/jobs/{job}/explain", "ada")).json()
    assert not told["burst"]
    finish = await rig.ask("POST", f"/v1/jobs/{job}/preview", "ada", json={"deadline": _in(rig, 2.0)})
    would = finish.json()["explanation"]
    assert would["status"] == "would be rented for now"
    assert would["expected_finish_at"] < told["expected_finish_at"]
    assert finish.json()["cost_usd"] > 0.0
    assert rig.world.job(job).deadline_at is None, "nothing was changed"
    later = (
        await rig.ask("POST", f"/v1/jobs/{job}/preview", "ada", json={"deadline": _in(rig, 20.0)})
    ).json()
    assert later["explanation"]["status"] == "would wait"
    assert (await rig.ask("POST", f"/v1/jobs/{job}/preview", "bob", json={"deadline": "none"})).status == 403
    wrong = await rig.ask("POST", f"/v1/jobs/{job}/preview", "ada", json={"deadline": "soon"})
    assert wrong.problem["field"] == "$.deadline"
    started = await rig.ask("POST", f"/v1/jobs/{runs}/preview", "ada", json={"priority": 10})
    assert (started.status, "only what waits" in started.problem["detail"]) == (409, True)


async def test_an_attempt_says_where_it_was_and_what_it_came_to(rig: Rig) -> None:
    await rig.world.add_site("hall", gpus=4)
    job = await rig.submit("ada", **ASKS)
    await rig.world.turn()
    rig.world.sites["hall"].report(price_usd_gpu_h=2.0)
    again = await rig.submit("ada", **ASKS)
    rig.world.clock.advance(1800.0)
    await rig.world.sites["hall"].finish(job)
    rig.world.sites["hall"].report(price_usd_gpu_h=2.0)
    await rig.world.turn()
    rig.world.clock.advance(3600.0)
    (first,) = (await rig.ask("GET", f"/v1/jobs/{job}", "ada")).json()["attempts"]
    assert (first["members"], first["pool"], first["gpus"]) == (["hall"], "main", 4.0)
    assert first["ended_at"] - first["started_at"] == 1800.0
    assert "usd" not in first, "nobody had declared a price"
    (second,) = (await rig.ask("GET", f"/v1/jobs/{again}", "ada")).json()["attempts"]
    assert second["usd"] == 8.0


def _in(rig: Rig, hours: float) -> str:
    return datetime.fromtimestamp(rig.world.clock.now() + hours * 3600.0, UTC).isoformat()
