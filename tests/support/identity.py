"""An OpenID Connect provider as far as its keys and signatures go: for tests that forge what a real one never signs."""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jwk, jws

from federator.settings import OidcSettings

CLIENT = "federator-cli"


@cache
def key_named(kid: str) -> jwk.RSAKey:
    """A key pair; for one name always the same, for they take long to make."""
    return jwk.generate_key("RSA", 2048, {"kid": kid})


@dataclass
class Issuer:
    """Signs whatever a test wants, and tells its public keys on loopback. `down`: it answers 503."""

    server: TestServer | None = None
    keys: dict[str, jwk.RSAKey] = field(default_factory=dict)
    down: bool = False
    asked: int = 0
    """How often it was asked for its keys."""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._tell_keys)
        self.server = TestServer(app)
        await self.server.start_server()
        self.new_key("one")

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.close()

    @property
    def url(self) -> str:
        assert self.server is not None
        return str(self.server.make_url("")).rstrip("/")

    def new_key(self, kid: str) -> None:
        self.keys[kid] = key_named(kid)

    def settings(self, **fields: Any) -> OidcSettings:
        given = {"issuer": self.url, "client_id": CLIENT, "roles": {"*": "user", "ops": "platform"}}
        return OidcSettings(**{**given, **fields})

    def claims(self, now: float, **fields: Any) -> dict[str, Any]:
        """What a good token says; a field that is None is left out."""
        good = {"iss": self.url, "aud": CLIENT, "sub": "7", "preferred_username": "ada"}
        every = {**good, "iat": now, "exp": now + 300, "groups": ["ops"], **fields}
        return {name: value for name, value in every.items() if value is not None}

    def sign(self, claims: Any, kid: str = "one", alg: str = "RS256", **header: Any) -> str:
        every = {"alg": alg, "kid": kid, "typ": "JWT", **header}
        registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
        registry.max_header_length = 10**6
        return jws.serialize_compact(every, json.dumps(claims), self.keys[kid], [alg], registry=registry)

    async def _describe(self, _request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def _tell_keys(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.down:
            return web.Response(status=503)
        told = [{**key.as_dict(private=False), "use": "sig"} for key in self.keys.values()]
        return web.json_response({"keys": told})
