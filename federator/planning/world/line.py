"""The waiting jobs of a long line in columns: what a window is chosen from (`window`).

Of a job only numbers are known here: when it came, what it is worth in the order, and its kind – what it asks for in each of its forms, and which pools may be for it. Tens of
thousands of jobs are of a few kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from federator.model.snapshot import PoolView
from federator.planning.world.free_hours import Floats, Ints

T = TypeVar("T")


class Eligible(NamedTuple):
    """Which pools are for a job, as far as the window asks: too many only makes it larger. `models` empty: also for work without GPUs."""

    models: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    not_sites: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    shared: bool | None = None
    """Whether it asks for parts of GPUs; None: it asks for none at all."""

    def admits(self, pool: PoolView) -> bool:
        """Whether the pool passes these few filters."""
        return (
            (not self.models or pool.model in self.models)
            and (not self.sites or pool.site in self.sites)
            and pool.site not in self.not_sites
            and (not self.kinds or pool.kind in self.kinds)
            and self.shared in (None, pool.shared)
        )


class LineForm(NamedTuple):
    """One way in which a job may run: which pools are for it, and what it asks for."""

    eligible: Eligible
    nodes: int
    gpus: int
    """Per node, as are the next two."""
    cpus_milli: int
    memory_mib: int


class JobKind(NamedTuple):
    """What many jobs have in common, as far as the window asks. LineForm 0 comes first."""

    queue: str
    forms: tuple[LineForm, ...]


class Kinds:
    """Kinds by number, in columns. They only grow: who has very many that no job is of any more begins anew."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.eligibles: list[Eligible] = []
        self._numbers: dict[JobKind, int] = {}
        self._queues: dict[str, int] = {}
        self._eligibles: dict[Eligible, int] = {}
        self._rows: list[tuple[int, ...]] = []
        self._table: Ints = np.empty((0, 6), dtype=np.int64)
        self._form_rows: list[tuple[int, ...]] = []
        self._forms: Ints = np.empty((0, 6), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def number(self, kind: JobKind) -> int:
        """The number of a kind, known or new."""
        known = self._numbers.get(kind)
        if known is None:
            known = self._numbers[kind] = len(self._rows)
            queue = _numbered(self._queues, self.queues, kind.queue)
            forms = [
                (_numbered(self._eligibles, self.eligibles, form.eligible), *form[1:]) for form in kind.forms
            ]
            self._rows.append((queue, *forms[0]))
            self._form_rows += [(known, *form) for form in forms]
        return known

    def table(self) -> Ints:
        """One row per kind, in form 0: numbers of its queue and of what is eligible, nodes, and per node GPUs, CPUs, memory."""
        self._table = _grown(self._table, self._rows)
        return self._table

    def forms(self) -> Ints:
        """The same, one row per form of each kind; the number of its kind stands in place of the queue's."""
        self._forms = _grown(self._forms, self._form_rows)
        return self._forms


@dataclass(frozen=True)
class Line:
    """The waiting jobs in columns, one entry per job, in order of submission. Times in seconds; infinite for no deadline."""

    submitted_at: Floats
    priority: Floats
    deadline_at: Floats
    run_s: Floats
    ready_at: Floats
    """Not before then: a retry's backoff."""
    kind: Ints
    """Row of `table`."""
    klass: Ints
    """Equal for jobs that are alike in all that planning sees."""
    table: Ints
    forms: Ints
    queues: Sequence[str]
    eligibles: Sequence[Eligible]

    def __len__(self) -> int:
        return len(self.kind)


def _grown(table: Ints, rows: Sequence[tuple[int, ...]]) -> Ints:
    """The rows as a table, made anew only where there are more."""
    return table if len(table) == len(rows) else np.array(rows, dtype=np.int64)


def _numbered(numbers: dict[T, int], words: list[T], word: T) -> int:
    """The word's number; a new one is added."""
    if word not in numbers:
        numbers[word] = len(words)
        words.append(word)
    return numbers[word]
