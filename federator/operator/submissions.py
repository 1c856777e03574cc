"""Submissions of a namespace: while one request is on its way, those that come meanwhile gather for the next. So one that is alone waits for nothing, and of many some
dozens share a request, which costs the dispatcher and the person's rate as much as one.
"""

import asyncio
from typing import Any

import msgspec

from federator.client import AsyncClient
from federator.client.faults import error_of
from federator.kernel.errors import FederatorError, Unavailable
from federator.wire.http import Problem, Submitted

MOST, MOST_BYTES, LARGE_BYTES = 200, 2**22, 2**19
"""Of one request. What is large goes alone: a line that the dispatcher finds too long ends the request, for whatever comes behind it, too."""


class _Asked:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.size = len(msgspec.json.encode(document))
        self.answer: Submitted | FederatorError | None = None


class Submissions:
    """Those to one dispatcher as one person."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: dict[_Asked, None] = {}
        self._turn = asyncio.Lock()

    async def submit(self, document: dict[str, Any]) -> Submitted:
        """Submit a job file that has a client id. Whoever is first sends all that wait, and may be cancelled: the next one sends them again. Raises `FederatorError`."""
        mine = _Asked(document)
        self._waiting[mine] = None
        try:
            async with self._turn:
                while mine.answer is None:
                    await self._send()
        finally:
            self._waiting.pop(mine, None)
        if isinstance(mine.answer, FederatorError):
            raise mine.answer
        return mine.answer

    async def _send(self) -> None:
        batch: list[_Asked] = []
        size = 0
        for each in self._waiting:
            size += each.size
            large = each.size > LARGE_BYTES
            if batch and (large or size > MOST_BYTES or len(batch) == MOST):
                break
            batch.append(each)
            if large:
                break
        cut = Unavailable("the dispatcher has not answered for this job", retry_after_s=1.0)
        answers: list[Submitted | FederatorError] = [cut] * len(batch)
        try:
            async for told in self._client.submit_many([each.document for each in batch]):
                if 0 < told.line <= len(batch) and (said := told.submitted or told.problem):
                    answers[told.line - 1] = error_of(said) if isinstance(said, Problem) else said
        except FederatorError as error:
            answers = [error] * len(batch)
        for asked, answer in zip(batch, answers, strict=True):
            asked.answer = answer
            self._waiting.pop(asked, None)
