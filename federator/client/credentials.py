"""Sign-ins as they are kept: one file per dispatcher in the user's state directory, for the user's eyes only, and refreshed when it is time.

A refresh token may count once: of several commands that find the token about to expire one refreshes it, and the others wait for its file.
"""

import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from federator.kernel.errors import Unauthenticated, Unavailable
from federator.kernel.files import try_lock
from federator.wire.jsontext import read
from federator.wire.sign_in import Credential

EARLY_S = 30.0
"""Seconds before its end at which a token is refreshed."""
LOCK_S = 60.0
PAUSE_S = 0.05
CURRENT = "current"
"""The file that names the dispatcher of the newest sign-in."""


class SignIns:
    """All sign-ins of a user. `environ` says where they are, and the proxies."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = Path(environ.get("HOME") or "/")
        state = Path(environ.get("XDG_STATE_HOME") or home / ".local/state")
        self._folder = state / "federator" / "sign-ins"
        self._environ = environ

    def find(self, server: str) -> Credential | None:
        """The sign-in at a dispatcher, if there is one that can be read."""
        try:
            return read(self._file(server).read_bytes(), Credential)
        except (OSError, msgspec.DecodeError):
            return None

    def current(self) -> str | None:
        """The address of the dispatcher that was signed in to last."""
        try:
            return (self._folder / CURRENT).read_text().strip() or None
        except OSError:
            return None

    def keep(self, credential: Credential, *, current: bool = False) -> None:
        """Write it, whole or not at all; with `current` it is also the dispatcher that is asked where none is named."""
        self._write(self._file(credential.server), msgspec.json.encode(credential))
        if current:
            self._write(self._folder / CURRENT, credential.server.encode() + b"\n")

    def forget(self, server: str) -> None:
        """Remove the sign-in at a dispatcher."""
        self._file(server).unlink(missing_ok=True)
        if self.current() == server:
            (self._folder / CURRENT).unlink(missing_ok=True)

    async def bearer(self, server: str) -> str:
        """A token that is valid for at least `EARLY_S` more, refreshed if need be. Raises `Unauthenticated` when a person has to sign in again, `Unavailable` when the provider or another command does not answer."""
        held = self._held(server)
        if _fresh(held):
            return held.token
        async with self._alone(server):
            held = self._held(server)  # somebody may have been quicker
            if not _fresh(held):
                held = await self._refreshed(held)
                self.keep(held)
        return held.token

    async def bearer_now(self, server: str) -> str:
        """The same where no event loop runs: refreshing has one of its own, in a thread, for a notebook's own one may be running here."""
        held = self._held(server)
        if _fresh(held):
            return held.token
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as aside:
            return aside.submit(asyncio.run, self.bearer(server)).result()

    async def _refreshed(self, held: Credential) -> Credential:
        import aiohttp

        from federator.client.sign_in import Provider, credential

        if not held.refresh_token:
            raise Unauthenticated("your sign-in has expired", remedy="sign in again: federator login")
        async with aiohttp.ClientSession() as session:
            tokens = await Provider(held.way, session, self._environ).again(held.refresh_token)
        return credential(held.server, held.server_ca, held.way, tokens, old=held.refresh_token)

    def _held(self, server: str) -> Credential:
        held = self.find(server)
        if held is None:
            raise Unauthenticated(f"you are not signed in at {server}", remedy=f"federator login {server}")
        return held

    @asynccontextmanager
    async def _alone(self, server: str) -> AsyncIterator[None]:
        """Hold the lock of this sign-in, between processes."""
        import asyncio

        lock = os.open(self._file(server).with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + LOCK_S
            while not try_lock(lock):
                if time.monotonic() > until:
                    raise Unavailable(
                        f"another command has been refreshing this sign-in for {LOCK_S:g} s",
                        remedy="end it, or sign in again: federator login",
                    )
                await asyncio.sleep(PAUSE_S)
            yield
        finally:
            os.close(lock)

    def _file(self, server: str) -> Path:
        name = re.sub(r"[^a-z0-9.-]+", "-", server.partition("://")[2].lower())[:60]
        return self._folder / f"{name}-{hashlib.sha256(server.encode()).hexdigest()[:12]}.json"

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def _fresh(held: Credential) -> bool:
    return held.expires_at - EARLY_S > time.time()
