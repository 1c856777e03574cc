"""The certificate that is shown: the newest that can be used."""

from pathlib import Path

import pytest
import trustme

from federator.api.certificate import Certificate
from federator.kernel.errors import Invalid
from federator.settings import TlsSettings

AUTHORITY = trustme.CA()


def write(folder: Path, *parts: str) -> TlsSettings:
    """A new certificate, or those parts of it."""
    made = AUTHORITY.issue_cert("127.0.0.1")
    if "cert" in parts:
        (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    if "key" in parts:
        made.private_key_pem.write_to_path(folder / "key.pem")
    return TlsSettings(str(folder / "cert.pem"), str(folder / "key.pem"))


@pytest.mark.parametrize(
    ("parts", "text", "field"),
    [
        (("key",), None, "$.server.tls.cert"),
        (("cert",), None, "$.server.tls.key"),
        (("cert", "key"), "no certificate", "$.server.tls.cert"),
    ],
)
def test_what_cannot_be_used_is_named_at_the_start(
    tmp_path: Path, parts: tuple[str, ...], text: str | None, field: str
) -> None:
    settings = write(tmp_path, *parts)
    if text:
        (tmp_path / "cert.pem").write_text(text)
    with pytest.raises(Invalid) as refused:
        Certificate(settings)
    assert (refused.value.field, bool(refused.value.remedy)) == (field, True)


def test_half_of_a_new_pair_is_not_used_and_the_whole_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(write(tmp_path, "cert", "key"))
    shown = certificate.present
    certificate.look()
    assert certificate.present is shown
    write(tmp_path, "key")
    certificate.look()
    assert certificate.present is shown
    assert "not the key of the certificate" in caplog.text
    write(tmp_path, "cert", "key")
    certificate.look()
    assert certificate.present is not shown
