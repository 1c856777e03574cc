"""What a rented machine is started with, as its agent reads it."""

from pathlib import Path

import pytest
import trustme

from federator.control.administration.user_data import user_data
from federator.kernel.route import Way
from federator.model.capacity import Lease, LeaseStatus
from federator.settings import ProviderSettings, ServerSettings, Settings
from federator_agent.config import USER_DATA_VARIABLE, load
from tests.support.dispatch import OFFER, make_world

CENTRE = "https://centre.test:7070,https://other.test:7070"


LEASE = Lease(
    id="lease-1",
    provider="cloudy",
    site="cloud",
    offer=OFFER,
    status=LeaseStatus.REQUESTED,
    requested_at=0.0,
    because="",
)


@pytest.mark.parametrize("private", [True, False])
async def test_it_names_the_dispatchers_and_carries_the_authority_behind_their_certificates(
    tmp_path: Path, private: bool
) -> None:
    world = await make_world()
    authority = trustme.CA().cert_pem
    authority.write_to_path(tmp_path / "ca.pem")
    settings = Settings(
        server=ServerSettings(ca=str(tmp_path / "ca.pem") if private else ""),
        providers={"cloudy": ProviderSettings(type="fake", site="cloud")},
    )
    make = user_data(world.core.admission, settings, CENTRE)
    file = tmp_path / "user-data"
    file.write_text(await make(LEASE))
    read = load(None, {USER_DATA_VARIABLE: str(file)})
    assert (read.dispatcher, read.member, read.site.name) == (CENTRE, LEASE.member, "cloud")
    assert read.join_token.startswith("join_")
    assert read.ca == (authority.bytes().decode() if private else "")
    believed = Way(ca=read.ca).context().get_ca_certs()
    assert ("trustme" in str(believed)) is private
