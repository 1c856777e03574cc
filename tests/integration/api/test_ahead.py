"""Who is before a job: named for those who may see them, counted for others."""

from typing import Any

import pytest

from federator.control.administration.visibility import ANOTHERS
from tests.integration.api.rig import Rig


async def explained(rig: Rig, job: str, who: str) -> list[dict[str, Any]]:
    answer = await rig.ask("GET", f"/v1/jobs/{job}/explain", who)
    found: list[dict[str, Any]] = answer.json()["ahead"]
    return found


@pytest.mark.parametrize("by_team", [False, True])
async def test_what_runs_and_what_waits_before_it(rig: Rig, by_team: bool) -> None:
    rig.world.core.visibility.by_team = by_team
    await rig.world.add_site("hall", gpus=4)
    asks = {"resources": {"gpus": 4}}
    hog = await rig.submit("ada", name="hog", **asks)
    await rig.world.turn()
    second = await rig.submit("ada", name="second", **asks)
    await rig.world.turn()
    third = await rig.submit("bob", name="third", **asks)
    await rig.world.turn()
    by_pat = await explained(rig, third, "pat")
    assert [(each["name"], each.get("waits", False)) for each in by_pat] == [("hog", False), ("second", True)]
    assert by_pat[0]["owner"] == "ada"
    assert by_pat[0]["site"] == "hall"
    assert by_pat[0]["until_at"] > rig.world.clock.now()
    by_bob = await explained(rig, third, "bob")
    names = {each["name"] for each in by_bob}
    assert names == ({ANOTHERS} if by_team else {"hog", "second"})
    if by_team:
        assert not any(each["job"] or each["owner"] for each in by_bob)
        assert hog not in str(by_bob)
    assert not await explained(rig, hog, "ada"), "it runs"
    assert [each["name"] for each in await explained(rig, second, "ada")] == ["hog"]
