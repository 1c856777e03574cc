"""A mail server on loopback, as far as RFC 5321 asks for what is sent here: EHLO, STARTTLS, AUTH PLAIN and LOGIN's first, MAIL, RCPT, DATA."""

import asyncio
import base64
import ssl
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Self


class MailServer:
    """Takes mail, unless it is told to be busy, to refuse, or to say nothing."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, starttls: ssl.SSLContext | None = None) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.logins: list[tuple[str, str]] = []
        self.answers: list[str] = []
        """What MAIL is answered next, in place of being taken."""
        self.silent = False
        self.connections = 0
        self.port = 0
        self._tls, self._starttls = tls, starttls
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.silent:
            await reader.read()
            writer.close()
            return
        writer.write(b"220 loopback ESMTP\r\n")
        try:
            while line := await reader.readline():
                word, _, rest = line.decode().strip().partition(" ")
                if word.upper() == "STARTTLS":
                    assert self._starttls is not None
                    writer.write(b"220 go ahead\r\n")
                    await writer.drain()
                    await writer.start_tls(self._starttls)
                    continue
                writer.write(await self._answer(word.upper(), rest, reader, writer))
                if word.upper() == "QUIT":
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(
        self, word: str, rest: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        match word:
            case "EHLO":
                more = b"250-STARTTLS\r\n" if self._starttls is not None else b""
                return b"250-loopback\r\n" + more + b"250 AUTH PLAIN\r\n"
            case "AUTH":
                _, user, password = base64.b64decode(rest.removeprefix("PLAIN ")).decode().split("\0")
                self.logins.append((user, password))
                return b"235 welcome\r\n"
            case "MAIL" if self.answers:
                return self.answers.pop(0).encode() + b"\r\n"
            case "RCPT":
                self.recipients.append(rest.removeprefix("TO:").strip("<>"))
            case "DATA":
                writer.write(b"354 go on\r\n")
                data = await reader.readuntil(b"\r\n.\r\n")
                mail = message_from_bytes(data[:-5], policy=policy.default)
                assert isinstance(mail, EmailMessage)
                self.mails.append(mail)
        return b"250 fine\r\n"
