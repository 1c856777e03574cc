"""The price of an earlier finish on a job's page: the handle is moved, what follows is previewed, and a machine is rented once the deadline is set."""

import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.console.stage import Person, Stage, box_of
from tests.support.dispatch import renting
from tests.support.waiting import wait_until
from tests.testbeds.console import lacking
from tests.testbeds.required import need

BOX = {
    "instance_type": "box", "model": "A100", "gpu_memory": "40GiB", "gpus": 8, "cpus": 32, "memory": "64GiB",
    "price_usd_h": 12.0, "boot_delay": "5s",
}  # fmt: skip


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A site that is full for hours, and a provider whose machines are real processes."""
    need(lacking())
    folder = tmp_path_factory.mktemp("deadline")
    machines = {
        "state_dir": str(folder / "machines"),
        "command": [sys.executable, "-m", "federator_agent", "serve"],
        "offers": [BOX],
    }
    provider = {"burst": {"type": "local", "site": "cloud", "settings": machines}}
    with Stage(folder, {"providers": provider}) as stage:
        stage.site()
        policies = folder / "policies.yaml"
        policies.write_text(renting(max_duration="8h", deadline_usd=60.0, usd_per_day=400.0))
        stage.federator("policy", "apply", str(policies), "--reason", "test")
        with stage.client() as client:
            asks = {"run": "sleep 600", "resources": {"gpus": 8}}
            client.submit({**asks, "name": "long", "estimate": "4h"})
            wait_until(lambda: client.job("long").job.status == "RUNNING", "the site to be full")
            client.submit({**asks, "name": "hurry", "estimate": "1h"})
            wait_until(lambda: client.explain("hurry").curve, "the prices to be known")
        yield stage


def test_the_handle_shows_and_sets_what_rents(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    admin.sign_in()
    with admin.stage.client() as client:
        job = client.job("hurry").job.id
        page = admin.open(f"/jobs/{job}")
        handle = page.get_by_role("slider", name="Deadline")
        expect(handle).to_have_attribute("aria-valuetext", "none")
        would = page.locator(".would")
        handle.focus()
        page.keyboard.press("Home")
        expect(would).to_contain_text("It would be rented for now for about $")
        expect(page.get_by_role("status").filter(has_text="Done by")).to_contain_text("at cloud")
        assert client.job(job).job.deadline_at is None, "a preview changes nothing"
        admin.picture("job-deadline")
        admin.audit()
        page.get_by_role("button", name="Leave it").click()
        expect(handle).to_have_attribute("aria-valuetext", "none")
        expect(page.locator(".curve-point.rented").first).to_be_visible()
        box = box_of(page.locator(".curve"))
        point = box_of(page.locator(".curve-point.rented").first)
        page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 80)
        page.mouse.down()
        page.mouse.move(point["x"] + 40, box["y"] + 80, steps=5)
        page.mouse.up()
        expect(would).to_contain_text("rented for now")
        page.get_by_role("button", name="Set this deadline").click()
        expect(page.get_by_text("The deadline is")).to_be_visible()
        wait_until(lambda: any(each.site == "cloud" for each in client.leases()), "the machine to be rented")
        wait_until(lambda: client.job(job).site == "cloud", "the job to be placed on it")
    expect(page.get_by_role("img", name="attempt 1")).to_be_visible()
    expect(page.locator(".curve")).to_be_hidden()
    page.goto(f"{admin.stage.url}/plan")
    expect(page.get_by_text("cloud (rented)")).to_be_visible()
