"""One dispatcher with one site for all tests of a module, and one browser for those of all modules."""

from collections.abc import Callable, Generator, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.console.stage import AT_BROWSERS, Person, Stage, launch, people
from tests.testbeds.console import lacking
from tests.testbeds.required import need

expect.set_options(timeout=20_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure tells what the pages did, whether the second try passes or not."""
    report = yield
    if call.when == "call" and report.failed:
        report.sections += [("pages", person.report()) for person in AT_BROWSERS]
    return report


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The processes. A module that wants others has a fixture of this name of its own."""
    need(lacking())
    with Stage(tmp_path_factory.mktemp("console")) as stage:
        stage.site()
        yield stage


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium. It ends before the tests of another folder: while it is driven, no test of this process can have a loop of its own."""
    need(lacking())
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def person(browser: Browser, stage: Stage) -> Iterator[Callable[[str], Person]]:
    """Makes people at browsers of their own, by name; they have not signed in yet."""
    with people(browser, stage) as person:
        yield person


@pytest.fixture
def cleared(stage: Stage) -> None:
    """No job lives on that an earlier test has submitted, or the same when it was tried before."""
    stage.clear()


@pytest.fixture
def page(person: Callable[[str], Person]) -> Page:
    """A page on which the administrator has signed in."""
    return person("admin").sign_in()
