"""A real OpenID Connect provider on loopback, and a browser without a screen that signs in at it."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import aiohttp

HERE = Path(__file__).parent
PLACE = Path(os.environ.get("FEDERATOR_TESTBEDS") or Path.home() / ".cache/federator") / "oidc-provider"
RESOURCE = "https://federator.test"
DIE_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
PAGES = 20


def lacking() -> str:
    """What is missing to run the provider; empty: nothing."""
    if (PLACE / "node").exists() and (PLACE / "node_modules").exists():
        return ""
    return "the OpenID Connect provider is not installed: make testbed-oidc"


class TestProvider:
    """One provider process. Started again on its port it has another key, named `kid`, and has forgotten everybody."""

    __test__ = False

    def __init__(self, *, ttl_s: int = 300) -> None:
        self._ttl_s = ttl_s
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, kid: str = "one") -> None:
        given = {"place": str(PLACE), "port": self.port, "ttl_s": self._ttl_s, "kid": kid}
        self._process = subprocess.Popen(
            [*DIE_WITH_US, str(PLACE / "node"), str(HERE / "provider.mjs"), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    async def service_token(self) -> str:
        """What a pipeline gets for its own secret."""
        form = {"grant_type": "client_credentials", "resource": RESOURCE}
        headers = {"Authorization": aiohttp.encode_basic_auth("ci", "of-the-test")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/token", data=form, headers=headers) as got,
        ):
            token: str = (await got.json())["access_token"]
            return token


async def sign_in(page: str, name: str) -> str:
    """What a person does in a browser: follow, fill in the name, agree; until the last page, whose text is answered."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        method, url, form = "GET", page, dict[str, str]()
        for _ in range(PAGES):
            async with session.request(method, url, data=form or None, allow_redirects=False) as answer:
                if answer.status in (302, 303):
                    method, url, form = "GET", urljoin(url, answer.headers["Location"]), {}
                    continue
                text = await answer.text()
            found = re.search(r'<form[^>]*action="([^"]+)"', text)
            if found is None or urlsplit(url).path == "/callback":
                return text
            method, url = "POST", urljoin(url, unescape(found[1]))
            form = dict(re.findall(r'<input[^>]*type="hidden"[^>]*name="([^"]+)"[^>]*value="([^"]*)"', text))
            if 'name="login"' in text:
                form |= {"login": name, "password": "any"}
        raise AssertionError(f"no end after {PAGES} pages")
