"""boto3's one door: calls to EC2, and to AWS's price list, in a bounded pool of threads, and their errors as our named situations.

boto3 blocks, so every call runs in a thread; there are as many threads as calls may be under way. botocore's standard retries answer
short trouble; what is left is a situation that the caller's own loop comes back to. Neither credentials nor user data reach a log:
botocore would write both at its level DEBUG, so that level is closed to it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

from federator.kernel.errors import FederatorError, Forbidden, Invalid, TooMany, Unavailable
from federator_providers.aws.settings import AwsSettings
from federator_providers.zones import CloudRefusal

T = TypeVar("T")

QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
"""The account may have no more of this family in this market, in whatever zone."""
SOLD_OUT = QUOTA | frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientFreeAddressesInSubnet",
        "SpotMaxPriceTooLow",
        "InstanceLimitExceeded",
        "Unsupported",  # this zone does not have the type at all
    }
)
"""Another zone may do better."""
MISMATCH = "IdempotentParameterMismatch"
"""There was a request with this token already, and its text was another."""
THROTTLED = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"})
REFUSED = frozenset(
    {
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "ExpiredToken",
        "InvalidClientTokenId",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
FAULTS = frozenset({"InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable"})
THROTTLED_S = 10.0
"""How long nobody calls after EC2 has said that it is too much, for the third time."""
FAULT_S = 5.0


PRICING_REGIONS = ("us-east-1", "eu-central-1", "ap-south-1")
"""Where the price list of all regions is to be had."""


class Api:
    """EC2 of one region, and the price list. Threads and connections are made when first needed, again after `close`."""

    def __init__(self, provider: str, settings: AwsSettings) -> None:
        self._provider = provider
        self._settings = settings
        self._making = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, operation: str, **arguments: Any) -> Any:
        """The decoded answer. Raises `Refusal` for `SOLD_OUT` and `MISMATCH`, otherwise as `federator.ports.Provider` says."""
        return await self._in_thread("ec2", operation, lambda client: getattr(client, operation)(**arguments))

    async def pages(self, operation: str, key: str, *, service: str = "ec2", **arguments: Any) -> list[Any]:
        """What stands under `key` on all pages. Raises like `call`."""

        def collect(client: Any) -> list[Any]:
            pages = client.get_paginator(operation).paginate(**arguments)
            return [entry for page in pages for entry in page[key]]

        return await self._in_thread(service, operation, collect)

    async def close(self) -> None:
        """Let go of threads and connections; what is under way is finished first."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    async def _in_thread(self, service: str, operation: str, work: Callable[[Any], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._settings.calls_at_once, f"aws-{self._provider}")
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: work(self._connected(service))
            )
        except (BotoCoreError, ClientError) as error:
            raise self._situation(operation, error) from None

    def _connected(self, service: str) -> Any:
        with self._making:
            if service not in self._clients:
                for name in ("boto3", "botocore"):
                    logging.getLogger(name).setLevel(logging.INFO)
                session = boto3.Session(profile_name=self._settings.profile or None)
                self._clients[service] = session.client(
                    service,
                    **self._address(service),
                    config=Config(
                        retries={"mode": "standard", "total_max_attempts": 3},
                        connect_timeout=5,
                        read_timeout=30,
                        max_pool_connections=self._settings.calls_at_once,
                    ),
                )
            return self._clients[service]

    def _address(self, service: str) -> dict[str, str | None]:
        given = self._settings
        if service == "ec2":
            return {"region_name": given.region, "endpoint_url": given.endpoint_url or None}
        region = given.region if given.region in PRICING_REGIONS else PRICING_REGIONS[0]
        return {"region_name": region, "endpoint_url": given.pricing_endpoint_url or None}

    def _situation(self, operation: str, error: BotoCoreError | ClientError) -> FederatorError | CloudRefusal:
        """What went wrong, in our words. Of refused credentials the code alone is told: EC2's text may repeat what was signed."""
        what = f"provider {self._provider}: {operation}"
        if isinstance(error, NoCredentialsError | ProfileNotFound):
            return Forbidden(f"{what}: {error}", remedy="give the dispatcher AWS credentials")
        if not isinstance(error, ClientError):
            return Unavailable(f"{what}: {type(error).__name__}", retry_after_s=FAULT_S)
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in SOLD_OUT or code == MISMATCH:
            return CloudRefusal(code)
        if code in THROTTLED:
            return TooMany(f"{what}: {code}", retry_after_s=THROTTLED_S)
        if code in REFUSED:
            return Forbidden(f"{what}: {code}", remedy="check the credentials and their IAM policy")
        if code in FAULTS or status >= 500:
            return Unavailable(f"{what}: {code}", retry_after_s=FAULT_S)
        return Invalid(f"{what}: {code}: {error.response['Error'].get('Message', '')}")
