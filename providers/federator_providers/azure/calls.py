"""The one door to Azure: its sign-in, calls of Azure Resource Manager, and errors as our named situations.

Nothing is tried again here: the caller's own loop comes back. Neither secrets and tokens nor user data reach a log or an error.
"""

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, Forbidden, Invalid, TooMany, Unavailable
from federator_providers.azure.settings import AzureSettings
from federator_providers.rest import FAULT_S, Answer, Rest
from federator_providers.zones import CloudRefusal

RESOURCE = "https://management.azure.com"
"""What tokens are for, wherever the API is."""
METADATA = "http://169.254.169.254"
API_VERSION = "2024-07-01"
QUOTA = frozenset({"QuotaExceeded"})
"""The subscription may have no more of this in the region, in whatever zone."""
SOLD_OUT = QUOTA | frozenset(
    {
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "SkuNotAvailable",  # in this zone, in this market, or for this subscription
        "SpotPriceGreaterThanProvidedMaxPrice",
    }
)
"""Another zone may do better."""
EXISTS = "PreconditionFailed"
"""There is something of that name in the resource group."""
NOT_FOUND = "ResourceNotFound"
BUSY = frozenset({"AnotherOperationInProgress", "Conflict", "OperationPreempted", "RetryableError"})
THROTTLED_S = 10.0
"""How long nobody calls after Azure has said that it is too much, without saying for how long."""
LONGEST_S = 600.0
MOST_PAGES = 200
"""Of a listing: a link that leads back to its own page would never end."""
EARLY_S = 300.0
"""So long before a token runs out it is fetched anew."""


class Api:
    """Virtual machines of one resource group."""

    def __init__(self, provider: str, settings: AzureSettings, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._endpoint = settings.endpoint_url.rstrip("/")
        group = f"/subscriptions/{settings.subscription}/resourceGroups/{settings.resource_group}"
        self._machines = f"{self._endpoint}{group}/providers/Microsoft.Compute/virtualMachines"
        self._rest = Rest()
        self._token, self._fetch_at_s = "", 0.0
        self._signing_in = asyncio.Lock()

    async def call(self, method: str, name: str, body: object = None, **parameters: str) -> Answer:
        """The answer about the machine of that name. Raises `Refusal` for `SOLD_OUT`, `EXISTS` and `NOT_FOUND`, otherwise as `federator.ports.Provider` says."""
        headers = {"If-None-Match": "*"} if method == "PUT" else {}
        return await self._ask(method, f"{self._machines}/{name}", body, headers, parameters)

    async def find(self, name: str) -> Any:
        """The machine of that name, or None."""
        try:
            return (await self.call("GET", name)).body
        except CloudRefusal as refusal:
            self.refuse_unless_gone(refusal, name)
            return None

    def refuse_unless_gone(self, refusal: CloudRefusal, name: str) -> None:
        """Only a machine that Azure does not know is gone: with any other answer it may run and cost. Raises `Unavailable` for these."""
        if refusal.code != NOT_FOUND:
            raise Unavailable(self._what(f"{name}: {refusal.code}"), retry_after_s=FAULT_S) from None

    async def machines(self) -> list[Any]:
        """All of the resource group, of all pages. Raises like `call`."""
        found: list[Any] = []
        url, parameters = self._machines, {"api-version": API_VERSION}
        for _ in range(MOST_PAGES):
            answer = await self._ask("GET", url, None, {}, parameters)
            found += answer.body.get("value", [])
            url, parameters = self._ours(answer.body.get("nextLink", "")), {}
            if not url:
                return found
        raise Unavailable(self._what(f"over {MOST_PAGES} pages of machines"), retry_after_s=FAULT_S)

    async def refuse_failed(self, operation: str) -> bool:
        """Whether the operation at that address is over, or forgotten. Raises what it has ended with, if that was an error."""
        try:
            answer = await self._ask("GET", self._ours(operation), None, {}, {})
        except CloudRefusal as refusal:
            self.refuse_unless_gone(refusal, "operation")
            return True  # of the machine its own address tells
        status = answer.body.get("status", "")
        if status in ("Failed", "Canceled"):
            raise self._situation("launch", Answer(409, answer.body, {}))
        return bool(status == "Succeeded")

    async def close(self) -> None:
        """Let go of connections."""
        await self._rest.close()

    def _ours(self, url: str) -> str:
        """An address that Azure has told, if it is the API's: the token goes nowhere else."""
        if url and urlsplit(url)[:2] != urlsplit(self._endpoint)[:2]:
            raise Unavailable(f"{self._what('link')}: it leads to another host", retry_after_s=FAULT_S)
        return url

    async def _ask(
        self, method: str, url: str, body: object, headers: dict[str, str], parameters: dict[str, str]
    ) -> Answer:
        what, headers = url.rpartition("/")[2].partition("?")[0], dict(headers)
        headers["Authorization"] = f"Bearer {await self._signed_in()}"
        if "api-version=" not in url:
            parameters = {"api-version": API_VERSION} | parameters
        parts: dict[str, Any] = {"json": body, "params": parameters or None, "headers": headers}
        answer = await self._rest.ask(self._what(what), method, url, **parts)
        if answer.status >= 400:
            raise self._situation(what, answer)
        return answer

    async def _signed_in(self) -> str:
        async with self._signing_in:  # one at a time, and the others find it done
            if self._token and self._clock.boot() < self._fetch_at_s:
                return self._token
            answer = await self._new_token()
            token = answer.body.get("access_token")
            if answer.status >= 500 or answer.status == 429:
                raise Unavailable(self._what(f"no access token: {answer.status}"), retry_after_s=FAULT_S)
            if answer.status >= 400 or not isinstance(token, str):
                code = str(answer.body.get("error", answer.status))[:100]
                remedy = (
                    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or give the dispatcher's "
                    "machine a managed identity"
                )
                raise Forbidden(self._what(f"no access token: {code}"), remedy=remedy)
            self._token = token
            lasts = str(answer.body.get("expires_in", ""))
            lasts_s = int(lasts) if lasts.isdecimal() and len(lasts) < 9 else 0
            self._fetch_at_s = self._clock.boot() + lasts_s - EARLY_S
            return token

    async def _new_token(self) -> Answer:
        """By a client's secret, where the environment has one; else as the machine's managed identity. The variables are those of Azure's own tools."""
        environ, what = os.environ, self._what("sign-in")
        tenant, client, secret = (
            environ.get(f"AZURE_{name}", "") for name in ("TENANT_ID", "CLIENT_ID", "CLIENT_SECRET")
        )
        if secret:
            authority = environ.get("AZURE_AUTHORITY_HOST") or "https://login.microsoftonline.com"
            form = {"grant_type": "client_credentials", "scope": f"{RESOURCE}/.default"}
            form |= {"client_id": client, "client_secret": secret}
            url = f"{authority.rstrip('/')}/{tenant}/oauth2/v2.0/token"
            return await self._rest.ask(what, "POST", url, data=form)
        host = (environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST") or METADATA).rstrip("/")
        parameters = {"api-version": "2018-02-01", "resource": RESOURCE} | (
            {"client_id": client} if client else {}
        )
        url, headers = f"{host}/metadata/identity/oauth2/token", {"Metadata": "true"}
        return await self._rest.ask(what, "GET", url, params=parameters, headers=headers)

    def _what(self, path: str) -> str:
        return f"provider {self._provider}: {path}"

    def _situation(self, path: str, answer: Answer) -> FederatorError | CloudRefusal:
        """What went wrong, in our words. Azure's text is told unless it may repeat user data, where the join token is."""
        error = answer.body.get("error")
        error = error if isinstance(error, dict) else {}
        code, said = str(error.get("code") or answer.status), str(error.get("message", ""))
        what = f"{self._what(path)}: {code}"
        if code == "OperationNotAllowed" and "quota" in said.lower():
            return CloudRefusal("QuotaExceeded")
        if answer.status == 412:
            return CloudRefusal(EXISTS)
        if code in SOLD_OUT or code == NOT_FOUND:
            return CloudRefusal(code)
        if answer.status == 401:
            self._token = ""  # the next call signs in anew
        if answer.status == 429:
            told = answer.headers.get("Retry-After", "")
            return TooMany(what, retry_after_s=min(float(told), LONGEST_S) if told.isdigit() else THROTTLED_S)
        if code in BUSY or answer.status >= 500:
            return Unavailable(what, retry_after_s=FAULT_S)
        if answer.status in (401, 403):
            return Forbidden(what, remedy="check the credentials and the roles of their principal")
        return Invalid(what if "customData" in said else f"{what}: {said}"[:1000])
