"""The pages Policies and Money in real Chromium: write, check, compare, replay and apply a set; approve a rental, and see what it costs."""

import csv
import io
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.stage import REPLAY_S, Person, Stage
from tests.support.waiting import wait_until
from tests.testbeds.console import lacking
from tests.testbeds.required import need

HOSTILE = "<img src=x onerror=alert(1)>"
SET = """apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {max_duration: 2h, met_deadline_usd_per_gpu_hour: 40}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: night}
spec: {max_duration: 4h}
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: cautious}
spec: {when: {approval_above: 0.01 USD}}
---
apiVersion: federator/v1
kind: Budget
metadata: {name: month}
spec: {usd: {per_month: 100, per_day: 50}}
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A site of one GPU, and a provider whose machines come up and never join."""
    need(lacking())
    folder = tmp_path_factory.mktemp("console")
    offers = [{"instance_type": "a2-highgpu-1g", "boot_delay": "10m", "max_instances": 2}]
    machines = {"state_dir": str(folder / "machines"), "command": ["sleep", "600"], "offers": offers}
    provider = {"type": "local", "site": "cloud", "settings": machines}
    with Stage(folder, {"providers": {"acme": provider}}) as stage:
        stage.site(gpus=1)
        (folder / "rules").mkdir()
        (folder / "rules/set.yaml").write_text(SET)
        stage.federator("policy", "apply", str(folder / "rules"), "-m", HOSTILE)
        with stage.client() as client:
            done = client.submit({"name": "done", "run": "true", "resources": {"gpus": 1}})
            client.wait(done.jobs[0])
            client.submit(
                {
                    "name": "long",
                    "run": "sleep 900",
                    "estimate": "5h",
                    "max_duration": "6h",
                    "resources": {"gpus": 1},
                }
            )
            wait_until(lambda: client.job("long").job.status == "RUNNING", "the first job to run")
            client.submit(
                {
                    "name": "waits",
                    "run": "sleep 60",
                    "estimate": "1h",
                    "finish_within": "100m",
                    "resources": {"gpus": 1},
                }
            )
        yield stage


def editor(page: Page) -> str:
    """What the editor has."""
    return page.get_by_label("The policy set").input_value()


@pytest.fixture
def urgent(stage: Stage) -> Iterator[str]:
    """The name of a job that is in time only on a machine of its own."""
    name = f"urgent-{secrets.token_hex(3)}"
    asks = {"run": "sleep 60", "estimate": "1h", "finish_within": "100m", "resources": {"gpus": 1}}
    with stage.client() as client:
        job = client.submit({**asks, "name": name}).jobs[0]
        yield name
        client.cancel(job)


def test_a_rental_is_approved(person: Callable[[str], Person], stage: Stage, urgent: str) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/policies")
    table = page.get_by_role("table", name="Rentals that wait for a person")
    expect(table).to_contain_text(urgent)
    expect(page.get_by_role("table", name="Versions, newest first")).to_contain_text(HOSTILE)
    admin.picture("policies")
    admin.audit()
    table.get_by_role("button", name=f"Approve a rental for {urgent}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("in the worst case")
    dialog.get_by_label("Why").fill("the paper is due")
    admin.picture("approve")
    admin.audit()
    dialog.get_by_role("button", name="Approve", exact=True).click()
    with stage.client() as client:
        wait_until(lambda: bool(client.leases()), "a machine to be rented")
    expect(table).not_to_contain_text(urgent)


@pytest.fixture
def rented(stage: Stage) -> None:
    """A machine is rented, by whomever it was approved."""
    with stage.client() as client:
        if not client.leases():
            client.approve_rental("waits", usd=50.0)  # what is proposed changes with each turn
        wait_until(lambda: bool(client.leases()), "a machine to be rented")


@pytest.mark.usefixtures("rented")
def test_money_is_shown_with_its_evidence(person: Callable[[str], Person], tmp_path: Path) -> None:
    admin = person("admin")
    admin.sign_in()
    page = admin.open("/money")
    expect(page.get_by_role("table", name="Money under caps")).to_contain_text("Budget/month")
    panel = page.get_by_role("region", name="Under caps")
    for period in ("day", "month"):
        panel.get_by_label("Cap whose money is drawn").select_option(f"Budget/month: {period}")
        expect(panel.get_by_role("heading", name=f"Budget/month: {period}")).to_be_visible()
    leases = page.get_by_role("table", name="What is and was rented")
    expect(leases).to_contain_text("a2-highgpu-1g")
    usage = page.get_by_role("table", name="Use and chargeback")
    page.get_by_label("Added up by").select_option("user")
    expect(usage.get_by_role("row", name="admin")).to_be_visible()
    admin.picture("money")
    admin.audit()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as CSV").click()
    download.value.save_as(tmp_path / "usage.csv")
    (row,) = csv.DictReader(io.StringIO((tmp_path / "usage.csv").read_text()))
    assert row["user"] == "admin"
    assert int(row["jobs"]) >= 1
    leases.get_by_role("button", name="Evidence").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("BurstPolicy/cautious")
    admin.picture("evidence")
    admin.audit()
    page.get_by_role("dialog").get_by_role("link", name="this decision").click()
    expect(page.get_by_role("table", name="Actions")).to_contain_text(re.compile("waits|urgent"))
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.usefixtures("as_before")
def test_a_set_is_checked_compared_replayed_and_applied(
    person: Callable[[str], Person], stage: Stage
) -> None:
    with stage.client() as client:
        version = client.policies().version
    pat = person("pat")
    pat.stage.person("pat", "platform")
    pat.sign_in()
    page = pat.open("/policies")
    area = page.get_by_label("The policy set")
    expect(area).to_have_value(SET)
    area.fill(SET.replace("max_duration: 4h", "max_duration: soon"))
    expect(page.get_by_text("max_duration").last).to_be_visible()
    expect(page.locator(".wrong").first).to_contain_text("max_duration")
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    area.fill(SET.replace("name: night", "name: evening"))
    expect(page.get_by_text("Valid: 4 documents")).to_be_visible()
    expect(page.get_by_text("Queue/evening is added")).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("heading", name="What it would have done")).to_be_visible(timeout=REPLAY_S * 1000)
    expect(page.get_by_role("table", name="What changes")).to_contain_text("Mean wait")
    pat.picture("replay")
    pat.audit()
    area.press("Control+End")
    area.press_sequentially("# why not\n")
    expect(page.get_by_text("This replay was of an earlier text.")).to_be_visible()
    page.get_by_role("button", name="Apply").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Queue/night is removed")
    dialog.get_by_label("Why").fill("evenings are enough")
    pat.picture("apply")
    dialog.get_by_role("button", name="Apply").click()
    history = page.get_by_role("table", name="Versions, newest first")
    expect(history).to_contain_text("evenings are enough")
    expect(page.get_by_text(f"Version {version + 1} by pat")).to_be_visible()
    history.get_by_role("button", name=f"Version {version}", exact=True).click()
    dialog.get_by_role("button", name="Put in force again").click()
    expect(page.get_by_text(f"Version {version + 2} by pat")).to_be_visible()
    expect(area).to_have_value(SET)


def changed(page: Page, now: str) -> None:
    """Write that the queue `night` may have jobs so long, and wait until that is found valid."""
    area = page.get_by_label("The policy set")
    expect(area).to_have_value(SET)
    area.fill(SET.replace("max_duration: 4h", f"max_duration: {now}"))
    expect(page.get_by_text("Valid: 4 documents")).to_be_visible()


@pytest.fixture
def as_before(stage: Stage) -> Iterator[None]:
    """The set of the stage is in force, before and afterwards."""
    with stage.client() as client:
        client.apply_policies(SET, "as before")
        yield
        client.apply_policies(SET, "as before")


@pytest.mark.usefixtures("as_before")
def test_a_version_that_came_meanwhile_is_not_overwritten(
    person: Callable[[str], Person], stage: Stage
) -> None:
    pat = person("pat")
    stage.person("pat", "platform")
    pat.sign_in()
    page = pat.open("/policies")
    changed(page, "5h")
    page.get_by_role("button", name="Apply").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Queue/night is changed")
    with stage.client() as client:
        client.apply_policies(SET.replace("name: month", "name: monthly"), "meanwhile")
        dialog.get_by_label("Why").fill("longer nights")
        dialog.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("alert")).to_contain_text("Nothing was applied")
        assert client.policies().reason == "meanwhile"
        region = page.get_by_role("region", name="The set in force")
        expect(region).to_contain_text("came into force while you were writing")
        expect(region).to_contain_text("Budget/monthly is removed")
        assert "max_duration: 5h" in editor(page)
        pat.audit()
        page.get_by_role("button", name="Apply").click()
        expect(dialog).to_contain_text("Budget/monthly is removed")
        dialog.get_by_label("Why").fill("longer nights, and that name is wrong")
        dialog.get_by_role("button", name="Apply").click()
        wait_until(lambda: "that name is wrong" in client.policies().reason, "the set to be applied")
    expect(region.get_by_text("came into force while you were writing")).to_have_count(0)


@pytest.mark.usefixtures("as_before")
def test_a_text_that_is_not_applied_is_kept_for_who_wrote_it(
    person: Callable[[str], Person], stage: Stage
) -> None:
    pat = person("pat")
    stage.person("pat", "platform")
    page = pat.sign_in()
    pat.open("/policies")
    changed(page, "6h")
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.get_by_role("table", name="Jobs")).to_be_visible()
    page.get_by_role("link", name="Policies", exact=True).click()
    expect(page.get_by_text("This is your draft")).to_be_visible()
    assert "max_duration: 6h" in editor(page)
    expect(page.get_by_text("Queue/night is changed")).to_be_visible()
    with stage.client() as client:
        version = client.apply_policies(SET.replace("name: month", "name: monthly"), "meanwhile").version
    page.reload()
    expect(page.get_by_text(f"Version {version} by admin came into force")).to_be_visible()
    assert "max_duration: 6h" in editor(page)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").fill(stage.tokens["admin"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("link", name="Policies", exact=True).click()
    expect(page.get_by_text(f"Version {version} by admin")).to_be_visible()
    assert "max_duration: 4h" in editor(page)
    page.get_by_label("The policy set").fill("# mine")
    page.get_by_role("button", name="Discard changes").click()
    page.reload()
    expect(page.get_by_text(f"Version {version} by admin")).to_be_visible()
    assert "max_duration: 4h" in editor(page)


def test_renting_is_paused_and_resumed(person: Callable[[str], Person], stage: Stage) -> None:
    with stage.client() as client:
        if client.burst().paused:
            client.resume_bursting()
        admin = person("admin")
        admin.sign_in()
        page = admin.open("/policies")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Pause renting").click()
        expect(dialog).to_contain_text("What is rented stays until it is over.")
        dialog.get_by_role("button", name="Pause renting").click()
        expect(page.get_by_text("Renting is paused by admin")).to_be_visible()
        assert client.burst().paused
        page.get_by_role("button", name="Resume renting").click()
        dialog.get_by_role("button", name="Resume renting").click()
        expect(page.get_by_text("Policies decide what may be rented.")).to_be_visible()
        assert not client.burst().paused


def test_who_may_not_change_policies_reads_them(person: Callable[[str], Person]) -> None:
    ada = person("ada")
    ada.sign_in()
    page = ada.open("/policies")
    expect(page.get_by_text("Changing them takes the role platform.")).to_be_visible()
    expect(page.get_by_label("The policy set")).not_to_be_editable()
    for name in ("Apply", "Replay", "Pause renting"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page = ada.open("/money")
    expect(page.get_by_label("Whose", exact=True).locator("option")).to_have_count(1)
    expect(page.get_by_text("Nothing was used in that time.")).to_be_visible()
