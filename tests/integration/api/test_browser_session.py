"""The console's files and the session of a browser: what other pages, and whoever has only the cookie's reach, cannot do with it."""

import re

import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from federator.api.browser_session import COOKIE, LARGEST
from federator.api.standby import LEADER_HEADER, build_standby
from federator.control.record.leadership import Term
from tests.integration.api.rig import Rig

CONSOLE = {"X-Federator-Console": "1"}


def origin(rig: Rig) -> str:
    return f"http://127.0.0.1:{rig.client.port}"


async def cookie_of(rig: Rig, name: str) -> dict[str, str]:
    """The header that a browser sends after `name` has signed in."""
    headers = CONSOLE | {"Origin": origin(rig)}
    async with rig.client.post("/v1/session", json={"token": rig.secrets[name]}, headers=headers) as answer:
        assert answer.status == 200
        assert (await answer.json())["name"] == name
        cookie = answer.cookies[COOKIE]
        assert (cookie["httponly"], cookie["samesite"], cookie["secure"]) == (True, "Strict", "")
        rig.client.session.cookie_jar.clear()
        return {"Cookie": f"{COOKIE}={cookie.value}"}


async def test_cookie_stands_for_the_token(rig: Rig) -> None:
    cookie = await cookie_of(rig, "ada")
    async with rig.client.get("/v1/whoami", headers=cookie) as answer:
        assert (await answer.json())["name"] == "ada"
    async with rig.client.get("/v1/tokens", headers=cookie) as answer:
        assert answer.status == 403, "the rights of the token, and no more"
    bearer = cookie | {"Authorization": f"Bearer {rig.secrets['bob']}"}
    async with rig.client.get("/v1/whoami", headers=bearer) as answer:
        assert (await answer.json())["name"] == "bob"


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({}, "X-Federator-Console"),
        (CONSOLE, "Origin"),
        (CONSOLE | {"Origin": "https://evil.example"}, "Origin"),
        (CONSOLE | {"Origin": "http://127.0.0.1:1"}, "Origin"),
        (CONSOLE | {"Origin": "null"}, "Origin"),
        ({"Origin": "OWN"}, "X-Federator-Console"),
    ],
)
@pytest.mark.parametrize("way", [("POST", "/v1/jobs"), ("POST", "/v1/session"), ("DELETE", "/v1/session")])
async def test_no_other_page_changes_anything_with_it(
    rig: Rig, way: tuple[str, str], headers: dict[str, str], field: str
) -> None:
    sent = await cookie_of(rig, "ada") | {
        name: origin(rig) if value == "OWN" else value for name, value in headers.items()
    }
    async with rig.client.request(*way, json={"command": ["true"]}, headers=sent) as answer:
        assert answer.status == 403
        assert (await answer.json())["field"] == field
    assert not rig.world.core.records.jobs


async def test_own_page_changes_what_the_token_may(rig: Rig) -> None:
    sent = await cookie_of(rig, "ada") | CONSOLE | {"Origin": origin(rig)}
    async with rig.client.post("/v1/jobs", json={"command": ["true"]}, headers=sent) as answer:
        assert answer.status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Connection": "Upgrade", "Upgrade": "websocket"},
    ],
)
async def test_no_other_page_reads_or_opens_a_socket_with_it(rig: Rig, headers: dict[str, str]) -> None:
    cookie = await cookie_of(rig, "ada")
    async with rig.client.get("/v1/whoami", headers=cookie | headers) as answer:
        assert answer.status == 403
    async with rig.client.get("/v1/whoami", headers=cookie | {"Sec-Fetch-Site": "same-origin"}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"token": "wrong"}, 401),
        ({"token": "ümlaut"}, 401),
        ({"token": "a.b.c"}, 401),
        ({"token": "x" * (LARGEST + 1)}, 400),
        ({}, 400),
        ({"token": "x", "code": "y"}, 400),
        ({"code": "y", "state": "of nobody"}, 401),
    ],
)
async def test_session_does_not_begin_with_what_is_no_credential(
    rig: Rig, body: dict[str, str], status: int
) -> None:
    headers = CONSOLE | {"Origin": origin(rig)}
    async with rig.client.post("/v1/session", json=body, headers=headers) as answer:
        assert answer.status == status
        assert COOKIE not in answer.cookies


async def test_cookie_is_for_tls_alone_where_the_page_came_by_it(rig: Rig) -> None:
    """Also where a proxy in front does the TLS."""
    headers = CONSOLE | {"Origin": f"https://127.0.0.1:{rig.client.port}"}
    async with rig.client.post("/v1/session", json={"token": rig.secrets["ada"]}, headers=headers) as answer:
        cookie = answer.cookies[f"__Host-{COOKIE}"]
        assert (cookie["secure"], cookie["path"], cookie["domain"]) == (True, "/", "")
        rig.client.session.cookie_jar.clear()
    kept = {"Cookie": f"{COOKIE}={rig.secrets['bob']}; __Host-{COOKIE}={cookie.value}"}
    async with rig.client.get("/v1/whoami", headers=kept) as answer:
        assert (await answer.json())["name"] == "ada", "what a neighbour has set does not count"


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/some-job", "/console/main.js", "/console/console.css"])
async def test_files_are_served_to_be_kept_apart(rig: Rig, path: str) -> None:
    async with rig.client.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.status == 200
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Encoding"] == "gzip"
        tag = answer.headers["ETag"]
    async with rig.client.get(path, headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304


@pytest.mark.parametrize(
    ("path", "module"), [("/", "now"), ("/jobs", "jobs"), ("/jobs/some-job", "job"), ("/sites/a", "sites")]
)
async def test_a_page_names_all_that_it_needs(rig: Rig, path: str, module: str) -> None:
    """So that nothing is fetched only once an import of it is read; and by addresses that may be kept for good."""
    async with rig.client.get(path) as answer:
        named = re.findall(r'(?:href|src)="(/console/[^"]+)"', await answer.text())
        assert answer.headers["Cache-Control"] == "no-cache"
    place = named[0].rpartition("/")[0]
    assert f"{place}/pages/{module}.js" in named
    assert len(set(named)) == len(named)
    for each in named:
        async with rig.client.get(each) as answer:
            assert answer.status == 200
            assert "immutable" in answer.headers["Cache-Control"]
            imports = re.findall(r'^import .* from "(.+)";$', await answer.text(), re.MULTILINE)
            assert {str(answer.url.join(URL(one)).path) for one in imports} <= set(named)


async def test_a_tab_of_another_version_finds_the_present_files(rig: Rig) -> None:
    async with rig.client.get(f"/console/{'0' * 20}/main.js") as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path", ["/console/none.js", "/console/../app.py", "/console/__init__.py", "/nothing"]
)
async def test_no_other_file_is(rig: Rig, path: str) -> None:
    async with rig.client.get(path) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("path", ["/nothing", "/jobz/some-job", "/jobs.html", "/%00"])
async def test_a_wrong_path_is_a_page_for_a_person_and_a_problem_for_a_program(rig: Rig, path: str) -> None:
    as_browsers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with rig.client.get(path, headers=as_browsers) as answer:
        assert (answer.status, answer.content_type) == (404, "text/html")
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    async with rig.client.get(path) as answer:
        assert (answer.status, answer.content_type) == (404, "application/problem+json")
    for programs in ("/v1/nothing", "/console/none.js", "/agent/nothing"):
        async with rig.client.get(programs, headers=as_browsers) as answer:
            assert answer.status != 200
            assert answer.content_type == "application/problem+json"


async def test_one_that_stands_by_serves_the_page_that_names_the_leader() -> None:
    standby = build_standby(lambda: Term(1, "x", 0.0, "http://other:7070"), lambda: "")
    async with TestClient(TestServer(standby)) as client:
        async with client.get("/jobs") as answer:
            assert answer.status == 200
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        async with client.get("/v1/whoami") as answer:
            assert (answer.status, answer.headers[LEADER_HEADER]) == (503, "http://other:7070")
