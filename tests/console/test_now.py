"""The page Now in real Chromium: what is there, live, and for each person what they may see."""

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from federator.kernel.quantities import format_instant
from tests.console.stage import Person, Stage

pytestmark = pytest.mark.usefixtures("cleared")
HOSTILE = "<img src=x onerror=alert(1)>"


def test_it_shows_what_happens_and_follows_it(person: Callable[[str], Person], stage: Stage) -> None:
    admin = person("admin")
    page = admin.sign_in()
    expect(page.get_by_role("img", name="8 free")).to_be_visible()
    expect(page.get_by_text("Nothing waits.")).to_be_visible()
    admin.picture("now-empty")
    with stage.client() as client:
        runs = client.submit({"name": "runs", "command": ["sleep", "600"], "resources": {"gpus": 6}})
        client.submit({"name": "waits", "command": ["true"], "resources": {"gpus": 4}})
        client.submit({"name": "never", "command": ["true"], "resources": {"accelerators": "H100:1"}})
    # Without loading anew.
    expect(page.get_by_role("img", name="6 busy, 2 free")).to_be_visible()
    waits = page.get_by_role("table", name="Why jobs wait")
    expect(waits.get_by_role("row")).to_have_count(3)
    expect(waits).to_contain_text("H100")
    expect(page.locator(".figures")).to_contain_text("6 of 8")
    expect(page.get_by_text("No deadline is at risk.")).to_be_visible()
    with stage.client() as client:
        for name in ("soon", "sooner"):
            client.submit(
                {
                    "name": name,
                    "run": "true",
                    "finish_within": "30m",
                    "resources": {"gpus": 8},
                    "estimate": "2h",
                }
            )
    risks = page.get_by_role("table", name="Jobs that are not expected to be done by their deadline")
    expect(risks.get_by_role("row")).to_have_count(3)
    expect(risks).to_contain_text("soon")
    admin.audit()
    admin.picture("now")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 900})
    with stage.client() as client:
        client.drain("north", why=HOSTILE)
        expect(page.get_by_role("table", name="Sites and their GPUs")).to_contain_text("draining")
        expect(page.get_by_role("img", name="2 idle, and nothing new starts")).to_be_visible()
        client.undrain("north")
        client.cancel(runs.jobs[0])
    expect(waits).not_to_contain_text("behind")
    page.get_by_role("link", name="See them among the jobs").click()
    expect(page.get_by_role("button", name="deadline at risk")).to_be_visible()
    jobs = page.get_by_role("table", name="Jobs")
    expect(jobs.get_by_role("row", name="sooner")).to_be_visible()
    expect(jobs.get_by_role("row", name="never")).to_have_count(0)


@pytest.fixture
def reserved(stage: Stage) -> Iterator[None]:
    """The site is kept for the queue `demo` for an hour from now on."""
    begin, end = (format_instant(time.time() + hours * 3600) for hours in (-1, 1))
    spec = f"{{where: {{sites: [north]}}, who: {{queues: [demo]}}, from: '{begin}', until: '{end}'}}"
    queues = [
        f"apiVersion: federator/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{guaranteed: {{gpus: {gpus}}}, limit: {{gpus: 7}}}}\n"
        for name, gpus in (("demo", 4), ("default", 1))
    ]
    budget = (
        "apiVersion: federator/v1\nkind: Budget\nmetadata: {name: month}\nspec: {usd: {per_month: 100}}\n"
    )
    kept = f"apiVersion: federator/v1\nkind: Reservation\nmetadata: {{name: show}}\nspec: {spec}\n"
    with stage.client() as client:
        assert not client.apply_policies("---\n".join([kept, budget, *queues]), "a show").problems
        yield
        client.apply_policies("---\n".join(queues), "it is over")


@pytest.mark.usefixtures("reserved")
def test_what_a_policy_keeps_is_shown_with_queues_and_caps(
    person: Callable[[str], Person], stage: Stage
) -> None:
    admin = person("admin")
    page = admin.sign_in()
    with stage.client() as client:
        client.submit({"name": "shown", "run": "sleep 600", "queue": "demo", "resources": {"gpus": 3}})
    expect(page.get_by_role("img", name="3 busy, 5 kept")).to_be_visible()
    expect(page.get_by_role("table", name="Sites and their GPUs")).to_contain_text(
        "queue demo 5 GPUs, ends in"
    )
    queue = page.get_by_role("table", name="Queues against").get_by_role("row", name="demo")
    expect(queue.get_by_role("img", name="3 in use, 4 guaranteed, limit 7")).to_be_visible()
    expect(page.get_by_role("table", name="Money under caps")).to_contain_text("Budget/month")
    admin.picture("now-reserved")
    admin.audit()
    admin.open("/plan")
    expect(page.locator(".bar-kept").first).to_be_attached()
    admin.picture("plan-reserved")
    page.get_by_role("button", name="As a table").click()
    expect(page.get_by_role("rowheader", name="Reserved for queue demo")).to_be_visible()
    admin.audit()


def test_links_work_by_keyboard(person: Callable[[str], Person], stage: Stage) -> None:
    page = person("admin").sign_in()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    site = page.get_by_role("link", name="north", exact=True)
    site.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{stage.url}/sites/north")
    page.go_back()
    expect(site).to_be_visible()


def test_a_wrong_address_is_a_page_that_leads_home(person: Callable[[str], Person]) -> None:
    ada = person("ada")
    page = ada.sign_in()
    for what in ("job", "site", "decision"):
        ada.open(f"/{what}s/no-%3Cb%3Esuch")
        expect(page.get_by_role("heading", name=f"There is no such {what}")).to_be_visible()
        page.get_by_role("link", name=f"See all {what}s").click()
        expect(page.locator("h1")).to_have_text(f"{what.capitalize()}s")
    ada.open("/plan?decision=none")
    expect(page.locator(".notice.bad")).to_contain_text("No recorded decision none")
    ada.open("/nonsense/of?any=kind")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    ada.audit()
    page.get_by_role("link", name="See what happens now").click()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    page.go_back()
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
