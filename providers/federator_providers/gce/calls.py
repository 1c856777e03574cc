"""The one door to Google: its sign-in, calls of the Compute Engine API, and errors as our named situations.

Nothing is tried again here: a launch that is repeated carries the id of the first request, and the caller's own loop comes back. google-auth blocks, so
tokens are fetched in a thread. Neither tokens nor user data reach a log or an error.
"""

import asyncio
import logging
from functools import partial
from typing import Any

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.auth.transport.requests import Request

from federator.kernel.errors import FederatorError, Forbidden, Invalid, TooMany, Unavailable
from federator_providers.gce.settings import GceSettings
from federator_providers.rest import FAULT_S, Rest
from federator_providers.zones import CloudRefusal

SCOPE = "https://www.googleapis.com/auth/compute"
QUOTA = frozenset({"quotaExceeded", "QUOTA_EXCEEDED"})
"""The project may have no more of this in the region, in whatever zone."""
SOLD_OUT = QUOTA | frozenset(
    {
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "UNSUPPORTED_OPERATION",  # this zone does not have the type in this market
        "notFound",  # nor this one at all
    }
)
"""Another zone may do better."""
EXISTS = "alreadyExists"
"""There is something of that name in the zone."""
THROTTLED = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED"}
)
NOT_READY = frozenset({"resourceNotReady", "resourceInUseByAnotherResource", "RESOURCE_NOT_READY"})
THROTTLED_S = 10.0
"""How long nobody calls after Google has said that it is too much."""
SIGNS_IN_WITHIN_S = 10.0


class Api:
    """Compute Engine in one project. Connections are made when first needed, again after `close`."""

    def __init__(self, provider: str, settings: GceSettings) -> None:
        self._provider = provider
        self._base = f"{settings.endpoint_url.rstrip('/')}/compute/v1/projects/{settings.project}"
        self._rest = Rest()
        self._credentials: Any = None
        self._signing_in = asyncio.Lock()

    async def call(self, method: str, path: str, body: object = None, **parameters: str) -> Any:
        """The decoded answer. Raises `Refusal` for `SOLD_OUT` and `EXISTS`, otherwise as `federator.ports.Provider` says."""
        headers = {"Authorization": f"Bearer {await self._token()}"}
        url, parts = f"{self._base}/{path}", {"json": body, "params": parameters, "headers": headers}
        answer = await self._rest.ask(self._what(path), method, url, **parts)
        if answer.status >= 400:
            raise self._situation(path, answer.status, answer.body.get("error", {}))
        return answer.body

    async def find(self, path: str) -> Any:
        """What is at that path, or None."""
        try:
            return await self.call("GET", path)
        except CloudRefusal:
            return None

    async def pages(self, path: str, **parameters: str) -> list[Any]:
        """The items of all pages, by zone or not. Raises like `call`, and `Unavailable` when some zone did not answer."""
        items: list[Any] = []
        page: dict[str, str] = {}
        while True:
            answer = await self.call("GET", path, **parameters, **page)
            found = answer.get("items", [])
            for scope in found.values() if isinstance(found, dict) else ():
                if scope.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE") != "NO_RESULTS_ON_PAGE":
                    raise Unavailable(
                        f"{self._what(path)}: {scope['warning']['code']}", retry_after_s=FAULT_S
                    )
                items += scope.get("instances", [])
            items += found if isinstance(found, list) else []
            if answer.get("unreachables"):
                raise Unavailable(f"{self._what(path)}: a zone did not answer", retry_after_s=FAULT_S)
            if not answer.get("nextPageToken"):
                return items
            page = {"pageToken": answer["nextPageToken"]}

    async def close(self) -> None:
        """Let go of connections."""
        await self._rest.close()

    def refuse_failed(self, operation: Any) -> None:
        """Raise what an operation has ended with, if it was an error."""
        for error in operation.get("error", {}).get("errors", ()):
            code = str(error.get("code", ""))
            found = {"errors": [{"reason": code}], "message": error.get("message", "")}
            status = 400 if code.startswith("INVALID") else 503
            raise self._situation(str(operation.get("operationType", "")), status, found)

    async def _token(self) -> str:
        async with self._signing_in:  # one at a time, and the others find it done
            try:
                if self._credentials is None:
                    logging.getLogger("google").setLevel(logging.INFO)
                    self._credentials, _ = await asyncio.to_thread(google.auth.default, scopes=[SCOPE])
                if not self._credentials.valid:
                    await asyncio.to_thread(
                        self._credentials.refresh, partial(Request(), timeout=SIGNS_IN_WITHIN_S)
                    )
            except (GoogleAuthError, OSError, ValueError) as error:
                what = f"provider {self._provider}: no access token: {type(error).__name__}"
                lasting = isinstance(error, DefaultCredentialsError | ValueError | FileNotFoundError)
                if lasting or (isinstance(error, RefreshError) and not error.retryable):
                    remedy = "give the dispatcher credentials of Google Cloud that are valid"
                    raise Forbidden(what, remedy=remedy) from None
                raise Unavailable(what, retry_after_s=FAULT_S) from None
            return str(self._credentials.token)

    def _what(self, path: str) -> str:
        return f"provider {self._provider}: {path}"

    def _situation(self, path: str, status: int, error: dict[str, Any]) -> FederatorError | CloudRefusal:
        """What went wrong, in our words. Google's text is told unless it may repeat metadata, where the join token is."""
        reasons = [str(each.get("reason", "")) for each in error.get("errors", ())]
        code, said = (reasons or [""])[0] or str(status), str(error.get("message", ""))
        what = f"{self._what(path)}: {code}"
        if status == 400 and "does not exist in zone" in said:
            code = "notFound"
        if status == 401:
            self._credentials = None  # the next call signs in anew
        if code in SOLD_OUT or code == EXISTS:
            return CloudRefusal(code)
        if code in THROTTLED or status == 429:
            return TooMany(what, retry_after_s=THROTTLED_S)
        if code in NOT_READY or status >= 500:
            return Unavailable(what, retry_after_s=FAULT_S)
        if status in (401, 403):
            return Forbidden(what, remedy="check the credentials and the roles of their account")
        return Invalid(what if "metadata" in said else f"{what}: {said}")


def failure(operation: Any) -> str:
    """The code of the error that an operation has ended with; empty: none."""
    if "error" not in operation:
        return ""
    errors = operation["error"].get("errors")
    return str(errors[0].get("code") if errors else "failed")
