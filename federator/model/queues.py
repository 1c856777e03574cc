"""The tree of queues, by their paths: `research/vision` is below `research`.

What a queue says for those below it, too, policies fill in when they are compiled, so nobody else looks for it above.
"""

DEFAULT_QUEUE = "default"
"""Of jobs that name none; every compiled set of policies has it."""


def under(queue: str, path: str) -> bool:
    """Whether a queue is another one or below it."""
    return queue == path or queue.startswith(f"{path}/")


def upwards(queue: str) -> list[str]:
    """A queue and all above it, the nearest first."""
    parts = queue.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
