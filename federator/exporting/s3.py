"""A bucket, with one object for each seal. The dispatcher's one door to boto3 beside the provider of that name.

Credentials and endpoint are those that boto3 finds by itself, and need no right but to put objects there. An object's name has the seal's number and head: putting it
again changes nothing, and another seal of that number replaces nothing.
"""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from federator.exporting.address import Address
from federator.kernel.errors import Unavailable


class S3Target:
    """See `federator.ports.LedgerTarget`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._prefix = f"{path}/" if (path := address.path.strip("/")) else ""

    async def append(self, name: str, lines: Sequence[bytes]) -> None:
        """Put them as an object of that name."""
        body = b"".join(line + b"\n" for line in lines)
        try:
            await asyncio.to_thread(self._put, f"{self._prefix}{name}.jsonl", body)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "?")
            raise Unavailable(f"{self._address.text}: refused with {code}") from error
        except BotoCoreError as error:
            raise Unavailable(f"{self._address.text}: {type(error).__name__}") from error

    def _put(self, key: str, body: bytes) -> None:
        self._client.put_object(
            Bucket=self._address.host, Key=key, Body=body, ContentType="application/x-ndjson"
        )

    @cached_property
    def _client(self) -> Any:
        """Made in the first call's thread: finding credentials may ask a metadata service."""
        # The loop that calls us has patience of its own.
        config = Config(retries={"max_attempts": 2}, connect_timeout=10, read_timeout=30)
        return boto3.session.Session().client("s3", config=config)
