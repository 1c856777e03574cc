"""What every filter is: a question about one job and one place, with the reason for a no."""

from collections.abc import Callable
from typing import NamedTuple

from federator.model.rejections import Rejected
from federator.model.snapshot import JobView, Snapshot
from federator.planning.places.candidates import Candidate
from federator.planning.rules.rulebook import RuleBook


class Rejection(NamedTuple):
    """Why a place is not for a job: the first filter that fails, and its reason."""

    filter: str
    reason: Rejected


class FilterContext(NamedTuple):
    """What a filter may look at beside the job and the place."""

    snapshot: Snapshot
    book: RuleBook


Answer = Rejected | None
"""None when the place passes, else why not."""


class Test(NamedTuple):
    """A filter: its stable name, the sentence that documents it, and the question it asks."""

    name: str
    says: str
    ask: Callable[[JobView, Candidate, FilterContext], Answer]
