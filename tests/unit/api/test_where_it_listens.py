"""Where a dispatcher may listen: beyond this machine only with TLS, or when somebody has said that a proxy does it."""

from pathlib import Path

import pytest
import trustme

from federator.config import load_settings
from federator.kernel.errors import Invalid

TLS = "tls: {cert: a.pem, key: b.pem}"


def load(folder: Path, server: str) -> None:
    file = folder / "dispatcher.yaml"
    file.write_text(f"server: {{{server}}}\n")
    load_settings(file)


@pytest.mark.parametrize(
    "server",
    [
        "host: 127.0.0.1",
        "host: localhost",
        "host: '::1'",
        f"host: 10.0.0.5, {TLS}",
        f"host: centre.example.org, {TLS}",
        f"host: 0.0.0.0, {TLS}, advertise: 'https://centre.example.org'",
        "host: 0.0.0.0, insecure: true, advertise: 'https://centre.example.org'",
    ],
)
def test_allowed(tmp_path: Path, server: str) -> None:
    load(tmp_path, server)


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ("host: 10.0.0.5", "host"),
        ("host: centre.example.org", "host"),
        ("host: 0.0.0.0, advertise: 'https://centre.example.org'", "host"),
        (f"host: 0.0.0.0, {TLS}", "advertise"),
        (f"host: '::', {TLS}", "advertise"),
        (f"insecure: true, {TLS}", "insecure"),
        (f"{TLS}, advertise: 'http://centre.example.org'", "advertise"),
        ("advertise: centre.example.org", "advertise"),
        ("others: [centre.example.org]", "others"),
        ("ca: missing.pem", "ca"),
    ],
)
def test_refused_with_the_field_and_what_to_do(tmp_path: Path, server: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        load(tmp_path, server)
    assert refused.value.field == f"$.server.{field}"
    assert refused.value.remedy


def test_an_authority_that_no_machine_could_be_told_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "all.pem"
    bundle.write_bytes(b"".join(trustme.CA().cert_pem.bytes() for _ in range(30)))
    with pytest.raises(Invalid, match="start data of a rented machine"):
        load(tmp_path, f"ca: {bundle}")
