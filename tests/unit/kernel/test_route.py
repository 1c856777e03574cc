"""The way to a dispatcher: which proxy, which authority, and what is said when a file or URL cannot be used."""

import ssl
from pathlib import Path

import pytest
import trustme

from federator.kernel.errors import Invalid
from federator.kernel.route import Way

PROXY = "http://proxy.test:3128"
SET = {"HTTPS_PROXY": PROXY, "http_proxy": "http://plain.test:8080"}


@pytest.mark.parametrize(
    ("url", "no_proxy", "proxy"),
    [
        ("https://centre.test:7070", "", PROXY),
        ("http://centre.test:7070", "", "http://plain.test:8080"),
        ("https://centre.test", "centre.test", None),
        ("https://a.centre.test", "other.test, .centre.test", None),
        ("https://a.centre.test", "*.centre.test", None),
        ("https://notcentre.test", "centre.test", PROXY),
        ("https://centre.test", "*", None),
        ("https://10.1.2.3:7070", "10.0.0.0/8", None),
        ("https://10.1.2.3:7070", "10.2.0.0/16", PROXY),
        ("https://127.0.0.1:7070", "", None),
        ("https://localhost:7070", "", None),
        ("https://[::1]:7070", "", None),
    ],
)
def test_the_environment_says_which_proxy(url: str, no_proxy: str, proxy: str | None) -> None:
    way = Way(environ=SET | {"NO_PROXY": no_proxy})
    assert way.proxy(url) == way.options(url)["proxy"] == proxy


def test_a_named_proxy_goes_before_the_environment_and_so_does_none() -> None:
    assert Way(proxy="http://mine:1", environ=SET).proxy("https://127.0.0.1") == "http://mine:1"
    assert Way(proxy="none", environ=SET).proxy("https://centre.test") is None


@pytest.mark.parametrize("wrong", ["socks5://ada:s3cret@proxy:1080", "proxy:3128", "http://"])
def test_what_is_no_http_proxy_is_refused_without_showing_its_password(wrong: str) -> None:
    with pytest.raises(Invalid) as named:
        Way(proxy=wrong, proxy_field="$.proxy")
    assert named.value.field == "$.proxy"
    assert "s3cret" not in named.value.describe()
    with pytest.raises(Invalid, match="HTTPS_PROXY"):
        Way(environ={"https_proxy": wrong})


def test_an_authority_is_a_file_or_text_and_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    first, second = trustme.CA(), trustme.CA()
    file = tmp_path / "ca.pem"
    first.cert_pem.write_to_path(file)
    way = Way(ca=str(file))
    before = way.context()
    assert before is way.context()
    second.cert_pem.write_to_path(file)
    after = way.context()
    assert after.get_ca_certs() != before.get_ca_certs()
    file.unlink()
    assert way.context() is after
    inline = Way(ca=second.cert_pem.bytes().decode()).context()
    assert isinstance(inline, ssl.SSLContext)
    assert inline.get_ca_certs() == after.get_ca_certs()


@pytest.mark.parametrize("content", [None, b"no certificate\n", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_that_cannot_be_believed_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Invalid, match=r"ca\.pem") as refused:
        Way(ca=str(file), ca_field="$.ca")
    assert (refused.value.field, bool(refused.value.remedy)) == ("$.ca", True)


def test_authorities_are_read_only_for_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    way = Way(environ={"http_proxy": "https://proxy.test"})
    assert Way().options("http://centre.test")["ssl"] is True
    for url in ("https://centre.test", "http://centre.test"):  # the other by a proxy that speaks TLS
        believed = way.options(url)["ssl"]
        assert isinstance(believed, ssl.SSLContext)
        assert believed.cert_store_stats()["x509"] == 1
