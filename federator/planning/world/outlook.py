"""What a relaxed plan of the whole line expects of every class, and what a window makes of it.

A window cannot know what work outside it will use, nor which jobs of ten thousand are worth a GPU that is free now: that is for prices of the whole line to
say. They are found aside (`solving.outlook`), for that takes longer than a turn; a turn uses the last ones. So between the two, jobs start
and jobs arrive: of a class that has become smaller the first starts have been made, and of a class that was not there yet nothing is expected.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from federator.model.outlook import Outlook
from federator.model.snapshot import Lead, Outside
from federator.planning.world.free_hours import Bools, Floats, Ints

LEAST = 1e-6
"""Less of anything is nothing."""
MORE = 2
"""Of a class of which some start now, so many more are taken for starting soon: a relaxed plan has parts of jobs."""


class OutlookArrays:
    """An outlook in arrays; `klass` is as the line has it now."""

    def __init__(self, told: Outlook, classes: Sequence[int]) -> None:
        """`classes` says by number what the line calls them."""
        self.taken_at, self.places, self.rows, self.prices = (
            told.taken_at,
            told.places,
            told.rows,
            told.prices,
        )
        self.klass: Ints = np.array(classes, dtype=np.int64)[np.array(told.klass, dtype=np.int64)]
        self.now: Bools = np.array(told.now, dtype=bool)
        self.place, self.form, self.start, self.row = (
            np.array(each, dtype=np.int64) for each in (told.place, told.form, told.start, told.row)
        )
        self.start_s, self.jobs, self.use, self.usd = (
            np.array(each, dtype=np.float64) for each in (told.start_s, told.jobs, told.use, told.usd)
        )


class RestOfLine(NamedTuple):
    """What a window is told of the rest of the line."""

    outside: dict[str, Outside]
    """What those that are not in it are expected to use, by row of the model."""
    leads: tuple[tuple[int, Lead], ...]
    """What is rented now for those that are in it: the entry of the first of each class, and what; nobody's name is in it yet."""
    prices: dict[str, float]
    """By row."""


NOTHING = RestOfLine({}, (), {})


class Plan:
    """What is expected of the classes of a line: `words` are their names there, and `counts` how many jobs each has."""

    def __init__(self, known: OutlookArrays, words: Ints, counts: Ints, now: float) -> None:
        """Put it class by class; what has started since is taken off."""
        place = np.minimum(np.searchsorted(words, known.klass), max(0, len(words) - 1))
        here = words[place] == known.klass if len(words) else np.zeros(len(place), dtype=bool)
        self._known, self._source = known, np.flatnonzero(here)
        order = np.lexsort((known.start_s[self._source], ~known.now[self._source], place[self._source]))
        self._source = self._source[order]
        self._klass = place[self._source]
        self._first = np.searchsorted(self._klass, np.arange(len(words) + 1))
        planned = np.bincount(self._klass, known.jobs[self._source], minlength=len(words))
        gone = np.maximum(0.0, planned - counts)
        self._end = self._running(known.jobs[self._source]) - gone[self._klass]
        """How many of the class start in this start or before it; nothing and less: all of them have started."""
        self._jobs = np.minimum(known.jobs[self._source], np.maximum(0.0, self._end))
        soon = known.now[self._source] | (known.start_s[self._source] <= now - known.taken_at)
        self.known = planned > 0.0
        self.at_once = np.bincount(self._klass, np.where(soon, self._jobs, 0.0), minlength=len(words))

    def _running(self, values: Floats) -> Floats:
        total = np.cumsum(values)
        before = np.r_[0.0, total][self._first[:-1]]
        running: Floats = total - before[self._klass]
        return running

    def start_s(self, klass: Ints, nth: Ints) -> Floats:
        """When the nth job of a class is expected to start; below 0: now, infinite: nobody knows."""
        found = np.full(len(klass), np.inf)
        known = self._known.start_s[self._source]
        for each in np.flatnonzero(self.known).tolist():
            mine = np.flatnonzero(klass == each)
            low, high = int(self._first[each]), int(self._first[each + 1])
            entry = np.searchsorted(self._end[low:high], nth[mine] + 0.5)
            inside = entry < high - low
            found[mine[inside]] = known[low:high][entry[inside]]
        more = np.ceil(self.at_once - LEAST) + MORE
        found[(self.at_once[klass] > LEAST) & (nth < more[klass])] = -1.0
        return found

    def told(self, klass: Ints, entries: Ints) -> RestOfLine:
        """Where a window has these entries of the line, of these classes by number, the first of each class first."""
        inside = np.bincount(klass, minlength=len(self.known))
        first = dict(zip(klass[::-1].tolist(), entries[::-1].tolist(), strict=True))
        rented = (self._known.place[self._source] >= 0) & (self._jobs > LEAST) & (inside[self._klass] > 0)
        leads = tuple((first[int(self._klass[n])], self._lead(n)) for n in np.flatnonzero(rented).tolist())
        return RestOfLine(self.outside(inside), leads, self._known.prices)

    def _lead(self, number: int) -> Lead:
        known, source = self._known, self._source[number]
        jobs = round(float(self._jobs[number]), 6)
        return Lead("", known.places[known.place[source]], jobs, int(known.form[source]))

    def outside(self, inside: Ints) -> dict[str, Outside]:
        """What jobs use that are not in a window with so many of each class: those that start last."""
        left = np.clip(self._end - inside[self._klass], 0.0, self._jobs)
        by_start = np.zeros(len(self._known.klass))
        by_start[self._source] = left
        used = np.bincount(
            self._known.row, by_start[self._known.start] * self._known.use, minlength=len(self._known.rows)
        )
        rows = np.flatnonzero((used > LEAST) & (self._known.usd > LEAST)).tolist()
        return {
            self._known.rows[row]: Outside(round(float(used[row]), 4), round(float(self._known.usd[row]), 6))
            for row in rows
        }
