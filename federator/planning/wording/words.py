"""The table of renderers: each kind of reason has one, which is entered beside it."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict

MOST_LETTERS = 2000
"""A sentence is cut off there: what a person or a site has written may be longer."""


class Words(NamedTuple):
    """A reason for people, and the smallest change that would lift it; empty where none is known."""

    text: str
    change: str = ""


_Teller = TypeVar("_Teller", bound=Callable[[Any, float], Words])
TELLERS: dict[type, Callable[[Any, float], Words]] = {}
"""By kind, what renders it at a moment: near moments are told by the time of day alone."""


def word(kind: type) -> Callable[[_Teller], _Teller]:
    """Enter a renderer. A kind has one."""

    def enter(teller: _Teller) -> _Teller:
        assert kind not in TELLERS, f"{kind.__name__} is rendered twice"
        TELLERS[kind] = teller
        return teller

    return enter


def phrase(kind: type, text: str, change: str = "") -> None:
    """Enter a renderer that only puts a reason's parameters into these texts: `{policy}` is its `policy`."""

    @word(kind)
    def _filled(reason: Any, _now: float) -> Words:
        fields = asdict(reason)
        return Words(text.format_map(fields), change.format_map(fields))


def words(reason: object, now: float) -> Words:
    """A reason in words, as of now."""
    said = TELLERS[type(reason)](reason, now)
    return Words(_harmless(said.text), _harmless(said.change))


def _harmless(text: str) -> str:
    """Without letters that would steer a terminal, and of bounded length."""
    if len(text) > MOST_LETTERS:
        text = f"{text[: MOST_LETTERS - 1]}…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
