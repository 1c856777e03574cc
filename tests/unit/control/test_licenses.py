"""Floating licences: jobs hold them while they run, never more than there are, and only where they can be used."""

import pytest

from federator.kernel.errors import Invalid
from tests.support.dispatch import ADA, BOB, World, make_world

MATLAB = """
apiVersion: federator/v1
kind: License
metadata: {name: matlab}
spec: {count: 3, where: {sites: [lab]}}
"""


async def a_world() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    await world.add_site("annex", nodes=2, gpus=4)
    await world.policies(MATLAB)
    return world


def statuses(world: World, jobs: list[str]) -> list[str]:
    return [world.job(job).status for job in jobs]


async def test_no_more_licences_are_held_than_there_are_whoever_holds_them() -> None:
    world = await a_world()
    gang = await world.submit(ADA, nodes=2, resources={"gpus": 1}, licenses={"matlab": 2})
    two = await world.submit(BOB, resources={"gpus": 1}, licenses={"matlab": 2})
    one = await world.submit(BOB, resources={"gpus": 1}, licenses={"matlab": 1})
    none = await world.submit(BOB, resources={"gpus": 1})
    await world.turn()
    assert statuses(world, [gang, two, one, none]) == ["RUNNING", "PENDING", "RUNNING", "RUNNING"]
    found = await world.core.views.explain(world.job(two))
    told = " ".join(site.text for site in found.sites)
    assert "3 of 3 licences matlab are in use, this needs 2 (policy License/matlab)" in told
    assert "no policy has licences matlab for work there" in told, "at the annex"
    assert "5 licences matlab instead of 3 licences matlab" in " ".join(found.changes)
    await world.sites["lab"].finish(gang)
    await world.turn()
    assert world.placement(two).site == "lab"


@pytest.mark.parametrize(
    ("licenses", "says"),
    [
        ({"matlb": 1}, "$.licenses.matlb: no policy has such licences (did you mean matlab?)"),
        ({"ansys": 1}, "$.licenses.ansys: no policy has such licences (known are matlab)"),
        ({"matlab": 4}, "$.licenses.matlab: 4 are more than the 3 that there are (ask for fewer)"),
    ],
)
async def test_licences_that_nobody_has_are_refused_at_submission(
    licenses: dict[str, int], says: str
) -> None:
    world = await a_world()
    with pytest.raises(Invalid) as refused:
        await world.submit(licenses=licenses)
    assert refused.value.describe() == says
    assert not world.core.records.jobs


async def test_a_job_waits_where_its_licences_are_taken_out_of_the_policies() -> None:
    world = await a_world()
    job = await world.submit(resources={"gpus": 1}, licenses={"matlab": 1})
    await world.policies(MATLAB.replace("matlab", "ansys"))
    await world.turn()
    assert statuses(world, [job]) == ["PENDING"]
