"""Pipelines where a job is asked for: their name means all their steps."""

from typing import TYPE_CHECKING

from federator.kernel.errors import Invalid, NotFound
from federator.wire.http import JobRow

if TYPE_CHECKING:
    from federator.client import Verbs


async def steps_of(client: "Verbs", name: str, lacking: NotFound) -> list[JobRow]:
    """Those of a pipeline. Raises `lacking`, the answer to whoever asked for a job, where no pipeline has that name."""
    try:
        return await client.steps(name)
    except (NotFound, Invalid):
        raise lacking from None
