"""What a dispatcher's file may say of an OpenID Connect provider: nothing by which a forged token would be believed, or nobody let in."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.config import load_settings
from federator.kernel.errors import Invalid

GOOD: dict[str, Any] = {
    "issuer": "https://sso.example.org/realms/research",
    "client_id": "cli",
    "roles": {"ops": "platform", "basel": "site-admin:basel", "*": "user"},
}


def load(folder: Path, **fields: Any) -> Any:
    file = folder / "dispatcher.yaml"
    clock = fields.pop("clock", "system")
    file.write_bytes(msgspec.json.encode({"clock": clock, "oidc": {**GOOD, **fields}}))
    return load_settings(file).oidc


def test_what_a_provider_needs_is_little(tmp_path: Path) -> None:
    assert load(tmp_path).client_id == "cli"
    assert load(tmp_path, issuer="http://127.0.0.1:8080").issuer == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"issuer": "http://sso.example.org"}, "issuer", "not HTTPS"),
        ({"issuer": "sso.example.org"}, "issuer", "not a URL"),
        ({"issuer": "https://sso.example.org?x=1"}, "issuer", "not a URL"),
        ({"client_id": ""}, "client_id", "is empty"),
        ({"username_claim": ""}, "username_claim", "is empty"),
        ({"scopes": ["profile"]}, "scopes", "must contain openid"),
        ({"leeway_s": 3600}, "leeway_s", "expired tokens"),
        ({"refresh_s": 0}, "refresh_s", "above 0"),
        ({"roles": {}}, "roles", "nobody would have a role"),
        ({"roles": {"ops": "king"}}, "roles.ops", "no role 'king'"),
        ({"roles": {"ops": "site-admin"}}, "roles.ops", "site-admin:SITE"),
        ({"roles": {"ops": "admin:basel"}}, "roles.ops", "no role 'admin:basel'"),
        ({"proxy": "sso.example.org"}, "proxy", "not the URL of an HTTP proxy"),
    ],
)
def test_what_would_let_in_the_wrong_people_or_nobody_is_refused(
    tmp_path: Path, fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Invalid) as raised:
        load(tmp_path, **fields)
    assert raised.value.field == f"$.oidc.{field}"
    assert words in raised.value.describe()


def test_a_provider_lives_in_real_time(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="clock: system"):
        load(tmp_path, clock="scaled:60@0")
