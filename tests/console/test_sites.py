"""The pages Sites and Decisions in real Chromium: drain a site, evict, join another; look at a decision and take it again."""

from collections.abc import Callable, Iterator

import msgspec
import pytest
from playwright.sync_api import expect

from tests.console.stage import Person, Stage
from tests.support.waiting import wait_until

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def long(stage: Stage) -> Iterator[str]:
    """The id of a job that runs for as long as the test."""
    stage.clear()
    with stage.client() as client:
        made = client.submit({"name": "long", "run": "sleep 600", "estimate": "3h", "resources": {"gpus": 2}})
        (job,) = made.jobs
        wait_until(lambda: client.job(job).job.status == "RUNNING", "the job to run")
        yield job
        if not client.job(job).job.terminal:
            client.cancel(job)
        wait_until(lambda: client.job(job).job.terminal, "the job to be over")


@pytest.mark.usefixtures("long")
def test_a_site_is_drained_and_taken_back(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    page = admin.sign_in()
    page.get_by_role("link", name="Sites", exact=True).click()
    expect(page.get_by_role("table", name="Sites")).to_contain_text("2 of 8")
    admin.picture("sites")
    admin.audit()
    page.get_by_role("link", name="north", exact=True).click()
    expect(page.get_by_role("img", name="2 busy, 6 free").first).to_be_visible()
    expect(page.get_by_text("does not measure its GPUs")).to_be_visible()
    work = page.get_by_role("table", name="Work here")
    expect(work.get_by_role("row", name="long")).to_contain_text("admin")
    admin.picture("site")
    admin.audit()
    page.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing is stopped")
    dialog.get_by_label("By when").fill("30m")
    expect(dialog).to_contain_text("Stops 1 job")
    expect(dialog).to_contain_text("long of admin")
    admin.picture("drain")
    admin.audit()
    dialog.get_by_label("By when").fill("20h")
    expect(dialog).to_contain_text("Nothing is stopped")
    dialog.get_by_label("Why").fill(HOSTILE)
    dialog.get_by_role("button", name="Drain").click()
    expect(page.locator("h1 + span")).to_contain_text("draining")
    expect(page.locator("main")).to_contain_text(HOSTILE)
    page.get_by_role("button", name="Undrain").click()
    page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    expect(page.locator("h1 + span")).to_contain_text("ready")


def test_the_links_of_a_sites_hosts_are_shown(person: Callable[[str], Person], stage: Stage) -> None:
    with stage.client() as client:
        wait_until(lambda: (link := client.site("north").hosts[0].link) and link.hour, "the link to be told")
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/sites/north")
    host = page.get_by_role("table", name="Links of the hosts").get_by_role("row").nth(1)
    expect(host).to_contain_text("up,")
    expect(host).to_contain_text("always")
    admin.audit()


def test_a_job_is_evicted_and_what_is_wrong_is_said(
    person: Callable[[str], Person], stage: Stage, long: str
) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/sites/north")
    page.get_by_role("button", name="Evict long").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stops 1 job")
    dialog.get_by_label("By when").fill("soon")
    dialog.get_by_role("button", name="Evict").click()
    expect(page.locator(".notice.bad")).to_contain_text("$.by")
    page.get_by_role("button", name="Evict long").click()
    dialog.get_by_role("button", name="Evict").click()
    with stage.client() as client:
        wait_until(lambda: client.job(long).job.status != "RUNNING", "the job to leave")
        client.cancel(long)
    expect(page.get_by_text("Nothing of ours runs here.")).to_be_visible()


def test_all_work_leaves_a_site_at_once(person: Callable[[str], Person], stage: Stage, long: str) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/sites/north")
    page.get_by_role("button", name="Evict all").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stops 1 job")
    dialog.get_by_role("button", name="Evict").click()
    with stage.client() as client:
        wait_until(lambda: client.job(long).job.status != "RUNNING", "the job to leave")
    expect(page.get_by_text("Nothing of ours runs here.")).to_be_visible()


def test_who_may_not_is_not_asked(person: Callable[[str], Person]) -> None:
    ada = person("ada")
    ada.sign_in()
    page = ada.open("/sites")
    expect(page.get_by_role("table", name="Sites")).to_contain_text("north")
    expect(page.get_by_role("button", name="Join a site")).to_have_count(0)
    page.get_by_role("link", name="north", exact=True).click()
    expect(page.get_by_role("table", name="Hosts of the site")).to_contain_text("north")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)


def test_who_administers_another_site_drains_only_that(person: Callable[[str], Person], stage: Stage) -> None:
    sam = person("sam")
    made = stage.federator("token", "create", "sam", "--role", "site-admin", "--site", "south")
    stage.tokens["sam"] = made.splitlines()[0]
    sam.sign_in()
    page = sam.open("/sites/north")
    expect(page.get_by_role("table", name="Hosts of the site")).to_contain_text("north")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    page = sam.open("/sites")
    page.get_by_role("button", name="Join a site").click()
    expect(page.get_by_role("dialog").get_by_label("Site", exact=True).locator("option")).to_have_text(
        ["south"]
    )


def test_a_thousand_sites_are_searched(person: Callable[[str], Person], stage: Stage) -> None:
    admin = person("admin")
    page = admin.sign_in()
    with stage.client() as client:
        row = next(client.changes(["sites"])).rows["sites"]["north"]
    assert row is not None
    names = [f"site-{number:03}" for number in range(1000)]
    sites = {name: row | {"name": name, "region": f"r{number % 7}"} for number, name in enumerate(names)}
    told = msgspec.json.encode({"reset": True, "rows": {"sites": sites}}).decode()
    body = f"id: a-1\ndata: {told}\n\n"
    page.route("**/v1/changes?*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    admin.open("/sites")
    table = page.get_by_role("table", name="Sites")
    expect(table.get_by_role("row")).to_have_count(101)
    page.keyboard.press("/")
    page.keyboard.type("r3 site-9")
    expect(page.get_by_text("14 sites")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(15)


def test_another_site_joins_by_commands_to_copy(person: Callable[[str], Person], stage: Stage) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/sites")
    page.get_by_role("button", name="Join a site").click()
    page.get_by_role("dialog").get_by_label("Site", exact=True).fill("south")
    page.get_by_role("dialog").get_by_role("button", name="Make the token").click()
    dialog = page.get_by_role("dialog", name="Join south")
    expect(dialog).to_contain_text(f"dispatcher: {stage.url}")
    expect(dialog).to_contain_text("federator-agent join --config site.yaml --token -")
    admin.picture("join")
    admin.audit()
    dialog.get_by_role("button", name="Done").click()
    with stage.client() as client:
        assert "south" in {each.site for each in client.tokens() if not each.role}


@pytest.mark.usefixtures("long")
def test_a_decision_is_looked_at_and_taken_again(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/decisions")
    table = page.get_by_role("table", name="Recorded decisions, newest first")
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    admin.picture("decisions")
    admin.audit()
    table.get_by_role("row").nth(1).get_by_role("rowheader").get_by_role("link").click()
    expect(page.get_by_role("table", name="Actions")).to_contain_text("long")
    page.get_by_role("button", name="Decide again").click()
    expect(page.get_by_text("Identical")).to_be_visible()
    admin.picture("decision")
    admin.audit()
    page.get_by_role("link", name="The plan as of then").click()
    expect(page.locator("h1").first).to_be_attached()
