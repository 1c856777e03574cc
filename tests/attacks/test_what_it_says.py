"""What people are told of jobs, sites and hosts is what is so."""

from pathlib import Path
from typing import Any

import pytest

from federator.cli.explain import _against
from federator.cli.output import STYLES
from federator.cli.top import _headline
from federator.control.queries.views import Views
from federator.model.jobs import JobStatus
from federator.model.sites import SiteStatus
from federator.wire.http import Verb
from federator_agent import nvml
from tests.support.dispatch import ADA, World, make_world


@pytest.fixture
async def world() -> World:
    world = await make_world()
    await world.add_site("lab", gpus=4)
    return world


@pytest.mark.parametrize("verb", ["hold", "requeue"])
@pytest.mark.parametrize("saves", [True, False])
async def test_who_stops_a_job_that_saves_nothing_is_told_that_it_starts_anew(
    world: World, verb: Verb, *, saves: bool
) -> None:
    checkpoint: dict[str, Any] = {"checkpoint": {"every": "10m"}} if saves else {}
    job = await world.submit(resources={"gpus": 1}, **checkpoint)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    told = await world.core.intake.act_on_one(ADA, verb, job)
    assert ("what it has done is lost" in told.because) is not saves
    await world.obey()
    said = " ".join(event.text for event in await world.core.views.events(job, None))
    assert ("after a checkpoint" in said) is saves
    assert ("starts from the beginning" in said) is not saves


async def test_who_holds_a_job_that_has_not_begun_is_told_nothing_is_lost(world: World) -> None:
    job = await world.submit(resources={"gpus": 1})
    assert "lost" not in (await world.core.intake.act_on_one(ADA, "hold", job)).because


async def test_a_paused_site_is_not_ready(world: World) -> None:
    views: Views = world.core.views
    assert views.site("lab").status == SiteStatus.READY
    world.sites["lab"].report(paused=True)
    assert views.site("lab").status == "PAUSED"


async def test_gpus_of_a_member_that_is_not_heard_are_not_counted(world: World) -> None:
    await world.add_member("lab", "lab-2", gpus=8)
    assert (world.core.views.site("lab").gpus, world.core.views.site("lab").members) == (12, 2)
    heard = world.core.inventory.members["lab-2"]
    world.core.inventory.closed("lab-2", heard.session)
    for _ in range(20):
        world.clock.advance(60)
    world.core.inventory.refresh()
    row = world.core.views.site("lab")
    assert (row.gpus, row.busy) == (4, 0)


async def test_sums_over_all_sites_leave_out_what_is_not_heard(world: World) -> None:
    """What `federator top` says above its tables."""
    await world.add_site("east", gpus=8)
    job = await world.submit(resources={"gpus": 8})
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert "8/12 GPUs busy" in _headline(world.core.views.overview(ADA)).plain
    for member, heard in world.core.inventory.members.items():
        if heard.site == "east":
            world.core.inventory.closed(member, heard.session)
    for _ in range(20):
        world.clock.advance(60)
    world.core.inventory.refresh()
    assert world.core.views.site("east").status == SiteStatus.UNREACHABLE
    assert "0/4 GPUs busy" in _headline(world.core.views.overview(ADA)).plain


def test_a_paused_site_has_a_colour_of_its_own() -> None:
    assert {STYLES[word] for word in ("READY", "PAUSED", "UNREACHABLE")} == {"green", "magenta", "red"}


def test_what_was_cancelled_has_no_time_to_spare() -> None:
    assert "to spare" in _against(10.0, 50.0, 0.0, JobStatus.SUCCEEDED).plain
    for status in (JobStatus.CANCELLED, JobStatus.FAILED):
        assert "spare" not in _against(10.0, 50.0, 0.0, status).plain


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, False),
        ({"dev/nvidia0": ""}, True),
        ({"dev/nvidiactl": ""}, False),
        ({"proc/driver/nvidia/version": "NVRM"}, True),
        ({"sys/bus/pci/devices/a/vendor": "0x10de\n", "sys/bus/pci/devices/a/class": "0x030200\n"}, True),
        ({"sys/bus/pci/devices/a/vendor": "0x10de\n", "sys/bus/pci/devices/a/class": "0x040300\n"}, False),
        ({"sys/bus/pci/devices/a/vendor": "0x8086\n", "sys/bus/pci/devices/a/class": "0x030000\n"}, False),
    ],
)
def test_gpus_are_seen_without_their_library(tmp_path: Path, files: dict[str, str], *, found: bool) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert nvml.present(tmp_path) is found
