"""Which files the patterns of `outputs` name: `*`, `?` and `[…]` within one step of a path, `**` for any number of folders, none included."""

import re
from collections.abc import Iterable
from fnmatch import translate
from pathlib import PurePosixPath


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that a pattern matches, or that lie in a folder that one matches, sorted. A pattern that is absolute or has `..` matches nothing."""
    found = [_Steps(pattern) for pattern in patterns if _inside(pattern)]
    return sorted(name for name in names if name and any(each.match(name) for each in found))


def may_hold(patterns: Iterable[str], path: str) -> bool:
    """Whether a pattern can match that path, a folder that it lies in, or something in it if it is a folder."""
    return any(_Steps(pattern).reaches(path) for pattern in patterns if _inside(pattern))


def _inside(pattern: str) -> bool:
    path = PurePosixPath(pattern)
    return not path.is_absolute() and ".." not in path.parts


class _Steps:
    """A pattern, one regular expression for each step of a path; None stands for `**`.

    All places of the pattern that the steps so far can have reached are kept at once, so the time grows with the length of the name and of the
    pattern, however many stars there are.
    """

    def __init__(self, pattern: str) -> None:
        # A shell takes both `[!…]` and `[^…]` for "none of these".
        parts = PurePosixPath(pattern).parts
        self._steps = [
            None if part == "**" else re.compile(translate(part.replace("[^", "[!"))) for part in parts
        ]

    def match(self, name: str) -> bool:
        """Whether the pattern matches the name, or a folder that it lies in."""
        return self._places(name) is None

    def reaches(self, name: str) -> bool:
        """Whether it matches that, or may match something below it."""
        return self._places(name) != set()

    def _places(self, name: str) -> set[int] | None:
        """The places of the pattern that are reached with all steps of the name; None: its end is reached before."""
        if not self._steps:
            return None  # the pattern `.`
        last = len(self._steps) - 1
        at = self._beyond({0})
        for part in PurePosixPath(name).parts:
            ahead = set()
            for place in at:
                step = self._steps[place]
                if step is None or step.match(part):
                    if place == last:
                        return None
                    ahead.add(place if step is None else place + 1)
            at = self._beyond(ahead)
        return at

    def _beyond(self, at: set[int]) -> set[int]:
        """With the places behind each `**` that stands for no folder; a `**` at the end needs at least one step."""
        for place in range(len(self._steps) - 1):
            if place in at and self._steps[place] is None:
                at.add(place + 1)
        return at
