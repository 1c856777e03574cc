"""Submissions that wait share requests, and what is large spoils none of the others."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from federator.kernel.errors import TooLarge
from federator.operator.submissions import LARGE_BYTES, Submissions
from federator.wire.http import SubmitResult, Submitted


class Client:
    """A dispatcher that ends a request at a line that it finds too long."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    async def submit_many(self, documents: Sequence[dict[str, Any]]) -> AsyncIterator[SubmitResult]:
        self.requests.append([each["name"] for each in documents])
        await asyncio.sleep(0)
        for number, each in enumerate(documents, 1):
            if len(each["run"]) > LARGE_BYTES:
                raise TooLarge("the line is too long")
            yield SubmitResult(number, Submitted(("job-1",), each["name"]))


async def test_a_large_one_goes_alone() -> None:
    double: Any = Client()
    submissions = Submissions(double)
    sizes = {"a": 1, "b": 1, "big": LARGE_BYTES + 1, "c": 1, "d": 1}
    answers = await asyncio.gather(
        *(submissions.submit({"name": name, "run": "x" * size}) for name, size in sizes.items()),
        return_exceptions=True,
    )
    assert [type(each) for each in answers] == [Submitted, Submitted, TooLarge, Submitted, Submitted]
    assert ["big"] in double.requests
    with pytest.raises(TooLarge):
        await submissions.submit({"name": "big", "run": "x" * (LARGE_BYTES + 1)})
