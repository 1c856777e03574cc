"""The pages Jobs, Job and Submit in real Chromium: as a person submits, watches, follows a log and acts."""

import secrets
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console.stage import Person, Stage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("cleared")
SCRIPT = r"""
printf '\033[31mred\033[0m <b>bold</b> <script>alert(1)</script>\033[2J\n 10 %%\r100 %%\n'
for i in 1 2 3; do echo "step $i"; done
while true; do sleep 0.2; done
"""


def test_submit_watch_follow_the_log_and_cancel(person: Callable[[str], Person]) -> None:
    ada = person("ada")
    page = ada.sign_in()
    page.get_by_role("link", name="Submit", exact=True).click()
    page.get_by_label("Command").fill(SCRIPT)
    page.get_by_label("Name", exact=True).fill("watched")
    page.get_by_label("GPUs per node").fill("A100:99")
    expect(page.get_by_role("region", name="What would become of it")).to_contain_text("nowhere now")
    page.get_by_label("GPUs per node").fill("A100:2")
    expect(page.get_by_role("region", name="What would become of it")).to_contain_text("north/main")
    editor = page.get_by_label("Job file, as YAML")
    assert "gpus: A100:2" in editor.input_value()
    editor.press("Control+End")
    editor.press_sequentially("queue: nowhere at all")
    expect(page.get_by_role("alert").filter(has_text="queue")).to_be_visible()
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    for _ in "queue: nowhere at all":
        editor.press("Backspace")
    expect(page.locator(".figures")).to_contain_text("at once")
    ada.audit()
    ada.picture("submit")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_have_text("watched")
    # The gang starts, and the log is followed, without loading anew.
    expect(page.locator("h1 + .state")).to_have_text("running")
    log = page.get_by_role("log", name="Log")
    expect(log).to_contain_text("red <b>bold</b> <script>alert(1)</script>^[[2J")
    expect(log.locator("span", has_text="red")).to_have_css("color", "rgb(226, 86, 74)")
    expect(log).not_to_contain_text("10 %")
    expect(log).to_contain_text("100 %")
    expect(log).to_contain_text("step 3")
    page.get_by_label("Search the log").fill("STEP 2")
    expect(log).to_have_text("step 2\n")
    expect(log.locator("mark")).to_have_text("step 2")
    expect(page.get_by_role("table", name="Every place")).to_contain_text("north/main")
    ada.audit()
    ada.picture("job")


def test_a_job_that_is_over_is_left_in_peace(person: Callable[[str], Person], stage: Stage) -> None:
    """The stream of its events ends with it, and is not opened again and again."""
    stage.person("ada")
    with stage.client("ada") as client:
        job = client.submit({"name": "brief", "run": "echo here"}).jobs[0]
        client.wait(job)
    ada = person("ada")
    page = ada.sign_in()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(stage.url)))
    ada.open(f"/jobs/{job}")
    expect(page.get_by_role("log", name="Log")).to_be_visible()
    page.wait_for_timeout(4000)
    assert sum(each == f"/v1/jobs/{job}/events" for each in asked) <= 2, asked
    assert sum(each == f"/v1/jobs/{job}" for each in asked) <= 3, asked


def test_enter_change_and_cancel_with_the_consequence_told_first(
    person: Callable[[str], Person], stage: Stage
) -> None:
    stage.person("ada")
    with stage.client("ada") as client:
        made = client.submit({"name": "entered", "run": "sleep 600"})
    ada = person("ada")
    page = ada.sign_in()
    ada.open(f"/jobs/{made.jobs[0]}")
    expect(page.locator("h1 + .state")).to_have_text("running")
    page.get_by_text("A shell inside").click()
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_role("textbox", name="Shell")).to_be_focused()
    page.keyboard.type("echo $((6 * 7)) $FEDERATOR_JOB_NAME\n")
    expect(page.locator(".screen-rows")).to_contain_text("42 entered")
    page.keyboard.type("exit 3\n")
    expect(page.get_by_text("The shell ended with exit code 3.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("has run for")
    ada.audit()
    dialog.get_by_role("button", name="Leave it").click()
    expect(page.locator("h1 + .state")).to_have_text("running")
    page.get_by_label("Priority").fill("70")
    page.get_by_role("button", name="Change", exact=True).click()
    dialog.get_by_role("button", name="Change it").click()
    expect(page.locator(".notices")).to_contain_text("priority 70")
    page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1 + .state")).to_have_text("cancelled")


@pytest.mark.parametrize(
    ("wants", "button"),
    [
        ({"resources": {"gpus": {"count": 1, "models": ["H100"]}}}, "A100"),
        ({"resources": {"memory": "100GiB"}}, "64GiB"),
        ({"resources": {"cpus": 20}, "nodes": 3}, "node"),
        ({"placement": {"sites": ["south"]}}, "north"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_advice_is_followed_by_a_button_that_says_first_what_it_comes_to(
    person: Callable[[str], Person], stage: Stage, wants: dict[str, object], button: str
) -> None:
    stage.person("ada")
    with stage.client("ada") as client:
        made = client.submit({"name": "picky", "run": "sleep 600", **wants})
    ada = person("ada")
    page = ada.sign_in()
    ada.open(f"/jobs/{made.jobs[0]}")
    advice = page.locator(".advice").get_by_role("button", name=button).first
    expect(advice).to_be_visible()
    ada.picture(f"advice-{button}")
    advice.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Expected to start")
    ada.audit()
    dialog.get_by_role("button", name="Change it").click()
    expect(page.locator("h1 + .state")).to_have_text("running")
    page.get_by_role("button", name="Hold").click()
    dialog.get_by_role("button", name="Hold").click()
    expect(page.get_by_text("Nothing is planned for a job that is held")).to_be_visible()


def test_a_priority_that_starts_a_job_earlier_is_set_by_a_button(
    person: Callable[[str], Person], stage: Stage
) -> None:
    stage.person("ada")
    with stage.client("ada") as client:

        def whole(name: str, estimate: str) -> str:
            asks = {"name": name, "run": "sleep 600", "estimate": estimate, "resources": {"gpus": 8}}
            return client.submit(asks).jobs[0]

        running = whole("running", "20m")
        wait_until(lambda: client.job(running).job.status == "RUNNING", "the site to be full")
        whole("ahead", "1h")
        behind = whole("behind", "1h")
        ada = person("ada")
        page = ada.sign_in()
        ada.open(f"/jobs/{behind}")
        page.locator(".advice").get_by_role("button", name="priority").first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Expected to start")
        dialog.get_by_role("button", name="Change it").click()
        wait_until(lambda: client.job(behind).job.priority > 50, "the priority to be higher")


def test_a_gang_is_watched_by_rank_and_by_attempt(person: Callable[[str], Person], stage: Stage) -> None:
    """From waiting to running, requeued, held and released, without loading anew."""
    stage.person("ada")
    script = 'echo "rank $FEDERATOR_NODE_RANK"; sleep 600'
    with stage.client("ada") as client:
        full = client.submit({"name": "before", "run": "sleep 600", "resources": {"gpus": 7}}).jobs[0]
        wait_until(lambda: client.job(full).job.status == "RUNNING", "the site to be full")
        asks = {"name": "pair", "run": script, "nodes": 2, "resources": {"gpus": 2}}
        job = client.submit(asks).jobs[0]
        ada = person("ada")
        ada.sign_in()
        page = ada.open(f"/jobs/{job}")
        state = page.locator("h1 + .state")
        expect(state).to_have_text("waiting")
        client.cancel(full)
        expect(state).to_have_text("running")
    log = page.get_by_role("log", name="Log")
    expect(log).to_have_text("rank 0\n")
    page.get_by_label("Rank (0 to 1)").fill("1")
    page.get_by_label("Rank (0 to 1)").press("Enter")
    expect(log).to_have_text("rank 1\n")
    expect(page.get_by_label("Attempt", exact=True)).to_be_hidden()
    dialog = page.get_by_role("dialog")
    for verb, then in (("Requeue", "running"), ("Hold", "held"), ("Release", "running")):
        page.get_by_role("button", name=verb, exact=True).click()
        dialog.get_by_role("button", name=verb).click()
        if verb == "Requeue":
            expect(page.get_by_role("table", name="Attempts").get_by_role("row")).to_have_count(3)
        expect(state).to_have_text(then)
    attempt = page.get_by_label("Attempt", exact=True)
    expect(attempt.locator("option")).to_have_text(["newest", "1", "2", "3"])
    attempt.select_option("1")
    expect(log).to_contain_text("rank 1")
    expect(page.get_by_role("region", name="Log").get_by_role("status")).to_contain_text("complete")
    ada.audit()
    ada.picture("job-gang")


def test_outputs_are_listed_before_they_are_fetched(person: Callable[[str], Person], stage: Stage) -> None:
    stage.person("ada")
    script = "mkdir results; head -c 5000 /dev/zero > results/model.pt; touch 'results/<b>bold'"
    with stage.client("ada") as client:
        asks = {"name": "makes", "run": script, "outputs": ["results/**"]}
        job = client.submit(asks).jobs[0]
        client.wait(job)
    ada = person("ada")
    ada.sign_in()
    page = ada.open(f"/jobs/{job}")
    page.locator("summary", has_text="Outputs").click()
    table = page.get_by_role("table", name="What was collected")
    expect(table.get_by_role("row", name="results/model.pt")).to_contain_text("4.9 KiB")
    expect(table.get_by_role("row", name="results/<b>bold")).to_contain_text("0 B")
    ada.audit()
    ada.picture("job-outputs")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download outputs").click()
    assert download.value.suggested_filename.endswith(".tar.gz")


def test_a_long_log_is_searched_from_its_beginning(person: Callable[[str], Person], stage: Stage) -> None:
    stage.person("ada")
    script = "echo the beginning; seq 30000; echo the end; sleep 600"
    with stage.client("ada") as client:
        job = client.submit({"name": "long-log", "run": script}).jobs[0]
    ada = person("ada")
    ada.sign_in()
    page = ada.open(f"/jobs/{job}")
    panel = page.get_by_role("region", name="Log")
    log = page.get_by_role("log", name="Log")
    expect(log).to_contain_text("the end")
    search = page.get_by_label("Search the log")
    search.fill("THE ")
    expect(log).to_have_text("the end\n")
    expect(panel.get_by_role("status")).to_contain_text("1 line of the newest 5,000")
    panel.get_by_role("button", name="Search the whole log").click()
    expect(log).to_have_text("the beginning\nthe end\n")
    expect(panel.get_by_role("status")).to_have_text("2 lines of 30,002, the whole log")
    search.fill("1")
    expect(panel.get_by_role("status")).to_contain_text("of the newest 5,000")
    panel.get_by_role("button", name="Search the whole log").click()
    expect(panel.get_by_role("status")).to_contain_text("the whole log; the newest 2,000 are shown")
    ada.audit()


def test_why_a_job_waits_is_told_as_of_each_plan(person: Callable[[str], Person], stage: Stage) -> None:
    """Also where nothing is started, and so no decision is recorded: what comes before it is another job then."""
    stage.person("ada")
    with stage.client("ada") as client:
        full = client.submit({"name": "full", "run": "sleep 600", "resources": {"gpus": 8}}).jobs[0]
        wait_until(lambda: client.job(full).job.status == "RUNNING", "the site to be full")
        waits = client.submit({"name": "behind", "run": "true", "resources": {"gpus": 8}}).jobs[0]
        ada = person("ada")
        ada.sign_in()
        page = ada.open(f"/jobs/{waits}")
        why = page.get_by_role("region", name="Where it could run")
        expect(why).to_contain_text("full")
        expect(why).not_to_contain_text("pushy")
        wait_until(lambda: client.job(waits).decision == "", "a plan that is not recorded")
        asks = {"name": "pushy", "run": "true", "priority": 90, "resources": {"gpus": 8}}
        client.submit(asks)
        expect(why).to_contain_text("pushy")


def test_jobs_are_filtered_sorted_and_acted_on_by_the_dispatcher(
    person: Callable[[str], Person], stage: Stage
) -> None:
    stage.person("ada")
    word = secrets.token_hex(3)
    sweep, held = f"sweep-{word}", f"held-{word}"
    with stage.client("ada") as client:
        client.submit({"name": sweep, "run": "sleep 600", "array": "0-149", "resources": {"gpus": 8}})
        for number in range(
            3
        ):  # as large as what is before them: a smaller one would be over before it is held
            (made,) = client.submit(
                {"name": f"{held}-{number}", "run": "true", "resources": {"gpus": 8}}
            ).jobs
            client.act("hold", [made])
    ada = person("ada")
    page = ada.sign_in()
    page.get_by_role("link", name="Jobs", exact=True).click()
    table = page.get_by_role("table", name="Jobs")
    expect(table.get_by_role("link", name=f"{sweep}[0-149]")).to_be_visible()
    ada.audit()
    ada.picture("jobs")
    page.keyboard.press("/")
    page.keyboard.type(held)
    expect(table.get_by_role("row")).to_have_count(4)
    page.get_by_role("button", name="Name").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text(f"{held}-0")
    assert f"text={held}" in page.url
    assert "sort=name" in page.url
    page.reload()
    expect(table.get_by_role("row").nth(1)).to_contain_text(f"{held}-0")
    page.get_by_label(f"Choose {held}-0").check()
    page.get_by_label(f"Choose {held}-1").check()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".notices")).to_contain_text("2 jobs")
    page.get_by_label("Status").select_option("held")
    expect(table.get_by_role("row")).to_have_count(2)
    page.goto(f"{stage.url}/jobs")
    page.get_by_role("link", name=f"{sweep}[0-149]").click()
    expect(table.get_by_role("row")).to_have_count(101)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("101 to 150 of 150 jobs")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(51)
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_role("button", name="Back").click()
    expect(page.get_by_text("1 to 100 of 150 jobs")).to_be_visible()
    expect(page.get_by_role("region", name="The array")).to_contain_text("as many as fit")
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_two_people_see_and_may_do_different_things(person: Callable[[str], Person], stage: Stage) -> None:
    stage.person("ada")
    with stage.client("ada") as client:
        made = client.submit({"name": "secret", "run": "echo of ada; sleep 600", "env": {"PLACE": "quiet"}})
    ada, bob = person("ada"), person("bob")
    for each in (ada, bob):
        each.sign_in()
        each.open(f"/jobs/{made.jobs[0]}")
    expect(ada.page.get_by_role("log", name="Log")).to_contain_text("of ada")
    expect(bob.page.get_by_role("region", name="Log")).to_contain_text("belongs to ada")
    ada.page.get_by_text("What it runs").click()
    bob.page.get_by_text("What it runs").click()
    expect(ada.page.locator("details[open]")).to_contain_text("quiet")
    expect(bob.page.locator("details[open]")).not_to_contain_text("quiet")
    expect(bob.page.get_by_text("It is changed by ada")).to_be_visible()
    expect(bob.page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(ada.page.locator("h1 + .state")).to_have_text("running")


def test_a_job_that_is_not_there_is_said_to_be_none(person: Callable[[str], Person], stage: Stage) -> None:
    page = person("admin").sign_in()
    for path in ("/jobs/nothing", "/jobs/%E0%A4%A", "/jobs/..%2f..%2fv1"):
        page.goto(stage.url + path)
        expect(page.locator("h1")).to_have_text("There is no such job")
    expect(page.locator(".cut")).to_be_hidden()
    page.get_by_role("link", name="See all jobs").click()
    expect(page.locator("h1")).to_have_text("Jobs")


def test_tabs_that_nobody_looks_at_leave_the_browsers_connections_to_the_one_in_sight(
    person: Callable[[str], Person], stage: Stage
) -> None:
    """A browser has six to one address, and each of these follows a log and events."""
    stage.person("ada")
    with stage.client("ada") as client:
        made = client.submit({"name": "many", "run": "echo here; sleep 600"})
    ada = person("ada")
    page = ada.sign_in()
    others = []
    for _ in range(6):
        ada.open(f"/jobs/{made.jobs[0]}")
        expect(page.get_by_role("log", name="Log")).to_contain_text("here")
        # Chromium without a screen hides no tab by itself.
        page.evaluate(
            """() => {
                Object.defineProperty(document, "hidden", {configurable: true, get: () => true});
                document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        others.append(page)
        page = ada.page = page.context.new_page()
    ada.open("/jobs")
    expect(page.get_by_role("link", name="many").first).to_be_visible()
    first = others[0]
    first.evaluate(
        """() => {
            delete document.hidden;
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    expect(first.get_by_role("log", name="Log")).to_contain_text("here")
