"""What is written down of a history: each request with its beginning and its end by one clock, what jobs wrote themselves, and what is said of them in the end.

Nothing here, and nothing in the judge, imports the product.
"""

import math
from typing import NamedTuple

MISSING = "MISSING"
"""The status of a job that a dispatcher says it does not know."""


class Operation(NamedTuple):
    """One request to one dispatcher, of which an answer came that says that it was done, or no answer. What was refused is left out: it did nothing."""

    kind: str
    """`submit`, `cancel`, `read` or `list`."""
    key: str
    """Of a submission its client id; else the job, or nothing."""
    started_s: float
    ended_s: float = math.inf
    """Infinite where no answer came: it may have been done at any time since, or never."""
    job: str = ""
    """What a submission was answered."""
    seen: tuple[tuple[str, str], ...] = ()
    """Jobs with their status, as answered."""
    attempts: tuple[tuple[int, int | None], ...] = ()
    """Of a read: the number of each attempt, and its exit code where it was told."""

    @property
    def answered(self) -> bool:
        """Whether it is known to have been done."""
        return self.ended_s < math.inf


class Line(NamedTuple):
    """What one run of a job wrote: `start`, `end` or `stopped`, when by the clock since boot, and at its end the code and a word drawn by chance."""

    word: str
    job: str
    placement: str
    process: str
    at_s: float
    code: int = 0
    token: str = ""


class Attempt(NamedTuple):
    """What is said of one attempt in the end."""

    placement: str
    exit_code: int | None


class Outcome(NamedTuple):
    """What is said of one job in the end. `steps`: its statuses, in the order of its events. `ledger`: the kind of each line about it, and who or what it tells of."""

    job: str
    status: str
    client_id: str
    steps: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    ledger: tuple[tuple[str, str], ...]
    log: str


class History(NamedTuple):
    """All that is known of one."""

    seed: int
    operations: tuple[Operation, ...]
    lines: tuple[Line, ...]
    outcomes: tuple[Outcome, ...]
