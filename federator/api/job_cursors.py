"""Where the next page of a list of jobs begins, as a word that goes into an address.

It has the place itself and not its number, so that jobs that come, go or change meanwhile move no other job from one page to the next.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from federator.control.queries.job_lists import NEWEST_FIRST, Sorting
from federator.control.queries.job_sorting import Key
from federator.kernel.errors import Invalid

LONGEST_ID = 100
NUMBERS = frozenset(
    {"deadline", "ends", "finished", "gpus", "priority", "spent", "started", "starts", "submitted"}
)
"""Orders by a number; the others are by a word."""


def cursor_of(key: Key, sorting: Sorting) -> str:
    """After the job or array of that place; newest first, that is its id."""
    if sorting == NEWEST_FIRST:
        return key[1]
    return urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")


def read_cursor(text: str, sorting: Sorting) -> Key:
    """The place. Raises `Invalid` for one of another order."""
    if sorting == NEWEST_FIRST:
        if len(text) > LONGEST_ID:
            raise Invalid(
                "is not the id of a job",
                field="?after",
                remedy="send what the page before gave as next_after",
            )
        return "", text
    try:
        value, name = msgspec.msgpack.decode(
            urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=tuple[float | str, str]
        )
    except (ValueError, msgspec.MsgspecError):
        value, name = None, ""
    if value is None or isinstance(value, str) is (sorting.name in NUMBERS):
        raise Invalid(
            "is not of this order",
            field="?after",
            remedy="send what the page before gave as next_after, with the same sort",
        )
    return value, name
