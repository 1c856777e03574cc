"""Who upgrades a fleet sees which agents are behind the dispatcher, and which are ahead of it."""

import msgspec

from federator import __version__
from federator.cli.columns import agent_versions, site_columns
from federator.wire.http import MemberRow
from tests.support.dispatch import World, make_world


def hosts(world: World, site: str) -> tuple[MemberRow, ...]:
    """What the API says of a site's hosts."""
    return world.core.views.site(site).hosts


async def test_the_version_of_each_agent_and_how_it_is_beside_the_dispatchers() -> None:
    world = await make_world()
    site = await world.add_site("lab", gpus=4)
    said = {}
    for version in (__version__, "0.0.9", "1000.0"):
        site.version = version
        site.connect()
        (host,) = hosts(world, "lab")
        said[host.version] = host.version_is
    assert said == {__version__: "", "0.0.9": "older", "1000.0": "newer"}
    world.core.inventory.forget("lab")
    (host,) = hosts(world, "lab")
    assert (host.version, host.version_is) == ("", "")


async def test_a_list_of_sites_has_the_versions_in_a_wide_column() -> None:
    world = await make_world()
    site = await world.add_site("lab", gpus=4)
    site.version = "0.0.9"
    site.connect()
    row = world.core.views.site("lab")
    column = next(each for each in site_columns() if each.title == "AGENT")
    assert column.wide
    assert column.value(row) == "0.0.9 (older)"
    twice = (*row.hosts, msgspec.structs.replace(row.hosts[0], version="0.1.0", version_is=""))
    assert agent_versions(twice) == "0.0.9 (older), 0.1.0"
