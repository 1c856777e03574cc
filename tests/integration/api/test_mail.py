"""Mail: it arrives, failures are repeated and bounded, a dead server holds nothing, and no secret is told."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme

from federator import mail
from federator.kernel.errors import Unavailable
from federator.mail import Mail
from federator.model.events import Alert, AlertKind
from federator.retry import Backoff
from federator.settings import SmtpSettings
from tests.testbeds.smtp import MailServer

ALERT = Alert(
    kind=AlertKind.JOB, text="2 things about your jobs:\n- träin is SUCCEEDED\n- eval is FAILED", at=1.0
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "BACKOFF", Backoff(0.001, 0.001))


def sender(server: MailServer, **fields: object) -> Mail:
    given = {
        "host": "localhost",
        "port": server.port,
        "sender": "federator@example.org",
        "tls": "none",
        **fields,
    }
    return Mail(SmtpSettings(**given), "ada@example.org", "lab")  # type: ignore[arg-type]


async def test_a_message_arrives_as_it_was_written() -> None:
    async with MailServer() as server:
        await sender(server).deliver(ALERT)
    (got,) = server.mails
    assert server.recipients == ["ada@example.org"]
    assert got["Subject"] == "[lab] 2 things about your jobs:"
    assert got["Auto-Submitted"] == "auto-generated"
    assert got.get_content().splitlines() == ALERT.text.splitlines()


async def test_no_line_of_a_message_becomes_a_header() -> None:
    async with MailServer() as server:
        text = "x\r\nBcc: all@example.org\r\n\r\nhello\r\n.\r\nMAIL FROM:<a@b>"
        await sender(server).deliver(Alert(kind=AlertKind.JOB, text=text, at=1.0))
    (got,) = server.mails
    assert got["Bcc"] is None
    assert server.recipients == ["ada@example.org"]
    assert "MAIL FROM" in got.get_content()


@pytest.mark.parametrize("how", ["tls", "starttls"])
async def test_with_tls_and_a_password(how: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "password").write_text("hunter2\n")
    async with MailServer(**{how: context}) as server:
        given = {"tls": how, "user": "federator", "password_file": str(tmp_path / "password")}
        await sender(server, ca=str(tmp_path / "ca.pem"), **given).deliver(ALERT)
        assert server.logins == [("federator", "hunter2")]
        assert len(server.mails) == 1
        with pytest.raises(Unavailable, match="SSLCertVerificationError"):
            await sender(server, **given).deliver(ALERT)
    assert len(server.mails) == 1


async def test_a_busy_server_is_asked_again_and_one_that_refuses_is_not() -> None:
    async with MailServer() as server:
        server.answers = ["451 later"]
        await sender(server).deliver(ALERT)
        assert (len(server.mails), server.connections) == (1, 2)
        server.answers = ["550 no: hunter2"]
        with pytest.raises(Unavailable, match="550") as failed:
            await sender(server).deliver(ALERT)
        assert server.connections == 3
        assert "hunter2" not in str(failed.value)


async def test_a_silent_server_is_cut_off_and_holds_nothing_else() -> None:
    """Nothing else in the process may wait: neither the loop nor the threads that everything shares."""
    async with MailServer() as server:
        server.silent = True
        waiting = [asyncio.create_task(sender(server, timeout_s=0.3).deliver(ALERT)) for _ in range(8)]
        assert await asyncio.to_thread(lambda: "done") == "done"
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, Unavailable) for error in ended)


async def test_nobody_there_ends_in_an_error() -> None:
    dead = Mail(SmtpSettings(host="127.0.0.1", port=1, sender="f@example.org", tls="none"), "a@b", "lab")
    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        await dead.deliver(ALERT)
