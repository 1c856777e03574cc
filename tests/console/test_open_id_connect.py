"""Signing in to the console at a real OpenID Connect provider, in real Chromium."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.console.stage import Person, Stage
from tests.testbeds import console, oidc
from tests.testbeds.required import need


@pytest.fixture(scope="module")
def provider() -> Iterator[oidc.TestProvider]:
    need(oidc.lacking())
    provider = oidc.TestProvider()
    provider.start()
    yield provider
    provider.stop()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, provider: oidc.TestProvider) -> Iterator[Stage]:
    need(console.lacking())
    settings = {
        "oidc": {
            "issuer": provider.url,
            "client_id": "federator-cli",
            "roles": {"research": "user", "ops": "platform"},
        }
    }
    with Stage(tmp_path_factory.mktemp("oidc"), settings) as stage:
        yield stage


def test_sign_in_at_the_provider_and_come_back_to_where_one_was(
    person: Callable[[str], Person], stage: Stage, provider: oidc.TestProvider
) -> None:
    ada = person("ada")
    ada.elsewhere = (provider.url,)
    page = ada.page
    page.goto(f"{stage.url}/jobs?status=HELD")
    page.get_by_role("button", name="Sign in at").click()
    page.locator("input[name=login]").fill("ada")
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("button[type=submit]").click()
    expect(page.locator("header")).to_contain_text("ada")
    expect(page.get_by_label("Status")).to_have_value("HELD")
    assert page.url == f"{stage.url}/jobs?status=HELD"
    (cookie,) = [each for each in page.context.cookies() if each["name"].startswith("federator")]
    assert cookie["httpOnly"]
    assert cookie["value"].count(".") == 2, "the provider's signed token"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_answer_that_nobody_asked_for_signs_nobody_in(
    person: Callable[[str], Person], stage: Stage
) -> None:
    page = person("eve").page
    page.goto(f"{stage.url}/sign-in?code=of-somebody&state=guessed")
    expect(page.get_by_role("alert")).to_contain_text("has begun no such sign-in")
    page.goto(f"{stage.url}/sign-in?error=access_denied&error_description=<b>no</b>")
    expect(page.get_by_role("alert")).to_contain_text("<b>no</b>")
