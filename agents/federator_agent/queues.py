"""What a site says of queues: an entry holds for its queue and all below it, the longest name wins, and `*` is for all others."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from federator.kernel.errors import Invalid
from federator.wire import fields

ANY = "*"
T = TypeVar("T")


def of_queue(said: Mapping[str, T], queue: str) -> T | None:
    """What is said of a queue; None: nothing."""
    parts = queue.split("/")
    for length in range(len(parts), 0, -1):
        found = said.get("/".join(parts[:length]))
        if found is not None:
            return found
    return said.get(ANY)


def read(value: object, path: str, each: Callable[[object, str], T]) -> dict[str, T]:
    """A mapping of queues as a site file has it: `research/*` and `research` are one. Raises `Invalid`."""
    found: dict[str, T] = {}
    for name, given in fields.mapping(value, path).items():
        where = f"{path}.{name}"
        queue = ANY if name == ANY else fields.queue(name.removesuffix("/*"), where)
        if queue in found:
            raise Invalid(f"{queue!r} is said twice", field=where, remedy="leave one of them out")
        found[queue] = each(given, where)
    return found
