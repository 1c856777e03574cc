"""A site claims a region that it is not in, for data that has to stay there: the federation's token has the last word."""

import msgspec
import pytest

from federator.kernel.errors import Forbidden
from federator.model.identity import Caller, Role
from federator.model.jobs import JobStatus
from federator.model.sites import Site
from federator.wire.http import TokenRequest
from federator.wire.link import JoinRequest
from tests.support.dispatch import ADMIN, World, make_world

ONLY_EU = """
apiVersion: federator/v1
kind: Residency
metadata: {name: patients}
spec:
  data: {uris: [s3://patients]}
  only: {regions: [eu]}
"""
OWN = Caller(name="north-admin", role=Role.SITE_ADMIN, sites=("north",))


async def joined(world: World, *, token: str = "", file: str = "") -> None:
    """The site, with a region in its token and in its file, as far as they name one."""
    request = TokenRequest(site="north", kind="onprem", region=token)
    secret = (await world.core.admission.create_token(ADMIN, request)).secret
    labels = {"region": file} if file else {}
    number = len(world.core.records.members)
    wish = JoinRequest(public_key=f"{number:064x}", member=f"north-{number}", labels=labels)
    await world.core.admission.join(secret, wish)
    site = world.connect(wish.member, 1, 4, "A100")
    site.report(labels=labels)


async def reads_patients(world: World) -> JobStatus:
    """Whether a job starts that reads what has to stay in the EU."""
    job = await world.submit(resources={"gpus": 1}, inputs=["s3://patients/scans"])
    await world.core.turn.once()
    return world.job(job).status


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.policies(ONLY_EU)
    return world


async def test_the_region_of_a_file_counts_where_the_token_names_none(world: World) -> None:
    await joined(world, file="eu")
    assert await reads_patients(world) is JobStatus.PLACED


async def test_a_site_that_names_none_is_in_none(world: World) -> None:
    await joined(world)
    assert await reads_patients(world) is JobStatus.PENDING


async def test_no_file_says_another_region_than_the_token(world: World) -> None:
    await joined(world, token="us", file="eu")
    assert await reads_patients(world) is JobStatus.PENDING
    asked = await world.submit(resources={"gpus": 1}, placement={"labels": {"region": "eu"}})
    await world.core.turn.once()
    assert world.job(asked).status is JobStatus.PENDING, "its label says what its token says"


async def test_no_later_report_moves_a_site_to_another_region(world: World) -> None:
    await joined(world, file="us")
    world.sites["north-0"].report(labels={"region": "eu"})
    assert await reads_patients(world) is JobStatus.PENDING


async def test_another_host_of_the_site_cannot_say_otherwise(world: World) -> None:
    await joined(world, token="us")
    await joined(world, file="eu")
    assert await reads_patients(world) is JobStatus.PENDING


async def test_a_sites_own_admin_makes_no_token_with_a_region(world: World) -> None:
    request = TokenRequest(site="north", kind="onprem", region="eu")
    with pytest.raises(Forbidden, match="administrator of the federation") as refused:
        await world.core.admission.create_token(OWN, request)
    assert refused.value.field == "$.region"
    assert not world.core.records.join_tokens


async def test_an_administrators_later_token_corrects_what_a_site_has_claimed(world: World) -> None:
    await joined(world, file="eu")
    await joined(world, token="us")
    assert await reads_patients(world) is JobStatus.PENDING
    assert world.core.views.sites()[0].region == "us"


def test_the_record_of_an_older_version_tells_its_region() -> None:
    written = b'{"name":"north","kind":"onprem","region":"","labels":{"region":"eu"}}'
    assert msgspec.json.decode(written, type=Site).region == "eu"
