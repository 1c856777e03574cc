"""What a window of a long line may hold: so many jobs, and so many jobs times classes."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Budget:
    """Fills a window part by part, counting jobs and classes. `inside` is by place in the order."""

    def __init__(self, klass: Ints, evaluations: int, most_jobs: int) -> None:
        """`klass` of every job, by number; so many jobs times classes may be taken, and so many jobs."""
        self._most_jobs = most_jobs
        self._evaluations = evaluations
        self.inside = np.zeros(len(klass), dtype=bool)
        self._klass = klass
        self._known = np.zeros(int(klass.max()) + 1, dtype=bool)
        self._jobs = 0

    def within(self, evaluations: int) -> None:
        """From now on, take only what fits this limit."""
        self._evaluations = evaluations

    def add(self, part: Ints, *, share: float) -> None:
        """Take from the front of the part what fits that share of the limits, and the limits beside what is inside already."""
        part = part[~self.inside[part]][: int(share * self._most_jobs)]
        klass = self._klass[part]
        fresh = np.zeros(len(part), dtype=bool)
        fresh[np.unique(klass, return_index=True)[1]] = True
        jobs = np.arange(1, len(part) + 1)
        alone = jobs * np.cumsum(fresh) <= share * share * self._evaluations
        classes = int(self._known.sum()) + np.cumsum(fresh & ~self._known[klass])
        fits = (
            alone
            & (self._jobs + jobs <= self._most_jobs)
            & ((self._jobs + jobs) * classes <= self._evaluations)
        )
        taken = part[fits]
        self.inside[taken] = True
        self._known[self._klass[taken]] = True
        self._jobs += len(taken)
