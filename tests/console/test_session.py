"""A browser's session in real Chromium: signing in and out, the cookie, a session that ends, and a dispatcher that goes and comes back."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.console.stage import Person, Stage


def test_sign_in_look_and_sign_out(person: Callable[[str], Person]) -> None:
    admin = person("admin")
    page = admin.page
    page.goto(admin.stage.url)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    admin.audit()
    admin.picture("sign-in")
    admin.sign_in()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    assert page.evaluate("document.cookie") == "", "scripts do not see the cookie"
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    page.reload()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []


def test_session_ends_with_the_token(person: Callable[[str], Person], stage: Stage) -> None:
    ada = person("ada")
    page = ada.sign_in()
    expect(page.locator("header")).to_contain_text("ada")
    stage.federator("token", "revoke", "ada")
    del stage.tokens["ada"]
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")


def test_nothing_is_left_for_the_next_person(person: Callable[[str], Person], stage: Stage) -> None:
    """Neither the draft of a job file, nor what the page does each second a second time."""
    eve = person("eve")
    page = eve.page
    page.add_init_script(
        "window.ticking = 0; const made = window.setInterval;"
        "window.setInterval = (act, ms, ...more) => { window.ticking += ms === 1000; return made(act, ms, ...more); }"
    )
    eve.sign_in()
    page.get_by_role("link", name="Submit", exact=True).click()
    draft = page.get_by_label("Job file, as YAML")
    draft.fill("run: echo secret")
    with page.expect_response("**/v1/preview"):  # else it is refused while the test writes
        page.reload()
    expect(draft).to_have_value("run: echo secret")
    stage.federator("token", "revoke", "eve")
    del stage.tokens["eve"]
    draft.fill("run: echo secret 2")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    page.get_by_label("Token").fill(stage.tokens["admin"])
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(draft).to_have_value("")
    assert page.evaluate("ticking") == 1
    draft.fill("run: echo another")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_tabs_follow_who_signs_out_and_in(person: Callable[[str], Person], stage: Stage) -> None:
    """They have one cookie: none goes on to show a person's work, or to act in a name that is not the one shown."""
    first = person("ada").sign_in()
    second = first.context.new_page()
    second.goto(f"{stage.url}/jobs")
    expect(second.locator("header")).to_contain_text("ada")
    first.get_by_role("button", name="Sign out").click()
    expect(second.get_by_label("Token")).to_be_visible()
    first.goto(f"{stage.url}/jobs")
    expect(first.get_by_label("Token")).to_be_visible()
    for name, tab in (("ada", first), ("bob", second)):
        tab.get_by_label("Token").fill(stage.person(name))
        tab.get_by_role("button", name="Sign in", exact=True).click()
        expect(tab.locator("header")).to_contain_text(name)
    expect(first.locator("header")).to_contain_text("bob")


def test_dispatcher_goes_and_comes_back(person: Callable[[str], Person], stage: Stage) -> None:
    page = person("admin").sign_in()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    stage.kill()
    try:
        expect(page.locator(".cut")).to_contain_text("does not answer")
        expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")  # what was known stays
    finally:
        stage.serve()
    expect(page.locator(".cut")).to_be_hidden()


def test_a_link_may_bring_a_token_and_signs_nobody_in_by_itself(
    person: Callable[[str], Person], stage: Stage
) -> None:
    page = person("admin").page
    page.goto(f"{stage.url}/sign-in#{stage.tokens['admin']}")
    expect(page.get_by_label("Token")).to_have_value(stage.tokens["admin"])
    assert "#" not in page.url
    assert page.context.cookies() == []
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")


def test_first_view_is_small(person: Callable[[str], Person], stage: Stage) -> None:
    """All that is loaded, what the API answers included: at most 100 kB."""
    page = person("admin").sign_in()
    wire = page.context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    wire.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(stage.url)
    expect(page.get_by_role("table", name="Sites and")).to_contain_text("north")
    assert len(sizes) > 10
    assert sum(sizes) < 100_000
