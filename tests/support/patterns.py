"""Whether a regular expression takes time in proportion to its text, shown by counting: how many ways it has to read a text of n parts, and of 2n.

A matcher that backtracks tries every way in which the pattern could have read what is behind it. Where these do not become more with the
length, time is linear; where they grow by a step for each repetition it is quadratic, where they double it is exponential. They can grow only
with a word that leads from one place of the pattern back to it, from another back to that, and from the first to the second; all pairs of
places are searched for such a word, and the ways to read it eight and sixteen times are counted. A bounded repetition counts as unbounded
here: `{0,62}` ways are many ways.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from re import _constants as c
from re import _parser as parser
from typing import Any, NamedTuple

SAMPLE = [chr(code) for code in range(128)] + ["\u00e9", "\u0664", "\u2028", "\ud800", "\U0001f600"]
REPETITIONS = 8
_CATEGORIES = {
    c.CATEGORY_DIGIT: r"\d",
    c.CATEGORY_NOT_DIGIT: r"\D",
    c.CATEGORY_SPACE: r"\s",
    c.CATEGORY_NOT_SPACE: r"\S",
    c.CATEGORY_WORD: r"\w",
    c.CATEGORY_NOT_WORD: r"\W",
}
Letters = frozenset[str]
START = -1
"""The place before the first letter; where a pattern is searched for, one comes back to it with every letter."""


class _Part(NamedTuple):
    """A part of a pattern: by how many ways it begins and ends at which letters' places, and by how many it may be empty."""

    first: Counter[int]
    last: Counter[int]
    empty: int


_EMPTY = _Part(Counter(), Counter(), 1)


def slow_word(pattern: str, flags: int = 0, *, search: bool = False) -> str | None:
    """A word which, repeated, the pattern reads in ever more ways; None: it is linear. `search`: it is tried from every place of the text.

    Raises `AssertionError` for a pattern that cannot be judged, with the construct that cannot be counted.
    """
    return _Ways(parser.parse(pattern, flags), pattern, search=search).slow_word()


class _Ways:
    def __init__(self, tree: Any, pattern: str, *, search: bool) -> None:
        self._pattern = pattern
        self._letters: list[Letters] = []
        self._follow: list[Counter[int]] = []
        self._own: dict[int, Letters] = {}
        """Places whose letters are not given back once they are read: what follows them begins with another letter."""
        self._inner: list[_Ways] = []
        self._flags = tree.state.flags
        self._sure = True
        """Whether nothing but letters decides where the pattern ends."""
        begins = bool(tree.data) and tree.data[0] in [(c.AT, c.AT_BEGINNING), (c.AT, c.AT_BEGINNING_STRING)]
        self._search = search and not (begins and not self._flags & re.MULTILINE)
        self._whole = self._sequence(tree)
        self._steps: dict[int, dict[str, Counter[int]]] = {}
        """Where one may be after which letter, by where one was."""

    def slow_word(self) -> str | None:
        for inner in self._inner:
            if (word := inner.slow_word()) is not None:
                return word
        kinds = {tuple(letter in letters for letters in self._letters): letter for letter in SAMPLE}
        self._steps = {
            place: {letter: self._after(place, letter) for letter in kinds.values()}
            for place in (START, *range(len(self._letters)))
        }
        return next((word for word in self._candidates() if self._grows(word)), None)

    def _grows(self, word: str) -> bool:
        return self._ways(word * REPETITIONS) < self._ways(word * (2 * REPETITIONS))

    def _ways(self, text: str) -> int:
        """How many ways there are to have read the text, from every place within the pattern."""
        now: Counter[int] = Counter(self._steps.keys())
        for letter in text:
            after: Counter[int] = Counter()
            for place, ways in now.items():
                after.update(_times(self._steps[place][letter], ways))
            now = after
        return now.total()

    def _after(self, place: int, letter: str) -> Counter[int]:
        """Where one may be after the letter, and by how many ways."""
        done = self._whole.last if self._search and self._sure else ()
        own = letter in self._own.get(place, ())
        if place == START:
            edges = self._whole.first + Counter([START]) if self._search else self._whole.first
        else:
            edges = Counter([place]) if own else self._follow[place]
        return Counter(
            {
                target: ways
                for target, ways in edges.items()
                if target not in done and (target == START or letter in self._letters[target])
            }
        )

    def _candidates(self) -> Iterator[str]:
        again = {place: self._reached(place) for place in self._steps}
        loops = [place for place, reached in again.items() if place in reached]
        for one in loops:
            for letter, after in self._steps[one].items():
                for target in (target for target, ways in after.items() if ways > 1 and one in again[target]):
                    way_back = self._word((target,), (one,)) if target != one else ""
                    yield letter + (way_back or "")
            for other in (other for other in loops if other != one and other in again[one]):
                word = self._word((one, one, other), (one, other, other))
                if word is not None:
                    yield word

    def _reached(self, place: int) -> set[int]:
        """Which places can follow, near or far."""
        reached: set[int] = set()
        ahead = [place]
        while ahead:
            for after in self._steps[ahead.pop()].values():
                ahead += after.keys() - reached
                reached |= after.keys()
        return reached

    def _word(self, begin: tuple[int, ...], end: tuple[int, ...]) -> str | None:
        """A shortest word that leads each of these places to its own of those."""
        words, ahead = {begin: ""}, deque([begin])
        while ahead:
            places = ahead.popleft()
            for letter in self._steps[START]:
                for after in product(*(self._steps[place][letter] for place in places)):
                    if after == end:
                        return words[places] + letter
                    if after not in words:
                        words[after] = words[places] + letter
                        ahead.append(after)
        return None

    def _leaf(self, letters: Letters) -> _Part:
        self._letters.append(letters)
        self._follow.append(Counter())
        here = Counter([len(self._letters) - 1])
        return _Part(here, here, 0)

    def _sequence(self, items: Iterable[Any]) -> _Part:
        whole = _EMPTY
        for op, argument in items:
            part = self._part(op, argument)
            self._join(whole.last, part.first)
            whole = _Part(
                whole.first + _times(part.first, whole.empty),
                part.last + _times(whole.last, part.empty),
                whole.empty * part.empty,
            )
        return whole

    def _join(self, last: Counter[int], first: Counter[int]) -> None:
        for place, ways in last.items():
            self._follow[place] += _times(first, ways)

    def _part(self, op: Any, argument: Any) -> _Part:
        if op in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            return self._leaf(_letters(op, argument, self._flags))
        if op is c.BRANCH:
            parts = [self._sequence(branch) for branch in argument[1]]
            return _Part(
                sum((part.first for part in parts), Counter()),
                sum((part.last for part in parts), Counter()),
                sum(part.empty for part in parts),
            )
        if op is c.SUBPATTERN and not any(argument[1:3]):
            return self._sequence(argument[-1])
        if op is c.ATOMIC_GROUP:
            return self._sequence(argument)
        if op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            return self._repeat(op, *argument)
        if op is c.AT:
            self._sure = False
            return _EMPTY
        if op in (c.ASSERT, c.ASSERT_NOT):
            self._sure = False
            # It is tried at each letter: a search for a letter from each place of the text.
            self._inner.append(_Ways(argument[1], self._pattern, search=False))
            return _EMPTY
        raise AssertionError(
            f"the pattern {self._pattern!r} cannot be judged, so it is refused: {_named(op)} is not counted here; write it without"
        )

    def _repeat(self, op: Any, least: int, most: Any, body: Any) -> _Part:
        part = self._sequence(body)
        if most != 1:
            self._join(part.last, part.first)
        if op is c.POSSESSIVE_REPEAT and most is c.MAXREPEAT and len(part.first) == 1 == len(body):
            (place,) = part.first
            self._own[place] = self._letters[place]
        return _Part(part.first, part.last, 1 if least == 0 else part.empty)


def _named(op: Any) -> str:
    """A construct as its writer knows it."""
    return {
        c.GROUPREF: "a reference to a group",
        c.GROUPREF_EXISTS: "a choice by whether a group was read",
        c.SUBPATTERN: "a group with flags of its own",
    }.get(op, str(op))


def _times(places: Counter[int], ways: int) -> Counter[int]:
    return Counter({place: number * ways for place, number in places.items()}) if ways else Counter()


def _letters(op: Any, argument: Any, flags: int) -> Letters:
    """Which letters of the sample it reads."""
    one = _reader(op, argument, flags)
    return frozenset(letter for letter in SAMPLE if one(letter))


def _reader(op: Any, argument: Any, flags: int) -> Callable[[str], bool]:
    if op is c.ANY:
        return lambda letter: letter != "\n" or bool(flags & re.DOTALL)
    if op is c.LITERAL:
        return lambda letter: _same(letter, argument, flags)
    if op is c.NOT_LITERAL:
        return lambda letter: not _same(letter, argument, flags)
    if op is c.RANGE:
        return lambda letter: any(argument[0] <= ord(each) <= argument[1] for each in _cases(letter, flags))
    if op is c.CATEGORY:
        category = re.compile(_CATEGORIES[argument], flags & (re.ASCII | re.UNICODE))
        return lambda letter: bool(category.fullmatch(letter))
    inner = [_reader(each[0], each[1], flags) for each in argument if each[0] is not c.NEGATE]
    negated = argument[0][0] is c.NEGATE
    return lambda letter: any(read(letter) for read in inner) != negated


def _same(letter: str, code: int, flags: int) -> bool:
    return chr(code) in _cases(letter, flags)


def _cases(letter: str, flags: int) -> Iterator[str]:
    yield letter
    if flags & re.IGNORECASE:
        yield from {letter.lower(), letter.upper()} - {letter, "SS"}
