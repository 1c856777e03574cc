"""Each GPU of a site and of a job on their pages, as a host measures them: how busy it is, its memory and power, whose work is there, and which is sick."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.stage import Person, Stage
from tests.testbeds.console import lacking
from tests.testbeds.nvml import A100, StubDriver
from tests.testbeds.required import need


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> StubDriver:
    """Of four GPUs, of which the second is not as busy as the first."""
    driver = StubDriver(tmp_path_factory.mktemp("driver"), A100, A100, A100, A100)
    driver.change(0, util=90, used=40960, watts=320)
    driver.change(1, util=30, used=20480, watts=180)
    return driver


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, driver: StubDriver) -> Iterator[Stage]:
    """A site whose agent looks at its GPUs."""
    need(lacking())
    folder: Path = tmp_path_factory.mktemp("gpus")
    alerts = {"alerts": {"sick_gpu_s": 0.5, "look_s": 0.5}}
    with Stage(folder, alerts, driver=driver.environment) as stage:
        stage.site(gpus=4)
        yield stage


@pytest.mark.usefixtures("cleared")
def test_gpus_are_drawn_one_by_one(person: Callable[[str], Person], stage: Stage, driver: StubDriver) -> None:
    stage.person("ada")
    with stage.client("ada") as client:
        job = client.submit({"name": "busy", "run": "sleep 600", "resources": {"gpus": 2}}).jobs[0]
    ada = person("ada")
    ada.sign_in()
    page = ada.open("/sites/north")
    grid = page.locator(".gpu-grid li")
    expect(grid).to_have_count(4)
    expect(grid.nth(0)).to_contain_text("90 % · 40 GiB · 320 W")
    expect(grid.nth(0).get_by_role("link", name="busy")).to_be_visible()
    expect(grid.nth(1)).to_contain_text("30 % · 20 GiB · 180 W")
    expect(grid.nth(2).get_by_role("link")).to_have_count(0)
    driver.change(3, lost=1)
    expect(grid.nth(3)).to_contain_text("sick")
    expect(page.get_by_text("it is lost from the bus").first).to_be_visible()
    ada.audit()
    ada.picture("site-gpus")
    ada.open(f"/jobs/{job}")
    uses = page.get_by_role("region", name="Use of its GPUs").get_by_role("img")
    expect(uses).to_have_count(2)
    expect(page.locator(".gpu-use").first).to_contain_text("GPU 0 A100 north")
    expect(uses.nth(0)).to_have_accessible_name("GPU 0 of north: 90 % now · 90 % on average · 40 GiB · 320 W")
    ada.audit()
    ada.picture("job-gpus")


def test_the_page_now_has_a_sick_gpu_and_the_alert_of_it(
    person: Callable[[str], Person], stage: Stage, driver: StubDriver
) -> None:
    driver.change(3, lost=1)
    page = person("admin").sign_in()
    sites = page.get_by_role("table", name="Sites and their GPUs")
    expect(sites.get_by_role("img", name="1 sick")).to_be_visible()
    expect(page.get_by_role("region", name="Alerts")).to_contain_text("GPU")
