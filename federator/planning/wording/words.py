"""The table of renderers: each kind of reason has one, which is entered beside it."""

from collections.abc import Callable
from itertools import chain
from string import Formatter
from typing import Any, NamedTuple, TypeVar

from federator.kernel.quantities import format_duration, format_mib
from federator.planning.wording import gpus, moment, money

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


_FORMS: dict[str, Callable[[Any, float], str]] = {
    "moment": moment,
    "span": lambda seconds, _now: format_duration(seconds),
    "money": lambda usd, _now: money(usd),
    "gpus": lambda count, _now: gpus(count),
    "mib": lambda mib, _now: format_mib(mib),
    "milli": lambda milli, _now: f"{milli / 1000:g}",
    "list": lambda names, _now: ", ".join(names),
    "or": lambda names, _now: " or ".join(names),
    "words": lambda reason, now: words(reason, now).text,
    "change": lambda reason, now: words(reason, now).change,
}
"""How a parameter is put into a sentence: `{until_at:moment}`."""


def phrase(kind: type, text: str, change: str = "") -> None:
    """Enter a renderer that only puts a reason's parameters into these texts: `{policy}` is its `policy`."""
    texts = [[_Part(*part[:3]) for part in Formatter().parse(each)] for each in (text, change)]
    for part in chain(*texts):
        assert not part.field or part.field in kind.__annotations__, f"{kind.__name__} has no {part.field}"

    @word(kind)
    def _filled(reason: Any, now: float) -> Words:
        return Words(*("".join(part.told(reason, now) for part in parts) for parts in texts))


class _Part(NamedTuple):
    """A piece of a text: what is always the same, and after it a parameter, put in one of the forms above or as Python would format it."""

    literal: str
    field: str | None
    form: str | None

    def told(self, reason: Any, now: float) -> str:
        if not self.field:
            return self.literal
        value, tell = getattr(reason, self.field), _FORMS.get(self.form or "")
        return self.literal + (format(value, self.form or "") if tell is None else tell(value, now))


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
