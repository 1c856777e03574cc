"""What somebody may have meant: the known word that is nearest to a wrong one."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 64
"""Characters of a word that is compared. No known word is longer, and comparing takes time in proportion to the product of both lengths."""
MOST = 256
"""Known words that it is compared with."""


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that is most like it; None: none is."""
    if len(word) > LONGEST:
        return None
    words = [each for each in known if len(each) <= LONGEST][:MOST]
    return next(iter(get_close_matches(word, words, 1, likeness)), None)
